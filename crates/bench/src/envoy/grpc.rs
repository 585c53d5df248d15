//! Limina with Envoy's limits, and one HTTP/2 connection to it on which every client has a stream at a time.

use crate::{Failed, http::Http, load::Contender};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use hyper::Request;
use limina_envoy::messages::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use prost::Message;
use std::{fmt::Write, path::Path};
use tokio::net::TcpStream;

const URI: &str = "http://limina/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The bytes before a message.
const PREFIX: usize = 5;
/// The most descriptors of a request.
const DESCRIPTORS: usize = 4;

/// The key of the descriptor at this place.
pub(super) fn key(place: usize) -> String {
    format!("key-{place}")
}

/// Each key has a limit for each of its values, which is never reached.
fn limits() -> String {
    let mut text = "domain: edge\ndescriptors:\n".to_owned();
    for place in 0..DESCRIPTORS {
        let limit = "{unit: day, requests_per_unit: 4294967295}";
        writeln!(text, "  - key: {}\n    rate_limit: {limit}", key(place)).expect("a string takes any text");
    }
    text
}

pub(super) struct Grpc {
    server: Http,
    send: SendRequest<Bytes>,
}

impl Grpc {
    pub(super) async fn start(program: &Path, directory: &Path) -> Result<Grpc, Failed> {
        let config = directory.join("limits.yaml");
        std::fs::write(&config, limits())?;
        let server = Http::with_envoy_limits(program, directory, &config)?;
        let stream = TcpStream::connect(server.address()).await?;
        stream.set_nodelay(true)?;
        let (send, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("the connection ended: {error}");
            }
        });
        Ok(Grpc { server, send })
    }
}

impl Contender for Grpc {
    type Client = Stream;

    async fn connect(&self) -> Result<Stream, Failed> {
        Ok(Stream { send: self.send.clone() })
    }

    fn process(&self) -> Option<u32> {
        self.server.process()
    }

    async fn stop(self) -> Result<(), Failed> {
        drop(self.send);
        self.server.stop().await
    }
}

/// Sends one request after the other.
pub(super) struct Stream {
    send: SendRequest<Bytes>,
}

impl Stream {
    /// Asks with one descriptor for each of these values, and returns whether all of them pass.
    pub(super) async fn should_rate_limit(&mut self, clients: &[usize]) -> Result<bool, Failed> {
        let descriptors = clients.iter().enumerate().map(|(place, client)| {
            let entry = Entry { key: key(place), value: format!("client-{client}") };
            RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
        });
        let message =
            RateLimitRequest { domain: "edge".into(), descriptors: descriptors.collect(), hits_addend: 0 };
        let mut bytes = BytesMut::with_capacity(PREFIX + message.encoded_len());
        bytes.put_u8(0);
        bytes.put_u32(u32::try_from(message.encoded_len())?);
        message.encode(&mut bytes)?;
        let request =
            Request::post(URI).header("content-type", "application/grpc").header("te", "trailers").body(())?;
        let mut send = self.send.clone().ready().await?;
        let (response, mut body) = send.send_request(request, false)?;
        body.send_data(bytes.freeze(), true)?;
        let mut answer = response.await?.into_body();
        let mut received = BytesMut::new();
        while let Some(chunk) = answer.data().await {
            let chunk = chunk?;
            answer.flow_control().release_capacity(chunk.len())?;
            received.extend_from_slice(&chunk);
        }
        let trailers = answer.trailers().await?.ok_or("an answer without a status")?;
        if trailers.get("grpc-status").is_none_or(|status| status != "0") || received.len() < PREFIX {
            return Err(format!("the call has failed: {trailers:?}").into());
        }
        let response = RateLimitResponse::decode(&received[PREFIX..])?;
        Ok(response.overall_code() == Code::Ok)
    }
}
