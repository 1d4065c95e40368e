//! Starting a request whose end somebody takes later, on whichever thread.
//!
//! Who starts an execution is told what is wrong with its request. So the worker checks a request when it
//! comes for the first time, by registering it; from then on starting it is one cell.

use nnhal::burst::encode_fire;
use nnhal_os::time::Deadline;

use super::Burst;
use super::found_valid::FoundValid;
use super::registered::Numbers;
use crate::error::{Error, Result};
use crate::execution::{Completed, ExecuteOptions};
use crate::executors::Started;
use crate::request::Request;

/// How many requests are remembered: programs that take turns among a few meet them again.
const REMEMBERED: usize = 8;

impl Burst {
    /// Starts a request, and keeps what it uses until [`Burst::finish_started`] has its end; `None` if no
    /// ring can carry it.
    pub(crate) fn start(&mut self, request: &Request, options: &ExecuteOptions) -> Result<Option<Started>> {
        self.pipeline.expect_idle()?;
        let Some(number) = self.number_of(request)? else {
            return Ok(None);
        };
        let header = self.exchange.next_header(options);
        encode_fire(&mut self.exchange.buffer, &header, number, &[]);
        let sent = self.exchange.send()?;
        self.pipeline.add(header.sequence, sent);
        self.held.hold(request);
        Ok(Some(Started {
            burst: self.handle,
            sequence: header.sequence,
        }))
    }

    /// Waits for the end of what was started.
    pub(crate) fn finish_started(&mut self, deadline: Deadline) -> Result<Completed> {
        let completion = self.next_finished_by(deadline)?;
        self.held.let_go();
        match completion {
            Some(completion) => completion.result,
            None => Err(Error::argument("no execution was started")),
        }
    }

    /// The number under which the worker keeps this request, which it has checked by then.
    fn number_of(&mut self, request: &Request) -> Result<Option<u16>> {
        let hal = request.checked()?;
        request.expect_buffers_of(self.exchange.model().connection())?;
        let known = self.found_valid.iter().rposition(|known| known.is(request));
        let found = match known {
            Some(at) => self.found_valid.remove(at),
            None => {
                if !self.name_pools(request)? {
                    return Ok(None);
                }
                let number = if self.found_valid.len() == REMEMBERED {
                    self.found_valid.remove(0).number
                } else {
                    Numbers::take(&self.numbers)?
                };
                if !self.register_as(&number, hal)? {
                    return Ok(None);
                }
                FoundValid::new(request, number)
            }
        };
        let number = found.number.value;
        self.found_valid.push(found);
        Ok(Some(number))
    }
}
