//! Which key comes next: names of one fixed width, so that a request is changed by overwriting digits in place, and
//! seeded distributions over them.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use std::str::FromStr;

/// A name with one number in it, such as `v:%08d`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyPattern {
    pub prefix: String,
    pub digits: usize,
    pub suffix: String,
}

impl KeyPattern {
    const DIGITS_MAX: usize = 18;

    /// How many different keys the digits can tell apart.
    pub fn capacity(&self) -> u64 {
        10u64.pow(self.digits as u32)
    }

    pub fn len(&self) -> usize {
        self.prefix.len() + self.digits + self.suffix.len()
    }

    /// The key of number zero; the digits of others are written over its own.
    pub fn zero(&self) -> String {
        format!("{}{}{}", self.prefix, "0".repeat(self.digits), self.suffix)
    }
}

impl FromStr for KeyPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyPattern, String> {
        let parse = || {
            let (prefix, rest) = text.split_once("%0")?;
            let (digits, suffix) = rest.split_once('d')?;
            let digits = digits.parse().ok().filter(|n| (1..=KeyPattern::DIGITS_MAX).contains(n))?;
            Some(KeyPattern { prefix: prefix.to_owned(), digits, suffix: suffix.to_owned() })
        };
        parse().ok_or_else(|| format!("{text:?} has no number of fixed width; write it like v:%08d (1 to 18 digits)"))
    }
}

/// Overwrites all of `digits` with `number` in decimal, with leading zeros.
#[inline]
pub fn write_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// How often each key is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    Uniform,
    /// The k-th most popular key is chosen in proportion to 1/kˢ.
    Zipf(f64),
    One,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        match text.split_once(':').unwrap_or((text, "1.0")) {
            ("uniform", _) => Ok(Distribution::Uniform),
            ("one", _) => Ok(Distribution::One),
            ("zipf", exponent) => match exponent.parse::<f64>() {
                Ok(exponent) if exponent > 0.0 && exponent <= 10.0 => Ok(Distribution::Zipf(exponent)),
                _ => Err(format!("{exponent:?} is not an exponent between 0 and 10; write zipf:1.0")),
            },
            _ => Err(format!("{text:?} is not a distribution; choose uniform, zipf:1.0 or one")),
        }
    }
}

/// Chooses keys by number. The same seed gives the same sequence.
pub struct Picker {
    rng: SmallRng,
    keys: u64,
    choice: Choice,
}

enum Choice {
    Uniform,
    Zipf(Zipf<f64>),
    One,
    InOrder { next: u64 },
}

/// A prime above any number of keys, so that multiplying by it permutes them: popular keys are not neighbours.
const SCATTER: u64 = 2_654_435_761;

/// The most keys a run may use.
pub const KEYS_MAX: u64 = 2_000_000_000;

impl Picker {
    pub fn new(distribution: Distribution, keys: u64, seed: u64) -> Picker {
        let choice = match distribution {
            Distribution::Uniform => Choice::Uniform,
            Distribution::Zipf(exponent) => Choice::Zipf(
                Zipf::new(keys as f64, exponent).expect("a positive exponent over at least one key is a distribution"),
            ),
            Distribution::One => Choice::One,
        };
        Picker { rng: SmallRng::seed_from_u64(seed), keys, choice }
    }

    /// Every key once, from 0 on.
    pub fn in_order(keys: u64) -> Picker {
        Picker { rng: SmallRng::seed_from_u64(0), keys, choice: Choice::InOrder { next: 0 } }
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        match &mut self.choice {
            Choice::Uniform => self.rng.random_range(0..self.keys),
            Choice::Zipf(zipf) => (zipf.sample(&mut self.rng) as u64 - 1) * SCATTER % self.keys,
            Choice::One => 0,
            Choice::InOrder { next } => {
                *next += 1;
                (*next - 1) % self.keys
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_needs_a_number_of_fixed_width() {
        let pattern: KeyPattern = "v:%08d!".parse().unwrap();
        assert_eq!((pattern.zero().as_str(), pattern.capacity()), ("v:00000000!", 100_000_000));
        for bad in ["v", "v:%d", "v:%00d", "v:%019d", "v:%08x"] {
            assert!(bad.parse::<KeyPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn digits_are_written_with_leading_zeros() {
        let mut digits = *b"99999";
        write_digits(&mut digits, 420);
        assert_eq!(&digits, b"00420");
    }

    #[test]
    fn in_order_touches_every_key_once() {
        let mut picker = Picker::in_order(1000);
        assert!((0..1000).all(|n| picker.next() == n));
    }

    #[test]
    fn zipf_follows_its_harmonic_shares() {
        const KEYS: u64 = 1000;
        const DRAWS: u64 = 1_000_000;
        let mut picker = Picker::new(Distribution::Zipf(1.0), KEYS, 7);
        let mut hits = vec![0u64; KEYS as usize];
        (0..DRAWS).for_each(|_| hits[picker.next() as usize] += 1);
        let harmonic: f64 = (1..=KEYS).map(|k| 1.0 / k as f64).sum();
        for rank in [1u64, 2, 10, 100] {
            let key = ((rank - 1) * SCATTER % KEYS) as usize;
            let expected = DRAWS as f64 / (rank as f64 * harmonic);
            assert!((hits[key] as f64 - expected).abs() < expected * 0.15, "rank {rank}: {} of {expected}", hits[key]);
        }
        assert!(hits.iter().all(|&n| n > 0), "the scatter is a permutation, so every key has a rank");
    }

    #[test]
    fn the_same_seed_gives_the_same_keys() {
        let draw = |seed| {
            let mut picker = Picker::new(Distribution::Uniform, 1 << 30, seed);
            (0..8).map(|_| picker.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
