//! tonic: a unary gRPC call over a Unix socket, with a codec that only copies bytes, so that no time goes
//! into protocol buffers.

use std::convert::Infallible;
use std::path::PathBuf;

use bytes::{Buf as _, BufMut as _};
use nnhal_bench::other_side::{Caller, Invocation, Role};
use nnhal_bench::{Contest, Contestant, Error, OtherSide, Result};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::{Context, Future, Pin, Poll, Service};
use tonic::server::UnaryService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

const NAME: &str = "tonic_uds";

/// The other side.
pub(crate) const ROLE: Role = (NAME, answer);

/// Bytes of the smallest payload.
const SMALLEST: u32 = 64;
/// The method.
const PATH: &str = "/nnhal.Bench/Echo";

/// A boxed future.
type Answer<T, E> = Pin<Box<dyn Future<Output = std::result::Result<T, E>> + Send>>;

/// The channel, on a runtime of this thread.
#[derive(Debug)]
struct Tonic {
    other: OtherSide,
    runtime: Runtime,
    grpc: Grpc<Channel>,
    payload: Vec<u8>,
    count: u64,
}

/// Adds a row for the smallest and for each of `payloads`.
pub(crate) fn add_all(contest: &mut Contest, invocation: &Invocation, payloads: &[u32]) -> Result<()> {
    contest.add(Tonic::start(invocation, SMALLEST)?)?;
    for &payload in payloads.iter().filter(|payload| **payload > SMALLEST) {
        contest.add(Tonic::start(invocation, payload)?)?;
    }
    Ok(())
}

impl Tonic {
    fn start(invocation: &Invocation, payload: u32) -> Result<Tonic> {
        let directory = tempfile::tempdir().map_err(Error::io("make a folder for a socket"))?;
        let path = directory.path().join("tonic");
        let other = invocation.start(NAME, path.as_os_str().as_encoded_bytes(), &[])?;
        let runtime = runtime()?;
        let endpoint = Endpoint::from_shared(format!("unix:{}", path.display())).map_err(Error::row(NAME))?;
        let channel = runtime.block_on(endpoint.connect()).map_err(Error::row(NAME))?;
        Ok(Tonic {
            other,
            runtime,
            grpc: Grpc::new(channel),
            payload: vec![0; payload as usize],
            count: 0,
        })
    }
}

impl Contestant for Tonic {
    fn name(&self) -> &'static str {
        NAME
    }

    fn payload_bytes(&self) -> u64 {
        self.payload.len() as u64
    }

    fn others(&self) -> Vec<u32> {
        vec![self.other.pid()]
    }

    fn begin(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn trip(&mut self) -> Result<()> {
        self.count += 1;
        self.payload[..8].copy_from_slice(&self.count.to_ne_bytes());
        let request = Request::new(self.payload.clone());
        let grpc = &mut self.grpc;
        let response = self
            .runtime
            .block_on(async {
                grpc.ready()
                    .await
                    .map_err(|error| Status::unavailable(error.to_string()))?;
                grpc.unary(request, PathAndQuery::from_static(PATH), Bytes).await
            })
            .map_err(Error::row(NAME))?;
        if response.get_ref()[..] == self.payload[..] {
            Ok(())
        } else {
            Err(Error::wrong_answer(NAME))
        }
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("make a runtime"))
}

fn answer() -> Result<()> {
    let (caller, setup) = Caller::setup()?;
    let path = PathBuf::from(setup.text());
    runtime()?.block_on(async {
        let listener = UnixListener::bind(path).map_err(Error::io("listen"))?;
        caller.say_ready()?;
        Server::builder()
            .serve_with_incoming(Echo, UnixListenerStream::new(listener))
            .await
            .map_err(Error::row(NAME))
    })
}

/// The service.
#[derive(Clone, Copy, Debug)]
struct Echo;

impl Service<HttpRequest<Body>> for Echo {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Answer<HttpResponse<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let service = *self;
        Box::pin(async move { Ok(tonic::server::Grpc::new(Bytes).unary(service, request).await) })
    }
}

impl UnaryService<Vec<u8>> for Echo {
    type Response = Vec<u8>;
    type Future = Answer<Response<Vec<u8>>, Status>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(request.into_inner())) })
    }
}

/// Bytes as they are.
#[derive(Clone, Copy, Debug)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> std::result::Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> std::result::Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}
