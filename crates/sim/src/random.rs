//! Random numbers from a seed, or from bytes.

/// SplitMix64. Its sequence for a seed must never change.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
    /// Bytes that decide first, in reverse order.
    choices: Vec<u8>,
}

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random { state: seed, choices: Vec::new() }
    }

    /// The bytes decide, one for each number below 256, until there are no more. So a fuzzer that changes one byte changes
    /// one decision.
    pub fn of_bytes(bytes: &[u8]) -> Random {
        let seed = u64::from(crc32c::crc32c(bytes));
        Random { state: seed, choices: bytes.iter().rev().copied().collect() }
    }

    /// A number between 0 and `u64::MAX`.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        match (n, self.choices.pop()) {
            (..=256, Some(byte)) => u64::from(byte) % n,
            (_, Some(byte)) => (self.number() << 8 | u64::from(byte)) % n,
            (_, None) => self.number() % n,
        }
    }

    /// True with a probability of 1 in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}
