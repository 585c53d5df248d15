//! Finds the line of a byte offset, and the offset of a field.

use toml::de::DeValue;

/// The byte offsets of the line ends.
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Lines {
        Lines(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line of a byte offset, from 1.
    pub(super) fn line_at(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

/// The byte offset of the field with this path, or of the deepest part of the path that exists. Keys may contain dots, so each key
/// is compared as a whole.
pub(super) fn of_field(value: &DeValue<'_>, field: &str) -> Option<usize> {
    match value {
        DeValue::Table(table) => table.iter().find_map(|(key, value)| {
            let rest = field.strip_prefix(&**key.get_ref())?;
            let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
            is_whole.then(|| {
                of_field(value.get_ref(), rest.strip_prefix('.').unwrap_or(rest)).unwrap_or(key.span().start)
            })
        }),
        DeValue::Array(items) => {
            let (index, rest) = field.strip_prefix('[')?.split_once(']')?;
            let item = items.get(index.parse::<usize>().ok()?)?;
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            Some(of_field(item.get_ref(), rest).unwrap_or(item.span().start))
        }
        _ => None,
    }
}
