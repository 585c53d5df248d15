//! The secret that the nodes of a cluster share.

use axum::http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, InvalidHeaderValue},
};
use std::fmt;
use subtle::ConstantTimeEq;

/// The secret that the nodes of a cluster share. It is never printed.
#[derive(Clone)]
pub struct Secret(HeaderValue);

/// Why a text is not a [`Secret`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidSecret {
    /// The text has fewer than [`Secret::MIN_BYTES`].
    TooShort,
    /// The text contains a character that is not visible ASCII.
    NotVisible,
}

impl Secret {
    /// The shortest secret, in bytes.
    pub const MIN_BYTES: usize = 16;

    /// Accepts a text that can be sent in a header and is long enough.
    pub fn new(text: &str) -> Result<Secret, InvalidSecret> {
        if text.len() < Secret::MIN_BYTES {
            return Err(InvalidSecret::TooShort);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidSecret::NotVisible);
        }
        let header = HeaderValue::try_from(format!("Bearer {text}"));
        let mut header = header.map_err(|_: InvalidHeaderValue| InvalidSecret::NotVisible)?;
        header.set_sensitive(true);
        Ok(Secret(header))
    }

    /// The value of the header `Authorization`.
    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Whether a request contains the secret. Compares in constant time.
    pub(super) fn is_shown_by(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        self.0.as_bytes().ct_eq(shown).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for InvalidSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidSecret::TooShort => write!(f, "must have at least {} bytes", Secret::MIN_BYTES),
            InvalidSecret::NotVisible => f.write_str("must consist of visible ASCII characters"),
        }
    }
}

impl std::error::Error for InvalidSecret {}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdef";

    #[test]
    fn only_the_same_secret_is_right() {
        let secret = Secret::new(TEXT).unwrap();
        let check = |shown: &str, is_right: bool| {
            let headers = [(AUTHORIZATION, HeaderValue::from_str(shown).unwrap())].into_iter().collect();
            assert_eq!(secret.is_shown_by(&headers), is_right, "{shown:?}");
        };
        check(&format!("Bearer {TEXT}"), true);
        check(&format!("Bearer {TEXT}0"), false);
        check(&format!("Bearer {}", &TEXT[..15]), false);
        check("Bearer 0123456789abcdeF", false);
        check(TEXT, false);
        check("", false);
        assert!(!secret.is_shown_by(&HeaderMap::new()));
    }

    #[test]
    fn secrets_are_checked_and_not_shown() {
        assert_eq!(Secret::new(&TEXT[1..]).unwrap_err(), InvalidSecret::TooShort);
        assert_eq!(Secret::new("0123456789 abcdef").unwrap_err(), InvalidSecret::NotVisible);
        assert_eq!(Secret::new("0123456789abcdef\n").unwrap_err(), InvalidSecret::NotVisible);
        let secret = Secret::new(TEXT).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert!(!format!("{:?}", secret.header()).contains("0123"));
    }
}
