//! Wildcards: each `*` of a pattern stands for any characters, or for none.

/// A pattern, cut at its `*`. Without a `*` it matches nothing but itself.
#[derive(Debug)]
pub(crate) struct Pattern(Vec<Box<str>>);

impl Pattern {
    /// `None` if the text has no `*`.
    pub(crate) fn new(text: &str) -> Option<Pattern> {
        text.contains('*').then(|| Pattern(text.split('*').map(Box::from).collect()))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &*self.0 else { return false };
        let Some(mut rest) = text.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last)) else {
            return false;
        };
        for part in middle {
            let Some((_, behind)) = rest.split_once(&**part) else { return false };
            rest = behind;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        #[track_caller]
        fn check(pattern: &str, text: &str, expect: bool) {
            assert_eq!(Pattern::new(pattern).unwrap().matches(text), expect, "{pattern} {text}");
        }
        check("a*", "a", true);
        check("a*", "abc", true);
        check("a*", "ba", false);
        check("*a", "ba", true);
        check("a*c", "abbc", true);
        check("a*c", "ac", true);
        check("a*c", "ab", false);
        // The beginning and the end do not share characters.
        check("ab*bc", "abc", false);
        check("ab*bc", "abbc", true);
        check("a*b*c", "axbyc", true);
        check("a*b*c", "axyc", false);
        check("a*b*b", "ab", false);
        check("a**c", "ac", true);
        check("*", "", true);
        check("*ä*", "xäy", true);
        assert!(Pattern::new("abc").is_none());
    }
}
