//! Clients that read slowly, or not at all. What counts is whether they take anything.

use super::*;
use tokio::{net::TcpSocket, time::Instant};

/// More than all buffers between the two ends hold.
pub(super) const BYTES: usize = 24 * MIB;

/// An answer of about [`BYTES`].
pub(super) fn large() -> Result<Outcome, Unavailable> {
    let context = ledger::Context::new((0..64).map(|key| (key.to_string(), "x".repeat(1024)))).unwrap();
    let items = vec![Limit { context, ..limit("a") }; BYTES / (64 * 1024)];
    Ok(Outcome::Ledger(Ok(Reply::Limits(Listed { items, next: None }))))
}

pub(super) async fn connect(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // Without this the kernel takes megabytes on behalf of a client that reads nothing.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.connect(server.address).await.unwrap()
}

pub(super) const LIST: &[u8] = b"GET /v1/ledger/limits HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn who_reads_nothing_is_cut_off() {
    let server = start_patient(Duration::from_millis(300)).await;
    server.answers(large());
    let mut stream = connect(&server).await;
    stream.write_all(LIST).await.unwrap();
    // It goes on sending, so that the end of the connection is noticed without a byte being read.
    let cut = async {
        while stream.write_all(b"G").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), cut).await.expect("it is cut off");
}

/// It needs several times as long as the server has patience with those who take nothing.
#[tokio::test]
async fn who_reads_slowly_gets_everything() {
    const PATIENCE: Duration = Duration::from_secs(4);
    let server = start_patient(PATIENCE).await;
    server.answers(large());
    let mut stream = connect(&server).await;
    stream.write_all(LIST).await.unwrap();
    let (begun, mut length, mut piece) = (Instant::now(), 0, vec![0; 64 << 10]);
    while length < BYTES {
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "cut off after {length} bytes and {:?}", begun.elapsed());
        length += count;
        // Slow for three times its patience, then in a hurry.
        if begun.elapsed() < 3 * PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(begun.elapsed() > 3 * PATIENCE);
}

/// Only the stream that is not read is reset. Its connection goes on, and so do other streams of it.
#[tokio::test]
async fn a_stream_of_which_nothing_is_read_is_reset() {
    let server = start_patient(Duration::from_millis(300)).await;
    server.answers(large());
    let mut builder = h2::client::Builder::new();
    // Room for other streams, while the window of one is used up.
    builder.initial_window_size(1 << 16).initial_connection_window_size(1 << 20);
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (client, connection) = builder.handshake::<_, hyper::body::Bytes>(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let get = async |path: &str| {
        let request = hyper::Request::get(format!("http://{}{path}", server.address)).body(()).unwrap();
        let mut client = client.clone().ready().await.unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        response.await.unwrap()
    };
    let mut unread = get("/v1/ledger/limits").await.into_body();
    // What has come is looked at and not released, so that the window stays closed.
    let error = loop {
        match unread.data().await.expect("the answer is longer") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.is_reset(), "{error}");
    assert_eq!(get("/healthz").await.status(), 200);
    connection.abort();
}
