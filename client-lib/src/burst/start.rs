//! Starting a request whose end somebody takes later, on whichever thread.
//!
//! Who starts an execution is told what is wrong with its request. So the worker checks a request when it
//! comes for the first time, by registering it; from then on starting it is one cell.
//!
//! Fenced executions may wait for each other on one ring. Only those whose requests are known can be sent
//! while others are under way: registering one waits for its answer.

use nnhal::burst::{Fencing, RequestHeader, encode_fire};
use nnhal_hal::Timing;
use nnhal_os::time::Deadline;

use super::Burst;
use super::found_valid::{FoundValid, Held};
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
        self.expect_idle(|_| options.wait_deadline())?;
        self.start_as(Fencing::No, request, options)
    }

    /// The same for a fenced execution, which [`Burst::finish_fenced`] has the end of; `None` also if this
    /// ring cannot carry it now.
    pub(crate) fn start_fenced(
        &mut self,
        fencing: Fencing,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<Option<Started>> {
        if self.pipeline.expect_room().is_err() {
            return Ok(None);
        }
        self.start_as(fencing, request, options)
    }

    fn start_as(
        &mut self,
        fencing: Fencing,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<Option<Started>> {
        let Some(number) = self.number_of(request, fencing)? else {
            return Ok(None);
        };
        let header = RequestHeader {
            fencing,
            ..self.exchange.next_header(options)
        };
        encode_fire(&mut self.exchange.buffer, &header, number, &[]);
        let sent = self.exchange.send()?;
        self.pipeline.add(header.sequence, sent);
        self.held.push_back(Held::of(request));
        Ok(Some(Started {
            burst: self.handle,
            sequence: header.sequence,
        }))
    }

    /// Waits for the end of what was started.
    pub(crate) fn finish_started(&mut self, deadline: Deadline) -> Result<Completed> {
        let completion = self.next_finished_by(deadline)?;
        self.held.pop_front();
        match completion {
            Some(completion) => completion.result,
            None => Err(nothing_started()),
        }
    }

    /// Waits for the end of the oldest fenced execution that was started.
    ///
    /// # Errors
    /// It is not known how it ended. The outcome of the execution itself is in the result.
    pub(crate) fn finish_fenced(&mut self, deadline: Deadline) -> Result<Result<Timing>> {
        self.model().link().check_process()?;
        let entry = self.pipeline.oldest().ok_or_else(nothing_started)?;
        let received = self.exchange.receive(entry.sequence, entry.sent, deadline)?;
        self.pipeline.remove_oldest();
        self.held.pop_front();
        Ok(self.exchange.fenced_outcome(received.header))
    }

    /// The number under which the worker keeps this request, which it has checked by then; `None` if it
    /// cannot be had.
    fn number_of(&mut self, request: &Request, fencing: Fencing) -> Result<Option<u16>> {
        let hal = request.checked()?;
        request.expect_buffers_of(self.exchange.model().connection())?;
        let is_fenced = fencing != Fencing::No;
        let known = self.found_valid.iter().rposition(|known| known.is(request));
        let known = known.map(|at| self.found_valid.remove(at));
        let found = match known {
            Some(known) if known.is_fenced || !is_fenced => known,
            other => {
                if !self.pipeline.is_empty() {
                    self.found_valid.extend(other);
                    return Ok(None);
                }
                if !self.name_pools(request)? {
                    return Ok(None);
                }
                let number = match other {
                    Some(known) => known.number,
                    None if self.found_valid.len() == REMEMBERED => self.found_valid.remove(0).number,
                    None => Numbers::take(&self.numbers)?,
                };
                if !self.register_as(&number, hal, fencing)? {
                    return Ok(None);
                }
                FoundValid::new(request, number, is_fenced)
            }
        };
        let number = found.number.value;
        self.found_valid.push(found);
        Ok(Some(number))
    }
}

#[cold]
fn nothing_started() -> Error {
    Error::argument("no execution was started")
}
