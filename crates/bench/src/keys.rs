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

    pub fn bytes(&self) -> usize {
        self.prefix.len() + self.digits + self.suffix.len()
    }

    /// The key of number zero; the digits of others are written over its own.
    pub fn zero(&self) -> String {
        format!("{}{}{}", self.prefix, "0".repeat(self.digits), self.suffix)
    }

    /// The key of any number.
    pub fn key(&self, number: u64) -> Vec<u8> {
        let mut key = self.zero().into_bytes();
        write_digits(&mut key[self.prefix.len()..self.prefix.len() + self.digits], number);
        key
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

/// A number in decimal of fixed width. Writing the one that follows costs a digit or two, any other all of them.
pub struct Digits {
    number: u64,
    text: Vec<u8>,
}

impl Digits {
    pub fn zero(digits: usize) -> Digits {
        Digits { number: 0, text: vec![b'0'; digits] }
    }

    /// The digits of `number`.
    #[inline]
    pub fn of(&mut self, number: u64) -> &[u8] {
        if number == self.number + 1 {
            self.increment();
        } else if number != self.number {
            write_digits(&mut self.text, number);
        }
        self.number = number;
        &self.text
    }

    #[inline]
    fn increment(&mut self) {
        for digit in self.text.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
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
    seed: u64,
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

/// The key of a rank, which counts from 1.
fn scatter(rank: f64, keys: u64) -> u64 {
    (rank as u64 - 1) * SCATTER % keys
}

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
        Picker { seed, rng: SmallRng::seed_from_u64(seed), keys, choice }
    }

    /// Every key once, from 0 on.
    pub fn in_order(keys: u64) -> Picker {
        Picker { seed: 0, rng: SmallRng::seed_from_u64(0), keys, choice: Choice::InOrder { next: 0 } }
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        match &mut self.choice {
            Choice::Uniform => self.rng.random_range(0..self.keys),
            Choice::Zipf(zipf) => scatter(zipf.sample(&mut self.rng), self.keys),
            Choice::One => 0,
            Choice::InOrder { next } => {
                *next += 1;
                (*next - 1) % self.keys
            }
        }
    }

    /// The key of event `number`, the same whenever it is asked for.
    #[inline]
    pub fn of(&self, number: u64) -> u64 {
        let mut rng = SmallRng::seed_from_u64(self.seed.rotate_left(32) ^ number);
        match &self.choice {
            Choice::Uniform => rng.random_range(0..self.keys),
            Choice::Zipf(zipf) => scatter(zipf.sample(&mut rng), self.keys),
            Choice::One => 0,
            Choice::InOrder { .. } => number % self.keys,
        }
    }

    /// Any number below `bound`, for choices other than that of a key.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.random_range(0..bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_number_has_its_digits() {
        assert_eq!("v:%04d!".parse::<KeyPattern>().unwrap().key(42), b"v:0042!");
    }

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
    fn digits_follow_any_number_with_any_other() {
        let mut digits = Digits::zero(4);
        for number in [0, 1, 1, 2, 9, 10, 11, 999, 1000, 7, 8, 9999] {
            assert_eq!(digits.of(number), format!("{number:04}").as_bytes());
        }
    }

    #[test]
    fn an_event_has_one_key_and_the_events_have_all_keys() {
        for distribution in [Distribution::Uniform, Distribution::Zipf(1.0)] {
            let picker = Picker::new(distribution, 10, 3);
            let keys: Vec<u64> = (0..1000).map(|number| picker.of(number)).collect();
            assert!((0..1000).all(|number| picker.of(number) == keys[number as usize]));
            assert!((0..10).all(|key| keys.contains(&key)), "{distribution:?}");
        }
        assert_ne!(
            Picker::new(Distribution::Uniform, 1 << 30, 1).of(5),
            Picker::new(Distribution::Uniform, 1 << 30, 2).of(5)
        );
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
