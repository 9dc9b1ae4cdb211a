//! Rows that a store adds to: numbers one behind the other, and nothing else. A row whose numbers are all zero is none.
//!
//! This is the one thing that a store does with the insides of a row, so it is the same for every kind of fact that is added up.

use crate::record::{DecodeError, put_signed, take_signed};

/// What is left of a row when numbers are added to it; `None` if all of them are zero then.
pub fn add(row: Option<&[u8]>, numbers: &[i64]) -> Result<Option<Vec<u8>>, DecodeError> {
    let mut sum = numbers.to_vec();
    if let Some(row) = row {
        add_row(&mut sum, row)?;
    }
    if sum.iter().all(|number| *number == 0) {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(sum.len() * 2);
    sum.into_iter().for_each(|number| put_signed(&mut bytes, number));
    Ok(Some(bytes))
}

fn add_row(sum: &mut [i64], mut row: &[u8]) -> Result<(), DecodeError> {
    for number in sum {
        let before = take_signed(&mut row)?;
        let too_large = || DecodeError::BadValue { field: "a number that is added to", value: before.unsigned_abs() };
        *number = number.checked_add(before).ok_or_else(too_large)?;
    }
    match row.len() {
        0 => Ok(()),
        left => Err(DecodeError::BadValue { field: "bytes behind the last number", value: left as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(numbers: &[i64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put_signed(&mut bytes, *number));
        bytes
    }

    proptest! {
        #[test]
        fn numbers_are_added_one_by_one_and_zeros_leave_no_row(pairs in prop::collection::vec((-9i64..9, -9i64..9), 1..4)) {
            let (a, b): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let sums: Vec<i64> = pairs.iter().map(|(a, b)| a + b).collect();
            let expected = sums.iter().any(|sum| *sum != 0).then(|| row(&sums));
            prop_assert_eq!(add(Some(&row(&a)), &b), Ok(expected));
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        assert_eq!(add(None, &[1, -1, 200]), Ok(Some(vec![2, 1, 0x90, 3])));
    }

    #[test]
    fn a_row_of_another_length_and_a_sum_that_is_too_large_are_told() {
        assert!(add(Some(&row(&[1, 2, 3])), &[1, 1]).is_err());
        assert!(add(Some(&row(&[1])), &[1, 1]).is_err());
        assert!(add(Some(&row(&[i64::MAX])), &[1]).is_err());
    }
}
