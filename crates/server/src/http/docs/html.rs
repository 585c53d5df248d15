//! HTML from text. Everything that is not markup of this module passes `escape`.

use crate::http::problem::Code;
use std::fmt::Write;

/// Escapes text for the content of elements.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Escapes text for attributes in double quotes.
pub(super) fn attribute(text: &str) -> String {
    escape(text).replace('"', "&quot;")
}

/// A paragraph's text: words in backquotes become code, words between two asterisks become bold, and error codes become links to
/// their explanations.
pub(super) fn inline(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 32);
    for (n, part) in text.split('`').enumerate() {
        if n % 2 == 0 {
            for (n, part) in part.split("**").enumerate() {
                match n % 2 {
                    0 => html.push_str(&escape(part)),
                    _ => _ = write!(html, "<strong>{}</strong>", escape(part)),
                }
            }
        } else if is_code(part) {
            _ = write!(html, "<a href=\"#{part}\"><code>{part}</code></a>");
        } else {
            _ = write!(html, "<code>{}</code>", escape(part));
        }
    }
    html
}

/// Whether a word is an error code, which has a section of its own.
pub(super) fn is_code(word: &str) -> bool {
    Code::ALL.iter().any(|code| code.word() == word)
}

/// What a sample is written in.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Language {
    Json,
    Shell,
    Python,
}

/// A sample with its colours: `b` is a name, `i` a text, `u` another value, `s` a comment. These short elements, which the style sheet
/// resets, keep the page small.
pub(super) fn highlight(text: &str, language: Language) -> String {
    if language == Language::Shell {
        return escape(text);
    }
    let mut html = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (element, end) = match first {
            '"' => {
                let end = end_of_string(rest);
                let is_name = language == Language::Json && rest[end..].starts_with(':');
                (if is_name { "b" } else { "i" }, end)
            }
            '#' if language == Language::Python => ("s", rest.find('\n').unwrap_or(rest.len())),
            first if first.is_alphanumeric() || first == '-' => {
                let end = rest
                    .find(|letter: char| !letter.is_alphanumeric() && !"-_.".contains(letter))
                    .unwrap_or(rest.len());
                let is_value = first.is_ascii_digit()
                    || ["true", "false", "null", "True", "False", "None"].contains(&&rest[..end])
                    || (first == '-' && end > 1 && language == Language::Json);
                (if is_value { "u" } else { "" }, end)
            }
            other => ("", other.len_utf8()),
        };
        let part = escape(&rest[..end]);
        match element {
            "" => html.push_str(&part),
            element => _ = write!(html, "<{element}>{part}</{element}>"),
        }
        rest = &rest[end..];
    }
    html
}

/// The length of the string literal at the beginning, with its quotes.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (n, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return n + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let hostile = "<img src=x onerror=\"alert(1)\">&'";
        let safe = "&lt;img src=x onerror=\"alert(1)\"&gt;&amp;'";
        assert_eq!(escape(hostile), safe);
        assert_eq!(attribute(hostile), "&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;'");
        assert_eq!(inline(hostile), safe);
        assert_eq!(inline(&format!("a `{hostile}` **{hostile}**")), {
            format!("a <code>{safe}</code> <strong>{safe}</strong>")
        });
        for language in [Language::Json, Language::Shell, Language::Python] {
            let html = highlight(hostile, language);
            let bare = ["b", "i", "u", "s"].iter().fold(html, |html, element| {
                html.replace(&format!("<{element}>"), "").replace(&format!("</{element}>"), "")
            });
            assert_eq!(bare, safe);
        }
    }

    #[test]
    fn samples_have_colours() {
        let json = r#"{"a\"b": "c", "n": -1.5, "t": true}"#;
        let html = r#"{<b>"a\"b"</b>: <i>"c"</i>, <b>"n"</b>: <u>-1.5</u>, <b>"t"</b>: <u>true</u>}"#;
        assert_eq!(highlight(json, Language::Json), html);
        assert_eq!(highlight("f(\"a\", 2)  # c", Language::Python), "f(<i>\"a\"</i>, <u>2</u>)  <s># c</s>");
        assert_eq!(
            inline("see `LimitReached`"),
            "see <a href=\"#LimitReached\"><code>LimitReached</code></a>"
        );
    }
}
