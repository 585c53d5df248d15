//! Patterns of namespaces, in which `*` matches any characters.

use std::fmt;

/// A pattern of namespaces. `*` matches any characters, also none; everything else matches itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Pattern {
        Pattern { text: text.to_owned() }
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.text.split_once('*') else { return self.text == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        let mut parts = rest.split('*').peekable();
        while let Some(part) = parts.next() {
            // The last part must be at the end. Each part before it is taken where it occurs first, which leaves the most to
            // the following parts.
            if parts.peek().is_none() {
                return name.ends_with(part);
            }
            let Some(at) = name.find(part) else { return false };
            name = &name[at + part.len()..];
        }
        true
    }

    /// The only name that matches. None if the pattern has a `*`.
    pub(crate) fn literal(&self) -> Option<&str> {
        (!self.text.contains('*')).then_some(&*self.text)
    }

    /// The characters before the first `*`. All names that match begin with them.
    pub(crate) fn prefix(&self) -> &str {
        self.text.split('*').next().unwrap_or_default()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_characters() {
        #[track_caller]
        fn check(pattern: &str, name: &str, expect: bool) {
            assert_eq!(Pattern::new(pattern).matches(name), expect, "{pattern} and {name}");
        }
        check("shop", "shop", true);
        check("shop", "shop2", false);
        check("shop", "sho", false);
        check("*", "anything/at all", true);
        check("shop-*", "shop-", true);
        check("shop-*", "shop-eu", true);
        check("shop-*", "shop", false);
        check("*-prod", "eu-prod", true);
        check("*-prod", "eu-prod-2", false);
        check("a*b*c", "abc", true);
        check("a*b*c", "a-b-b-c", true);
        check("a*b*c", "acb", false);
        check("a*a", "a", false);
        check("a*a", "aa", true);
        check("**", "x", true);
        check("té*", "tés", true);
    }
}
