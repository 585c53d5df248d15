//! Holds and their ends: the load of the single-server tests, sent through all nodes.

use std::net::SocketAddr;

use super::client::Round;
use crate::load::{self, Operation, Random};

/// Runs a client that uses one node until a request is lost, and then another node.
pub(crate) fn work(round: &Round, namespace: &str, name: &str, seed: u64) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut operations = Vec::new();
    for session in 0.. {
        if !round.go_on() {
            break;
        }
        let ledger = round.ledger(round.any(&mut random), namespace);
        let name = format!("{name}-{session}");
        operations.extend(load::client(&ledger, &name, random.below(1 << 32), &round.progress));
        round.rest();
    }
    operations
}

/// Checks that every acknowledged operation is there once, every unknown one once or not at all, and that all sums
/// agree.
#[track_caller]
pub(crate) fn check(round: &Round, node: SocketAddr, namespace: &str, mut operations: Vec<Operation>) {
    load::verify(&round.ledger(node, namespace), &mut operations);
}
