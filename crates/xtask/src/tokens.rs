//! Splits Rust source into the tokens from which paths are made. Comments, literals and lifetimes are left out.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// An identifier or a keyword.
    Name(&'a str),
    /// `::`
    Colons,
    /// `..`, which is not the dot before a method.
    Range,
    Mark(char),
}

pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest);
        if length > 0 {
            rest = &rest[length..];
            continue;
        }
        let (token, length) = match first {
            _ if is_in_name(first) => {
                let name = rest.split(|c| !is_in_name(c)).next().unwrap_or_default();
                (Token::Name(name), name.len())
            }
            _ if rest.starts_with("::") => (Token::Colons, 2),
            _ if rest.starts_with("..") => (Token::Range, 2),
            _ => (Token::Mark(first), first.len_utf8()),
        };
        tokens.push(token);
        rest = &rest[length..];
    }
    tokens
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the white space, comment, literal or lifetime at the start; 0 if there is none.
fn skipped(text: &str) -> usize {
    let first = text.chars().next().unwrap_or(' ');
    match first {
        _ if first.is_whitespace() => first.len_utf8(),
        _ if text.starts_with("//") => text.find('\n').unwrap_or(text.len()),
        _ if text.starts_with("/*") => text.find("*/").map_or(text.len(), |end| end + 2),
        '0'..='9' => text.find(|c| !is_in_name(c)).unwrap_or(text.len()),
        '\'' => character_or_lifetime(text),
        '"' => string(text),
        'b' | 'c' | 'r' => {
            let after_prefix = text.trim_start_matches(['b', 'c', 'r']);
            let prefix = text.len() - after_prefix.len();
            let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
            let is_raw = text[..prefix].contains('r');
            match after_prefix[hashes..].chars().next() {
                Some('"') if is_raw => prefix + raw_string(after_prefix, hashes),
                Some('"') if hashes == 0 => prefix + string(after_prefix),
                Some('\'') if hashes == 0 && prefix == 1 => prefix + character_or_lifetime(after_prefix),
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// The length of a character such as `'a'`, or of a lifetime such as `'a`.
fn character_or_lifetime(text: &str) -> usize {
    let inside = &text[1..];
    match inside.strip_prefix('\\') {
        // The character after the backslash may itself be a quote.
        Some(escaped) => escaped[1..].find('\'').map_or(text.len(), |end| end + 4),
        None => {
            let first = inside.chars().next().map_or(0, char::len_utf8);
            match inside[first..].starts_with('\'') {
                true => first + 2,
                false => 1 + inside.find(|c| !is_in_name(c)).unwrap_or(inside.len()),
            }
        }
    }
}

fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// `text` starts with the hashes in front of the opening quote.
fn raw_string(text: &str, hashes: usize) -> usize {
    let end = format!("\"{}", "#".repeat(hashes));
    let inside = hashes + 1;
    text[inside..].find(&end).map_or(text.len(), |at| inside + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let words: Vec<String> = tokens(text)
            .into_iter()
            .map(|token| match token {
                Token::Name(name) => name.into(),
                Token::Colons => "::".into(),
                Token::Range => "..".into(),
                Token::Mark(mark) => mark.into(),
            })
            .collect();
        assert_eq!(words.join(" "), expect);
    }

    #[test]
    fn paths_and_marks_are_tokens() {
        check("use crate::{a, b as c};", "use crate :: { a , b as c } ;");
        check("x.y()..z::<T>()", "x . y ( ) .. z :: < T > ( )");
        check("1.max(0x1f)", ". max ( )");
    }

    #[test]
    fn comments_literals_and_lifetimes_are_left_out() {
        check("a // crate::b\nc /* d\ne */ f", "a c f");
        check(r#"a("b \" c", 'd', '\'', '\\', '"', b'e', b"f") g"#, "a ( , , , , , , ) g");
        check("a(r\"b\\\", r#\"c \" d\"#, '\\u{1F600}') e", "a ( , , ) e");
        check("fn a<'b>(c: &'static str, bcr: r)", "fn a < > ( c : & str , bcr : r )");
    }
}
