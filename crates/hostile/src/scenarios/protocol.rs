//! Floods of frames: of HTTP/2, and of STOMP over WebSocket.

use crate::{
    Failed, h2,
    scenario::{Kind, Scenario},
    stage::Stage,
    stomp,
};
use std::{net::SocketAddr, sync::Arc, time::Instant};
use tokio::{io::AsyncWriteExt, task::JoinSet};

/// Frames that are sent in one write.
const BURST: usize = 1_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rapid-resets", Kind::Overload, "HTTP/2 requests that are reset at once", |stage| {
            Box::pin(rapid_resets(stage))
        }),
        Scenario::new(
            "frame-floods",
            Kind::Overload,
            "floods of CONTINUATION, PING, SETTINGS and empty DATA frames",
            |stage| Box::pin(frame_floods(stage)),
        ),
        Scenario::new(
            "stomp-floods",
            Kind::Overload,
            "floods of STOMP heart-beats and of empty transactions",
            |stage| Box::pin(stomp_floods(stage)),
        ),
    ]
}

async fn rapid_resets(stage: &Stage) -> Result<(), Failed> {
    let path = stage.path("/limiter/rules");
    let burst = move |next: &mut u32| {
        let mut bytes = Vec::new();
        for _ in 0..BURST {
            h2::push_request(&mut bytes, *next, "GET", &path, b"");
            h2::push(&mut bytes, h2::RST_STREAM, 0, *next, &8_u32.to_be_bytes());
            *next += 2;
        }
        bytes
    };
    stage.begin().await?;
    flood(stage, 4, Arc::new(burst)).await
}

async fn frame_floods(stage: &Stage) -> Result<(), Failed> {
    let path = stage.path("/limiter/check");
    stage.begin().await?;
    // A head that never ends.
    let continuations = |next: &mut u32| {
        let mut bytes = Vec::new();
        if *next == 1 {
            h2::push(&mut bytes, h2::HEADERS, 0, 1, &[]);
        }
        *next = 3;
        for _ in 0..BURST {
            h2::push(&mut bytes, h2::CONTINUATION, 0, 1, &[0x00, 1, b'x', 1, b'y']);
        }
        bytes
    };
    let control = |kind: u8, payload: &'static [u8]| {
        move |_: &mut u32| {
            let mut bytes = Vec::new();
            for _ in 0..BURST {
                h2::push(&mut bytes, kind, 0, 0, payload);
            }
            bytes
        }
    };
    // A body that never has a byte.
    let empty_data = move |next: &mut u32| {
        let mut bytes = Vec::new();
        if *next == 1 {
            h2::push(&mut bytes, h2::HEADERS, h2::END_HEADERS, 1, &h2::headers("POST", &path));
        }
        *next = 3;
        for _ in 0..BURST {
            h2::push(&mut bytes, h2::DATA, 0, 1, &[]);
        }
        bytes
    };
    tokio::try_join!(
        flood(stage, 2, Arc::new(continuations)),
        flood(stage, 2, Arc::new(control(h2::PING, &[0; 8]))),
        flood(stage, 2, Arc::new(control(h2::SETTINGS, &[]))),
        flood(stage, 2, Arc::new(empty_data)),
    )?;
    Ok(())
}

/// Makes the bytes of the next burst. The number is the next unused stream of the connection; it begins with 1.
type Burst = dyn Fn(&mut u32) -> Vec<u8> + Send + Sync;

/// Sends bursts on several connections, and opens a new one whenever the server closes one.
async fn flood(stage: &Stage, connections: usize, burst: Arc<Burst>) -> Result<(), Failed> {
    let (begin, time, address) = (Instant::now(), stage.hostile_time(), stage.address());
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let burst = burst.clone();
        clients.spawn(async move {
            let (mut bursts, mut closed) = (0, 0);
            while begin.elapsed() < time {
                bursts += flood_once(address, &*burst, begin, time).await;
                closed += 1;
            }
            (bursts, closed)
        });
    }
    while let Some(client) = clients.join_next().await {
        let (bursts, closed) = client?;
        let mut counts = stage.tally().counts();
        counts.accepted += bursts;
        counts.closed += closed;
    }
    Ok(())
}

/// Sends bursts until the connection is closed or the time is over, and returns how many were sent.
async fn flood_once(address: SocketAddr, burst: &Burst, begin: Instant, time: std::time::Duration) -> u64 {
    let Ok(h2::Connection { mut reading, mut writing }) = h2::Connection::open(address).await else {
        return 0;
    };
    let mut sent = 0;
    let sending = async {
        let mut next = 1;
        while begin.elapsed() < time && writing.write_all(&burst(&mut next)).await.is_ok() {
            sent += 1;
        }
    };
    // What the server sends is read, since it may stop reading while its own answers are not read.
    let receiving = async { while reading.next().await.is_ok() {} };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
    }
    sent
}

async fn stomp_floods(stage: &Stage) -> Result<(), Failed> {
    let pair = "BEGIN\ntransaction:t\n\n\0COMMIT\ntransaction:t\n\n\0";
    stage.begin().await?;
    let (begin, time) = (Instant::now(), stage.hostile_time());
    let mut clients = JoinSet::new();
    for text in ["\n", "\r\n", pair, "\n", "\r\n", pair] {
        let message = stomp::message(text.repeat(stomp::MAX_MESSAGE / text.len()).as_bytes());
        let mut client = stomp::connect(stage.address()).await?;
        clients.spawn(async move {
            let mut sent = 0;
            while begin.elapsed() < time {
                let left = time.saturating_sub(begin.elapsed());
                match tokio::time::timeout(left, client.send(&message)).await {
                    Ok(Ok(())) => sent += 1,
                    Ok(Err(_)) => return (sent, 1),
                    Err(_over) => break,
                }
            }
            (sent, 0)
        });
    }
    while let Some(client) = clients.join_next().await {
        let (sent, closed) = client?;
        let mut counts = stage.tally().counts();
        counts.accepted += sent;
        counts.closed += closed;
    }
    Ok(())
}
