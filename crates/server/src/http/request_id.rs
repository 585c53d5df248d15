//! The id of each request: the one that its client has sent, or a new one.
//!
//! Every answer has it as the header `X-Request-Id`, and every problem document as `request_id`. A problem document is made far
//! from where the request's head is known, so the id of the request whose answer is being made is a variable of the task.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use limina_api::RequestId;
use std::{
    cell::Cell,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The id that the client has sent. A new one if the client has sent none, several, or one that is not valid.
pub(super) fn of_request(headers: &HeaderMap) -> RequestId {
    let mut sent = headers.get_all(&X_REQUEST_ID).iter();
    match (sent.next(), sent.next()) {
        (Some(id), None) => RequestId::new(id.as_bytes()).unwrap_or_else(new),
        _ => new(),
    }
}

/// Makes an answer, or a part of one, for the request with this id.
pub(super) fn answering<R>(id: &RequestId, make: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(id.clone(), make)
}

/// The id of the request whose answer is being made.
pub(super) fn current() -> Option<RequestId> {
    CURRENT.try_with(RequestId::clone).ok()
}

/// Gives an answer its header.
pub(super) fn add_to(headers: &mut HeaderMap, id: &RequestId) {
    let id = HeaderValue::from_str(id.as_str()).expect("visible ASCII characters are a valid value");
    headers.insert(X_REQUEST_ID.clone(), id);
}

/// A new id. No other request of this process gets it, and those of other processes are very unlikely to.
///
/// It costs a few nanoseconds: each thread counts for itself, and the count is mixed with random bits that were drawn once, so
/// that ids do not show how many requests a server gets.
pub(super) fn new() -> RequestId {
    /// An id with the digits that all ids of this process begin with, and what the numbers are mixed with.
    static OF_PROCESS: LazyLock<([u8; 28], u64)> = LazyLock::new(|| {
        let mut digits = [0; 28];
        write_hex(&mut digits[..12], random());
        (digits, random())
    });
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        // A thread has 2^40 numbers before those of the next one begin: enough for weeks at a million requests a second.
        static NEXT: Cell<u64> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) << 40);
    }
    let number = NEXT.replace(NEXT.get().wrapping_add(1));
    let (mut digits, seed) = *OF_PROCESS;
    write_hex(&mut digits[12..], mix(number ^ seed));
    RequestId::new(&digits).expect("hexadecimal digits are visible ASCII characters")
}

/// Random bits. The standard library draws the keys of its hashes from the operating system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Another number for each number: the finalizer of SplitMix64, in which each bit depends on all others.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Writes the last digits of a number.
fn write_hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 0xf) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn new_ids_differ_on_all_threads() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..1_000).map(|_| new()).collect::<Vec<_>>())).collect();
        let ids = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        let different: HashSet<String> = ids.map(|id| id.to_string()).collect();
        assert_eq!(different.len(), 4_000);
        assert!(different.iter().all(|id| id.len() == 28), "short enough to be stored inline");
    }

    #[test]
    fn one_valid_id_is_taken() {
        #[track_caller]
        fn check(sent: &[&str], is_taken: bool) {
            let headers = sent.iter().map(|id| (X_REQUEST_ID.clone(), HeaderValue::from_str(id).unwrap()));
            let id = of_request(&headers.collect());
            assert_eq!(sent.contains(&id.as_str()), is_taken, "{sent:?}");
        }
        check(&["3f7c-a"], true);
        check(&[&"x".repeat(64)], true);
        check(&[], false);
        check(&[""], false);
        check(&["a b"], false);
        check(&[&"x".repeat(65)], false);
        check(&["a", "b"], false);
    }
}
