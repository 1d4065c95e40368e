//! iceoryx2's request-response: both sides poll, as its own benchmark does.

use std::time::Instant;

use iceoryx2::port::client::Client;
use iceoryx2::prelude::{LogLevel, NodeBuilder, ServiceName, ipc, set_log_level};
use nnhal_bench::other_side::{Caller, Invocation, Role, TIMEOUT};
use nnhal_bench::{Contest, Contestant, Error, OtherSide, Result};

const NAME: &str = "iceoryx2_request_response";

/// The other side.
pub(crate) const ROLE: Role = (NAME, answer);

/// Polls between two looks at the clock.
const POLLS: u32 = 100_000;

/// What travels.
type Payload = [u64; 8];

/// The client of a service that only this program knows.
#[derive(Debug)]
struct Iceoryx2 {
    client: Client<ipc::Service, Payload, (), Payload, ()>,
    other: OtherSide,
    payload: Payload,
}

/// Adds the row.
pub(crate) fn add(contest: &mut Contest, invocation: &Invocation) -> Result<()> {
    contest.add(Iceoryx2::start(invocation)?)
}

impl Iceoryx2 {
    fn start(invocation: &Invocation) -> Result<Iceoryx2> {
        set_log_level(LogLevel::Error);
        let name = format!("nnhal-bench/{}", std::process::id());
        let node = NodeBuilder::new()
            .create::<ipc::Service>()
            .map_err(Error::row(NAME))?;
        let service = node
            .service_builder(&ServiceName::new(&name).map_err(Error::row(NAME))?)
            .request_response::<Payload, Payload>()
            .open_or_create()
            .map_err(Error::row(NAME))?;
        let other = invocation.start(NAME, name.as_bytes(), &[])?;
        Ok(Iceoryx2 {
            client: service.client_builder().create().map_err(Error::row(NAME))?,
            other,
            payload: [0; 8],
        })
    }
}

impl Contestant for Iceoryx2 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn payload_bytes(&self) -> u64 {
        size_of::<Payload>() as u64
    }

    fn others(&self) -> Vec<u32> {
        vec![self.other.pid()]
    }

    fn begin(&mut self, trips: u32) -> Result<()> {
        self.other.begin(trips)
    }

    fn trip(&mut self) -> Result<()> {
        self.payload[0] += 1;
        let request = self.client.loan_uninit().map_err(Error::row(NAME))?;
        let pending = request
            .write_payload(self.payload)
            .send()
            .map_err(Error::row(NAME))?;
        let response = poll(|| pending.receive().map_err(Error::row(NAME)))?;
        if *response.payload() == self.payload {
            Ok(())
        } else {
            Err(Error::wrong_answer(NAME))
        }
    }
}

fn answer() -> Result<()> {
    let (caller, setup) = Caller::setup()?;
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new()
        .create::<ipc::Service>()
        .map_err(Error::row(NAME))?;
    let service = node
        .service_builder(&ServiceName::new(&setup.text()).map_err(Error::row(NAME))?)
        .request_response::<Payload, Payload>()
        .open_or_create()
        .map_err(Error::row(NAME))?;
    let server = service.server_builder().create().map_err(Error::row(NAME))?;
    caller.serve(|trips| {
        for _ in 0..trips {
            let request = poll(|| server.receive().map_err(Error::row(NAME)))?;
            let response = request.loan_uninit().map_err(Error::row(NAME))?;
            response
                .write_payload(*request.payload())
                .send()
                .map_err(Error::row(NAME))?;
        }
        Ok(())
    })
}

/// Polls until there is something, or the other side must be taken for dead.
fn poll<T>(mut receive: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        for _ in 0..POLLS {
            if let Some(received) = receive()? {
                return Ok(received);
            }
        }
    }
    Err(Error::wrong_answer(NAME))
}
