//! Records in memory: the newest after-image of each key.

use crate::{Batch, Image, batch::Slot};
use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};
use std::{
    collections::BTreeSet,
    hash::BuildHasher,
    ops::RangeBounds,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// What a record costs beside its bytes, about.
const PLACE_BYTES: usize = 48;
/// So many bytes of replaced records are kept in any case.
const LEAST_DEAD_BYTES: usize = 16 << 10;

/// After-images, the newest of each key; no value means removed.
///
/// Whole batches are kept as they were written, and a place in one of them for each key: a record costs neither an
/// allocation nor a reference count, and letting go of all is nearly free. Most are only ever looked up by their key,
/// so places are kept by hash. Their order is made when it is first asked for, and from then on kept up.
#[derive(Debug, Default)]
pub struct Records {
    pieces: Vec<Bytes>,
    places: HashTable<Place>,
    hasher: DefaultHashBuilder,
    /// Bytes of records that count, and of those that were replaced.
    live_bytes: usize,
    dead_bytes: usize,
    order: OnceLock<BTreeSet<Bytes>>,
    /// Whether the order was asked for since these were begun.
    is_order_asked: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// So that neither growing nor a look-up in vain touches the bytes.
    hash: u64,
    piece: u32,
    slot: Slot,
}

impl Place {
    fn bytes(&self) -> usize {
        self.slot.key as usize + self.slot.value.unwrap_or(0) as usize
    }
}

impl Records {
    /// Takes in a batch, which replaces what stands under its keys.
    pub fn insert(&mut self, batch: &Batch) {
        self.insert_slots(batch, batch.slots());
    }

    /// Takes in a batch that is read back from the journal. A checkpoint that was cut short may have left any of it in the
    /// table, so nothing counts as the first under its key.
    pub(crate) fn insert_again(&mut self, batch: &Batch) {
        self.insert_slots(batch, batch.slots().map(|slot| Slot { is_first: false, ..slot }));
    }

    fn insert_slots(&mut self, batch: &Batch, slots: impl Iterator<Item = Slot>) {
        let payload = batch.payload().clone();
        let piece = u32::try_from(self.pieces.len()).expect("fewer than 2^32 batches");
        self.places.reserve(batch.len(), |place| place.hash);
        self.pieces.push(payload.clone());
        for slot in slots {
            let key = slot.image(&payload).key;
            self.put(Place { hash: self.hasher.hash_one(key), piece, slot }, key);
        }
        if self.dead_bytes > 2 * self.live_bytes + LEAST_DEAD_BYTES {
            self.rewrite();
        }
    }

    fn put(&mut self, mut place: Place, key: &[u8]) {
        let pieces = &self.pieces;
        let is_same = |other: &Place| other.hash == place.hash && other.key(pieces) == key;
        self.live_bytes += place.bytes();
        match self.places.entry(place.hash, is_same, |place| place.hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(place);
                if let Some(order) = self.order.get_mut() {
                    order.insert(Bytes::copy_from_slice(key));
                }
            }
            Entry::Occupied(mut occupied) => {
                let old = occupied.get().bytes();
                self.live_bytes -= old;
                self.dead_bytes += old;
                // The table knows nothing of what was first put here, so it need not learn that it is gone.
                if occupied.get().slot.is_first && place.slot.value.is_none() {
                    occupied.remove();
                    self.live_bytes -= place.bytes();
                    self.dead_bytes += place.bytes();
                    if let Some(order) = self.order.get_mut() {
                        order.remove(key);
                    }
                } else {
                    place.slot.is_first = occupied.get().slot.is_first;
                    *occupied.get_mut() = place;
                }
            }
        }
    }

    /// Leaves what was replaced behind.
    fn rewrite(&mut self) {
        let places: Vec<&Place> = self.places.iter().collect();
        let images = places.iter().map(|place| place.image(&self.pieces));
        let batch = Batch::new(images);
        let mut next = Records {
            hasher: self.hasher.clone(),
            order: std::mem::take(&mut self.order),
            ..Records::default()
        };
        next.is_order_asked = AtomicBool::new(*self.is_order_asked.get_mut());
        next.places.reserve(places.len(), |place| place.hash);
        for slot in batch.slots() {
            let key = slot.image(batch.payload()).key;
            let place = Place { hash: next.hasher.hash_one(key), piece: 0, slot };
            next.live_bytes += place.bytes();
            next.places.insert_unique(place.hash, place, |place| place.hash);
        }
        next.pieces.push(batch.payload().clone());
        *self = next;
    }

    /// The after-image of a key.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let hash = self.hasher.hash_one(key);
        let is_same = |place: &Place| place.hash == hash && place.key(&self.pieces) == key;
        self.places.find(hash, is_same).map(|place| place.value(&self.pieces))
    }

    /// A part of them, by key. The first time only that part is put in order, since it may be the only time: after a
    /// crash millions of records are read back from the journal, and opening looks at a few of them.
    pub fn range<'a>(
        &'a self,
        range: impl RangeBounds<Bytes> + 'a,
    ) -> Box<dyn DoubleEndedIterator<Item = (Bytes, Option<Bytes>)> + 'a> {
        if !self.is_order_asked.swap(true, Ordering::Relaxed) && self.order.get().is_none() {
            let all = self.places.iter().map(|place| (place.key_bytes(&self.pieces), place));
            let mut part: Vec<_> = all.filter(|(key, _)| range.contains(key)).collect();
            part.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            return Box::new(part.into_iter().map(|(key, place)| (key, place.value(&self.pieces))));
        }
        // Copies, so that what is replaced can go.
        let key = |place: &Place| Bytes::copy_from_slice(place.key(&self.pieces));
        let order = self.order.get_or_init(|| self.places.iter().map(key).collect());
        let value = |key: &Bytes| self.get(key).expect("what is in order is there");
        Box::new(order.range(range).map(move |key| (key.clone(), value(key))))
    }

    /// All of them, by key, for a checkpoint: in an order that is made for this one time.
    pub fn sorted(&self) -> impl ExactSizeIterator<Item = Image<'_>> {
        // Most comparisons should end within the first bytes of the keys, which are kept at hand, so that few keys are
        // followed to where they lie. Not measured on its own.
        let head = |place: &Place| {
            let mut head = [0; 24];
            let key = place.key(&self.pieces);
            let length = key.len().min(head.len());
            head[..length].copy_from_slice(&key[..length]);
            let (words, _) = head.as_chunks::<8>();
            [0, 1, 2].map(|word| u64::from_be_bytes(words[word]))
        };
        let mut all: Vec<([u64; 3], &Place)> = self.places.iter().map(|place| (head(place), place)).collect();
        all.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| a.1.key(&self.pieces).cmp(b.1.key(&self.pieces)))
        });
        all.into_iter().map(|(_, place)| place.image(&self.pieces))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// What they take in memory, about.
    pub fn bytes(&self) -> usize {
        self.live_bytes + self.dead_bytes + self.len() * PLACE_BYTES
    }

    /// None yet; if the order of these was asked for, it will be asked for again.
    pub(crate) fn next(&self) -> Records {
        let next = Records::default();
        if self.is_order_asked.load(Ordering::Relaxed) {
            next.order.get_or_init(BTreeSet::new);
        }
        next
    }
}

impl Place {
    fn image<'a>(&self, pieces: &'a [Bytes]) -> Image<'a> {
        self.slot.image(&pieces[self.piece as usize])
    }

    fn key<'a>(&self, pieces: &'a [Bytes]) -> &'a [u8] {
        self.image(pieces).key
    }

    fn key_bytes(&self, pieces: &[Bytes]) -> Bytes {
        let at = self.slot.at as usize;
        pieces[self.piece as usize].slice(at..at + self.slot.key as usize)
    }

    fn value(&self, pieces: &[Bytes]) -> Option<Bytes> {
        let at = (self.slot.at + self.slot.key) as usize;
        self.slot.value.map(|length| pieces[self.piece as usize].slice(at..at + length as usize))
    }
}

impl FromIterator<crate::Record> for Records {
    fn from_iter<I: IntoIterator<Item = crate::Record>>(records: I) -> Records {
        let mut all = Records::default();
        all.insert(&records.into_iter().collect::<Vec<_>>().into());
        all
    }
}
