//! The faults of nodes: a seed decides which node is killed, paused or stopped, and for how long.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::harness::{Server, eventually};
use crate::load::Random;
use crate::reply::Reply;

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Pause,
    Stop,
}

/// Injects one fault after another for `length`; all nodes run at the end. A fault may hit before the cluster has
/// recovered from the previous one.
#[track_caller]
pub(crate) fn disturb(cluster: &mut Cluster, random: &mut Random, length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        let fault = [Fault::Kill, Fault::Pause, Fault::Stop][random.below(3) as usize];
        let node = random.below(cluster.len() as u64) as usize;
        let [quiet, away] = [random.below(1_500), random.below(3_000)].map(Duration::from_millis);
        std::thread::sleep(quiet);
        eprintln!("{:>6} ms: {fault:?} of node {node} for {away:?}", start.elapsed().as_millis());
        inflict(cluster.node(node), fault, away);
    }
}

#[track_caller]
fn inflict(node: &mut Server, fault: Fault, away: Duration) {
    match fault {
        Fault::Pause => {
            node.signal(Signal::STOP);
            std::thread::sleep(away);
            node.signal(Signal::CONT);
        }
        Fault::Kill => {
            node.kill();
            std::thread::sleep(away);
            node.begin_again();
        }
        Fault::Stop => {
            await_alive(node);
            node.stop();
            std::thread::sleep(away);
            node.begin_again();
        }
    }
}

/// Stops one node after another cleanly. When this returns, every request that was in progress has been executed or
/// rejected.
#[track_caller]
pub(crate) fn restart_all(cluster: &mut Cluster) {
    for node in 0..cluster.len() {
        await_alive(&cluster[node]);
        cluster.node(node).restart();
    }
    cluster.settle(&(0..cluster.len()).collect::<Vec<_>>());
}

/// Sends the signal only after the process has installed its handler: an earlier signal would end the process at once.
#[track_caller]
fn await_alive(node: &Server) {
    let alive = eventually(|| Reply::try_to(node.http().get(node.url("/healthz"))).ok());
    alive.unwrap_or_else(|| panic!("never listened:\n{}", node.log())).ok();
}
