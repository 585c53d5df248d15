//! A number as an argument, or the word `none`.

use std::str::FromStr;

/// A number, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrNone<N>(pub Option<N>);

impl<N: FromStr> FromStr for OrNone<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<OrNone<N>, String> {
        if text == "none" {
            return Ok(OrNone(None));
        }
        text.parse()
            .map(|number| OrNone(Some(number)))
            .map_err(|_| "write a whole number, or `none`".to_owned())
    }
}
