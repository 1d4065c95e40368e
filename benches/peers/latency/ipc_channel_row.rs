//! The crate ipc-channel: a struct by serde over its channels, one in each direction.

use ipc_channel::ipc::{self, IpcOneShotServer, IpcReceiver, IpcSender};
use nnhal_bench::other_side::{Caller, Invocation, Role};
use nnhal_bench::{Contest, Contestant, Error, OtherSide, Result};
use serde::{Deserialize, Serialize};

const NAME: &str = "ipc_channel";

/// The other side.
pub(crate) const ROLE: Role = (NAME, answer);

/// Bytes of the smallest payload.
const SMALLEST: u32 = 64;

/// What travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Message {
    sequence: u64,
    values: Vec<u8>,
}

/// What the other side hands over at first.
#[derive(Debug, Serialize, Deserialize)]
struct Ends {
    requests: IpcSender<Message>,
    results: IpcReceiver<Message>,
}

/// The channels.
#[derive(Debug)]
struct IpcChannel {
    other: OtherSide,
    ends: Ends,
    message: Message,
}

/// Adds a row for the smallest and for each of `payloads`.
pub(crate) fn add_all(contest: &mut Contest, invocation: &Invocation, payloads: &[u32]) -> Result<()> {
    contest.add(IpcChannel::start(invocation, SMALLEST)?)?;
    for &payload in payloads.iter().filter(|payload| **payload > SMALLEST) {
        contest.add(IpcChannel::start(invocation, payload)?)?;
    }
    Ok(())
}

impl IpcChannel {
    fn start(invocation: &Invocation, payload: u32) -> Result<IpcChannel> {
        let (server, name) = IpcOneShotServer::<Ends>::new().map_err(Error::row(NAME))?;
        let other = invocation.start(NAME, name.as_bytes(), &[])?;
        let (_, ends) = server.accept().map_err(Error::row(NAME))?;
        Ok(IpcChannel {
            other,
            ends,
            message: Message {
                sequence: 0,
                values: vec![7; payload as usize],
            },
        })
    }
}

impl Contestant for IpcChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn payload_bytes(&self) -> u64 {
        self.message.values.len() as u64
    }

    fn others(&self) -> Vec<u32> {
        vec![self.other.pid()]
    }

    fn begin(&mut self, trips: u32) -> Result<()> {
        self.other.begin(trips)
    }

    fn trip(&mut self) -> Result<()> {
        self.message.sequence += 1;
        self.ends
            .requests
            .send(self.message.clone())
            .map_err(Error::row(NAME))?;
        let result = self.ends.results.recv().map_err(Error::row(NAME))?;
        if result.sequence == self.message.sequence && result.values.len() == self.message.values.len() {
            Ok(())
        } else {
            Err(Error::wrong_answer(NAME))
        }
    }
}

fn answer() -> Result<()> {
    let (caller, setup) = Caller::setup()?;
    let (requests, incoming) = ipc::channel::<Message>().map_err(Error::row(NAME))?;
    let (outgoing, results) = ipc::channel::<Message>().map_err(Error::row(NAME))?;
    let hand_over = IpcSender::<Ends>::connect(setup.text()).map_err(Error::row(NAME))?;
    hand_over
        .send(Ends { requests, results })
        .map_err(Error::row(NAME))?;
    caller.serve(|trips| {
        for _ in 0..trips {
            let message = incoming.recv().map_err(Error::row(NAME))?;
            outgoing.send(message).map_err(Error::row(NAME))?;
        }
        Ok(())
    })
}
