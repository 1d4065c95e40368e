//! Sending a packet and receiving its result.

use std::num::NonZeroU64;
use std::sync::Arc;

use nnhal::burst::{Fencing, RequestHeader, ResultBody, ResultHeader, decode_result};
use nnhal::diag::trace::SpanKind;
use nnhal::fence::Fence;
use nnhal::fmq::{ChannelCloser, ChannelEnd, Consumer, Packet, Producer, ReceiveError, SendError};
use nnhal::wire::{BurstHandle, Call, ExecutionResult};
use nnhal_hal::{ErrorStatus, Failure, Timing};
use nnhal_os::time::Deadline;

use crate::connection::EndListener;
use crate::error::{Error, ErrorKind, Result};
use crate::execution::{Completed, ExecuteOptions, FENCED, completed};
use crate::prepared_model::PreparedModel;
use crate::timeouts::Timeouts;
use crate::trace;

/// Ends the rings when the worker is gone.
#[derive(Debug)]
pub(super) struct BurstEnd {
    pub(super) closer: ChannelCloser,
}

impl EndListener for BurstEnd {
    fn connection_ended(&self) -> Option<Fence> {
        self.closer.close();
        None
    }
}

/// This process's ends of a burst's rings, with all that is used again from one packet to the next.
#[derive(Debug)]
pub(super) struct Exchange {
    model: PreparedModel,
    /// What messages call an execution.
    name: &'static str,
    handle: BurstHandle,
    /// `None` only while it is dropped.
    rings: Option<Rings>,
    end: Arc<BurstEnd>,
    /// The packet to send.
    pub(super) buffer: Vec<u8>,
    /// The packet that was received, and what was decoded of it.
    packet: Packet,
    body: ResultBody,
    sequence: u32,
    /// Of the result that was received last.
    answered: u32,
    /// The execution whose wait was given up, and where the ring of requests stood after it.
    given_up: Option<(u32, u64)>,
    max_packet_bytes: usize,
}

#[derive(Debug)]
struct Rings {
    producer: Producer,
    consumer: Consumer,
}

/// A result that was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// How it ended.
    pub(super) header: ResultHeader,
    /// How many bytes follow in the packet.
    rest: usize,
}

impl Exchange {
    pub(super) fn new(
        model: &PreparedModel,
        (name, handle): (&'static str, BurstHandle),
        channel: ChannelEnd,
        end: Arc<BurstEnd>,
    ) -> Exchange {
        Exchange {
            model: model.clone(),
            name,
            handle,
            packet: channel.consumer.new_packet(),
            max_packet_bytes: channel.producer.max_packet_bytes(),
            rings: Some(Rings {
                producer: channel.producer,
                consumer: channel.consumer,
            }),
            end,
            buffer: Vec::new(),
            body: ResultBody::default(),
            sequence: 0,
            answered: 0,
            given_up: None,
        }
    }

    pub(super) fn model(&self) -> &PreparedModel {
        &self.model
    }

    /// The header of the next execution.
    #[inline]
    pub(super) fn next_header(&mut self, options: &ExecuteOptions) -> RequestHeader {
        // 0 stands for a packet that could not be understood.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        RequestHeader {
            sequence: self.sequence,
            measure: options.measure,
            fencing: Fencing::No,
            deadline_ns: options
                .deadline
                .to_hal()
                .map(|deadline| NonZeroU64::new(deadline).unwrap_or(NonZeroU64::MIN)),
        }
    }

    /// The header of a packet that executes nothing, and how to wait for its answer.
    pub(super) fn next_header_of_message(&mut self) -> (RequestHeader, Deadline) {
        let deadline = self.model.link().timeouts().call_deadline();
        (self.next_header(&ExecuteOptions::new()), deadline)
    }

    /// Whether the ring can hold the packet in `buffer`.
    pub(super) fn can_carry(&self) -> bool {
        self.buffer.len() <= self.max_packet_bytes
    }

    /// Sends what is in `buffer`, which starts with this header, and receives its result.
    // Always inlined, as who is handed the result through memory waits for it.
    #[inline(always)]
    pub(super) fn send_and_receive(
        &mut self,
        header: &RequestHeader,
        deadline: Deadline,
    ) -> Result<Received> {
        let _executes = trace::span(SpanKind::BurstRequest, 0);
        let sent = self.send()?;
        let received = self.receive(header.sequence, sent, deadline);
        if let Err(error) = &received {
            self.give_up(error, header.sequence, sent);
        }
        received
    }

    /// Asks the worker to end an execution early that is not waited for any longer.
    #[cold]
    fn give_up(&mut self, error: &Error, sequence: u32, sent: u64) {
        if matches!(error.kind(), ErrorKind::TimedOut { .. }) {
            self.given_up = Some((sequence, sent));
            let link = self.model.link();
            if link.can_cancel_bursts() {
                link.cancel_burst(self.handle, sequence);
            }
        }
    }

    /// Waits for the end of the execution whose wait was given up, so that none waits behind it and nothing
    /// uses its memory.
    #[inline]
    pub(super) fn await_given_up(&mut self, deadline: impl FnOnce(&Timeouts) -> Deadline) -> Result<()> {
        match self.given_up {
            None => Ok(()),
            Some(given_up) => {
                let deadline = deadline(self.model.link().timeouts());
                self.await_end(given_up, deadline)
            }
        }
    }

    #[cold]
    fn await_end(&mut self, (sequence, sent): (u32, u64), deadline: Deadline) -> Result<()> {
        // In a forked child the result is the parent's to take.
        self.model.link().check_process()?;
        self.receive(sequence, sent, deadline)?;
        self.given_up = None;
        Ok(())
    }

    /// Sends what is in `buffer`; returns where the ring stands then.
    #[inline]
    pub(super) fn send(&mut self) -> Result<u64> {
        self.model.link().check_process()?;
        let sent = match &mut self.rings {
            Some(rings) => rings.producer.send(&self.buffer).map(|()| rings.producer.sent()),
            None => Err(SendError::Closed),
        };
        sent.map_err(|error| self.not_sent(error))
    }

    /// Receives the result of the execution of this sequence, after which the ring stood at `sent`.
    // Always inlined, as who is handed the result through memory waits for it.
    #[inline(always)]
    pub(super) fn receive(&mut self, sequence: u32, sent: u64, deadline: Deadline) -> Result<Received> {
        let mut until = None;
        loop {
            let timeouts = self.model.link().timeouts();
            // Asked only of results that do not come at once: it is a look at the clock.
            let until = || *until.get_or_insert_with(|| timeouts.work_deadline(deadline));
            let received = match &mut self.rings {
                Some(rings) => rings.consumer.receive_by(&mut self.packet, until),
                None => Err(ReceiveError::Closed),
            };
            if let Err(error) = received {
                return Err(self.not_received(error));
            }
            let (header, rest) = match decode_result(self.packet.bytes(), &mut self.body) {
                Ok((header, rest)) => (header, rest.len()),
                Err(error) => return Err(self.broken(&error.to_string())),
            };
            let is_own = header.sequence == sequence;
            let is_not_understood = header.sequence == 0 && header.status != ErrorStatus::None;
            if is_own || is_not_understood {
                self.answered = sequence;
                self.free_cells(sent);
                return Ok(Received { header, rest });
            }
            // The result of an earlier execution, for which nobody waits any more, is passed over. Each comes
            // once and in its turn, so that they have an end.
            let is_between =
                header.sequence.wrapping_sub(self.answered) < sequence.wrapping_sub(self.answered);
            let is_earlier = header.sequence != 0 && header.sequence != self.answered && is_between;
            self.answered = header.sequence;
            if !is_earlier {
                return Err(self.broken(&format!("the result of execution {}", header.sequence)));
            }
        }
    }

    /// Whether a result can be received without waiting.
    #[inline]
    pub(super) fn is_ready(&mut self) -> bool {
        self.rings.as_mut().is_none_or(|rings| rings.consumer.is_ready())
    }

    /// Where the results come from, if it is there.
    pub(super) fn consumer(&self) -> Option<&Consumer> {
        self.rings.as_ref().map(|rings| &rings.consumer)
    }

    /// The same, to be used.
    pub(super) fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        self.rings.as_mut().map(|rings| &mut rings.consumer)
    }

    /// Everything up to there has been read, since the last of it is answered.
    #[inline]
    fn free_cells(&mut self, sent: u64) {
        if let Some(rings) = &mut self.rings {
            rings.producer.release(sent);
        }
    }

    /// The outcome of the execution that was received last.
    #[inline(always)]
    pub(super) fn complete(&mut self, header: ResultHeader) -> Result<Completed> {
        if header.status == ErrorStatus::None && !header.has_shapes {
            return Ok(Completed {
                output_shapes: Vec::new(),
                timing: header.timing,
            });
        }
        self.complete_in_full(header)
    }

    #[inline(never)]
    fn complete_in_full(&mut self, header: ResultHeader) -> Result<Completed> {
        let outcome = match header.status {
            ErrorStatus::None => Ok(()),
            status => Err(Failure::new(status, self.body.detail.as_str())),
        };
        let result = ExecutionResult {
            outcome,
            output_shapes: self.body.shapes.clone(),
            timing: header.timing,
        };
        completed(self.model.link(), self.name, result)
    }

    /// The same of a fenced execution: its time, or its failure as the driver has told it.
    pub(super) fn fenced_outcome(&self, header: ResultHeader) -> Result<Timing> {
        match header.status {
            ErrorStatus::None => Ok(header.timing),
            status => {
                let failure = Failure::new(status, self.body.detail.as_str());
                Err(self.model.link().status(FENCED, failure, Vec::new()))
            }
        }
    }

    /// The outputs in the packet that was received last: `size` bytes.
    #[inline]
    pub(super) fn inline_outputs(&self, received: &Received, size: usize) -> Result<&[u8]> {
        let bytes = self.packet.bytes();
        let start = bytes.len().saturating_sub(received.rest);
        let outputs = bytes.get(start..).and_then(|rest| rest.get(..size));
        outputs.ok_or_else(|| self.broken("a result without its outputs"))
    }

    #[cold]
    fn not_sent(&self, error: SendError) -> Error {
        match error {
            SendError::Closed => self.ended(),
            SendError::Poisoned(misbehaviour) => self.broken(&misbehaviour.to_string()),
            SendError::TooLong { .. } => Error::argument(format!("the request cannot be sent: {error}")),
            // Executions that nobody waits for any more fill the ring.
            SendError::Full => self.timed_out(),
        }
    }

    #[cold]
    fn not_received(&self, error: ReceiveError) -> Error {
        match error {
            ReceiveError::TimedOut => self.timed_out(),
            ReceiveError::Closed => self.ended(),
            ReceiveError::Poisoned(misbehaviour) => self.broken(&misbehaviour.to_string()),
            ReceiveError::System(error) => Error::system("wait for the result of a burst")(error),
        }
    }

    fn timed_out(&self) -> Error {
        ErrorKind::TimedOut {
            call: self.name,
            process: self.model.link().worker(),
        }
        .into()
    }

    /// The error of a burst whose rings have ended: with the worker, or because the worker ended this burst
    /// alone, which a call tells apart.
    fn ended(&self) -> Error {
        let link = self.model.link();
        let answer = link.call(Call::GetStatus, &[]);
        match (link.ended_with(), answer) {
            (Some(_), _) => link.ended_error(self.name),
            // The burst has ended all the same: there is nothing to wait for again.
            (None, Err(error)) if !matches!(error.kind(), ErrorKind::TimedOut { .. }) => {
                error.about(self.name)
            }
            (None, _) => link.misplaced(self.name, &"the end of the burst"),
        }
    }

    /// Gives up a burst whose worker sends nonsense.
    #[cold]
    fn broken(&self, answer: &str) -> Error {
        self.end.closer.close();
        self.model.link().misplaced(self.name, &answer)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // In a forked child the rings are the parent's, and dropping an end would close them.
        if self.model.link().check_process().is_err() {
            std::mem::forget(self.rings.take());
        }
    }
}
