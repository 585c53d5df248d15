//! Queries: which objects with key-values are listed.

use crate::{
    Invalid, KeyValues, Reason, Selection,
    invalid::key_path,
    object,
    selection::{Test, WALK_WEIGHT},
};
use alloc::vec::{self, Vec};
use core::ops::Deref;
use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::ToSchema;

/// The objects that a query finds: all conditions must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(into = "Vec<Part>")]
pub struct Query {
    selection: Selection,
    min_keys: Option<usize>,
    max_keys: Option<usize>,
    any: Vec<Query>,
    all: Vec<Query>,
}

/// What a query looks for. All given fields must hold. An empty query finds everything.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Query)]
pub(crate) struct QueryAsJson {
    /// Conditions on the key-values of an object. For rules, only `exists` is allowed, on `group_by` keys.
    #[serde(rename = "where", default)]
    conditions: Option<Selection>,
    /// The object has at least this many keys.
    #[serde(default)]
    min_keys: Option<u32>,
    /// The object has at most this many keys.
    #[serde(default)]
    max_keys: Option<u32>,
    /// At least one of these queries holds. Empty or absent: no condition.
    #[serde(default, deserialize_with = "object::list::<64, _, _>")]
    #[schema(no_recursion, max_items = 63)]
    any: Vec<Query>,
    /// Every one of these queries holds.
    #[serde(default, deserialize_with = "object::list::<64, _, _>")]
    #[schema(no_recursion, max_items = 63)]
    all: Vec<Query>,
}

impl Query {
    /// The deepest nesting. A query without queries within it is 1 deep.
    pub const MAX_DEPTH: usize = 8;
    /// The most queries that a query may consist of, itself included.
    pub const MAX_PARTS: usize = 64;

    /// Finds the objects whose key-values are selected.
    pub fn new(selection: Selection) -> Query {
        Query { selection, ..Query::default() }
    }

    /// Finds only objects with at least this many keys.
    #[must_use]
    pub fn with_min_keys(self, min_keys: Option<usize>) -> Query {
        Query { min_keys, ..self }
    }

    /// Finds only objects with at most this many keys.
    #[must_use]
    pub fn with_max_keys(self, max_keys: Option<usize>) -> Query {
        Query { max_keys, ..self }
    }

    /// Finds only objects that at least one of these queries finds. An empty list changes nothing.
    pub fn with_any(self, any: Vec<Query>) -> Result<Query, Invalid> {
        Query { any, ..self }.checked()
    }

    /// Finds only objects that every one of these queries finds.
    pub fn with_all(self, all: Vec<Query>) -> Result<Query, Invalid> {
        Query { all, ..self }.checked()
    }

    /// The conditions on the object's key-values.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The fewest keys of the object.
    pub fn min_keys(&self) -> Option<usize> {
        self.min_keys
    }

    /// The most keys of the object.
    pub fn max_keys(&self) -> Option<usize> {
        self.max_keys
    }

    /// At least one of these queries finds the object, if there are any.
    pub fn any(&self) -> &[Query] {
        &self.any
    }

    /// Every one of these queries finds the object.
    pub fn all(&self) -> &[Query] {
        &self.all
    }

    fn checked(self) -> Result<Query, Invalid> {
        self.check_size(1, &mut 0)?;
        Ok(self)
    }

    /// The queries within this one were checked when they were built, so the recursion is not deep.
    fn check_size(&self, depth: usize, parts: &mut usize) -> Result<(), Invalid> {
        *parts += 1;
        if depth > Query::MAX_DEPTH {
            return Err(Invalid::new("", Reason::TooDeep { max: Query::MAX_DEPTH }));
        }
        if *parts > Query::MAX_PARTS {
            return Err(Invalid::new("", Reason::TooManyParts { max: Query::MAX_PARTS }));
        }
        self.try_each_part(|part| part.check_size(depth + 1, parts))
    }

    fn try_each_part(&self, mut check: impl FnMut(&Query) -> Result<(), Invalid>) -> Result<(), Invalid> {
        for (list, parts) in [("any", &self.any), ("all", &self.all)] {
            for (index, part) in parts.iter().enumerate() {
                check(part).map_err(|invalid| invalid.within_item(list, index))?;
            }
        }
        Ok(())
    }

    /// Decoding has checked the depth and the number of parts already: it could not have built the query otherwise.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.try_each_selection(&Selection::validate)
    }

    /// Checks that the query tests only whether keys exist.
    fn check_only_keys(&self) -> Result<(), Invalid> {
        self.try_each_selection(&|selection| {
            let tests_value = |tests: &[Test]| tests.iter().any(|test| !matches!(test, Test::Exists(_)));
            match selection.conditions().find(|(_, tests)| tests_value(tests)) {
                Some((key, _)) => Err(Invalid::new(key_path("selection", key), Reason::NotAboutKeys)),
                None => Ok(()),
            }
        })
    }

    fn try_each_selection(&self, check: &dyn Fn(&Selection) -> Result<(), Invalid>) -> Result<(), Invalid> {
        check(&self.selection).map_err(|invalid| invalid.with_root("where"))?;
        self.try_each_part(|part| part.try_each_selection(check))
    }

    /// Whether the query finds these key-values.
    pub fn finds(&self, key_values: &KeyValues) -> bool {
        self.holds(key_values.len(), &|selection| selection.selects(key_values))
    }

    /// Whether the query finds an object of which only the keys are known.
    pub fn finds_keys<K: AsRef<str>>(&self, keys: &[K]) -> bool {
        self.holds(keys.len(), &|selection| selection.selects_keys(keys))
    }

    /// About how much work it is to look at one object, in comparisons.
    pub fn weight(&self) -> usize {
        let parts = self.any.iter().chain(&self.all).map(Query::weight);
        WALK_WEIGHT + self.selection.comparisons() + parts.sum::<usize>()
    }

    fn holds(&self, keys: usize, selects: &dyn Fn(&Selection) -> bool) -> bool {
        selects(&self.selection)
            && self.min_keys.is_none_or(|min| keys >= min)
            && self.max_keys.is_none_or(|max| keys <= max)
            && (self.any.is_empty() || self.any.iter().any(|query| query.holds(keys, selects)))
            && self.all.iter().all(|query| query.holds(keys, selects))
    }
}

/// A query for rules. It can only test which keys a rule groups by, because a rule has no values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RuleQuery(Query);

impl RuleQuery {
    /// Takes a query whose only tests are [`Test::Exists`].
    pub fn new(query: Query) -> Result<RuleQuery, Invalid> {
        query.check_only_keys()?;
        Ok(RuleQuery(query))
    }

    /// Checks what decoding does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.0.validate()?;
        self.0.check_only_keys()
    }
}

impl Deref for RuleQuery {
    type Target = Query;

    fn deref(&self) -> &Query {
        &self.0
    }
}

/// JSON nests queries. Nodes send the list of the parts.
impl<'de> Deserialize<'de> for Query {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Query, D::Error> {
        if !deserializer.is_human_readable() {
            return Vec::<Part>::deserialize(deserializer)?.try_into().map_err(de::Error::custom);
        }
        let QueryAsJson { conditions, min_keys, max_keys, any, all } =
            QueryAsJson::deserialize(deserializer)?;
        let query = Query {
            selection: conditions.unwrap_or_default(),
            min_keys: min_keys.map(|keys| keys as usize),
            max_keys: max_keys.map(|keys| keys as usize),
            any,
            all,
        };
        query.checked().map_err(Invalid::into_serde)
    }
}

/// A query without the queries within it. These follow it in the list: first `any`, then `all`. A query is encoded as the
/// list of its parts, so that the bytes cannot make the decoder's stack deep.
#[derive(Serialize, Deserialize)]
struct Part {
    selection: Selection,
    min_keys: Option<usize>,
    max_keys: Option<usize>,
    any: usize,
    all: usize,
}

impl From<Query> for Vec<Part> {
    fn from(query: Query) -> Vec<Part> {
        fn push(query: Query, parts: &mut Vec<Part>) {
            let Query { selection, min_keys, max_keys, any, all } = query;
            parts.push(Part { selection, min_keys, max_keys, any: any.len(), all: all.len() });
            any.into_iter().chain(all).for_each(|query| push(query, parts));
        }
        let mut parts = Vec::new();
        push(query, &mut parts);
        parts
    }
}

impl TryFrom<Vec<Part>> for Query {
    type Error = &'static str;

    fn try_from(parts: Vec<Part>) -> Result<Query, &'static str> {
        fn take(parts: &mut vec::IntoIter<Part>, depth: usize) -> Result<Query, &'static str> {
            if depth > Query::MAX_DEPTH {
                return Err("a query is too deep");
            }
            let Part { selection, min_keys, max_keys, any, all } =
                parts.next().ok_or("a part of a query is missing")?;
            let any = (0..any).map(|_| take(parts, depth + 1)).collect::<Result<_, _>>()?;
            let all = (0..all).map(|_| take(parts, depth + 1)).collect::<Result<_, _>>()?;
            Ok(Query { selection, min_keys, max_keys, any, all })
        }
        if parts.len() > Query::MAX_PARTS {
            return Err("a query has too many parts");
        }
        let mut parts = parts.into_iter();
        let query = take(&mut parts, 1)?;
        parts.next().map_or(Ok(query), |_| Err("a query has parts to spare"))
    }
}
