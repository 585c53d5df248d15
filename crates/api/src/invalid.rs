//! Why a command cannot be built.
//!
//! Every command checks its own limits where it is built, so the engine never sees an invalid one. The limits are
//! constants beside the constructors. A constructor returns [`Invalid`]: the field, as the API calls it, and the reason.
//! HTTP puts both into its answer, a node refuses the request of another node with them, and a program that embeds the
//! engine prints the whole sentence.

use crate::{Duration, name::InvalidName, time::Millis};
use alloc::{collections::BTreeSet, format, string::String};
use core::{fmt, ops::RangeInclusive};

/// The first mistake that was found in a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    field: String,
    reason: Reason,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The text is not a [`Name`](crate::Name).
    Name(InvalidName),
    /// A list or a map has too few or too many items.
    Items {
        /// The fewest items that are allowed.
        min: usize,
        /// The most items that are allowed.
        max: usize,
        /// The number of items that were given.
        found: usize,
    },
    /// A text is too short or too long.
    Bytes {
        /// The fewest bytes that are allowed.
        min: usize,
        /// The most bytes that are allowed.
        max: usize,
    },
    /// A number is out of its range.
    Number {
        /// The smallest number that is allowed.
        min: i64,
        /// The largest number that is allowed.
        max: i64,
    },
    /// A duration is out of its range.
    Duration {
        /// The shortest duration that is allowed.
        min: Millis,
        /// The longest duration that is allowed.
        max: Millis,
    },
    /// The same thing is named twice. The field is that of the second time.
    Repeated,
    /// The field is needed, and absent.
    Missing,
    /// The field must be absent, because another one says the same, or something else.
    GivenBy(&'static str),
    /// A number is infinite or NaN.
    NotFinite,
    /// A condition has no test.
    NoTest,
    /// A query is nested too deeply.
    TooDeep {
        /// The deepest nesting that is allowed.
        max: usize,
    },
    /// A query consists of too many queries, itself included.
    TooManyParts {
        /// The most parts that are allowed.
        max: usize,
    },
    /// A query that looks for rules tests the value of a key. Rules have only keys.
    NotAboutKeys,
    /// An override lacks a key by which its rule groups.
    GroupKeyMissing,
    /// An override has a burst, and its rule is not a bucket.
    BurstWithoutBucket,
    /// A condition that only this kind of request has, as a predicate of the field.
    Condition(&'static str),
}

impl Invalid {
    /// A mistake in the field with this path, such as `changes[3].limit_name`.
    pub fn new(field: impl Into<String>, reason: Reason) -> Invalid {
        Invalid { field: field.into(), reason }
    }

    /// The path of the field, in the words of the API. It contains text of the client where a key is wrong, and is then
    /// as long as that key. It is empty if the object as a whole is wrong, such as a query without an object around it.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with the field.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The same mistake, seen from an object that has the invalid object in this field.
    #[must_use]
    pub fn within(mut self, object: &str) -> Invalid {
        if !self.field.is_empty() && !object.is_empty() {
            self.field.insert(0, '.');
        }
        self.field.insert_str(0, object);
        self
    }

    /// The same mistake, seen from an object that has the invalid object in a list in this field. The first item has the
    /// index 0.
    #[must_use]
    pub fn within_item(self, list: &str, index: usize) -> Invalid {
        self.within(&format!("{list}[{index}]"))
    }

    /// The same mistake, if the outermost field has another name: a query calls its selection `where`.
    #[must_use]
    pub fn with_root(mut self, root: &str) -> Invalid {
        let end = self.field.find(['.', '[']).unwrap_or(self.field.len());
        self.field.replace_range(..end, root);
        self
    }

    /// The same mistake under another name of the field.
    #[must_use]
    pub fn renamed(self, field: impl Into<String>) -> Invalid {
        Invalid { field: field.into(), ..self }
    }
}

impl Invalid {
    /// The mistake as an error of serde. [`JsonFault`](crate::JsonFault) finds the field in its text, which is inside the value that
    /// is being read.
    pub(crate) fn into_serde<E: serde::de::Error>(self) -> E {
        match self.field.as_str() {
            "" => E::custom(self.reason),
            field => E::custom(format_args!("invalid field `{field}`: {}", self.reason)),
        }
    }
}

impl core::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "{}", self.reason),
            field => write!(f, "{field}: {}", self.reason),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::Name(reason) => write!(f, "{reason}"),
            Reason::Items { min: 0, max, found } => {
                write!(f, "must not have more than {max} items, and has {found}")
            }
            Reason::Items { min, max, found } => {
                write!(f, "must have from {min} to {max} items, and has {found}")
            }
            Reason::Bytes { min: 0, max } => write!(f, "must not have more than {max} bytes"),
            Reason::Bytes { min, max } => write!(f, "must have from {min} to {max} bytes"),
            Reason::Number { min, max } => write!(f, "must be from {} to {}", Number(min), Number(max)),
            Reason::Duration { min, max } => write!(f, "must be from {} to {}", Span(min), Span(max)),
            Reason::Repeated => f.write_str("repeats an earlier one"),
            Reason::Missing => f.write_str("is required"),
            Reason::GivenBy(other) => write!(f, "must be absent, because `{other}` is given"),
            Reason::NotFinite => f.write_str("must be a finite number"),
            Reason::NoTest => f.write_str("must have at least one test"),
            Reason::TooDeep { max } => write!(f, "must not be nested more than {max} deep"),
            Reason::TooManyParts { max } => write!(f, "must not have more than {max} parts"),
            Reason::NotAboutKeys => {
                f.write_str("must test only `exists`, because rules are found by their `group_by` keys")
            }
            Reason::GroupKeyMissing => f.write_str("is required, because the rule groups by it"),
            Reason::BurstWithoutBucket => f.write_str("must be absent, because the rule is not a bucket"),
            Reason::Condition(predicate) => f.write_str(predicate),
        }
    }
}

/// A number as people write it: the largest integer of JSON is known as 2^53−1.
struct Number(i64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LARGEST_IN_JSON: i64 = (1 << 53) - 1;
        match self.0 {
            LARGEST_IN_JSON => f.write_str("2^53−1"),
            number if number == -LARGEST_IN_JSON => f.write_str("−(2^53−1)"),
            number => write!(f, "{number}"),
        }
    }
}

/// A duration in the largest unit in which it is a whole number of at least 2, except that 0 has no unit.
struct Span(Millis);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds")];
        let Millis(millis) = self.0;
        let whole = UNITS.iter().find(|(unit, _)| millis >= 2 * unit && millis % unit == 0);
        match whole {
            Some((unit, word)) => write!(f, "{} {word}", millis / unit),
            None if millis == 0 => f.write_str("0"),
            None => write!(f, "{millis} ms"),
        }
    }
}

/// Checks how many items a list or a map has.
pub fn check_items(field: &str, found: usize, allowed: RangeInclusive<usize>) -> Result<(), Invalid> {
    if allowed.contains(&found) {
        return Ok(());
    }
    let (min, max) = allowed.into_inner();
    Err(Invalid::new(field, Reason::Items { min, max, found }))
}

/// Checks how long a text is.
pub fn check_bytes(field: &str, text: &str, allowed: RangeInclusive<usize>) -> Result<(), Invalid> {
    if allowed.contains(&text.len()) {
        return Ok(());
    }
    let (min, max) = allowed.into_inner();
    Err(Invalid::new(field, Reason::Bytes { min, max }))
}

/// Checks that a number is in its range.
pub fn check_number(field: &str, number: i64, allowed: RangeInclusive<i64>) -> Result<(), Invalid> {
    if allowed.contains(&number) {
        return Ok(());
    }
    let (min, max) = allowed.into_inner();
    Err(Invalid::new(field, Reason::Number { min, max }))
}

/// Checks that a duration is in its range.
pub fn check_duration(field: &str, span: Millis, allowed: RangeInclusive<Millis>) -> Result<(), Invalid> {
    if allowed.contains(&span) {
        return Ok(());
    }
    let (min, max) = allowed.into_inner();
    Err(Invalid::new(field, Reason::Duration { min, max }))
}

/// The span that a request gives under one of two names: with units, or in milliseconds under the name that ends in `_ms`. `None` if
/// it gives none.
pub fn check_span(
    [with_units, in_millis]: [&'static str; 2],
    given: Option<Duration>,
    millis: Option<Millis>,
    allowed: RangeInclusive<Millis>,
) -> Result<Option<Millis>, Invalid> {
    let (field, span) = match (given, millis) {
        (None, None) => return Ok(None),
        (Some(given), None) => (with_units, Millis::from(given)),
        (None, Some(millis)) => (in_millis, millis),
        (Some(_), Some(_)) => return Err(Invalid::new(in_millis, Reason::GivenBy(with_units))),
    };
    check_duration(field, span, allowed)?;
    Ok(Some(span))
}

/// Checks that no two items are equal. `field` gives the path of the item at an index.
pub fn check_distinct<T: Ord>(
    items: impl ExactSizeIterator<Item = T> + Clone,
    field: impl FnOnce(usize) -> String,
) -> Result<(), Invalid> {
    match first_repeat(items) {
        None => Ok(()),
        Some(index) => Err(Invalid::new(field(index), Reason::Repeated)),
    }
}

/// The index of the first item that equals an earlier one.
fn first_repeat<T: Ord>(mut items: impl ExactSizeIterator<Item = T> + Clone) -> Option<usize> {
    /// Up to here, comparing every pair is faster than a set, and allocates nothing.
    const FEW: usize = 8;
    if items.len() <= FEW {
        let all = items.clone();
        return items
            .enumerate()
            .find(|(index, item)| all.clone().take(*index).any(|earlier| earlier == *item))
            .map(|(index, _)| index);
    }
    let mut seen = BTreeSet::new();
    items.position(|item| !seen.insert(item))
}

/// The path of a key of a client within the object in this field.
pub fn key_path(object: &str, key: &str) -> String {
    format!("{object}.{key}")
}
