//! Files of TOML that may contain secrets.

use serde::de::DeserializeOwned;

/// Reads such a file. The error names the line and its key, but shows no value: errors end up in logs.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let begin = error.span().map_or(text.len(), |span| span.start);
        let before = text.get(..begin).unwrap_or(text);
        let number = before.matches('\n').count() + 1;
        let line = text.lines().nth(number - 1).unwrap_or_default();
        let key = line.split_once('=').map(|(key, _)| key.trim()).filter(|key| is_plain(key));
        let key = key.map_or(String::new(), |key| format!(", {key}"));
        format!("line {number}{key}: {}", without_value(error.message()).replace('\n', " "))
    })
}

/// Serde's message about a string that does not fit shows the string: `invalid type: string "secret", expected a map`. Quotes in other
/// messages are around words that may be written.
fn without_value(message: &str) -> String {
    const SHOWN: &str = ": string \"";
    match (message.find(SHOWN).map(|at| at + SHOWN.len() - 1), message.rfind('"')) {
        (Some(begin), Some(end)) if begin < end => format!("{}…{}", &message[..begin], &message[end + 1..]),
        _ => message.to_owned(),
    }
}

/// Whether the text is a key without quotes.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(rename = "token")]
        _token: Option<String>,
        #[serde(rename = "context")]
        _context: Option<BTreeMap<String, String>>,
    }

    #[test]
    fn an_error_names_the_line_and_shows_no_value() {
        #[track_caller]
        fn check(text: &str, expect: &str) {
            let error = parse::<File>(text).expect_err("it is not valid");
            assert!(error.starts_with(expect), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        check("token = \"secret", "line 1, token: ");
        check("# a\ntoken = secret\n", "line 2, token: ");
        check("token = \"secret\"\ntoken = \"secret\"\n", "line 2, token: duplicate key");
        check("token = [\"secret\"]\n", "line 1, token: invalid type");
        check("\n\nother = \"secret\"\n", "line 3, other: unknown field");
        check("token \"secret\"\n", "line 1: ");
        check("context = \"se\\\"cret secret\"\n", "line 1, context: invalid type: string …, expected a map");
    }

    #[test]
    fn quotes_around_permitted_words_are_shown() {
        let message = "the quota `rules` must be a whole number from 0 on, or \"unlimited\"";
        assert_eq!(without_value(message), message);
        let value = "invalid value: string \"secret\", expected \"yes\" or \"no\"";
        assert_eq!(without_value(value), "invalid value: string …");
    }
}
