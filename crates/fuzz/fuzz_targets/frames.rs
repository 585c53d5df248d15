//! Frames of the journal: no bytes make reading panic, and what is written is read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limina_store::{Seq, ShardId, segmented::fuzzing};

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else { return };
    if kind % 2 == 0 {
        // With the checksum corrected, so that what it covers is looked at.
        fuzzing::read_frame(bytes);
        fuzzing::read_frame(&fuzzing::with_checksum(bytes));
        return;
    }
    let entries: Vec<(ShardId, Seq, &[u8])> = bytes
        .chunks(usize::from(kind))
        .enumerate()
        .map(|(index, chunk)| (ShardId(u16::from(chunk[0])), Seq(index as u64), chunk))
        .collect();
    let written = fuzzing::write_frame(7, 9, &entries);
    let read: Vec<(ShardId, Seq, Vec<u8>)> =
        fuzzing::read_frame(&written).expect("what was written is a frame");
    let expected = entries.iter().map(|(shard, seq, bytes)| (*shard, *seq, bytes.to_vec()));
    assert_eq!(read, expected.collect::<Vec<_>>());
});
