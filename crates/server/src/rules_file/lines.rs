//! Which line of the file something stands in.

use toml::de::DeValue;

/// Where each line ends.
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Lines {
        Lines(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line of the byte at this place, from 1.
    pub(super) fn line_at(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

/// Where the field of this path begins, or as much of its way as is found. Keys may contain dots, so each is looked
/// for as a whole.
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
            let (place, rest) = field.strip_prefix('[')?.split_once(']')?;
            let item = items.get(place.parse::<usize>().ok()?)?;
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            Some(of_field(item.get_ref(), rest).unwrap_or(item.span().start))
        }
        _ => None,
    }
}
