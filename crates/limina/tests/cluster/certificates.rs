//! Each node makes a new certificate when it starts, and nodes recognize each other by these certificates.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use tokio_postgres::NoTls;

use crate::cluster::{Cluster, LONG, SHORT, retry};
use crate::fail_over::at_work;
use crate::harness::DEADLINE;
use crate::load;

/// The certificates that the database lists, in hexadecimal.
fn listed(cluster: &Cluster) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(cluster.store(), NoTls).await.expect("the database");
        tokio::spawn(connection);
        let rows = client.query("SELECT encode(certificate, 'hex') FROM limina.node", &[]).await;
        rows.expect("the nodes").iter().map(|row| row.get(0)).collect()
    })
}

/// Each node is stopped and started again while clients work through the other nodes. The other nodes accept its new
/// certificate: a request that any node receives for another node's namespace is answered.
#[test]
fn a_rolling_restart_changes_all_certificates() {
    let mut cluster = Cluster::of(3, LONG);
    let before = listed(&cluster);
    assert_eq!(before.len(), 3, "each node has its own: {before:?}");
    assert!(before.iter().all(|certificate| certificate.len() == 64), "{before:?}");
    let namespace = cluster.namespace_of(0);
    load::make_limits(&cluster[0].ledger_of(&namespace));
    let mut operations = Vec::new();
    for n in 0..3 {
        let (node, rest) = cluster.apart(n);
        operations.extend(at_work(&rest, &namespace, &format!("round-{n}"), || node.restart()));
        cluster.settle(&[0, 1, 2]);
    }
    let after = listed(&cluster);
    assert_eq!((after.len(), before.intersection(&after).count()), (3, 0), "{before:?} {after:?}");
    for owner in 0..3 {
        let namespace = cluster.namespace_of(owner);
        for through in 0..3 {
            cluster[through].ledger_of(&namespace).create(&format!("by-{through}"));
        }
    }
    load::verify(&cluster[2].ledger_of(&namespace), &mut operations);
}

/// When a node has died, another process, with another certificate, may get its address.
#[test]
fn a_killed_node_returns_with_a_new_certificate() {
    let mut cluster = Cluster::of(2, SHORT);
    let before = listed(&cluster);
    cluster.node(1).kill();
    cluster.node(1).start_again();
    cluster.settle(&[0, 1]);
    let after = listed(&cluster);
    assert_eq!((after.len(), before.intersection(&after).count()), (2, 1), "{before:?} {after:?}");
    let namespace = cluster.namespace_of(1);
    retry(|| cluster[0].ledger_of(&namespace).request("GET", "/limits")).ok();
}

/// The listener for nodes answers no client, and the listener for clients does not serve the paths of nodes.
#[test]
fn clients_and_nodes_have_separate_listeners() {
    let cluster = Cluster::of(1, LONG);
    let mut stream = TcpStream::connect(cluster[0].peer_address()).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("send");
    let mut answer = Vec::new();
    let _may_be_reset = stream.read_to_end(&mut answer);
    // TLS answers with an alert, which is a record of type 21.
    assert!(answer.is_empty() || answer[0] == 21, "{}", String::from_utf8_lossy(&answer));
}
