//! What is asked arrives, and so does the answer.

use super::{
    raw::{ANSWER, ASK, CANCEL, GO_AWAY, RawConnection},
    *,
};

#[tokio::test]
async fn requests_arrive_as_they_were_sent_and_answers_too() {
    let node = Node::start().await;
    let peers = node.client();
    let refusal = ledger::Refusal::LimitNotFound { limit_names: vec![name("a")] };
    let mut answers = vec![
        Ok(Outcome::NamespaceDeleted),
        Ok(Outcome::Ledger(Err(refusal))),
        Err(PeerError::NotThere),
        Err(PeerError::Lost),
    ];
    answers.extend(
        [
            Unavailable::Overloaded { retry_after_ms: 10 },
            Unavailable::ShuttingDown,
            Unavailable::StorageFull,
            Unavailable::ShardUnavailable,
            Unavailable::OutcomeUnknown,
        ]
        .map(|unavailable| Err(PeerError::Unavailable(unavailable))),
    );
    for answer in answers {
        node.answers(answer.clone());
        assert_eq!(soon(peers.ask(node.address(), ShardId(4095), &read())).await, answer);
        assert_eq!(node.fake.asked.lock().unwrap().pop(), Some((ShardId(4095), read())));
    }
}

#[tokio::test]
async fn refusals_of_another_node_arrive() {
    let node = Node::start().await;
    let peers = node.client();
    let wanted = limina_node::RefusalsRequest { after: 41, namespace: Some(name("n")) };
    let page = soon(peers.refusals(node.address(), &wanted)).await;
    assert_eq!(page, Ok(page_of_refusals(41)));
}

/// A request of more than 16 MiB: a batch with eight names of 256 bytes in each of its items.
pub(super) fn long_batch() -> Request {
    let limit_name = |limit| name(&format!("{limit}{}", "x".repeat(255)));
    let change = |limit| ledger::FinalizationChange { limit_name: limit_name(limit), value: None };
    let changes = (0..7).map(change).collect();
    let commit = ledger::Finalization::new(name(&"o".repeat(256)), Some(changes));
    let transfers =
        vec![ledger::Transfer::Finish(ledger::Finish::Commit, commit.unwrap()); ledger::Batch::MAX_TRANSFERS];
    let command = Command::Ledger(ledger::Command::Batch(ledger::Batch::new(transfers).unwrap()));
    Request { command, ..read() }
}

#[tokio::test]
async fn the_largest_batch_fits() {
    let memory = Budget::new(1 << 30, &limina_node::Metrics::new());
    let node = Node::start_limited(memory.clone()).await;
    let peers = node.client();
    let request = long_batch();
    let answer = soon(peers.ask(node.address(), ShardId(0), &request)).await;
    assert_eq!(answer, Ok(Outcome::NamespaceDeleted));
    assert!(node.fake.asked.lock().unwrap().pop() == Some((ShardId(0), request)), "it is another one");
    // Its memory was returned before the answer was sent.
    assert_eq!(memory.used_by(limina_node::memory::Kind::Bodies), 0);
}

#[tokio::test]
async fn thousands_wait_at_once_and_others_pass_them() {
    const MANY: usize = 3_000;
    let mut node = Node::start().await;
    node.close_gate();
    let peers = Arc::new(node.client());
    let asking: Vec<_> = (0..MANY)
        .map(|_| {
            let (peers, address) = (peers.clone(), node.address().to_owned());
            tokio::spawn(async move { peers.ask(&address, ShardId(0), &read()).await })
        })
        .collect();
    for _ in 0..MANY {
        assert_eq!(soon(node.taken.recv()).await, Some(Taken::Begun));
    }
    node.fake.gate.add_permits(MANY);
    for asked in asking {
        assert_eq!(soon(asked).await.unwrap(), Ok(Outcome::NamespaceDeleted));
    }
}

#[tokio::test]
async fn many_that_are_given_up_at_once_disturb_nobody() {
    const MANY: usize = 1_000;
    let mut node = Node::start().await;
    node.close_gate();
    let peers = Arc::new(node.client());
    let ask = || {
        let (peers, address) = (peers.clone(), node.address().to_owned());
        tokio::spawn(async move { peers.ask(&address, ShardId(0), &read()).await })
    };
    let stays = ask();
    let leave: Vec<_> = (0..MANY).map(|_| ask()).collect();
    let mut begun = 0;
    while begun <= MANY {
        begun += usize::from(soon(node.taken.recv()).await == Some(Taken::Begun));
    }
    leave.iter().for_each(JoinHandle::abort);
    for _ in 0..MANY {
        assert_eq!(soon(node.taken.recv()).await, Some(Taken::LetGo));
    }
    node.fake.gate.add_permits(1);
    assert_eq!(soon(stays).await.unwrap(), Ok(Outcome::NamespaceDeleted));
}

/// A node forwards the requests of thousands of clients, which may all hang up before their requests were looked at.
#[tokio::test]
async fn calls_that_are_cancelled_at_once_keep_no_other_from_its_answer() {
    const MANY: u64 = 2_000;
    let node = Node::start().await;
    node.close_gate();
    let certificate = Certificate::new();
    introduce_to(&node.server.peers, &[&certificate]);
    let mut peer = RawConnection::peer(node.address(), &certificate).await.unwrap();
    let body = deletion();
    for call in 1..=MANY {
        peer.send(ASK, call, &body).await;
        peer.send(CANCEL, call, &[]).await;
    }
    peer.send(ASK, MANY + 1, &body).await;
    node.fake.gate.add_permits(MANY as usize + 1);
    // A call may be answered before its cancellation arrives.
    loop {
        let (kind, call, body) = soon(peer.message()).await.expect("an answer");
        assert_eq!((kind, &body[..]), (ANSWER, &deleted()[..]));
        if call > MANY {
            break;
        }
    }
}

/// The other node was told that these calls are not looked at, and sends them elsewhere. They must not be executed here as well.
#[tokio::test]
async fn a_node_that_stops_executes_no_later_call() {
    let mut node = Node::start().await;
    node.close_gate();
    let certificate = Certificate::new();
    introduce_to(&node.server.peers, &[&certificate]);
    let mut peer = RawConnection::peer(node.address(), &certificate).await.unwrap();
    let body = deletion();
    peer.send(ASK, 5, &body).await;
    assert_eq!(soon(node.taken.recv()).await, Some(Taken::Begun));
    node.server.stop.send(()).unwrap();
    assert_eq!(soon(peer.message()).await, Some((GO_AWAY, 0, 5_u64.to_le_bytes().to_vec())));
    // Also not if it is long, so that a part of it arrives first. Call 4 was sent before.
    peer.send(ASK, 6, &body).await;
    peer.send(ASK, 7, &[0; 100 << 10]).await;
    peer.send(ASK, 4, &body).await;
    assert_eq!(soon(node.taken.recv()).await, Some(Taken::Begun));
    node.fake.gate.add_permits(10);
    let answered = [soon(peer.message()).await, soon(peer.message()).await];
    let mut calls = answered.map(|answer| answer.map(|(kind, call, _)| (kind, call)));
    calls.sort();
    assert_eq!(calls, [Some((ANSWER, 4)), Some((ANSWER, 5))]);
    assert_eq!(soon(peer.message()).await, None);
    assert_eq!(node.fake.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_node_that_stops_answers_what_it_was_asked() {
    let mut node = Node::start().await;
    node.close_gate();
    let peers = Arc::new(node.client());
    let asked = {
        let (peers, address) = (peers.clone(), node.address().to_owned());
        tokio::spawn(async move { peers.ask(&address, ShardId(0), &read()).await })
    };
    assert_eq!(soon(node.taken.recv()).await, Some(Taken::Begun));
    node.server.stop.send(()).unwrap();
    node.fake.gate.add_permits(1);
    assert_eq!(soon(asked).await.unwrap(), Ok(Outcome::NamespaceDeleted));
    soon(node.server.serving).await.unwrap();
    let after = soon(peers.ask(&node.server.address, ShardId(0), &read())).await;
    assert_eq!(after, Err(PeerError::NotThere));
}
