//! A client that speaks the protocol by hand, so that it can also speak it wrongly.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nnhal::wire::handshake::{self, HandshakeError, VERSIONS, Versions};
use nnhal::wire::{
    self, Call, Envelope, Event, Inbox, MemoryDescription, MemoryHandle, Message, MessageError, PrepareModel,
    PreparedModelHandle, Reply, Welcome, directory,
};
use nnhal_hal::Failure;
use nnhal_os::shm::SharedMemory;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::TIMEOUT;

/// A connection to a worker.
#[derive(Debug)]
pub struct RawClient {
    /// The connection itself.
    pub connection: Connection,
    /// What the driver said first.
    pub welcome: Welcome,
    /// Of the protocol, which both sides go on with.
    version: u32,
    inbox: Inbox,
    next_id: u64,
}

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

impl RawClient {
    /// Connects to a device.
    ///
    /// # Panics
    ///
    /// If the device does not welcome it.
    #[must_use]
    pub fn connect(runtime_dir: &Path, device: &str) -> RawClient {
        RawClient::try_connect(runtime_dir, device).expect("a welcome")
    }

    /// Connects to a device that may refuse.
    ///
    /// # Errors
    ///
    /// The device's refusal.
    ///
    /// # Panics
    ///
    /// If there is no such device, or it does not answer.
    pub fn try_connect(runtime_dir: &Path, device: &str) -> Result<RawClient, HandshakeError> {
        RawClient::connect_as(VERSIONS, runtime_dir, device)
    }

    /// Connects to a device as a client that speaks these versions.
    ///
    /// # Errors
    ///
    /// The device's refusal.
    ///
    /// # Panics
    ///
    /// If there is no such device, or it does not answer.
    pub fn connect_as(
        versions: Versions,
        runtime_dir: &Path,
        device: &str,
    ) -> Result<RawClient, HandshakeError> {
        let path = directory::socket_path(runtime_dir, device);
        let connection = Connection::connect(&path, default_deadline()).expect("a driver that listens");
        // A driver that refuses may have closed its end already.
        let _ = connection.send(&handshake::hello(versions), &[], default_deadline());
        let mut inbox = Inbox::new();
        let (answer, _) = inbox
            .receive_bytes(&connection, default_deadline())
            .expect("an answer");
        let (version, welcome) = handshake::read_answer(answer, versions)?;
        inbox.set_version(version);
        Ok(RawClient {
            connection,
            welcome,
            version,
            inbox,
            next_id: 1,
        })
    }

    /// Sends a call and returns its id.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn send(&mut self, call: Call, fds: &[BorrowedFd<'_>]) -> Result<u64, MessageError> {
        let id = self.next_id;
        self.next_id += 1;
        wire::send(
            &self.connection,
            self.version,
            &Envelope { id, call },
            fds,
            default_deadline(),
        )?;
        Ok(id)
    }

    /// The next message.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), MessageError> {
        self.inbox.receive(&self.connection, default_deadline())
    }

    /// Sends a call and waits for its reply, which must be the next message.
    ///
    /// # Errors
    ///
    /// The reply's failure.
    ///
    /// # Panics
    ///
    /// If something else happens.
    pub fn call(&mut self, call: Call, fds: &[BorrowedFd<'_>]) -> Result<Reply, Failure> {
        let id = self.send(call, fds).expect("an open connection");
        match self.receive().expect("a reply").0 {
            Message::Reply { id: answered, result } if answered == id => result,
            other => panic!("expected the reply to call {id}, got {other:?}"),
        }
    }

    /// The event of a call that was launched, which must be the next message.
    ///
    /// # Panics
    ///
    /// If something else happens.
    pub fn event(&mut self) -> Event {
        match self.receive().expect("an event").0 {
            Message::Event { event, .. } => event,
            other => panic!("expected an event, got {other:?}"),
        }
    }

    /// Shares a memory.
    ///
    /// # Panics
    ///
    /// If the driver does not take it.
    pub fn register(&mut self, memory: &SharedMemory) -> MemoryHandle {
        let description = MemoryDescription {
            name: "ashmem".into(),
            fds: 1,
            size: memory.size(),
            offset: 0,
            protection: 3,
        };
        match self.call(Call::RegisterMemory(description), &[memory.as_fd()]) {
            Ok(Reply::Memory(handle)) => handle,
            other => panic!("expected a memory, got {other:?}"),
        }
    }

    /// Prepares a model.
    ///
    /// # Errors
    ///
    /// The driver's, from the launch or from the event.
    ///
    /// # Panics
    ///
    /// If something else happens.
    pub fn prepare(&mut self, arguments: PrepareModel) -> Result<PreparedModelHandle, Failure> {
        match self.call(Call::PrepareModel(Box::new(arguments)), &[])? {
            Reply::Launched => {}
            other => panic!("expected a launch, got {other:?}"),
        }
        match self.event() {
            Event::Prepared(prepared) => prepared,
            other @ Event::Executed(_) => panic!("expected a prepared model, got {other:?}"),
        }
    }

    /// Waits for the connection to end. Returns what came before that.
    pub fn drain(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Ok((message, _)) = self.receive() {
            messages.push(message);
        }
        messages
    }
}
