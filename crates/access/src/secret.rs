//! Tokens as clients present them, and their hashes.

use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};

const PREFIX: &str = "limina_";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A new token. It is shown once, when it is made: nothing stores it.
pub struct Secret(String);

/// The operating system has no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the operating system returned no random numbers")]
pub struct NoRandomNumbers(#[source] getrandom::Error);

impl Secret {
    /// Draws 256 random bits: `limina_` and 43 characters of base64url.
    pub fn draw() -> Result<Secret, NoRandomNumbers> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(NoRandomNumbers)?;
        let mut text = PREFIX.to_owned();
        let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
        for at in (0..256).step_by(6) {
            let index = (0..6).fold(0, |index, offset| index << 1 | bit(at + offset));
            text.push(char::from(ALPHABET[index]));
        }
        Ok(Secret(text))
    }

    /// The token as a client sends it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The hash that the file of tokens contains.
    pub fn hash(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

/// The SHA-256 of a token. A token has 256 random bits, so its hash cannot be reversed by guessing, and comparing hashes in
/// variable time tells an attacker nothing about a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of a token as a client sent it.
    pub fn of(presented: &[u8]) -> Hash {
        Hash(Sha256::digest(presented).into())
    }
}

impl FromStr for Hash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Hash, &'static str> {
        const SHAPE: &str = "must be the 64 hexadecimal digits of a SHA-256";
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(SHAPE);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16).ok_or(SHAPE)?;
                *byte = *byte << 4 | u8::try_from(value).map_err(|_| SHAPE)?;
            }
        }
        Ok(Hash(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A hash does not appear in logs.
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_a_fixed_format() {
        let token = Secret::draw().unwrap();
        let rest = token.text().strip_prefix("limina_").unwrap();
        assert_eq!(rest.len(), 43);
        assert!(rest.bytes().all(|byte| ALPHABET.contains(&byte)), "{rest}");
        // The last character has four bits of the token and two zero bits.
        assert_eq!(ALPHABET.iter().position(|byte| rest.ends_with(char::from(*byte))).unwrap() % 4, 0);
        assert_ne!(token.text(), Secret::draw().unwrap().text());
    }

    #[test]
    fn a_hash_is_written_in_hexadecimal() {
        let hash = Hash::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.to_uppercase().parse(), Ok(hash));
        assert!(text[1..].parse::<Hash>().is_err());
        assert!(text.replace('b', "g").parse::<Hash>().is_err());
    }
}
