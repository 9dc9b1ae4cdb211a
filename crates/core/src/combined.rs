//! Additions to one counter by name that were combined into one record: a hot key costs records, not operations.
//!
//! Each of them is answered as if it stood by itself: with the value after it, or with a refusal if the sum would not fit, after
//! which the next one is tried. That is a function of the value before the first, so the state answers for all of them with
//! that value ([`Answer::Many`]), and whoever combined them hands out the answers in order ([`Additions::answers`]).

use crate::limits::{COMBINED_MAX, DECLARED_MAX};
use crate::op::{Answer, Op};
use crate::record::{DecodeError, put_bytes, put_signed, put_varint, take_bytes, take_signed, take_varint};

/// What is added, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Additions<'a> {
    /// The same again and again.
    Same { delta: i64, times: u32 },
    /// Signed numbers of the log's format.
    Each(&'a [u8]),
}

/// How far from 0 additions by name may bring a counter: a declared one stays where an entry always has room.
pub(crate) fn bound_of(op: &Op) -> Option<i64> {
    (op.counter != Op::AD_HOC).then_some(DECLARED_MAX)
}

/// The sum, if it fits into 64 bits and is within a bound.
#[inline]
pub(crate) fn sum_within(value: i64, delta: i64, bound: Option<i64>) -> Option<i64> {
    let sum = value.checked_add(delta)?;
    bound.is_none_or(|bound| sum.unsigned_abs() <= bound.unsigned_abs()).then_some(sum)
}

impl<'a> Additions<'a> {
    pub fn iter(self) -> impl Iterator<Item = i64> + use<'a> {
        let (same, mut each) = match self {
            Additions::Same { delta, times } => (std::iter::repeat_n(delta, times as usize), &[][..]),
            Additions::Each(bytes) => (std::iter::repeat_n(0, 0), bytes),
        };
        same.chain(std::iter::from_fn(move || take_signed(&mut each).ok()))
    }

    /// What each of them is answered; `op` is their operation, and `before` was the value before the first.
    pub fn answers(self, op: &Op, before: i64) -> impl Iterator<Item = Answer> + use<'a> {
        let (mut value, bound) = (before, bound_of(op));
        self.iter().map(move |delta| match sum_within(value, delta, bound) {
            Some(sum) => {
                value = sum;
                Answer::Value(sum)
            }
            None => Answer::Overflow,
        })
    }

    /// How many of them fit, and what those add up to.
    pub(crate) fn fitting(self, before: i64, bound: Option<i64>) -> (u32, i128) {
        match self {
            Additions::Same { delta, times } => {
                let fitting =
                    if sum_within(before, delta, bound).is_some() { room_for(before, delta, bound) } else { 0 };
                let fitting = times.min(u32::try_from(fitting).unwrap_or(u32::MAX));
                (fitting, i128::from(delta) * i128::from(fitting))
            }
            Additions::Each(_) => {
                let (mut fitting, mut value) = (0, before);
                for delta in self.iter() {
                    if let Some(sum) = sum_within(value, delta, bound) {
                        (fitting, value) = (fitting + 1, sum);
                    }
                }
                (fitting, i128::from(value) - i128::from(before))
            }
        }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Additions::Same { delta, times } => {
                put_varint(out, times.into());
                put_signed(out, delta);
            }
            Additions::Each(bytes) => put_bytes(out, bytes),
        }
    }

    pub(crate) fn take_same(bytes: &mut &'a [u8]) -> Result<Additions<'a>, DecodeError> {
        let times = take_varint(bytes)?;
        let known = u32::try_from(times).ok().filter(|times| (1..=COMBINED_MAX).contains(times));
        let times = known.ok_or(DecodeError::BadValue { field: "times", value: times })?;
        Ok(Additions::Same { delta: take_signed(bytes)?, times })
    }

    pub(crate) fn take_each(bytes: &mut &'a [u8]) -> Result<Additions<'a>, DecodeError> {
        let each = take_bytes(bytes)?;
        let (mut rest, mut count) = (each, 0u64);
        while !rest.is_empty() {
            take_signed(&mut rest)?;
            count += 1;
        }
        match (1..=u64::from(COMBINED_MAX)).contains(&count) {
            true => Ok(Additions::Each(each)),
            false => Err(DecodeError::BadValue { field: "how many are combined", value: count }),
        }
    }
}

/// How often something that fits once fits.
fn room_for(before: i64, delta: i64, bound: Option<i64>) -> i128 {
    let end: i128 = match bound {
        Some(bound) if delta < 0 => -i128::from(bound),
        Some(bound) => bound.into(),
        None if delta < 0 => i64::MIN.into(),
        None => i64::MAX.into(),
    };
    if delta == 0 { i128::MAX } else { (end - i128::from(before)) / i128::from(delta) }
}

/// The bytes of [`Additions::Each`].
pub fn encode_each(deltas: &[i64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(deltas.len());
    deltas.iter().for_each(|delta| put_signed(&mut out, *delta));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_number() -> impl Strategy<Value = i64> {
        let far = prop_oneof![Just(i64::MAX), Just(i64::MIN), Just(DECLARED_MAX), Just(-DECLARED_MAX)];
        prop_oneof![-3i64..4, any::<i64>(), (far, -5i64..6).prop_map(|(far, by)| far.saturating_add(by))]
    }

    proptest! {
        #[test]
        fn how_many_fit_is_what_adding_one_by_one_says(
            before in some_number(), delta in some_number(), times in 1u32..40, declared: bool,
            each in proptest::collection::vec(some_number(), 1..12),
        ) {
            let bound = declared.then_some(DECLARED_MAX);
            let bytes = encode_each(&each);
            for deltas in [Additions::Same { delta, times }, Additions::Each(&bytes)] {
                let (mut fit, mut value) = (0, i128::from(before));
                let range = bound.map_or(i64::MIN..=i64::MAX, |bound| -bound..=bound);
                for delta in deltas.iter() {
                    let sum = value + i128::from(delta);
                    if i64::try_from(sum).is_ok_and(|sum| range.contains(&sum)) {
                        (fit, value) = (fit + 1, sum);
                    }
                }
                prop_assert_eq!(deltas.fitting(before, bound), (fit, value - i128::from(before)));
            }
        }
    }
}
