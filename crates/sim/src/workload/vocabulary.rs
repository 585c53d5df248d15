//! Random key-values and conditions on them. There are few keys and few values, so that they often match.

use super::valid::VALID;
use crate::random::Random;
use limina_engine::{
    KeyValues,
    key_values::{OwnedValue, Value},
    selection::{Query, Selection, Test},
};

/// The keys and values to choose from.
#[derive(Debug, Clone)]
pub(super) struct Vocabulary {
    pub(super) keys: Vec<&'static str>,
    pub(super) values: Vec<OwnedValue>,
}

impl Vocabulary {
    pub(super) fn new(random: &mut Random) -> Vocabulary {
        let all = [
            Value::String("x".into()),
            Value::Integer(1),
            Value::String("xy".into()),
            Value::Float(1.0),
            Value::Boolean(true),
            Value::Float(-0.5),
        ];
        Vocabulary {
            keys: ["b", "a", "c"][..1 + random.below(3) as usize].to_vec(),
            values: all[..1 + random.below(all.len() as u64) as usize].to_vec(),
        }
    }

    /// Most of the keys, each with any of the values.
    pub(super) fn key_values(&self, random: &mut Random) -> KeyValues {
        let keys: Vec<&str> = self.keys.iter().filter(|_| !random.one_in(4)).copied().collect();
        let pairs = keys.into_iter().map(|key| (key, random.pick(&self.values).clone()));
        KeyValues::new(pairs.collect()).expect("few short pairs")
    }

    pub(super) fn query(&self, random: &mut Random) -> Query {
        self.query_of(random, &|random| self.tests(random))
    }

    /// A query that tests only which keys exist.
    pub(super) fn key_query(&self, random: &mut Random) -> Query {
        self.query_of(random, &|random| vec![Test::Exists(!random.one_in(3))])
    }

    fn query_of(&self, random: &mut Random, tests: &dyn Fn(&mut Random) -> Vec<Test>) -> Query {
        let part = |random: &mut Random| {
            Query::new(self.selection_of(random, tests))
                .with_min_keys(random.one_in(4).then(|| random.below(3) as usize))
                .with_max_keys(random.one_in(4).then(|| random.below(4) as usize))
        };
        let mut query = part(random);
        if random.one_in(4) {
            let any = (0..random.below(3)).map(|_| part(random)).collect();
            query = query.with_any(any).expect(VALID);
        }
        if random.one_in(4) {
            let all = (0..random.below(3)).map(|_| part(random)).collect();
            query = query.with_all(all).expect(VALID);
        }
        query
    }

    pub(super) fn selection(&self, random: &mut Random) -> Selection {
        self.selection_of(random, &|random| self.tests(random))
    }

    fn selection_of(&self, random: &mut Random, tests: &dyn Fn(&mut Random) -> Vec<Test>) -> Selection {
        let keys = self.keys.iter().filter(|_| random.one_in(6)).copied().collect::<Vec<_>>();
        Selection::new(keys.into_iter().map(|key| (key.into(), tests(random))).collect()).expect(VALID)
    }

    fn tests(&self, random: &mut Random) -> Vec<Test> {
        let value = |random: &mut Random| random.pick(&self.values).clone();
        (0..1 + random.below(5) / 4)
            .map(|_| match random.below(9) {
                0 => Test::Eq(value(random)),
                1 => Test::Ne(value(random)),
                2 => Test::Lt(value(random)),
                3 => Test::Lte(value(random)),
                4 => Test::Gt(value(random)),
                5 => Test::Gte(value(random)),
                6 => Test::In((0..random.below(3)).map(|_| value(random)).collect()),
                7 => Test::Prefix((*random.pick(&["", "x", "xy", "z"])).into()),
                _ => Test::Exists(!random.one_in(3)),
            })
            .collect()
    }
}
