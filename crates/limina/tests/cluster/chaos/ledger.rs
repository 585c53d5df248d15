//! Holds and what becomes of them, as one server's tests have them, through all nodes.

use std::net::SocketAddr;

use super::client::Front;
use crate::load::{self, Operation, Random};

/// A client of one node until its request is lost, then of another.
pub(crate) fn work(front: &Front, namespace: &str, name: &str, seed: u64) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut operations = Vec::new();
    for session in 0.. {
        if !front.go_on() {
            break;
        }
        let ledger = front.ledger(front.any(&mut random), namespace);
        let name = format!("{name}-{session}");
        operations.extend(load::client(&ledger, &name, random.below(1 << 32), &front.progress));
        front.rest();
    }
    operations
}

/// Every acknowledged operation is there once, the unknown ones once or not at all, and all sums fit.
#[track_caller]
pub(crate) fn check(front: &Front, node: SocketAddr, namespace: &str, mut operations: Vec<Operation>) {
    load::verify(&front.ledger(node, namespace), &mut operations);
}
