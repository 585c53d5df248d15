//! Files of TOML that may contain secrets.

use serde::de::DeserializeOwned;

/// Reads such a file. The error names the line, but shows nothing of it: errors end up in logs.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let begin = error.span().map_or(text.len(), |span| span.start);
        let line = text.as_bytes()[..begin].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: {}", error.message().replace('\n', " "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(rename = "token")]
        _token: Option<String>,
    }

    #[test]
    fn an_error_names_the_line_and_shows_nothing_of_it() {
        #[track_caller]
        fn check(text: &str, expect: &str) {
            let error = parse::<File>(text).expect_err("it is not valid");
            assert!(error.starts_with(expect), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        check("token = \"secret", "line 1: ");
        check("# a\ntoken = secret\n", "line 2: ");
        check("token = \"secret\"\ntoken = \"secret\"\n", "line 2: duplicate key");
        check("token = [\"secret\"]\n", "line 1: invalid type");
        check("\n\nother = \"secret\"\n", "line 3: unknown field");
    }
}
