//! Messages of other nodes: no bytes make the node panic, and how frames are cut into pieces makes no difference.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limina_server::fuzzing;

fuzz_target!(|input: &[u8]| {
    let [kind, bytes @ ..] = input else { return };
    match kind % 6 {
        0 => {
            // A request that is accepted is the same after it was passed on.
            if let Some(request) = fuzzing::peer_request(bytes) {
                let again = fuzzing::peer_request(&fuzzing::encode_peer_request(&request));
                assert_eq!(again.map(|request| format!("{request:?}")), Some(format!("{request:?}")));
            }
        }
        1 => fuzzing::peer_answer(bytes),
        2 => fuzzing::peer_feed(bytes),
        3 => fuzzing::peer_refusals(bytes),
        4 => fuzzing::peer_value(bytes),
        _ => {
            let Some((&cut, bytes)) = bytes.split_first() else { return };
            let whole = fuzzing::peer_frames([bytes].into_iter());
            let pieces = fuzzing::peer_frames(bytes.chunks(usize::from(cut) + 1));
            assert_eq!(whole, pieces);
        }
    }
});
