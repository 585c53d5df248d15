//! Stored records: a batch is decoded or rejected, and so is every record in it.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use limina_engine::{Loading, Options};
use limina_store::{Batch, RecordRef};

fuzz_target!(|input: &[u8]| {
    let Ok(batch) = Batch::decode(Bytes::copy_from_slice(input)) else { return };
    let records: Vec<RecordRef<'_>> = batch.images().collect();
    assert_eq!(Batch::new(records.iter().copied()).images().count(), kept(&batch));
    let mut images: Vec<(Bytes, Bytes)> = batch
        .images()
        .filter_map(|image| Some((Bytes::copy_from_slice(image.key), Bytes::copy_from_slice(image.value?))))
        .collect();
    images.sort();
    images.dedup_by(|a, b| a.0 == b.0);
    let mut loading = Loading::new(Options::default());
    for (key, value) in images {
        if loading.load(key, &value).is_err() {
            return;
        }
    }
});

/// A record that was created and removed within the batch leaves no trace.
fn kept(batch: &Batch) -> usize {
    batch.images().filter(|image| image.value.is_some() || !image.is_first).count()
}
