//! After-images that may not be durable yet.

use alloc::{collections::BTreeMap, vec::Vec};
use bytes::Bytes;
use core::{
    cell::{Cell, OnceCell},
    ops::RangeBounds,
};
use hashbrown::HashMap;

/// The newest after-image of each key, in the order in which the keys first came.
///
/// Most are only ever looked up by their key, so they are kept by hash. Their order by key is made when it is first
/// asked for, and from then on kept up.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    records: Vec<(Bytes, Option<Bytes>)>,
    places: HashMap<Bytes, usize>,
    order: OnceCell<BTreeMap<Bytes, usize>>,
    /// Whether the order was asked for since these were begun.
    is_order_asked: Cell<bool>,
}

impl Recent {
    pub(crate) fn insert(&mut self, key: Bytes, value: Option<Bytes>) {
        if let Some(place) = self.places.get(&key) {
            self.records[*place].1 = value;
            return;
        }
        let place = self.records.len();
        self.places.insert(key.clone(), place);
        if let Some(order) = self.order.get_mut() {
            order.insert(key.clone(), place);
        }
        self.records.push((key, value));
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.places.get(key).map(|place| &self.records[*place].1)
    }

    /// By key.
    pub(crate) fn range(
        &self,
        range: impl RangeBounds<Bytes>,
    ) -> impl DoubleEndedIterator<Item = (&Bytes, &Option<Bytes>)> {
        self.is_order_asked.set(true);
        let order = self.order.get_or_init(|| {
            self.records.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect()
        });
        order.range(range).map(|(key, place)| (key, &self.records[*place].1))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All of them, each key once.
    pub(crate) fn records(&self) -> &[(Bytes, Option<Bytes>)] {
        &self.records
    }

    /// An empty one for the time after this; if the order was asked for here, it will be asked for there.
    pub(crate) fn next(&self) -> Recent {
        let next = Recent::default();
        if self.is_order_asked.get() {
            next.order.get_or_init(BTreeMap::new);
        }
        next
    }
}
