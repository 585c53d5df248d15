//! STOMP over WebSocket, as much of it as a client needs that does not listen.

use crate::{Failed, http::Connection};
use std::net::SocketAddr;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// The largest message that the server accepts.
pub(crate) const MAX_MESSAGE: usize = 256 << 10;

/// Connects and subscribes to a stream of a namespace, and reads nothing after the upgrade. `resume_after` is the clock after
/// which the client wants the changes.
pub(crate) async fn subscribe(
    address: SocketAddr,
    namespace: &str,
    stream: &str,
    resume_after: Option<u64>,
) -> Result<Connection, Failed> {
    let mut connection = upgrade(address).await?;
    let resume = resume_after.map_or_else(String::new, |clock| format!("resume-after:{clock}\n"));
    let frames = format!(
        "CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:0,0\n\n\0\
         SUBSCRIBE\nid:0\ndestination:/topic/{namespace}/{stream}\n{resume}\n\0"
    );
    connection.send(&message(frames.as_bytes())).await?;
    Ok(connection)
}

/// Connects without a subscription.
pub(crate) async fn connect(address: SocketAddr) -> Result<Connection, Failed> {
    let mut connection = upgrade(address).await?;
    connection.send(&message(b"CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:0,0\n\n\0")).await?;
    Ok(connection)
}

async fn upgrade(address: SocketAddr) -> Result<Connection, Failed> {
    let mut connection = Connection::open_stalled(address).await?;
    let request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Protocol: v12.stomp\r\n\r\n";
    connection.send(request.as_bytes()).await?;
    match connection.read_head_only().await? {
        101 => Ok(connection),
        status => Err(format!("the upgrade was answered {status}").into()),
    }
}

/// A masked text message of one WebSocket frame.
pub(crate) fn message(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x81];
    match payload.len() {
        short @ 0..126 => bytes.push(0x80 | short as u8),
        medium @ 126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend((medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(0x80 | 127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}
