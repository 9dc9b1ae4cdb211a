//! The head of a batch: who appended it, what it knew, and when. It stands before the records (`docs/formats/wal.md`, "Head").
//!
//! Everything that a replay could not know otherwise is in the log. The declarations a batch was made under, the rules it is
//! judged by and the clock of its appender are in its head; so is which of its sender's batches it is, by which one that was
//! sent again is known ([`crate::fates::Senders`]). A batch without a head is of a log from before there were any.
//!
//! Made once for each commit, so it is cheap: some twenty bytes, written backwards into room before the records.

use crate::limits::APPENDED_AHEAD_MS_MAX;
use crate::record::{DecodeError, tag, take_byte, take_varint};
use xxhash_rust::xxh3::Xxh3;

/// The version of the rules by which this program decides. It is raised when the same records under the same declarations
/// would come to something else, and then what a batch of an older version comes to must stay as it was.
pub const RULES: u32 = 2;

/// From this version on a commit has the audit of its batches; nothing else is another since version 1.
pub const RULES_WITH_AUDIT: u32 = 2;

/// The longest head, and the room that is left for one.
pub const HEAD_BYTES_MAX: usize = 2 + 5 + 3 + 5 * 10 + CLOCK_BYTES;

/// Milliseconds since 1970 fit for the next eight thousand years.
const CLOCK_BYTES: usize = 6;
const CLOCK_MS_MAX: u64 = (1 << (8 * CLOCK_BYTES)) - 1;

const BEGINS: u8 = 1;

/// Which counters the events of a batch are judged for: those whose identity they were routed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group(pub u16);

impl Group {
    /// All of them: there is one partition, so every identity is at home in it.
    pub const ALL: Group = Group(0);

    /// The group of the counters that share the identity of counter `index`, which is the first of them.
    pub(crate) fn of_first(index: u16) -> Group {
        Group(index + 1)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// It begins a commit, although it would still belong to the one before.
    pub begins: bool,
    /// The version of the rules that it is judged by.
    pub rules: u32,
    pub group: Group,
    /// Behind the last control record that its appender knew: the declarations it was made under are those in force there.
    pub control: u64,
    pub sender: u64,
    /// Which life of the sender: every start has a higher one.
    pub incarnation: u64,
    /// Which batch of that life. One that is sent again has the same, and the same bytes.
    pub seq: u64,
    /// No batch of that life before this one will be sent again. At most the one behind `seq`.
    pub settled: u64,
    /// The appender's clock, in milliseconds since 1970.
    pub clock_ms: u64,
}

impl Head {
    /// Writes it to the end of the room before the records. Answers where it begins.
    #[inline]
    pub fn encode_before(&self, room: &mut [u8; HEAD_BYTES_MAX]) -> usize {
        assert!(self.settled <= self.seq + 1, "what was not sent is not settled");
        let mut at = HEAD_BYTES_MAX - CLOCK_BYTES;
        room[at..].copy_from_slice(&self.clock_ms.min(CLOCK_MS_MAX).to_le_bytes()[..CLOCK_BYTES]);
        put_before(room, &mut at, self.seq + 1 - self.settled);
        put_before(room, &mut at, self.seq);
        put_before(room, &mut at, self.incarnation);
        put_before(room, &mut at, self.sender);
        put_before(room, &mut at, self.control);
        put_before(room, &mut at, self.group.0.into());
        put_before(room, &mut at, self.rules.into());
        put_before(room, &mut at, (if self.begins { BEGINS } else { 0 }).into());
        put_before(room, &mut at, tag::HEAD.into());
        at
    }

    /// Takes the head from the front of a batch's bytes; `None` if the batch is of a log from before there were any.
    pub fn take(bytes: &mut &[u8]) -> Result<Option<Head>, DecodeError> {
        if bytes.first() != Some(&tag::HEAD) {
            return Ok(None);
        }
        take_byte(bytes)?;
        let begins = match take_byte(bytes)? {
            0 => false,
            BEGINS => true,
            other => return Err(DecodeError::BadValue { field: "flags of a head", value: other.into() }),
        };
        let rules = take_narrow(bytes, "rules")?;
        let group = Group(take_narrow(bytes, "group")?);
        let (control, sender, incarnation) = (take_varint(bytes)?, take_varint(bytes)?, take_varint(bytes)?);
        let (seq, unsettled) = (take_varint(bytes)?, take_varint(bytes)?);
        let settled = seq.checked_add(1).and_then(|next| next.checked_sub(unsettled));
        let settled = settled.ok_or(DecodeError::BadValue { field: "settled", value: unsettled })?;
        let clock_ms = take_clock(bytes)?;
        Ok(Some(Head { begins, rules, group, control, sender, incarnation, seq, settled, clock_ms }))
    }

    /// What tells the bytes of a batch from others: all of them, the head's included.
    pub fn digest(&self, records: &[u8]) -> u64 {
        let mut room = [0; HEAD_BYTES_MAX];
        let at = self.encode_before(&mut room);
        let mut hash = Xxh3::new();
        hash.update(&room[at..]);
        hash.update(records);
        hash.digest()
    }
}

/// The log time of a batch: that of its append, but not before the batch before, and not far ahead of the appender's clock, so
/// that one broker whose clock is wrong cannot stop time for everybody.
#[inline]
pub fn log_time_ms(before_ms: u64, appended_ms: u64, clock_ms: u64) -> u64 {
    before_ms.max(appended_ms.min(clock_ms.saturating_add(APPENDED_AHEAD_MS_MAX)))
}

/// Whether a log time can be one by that rule, whenever the append was.
#[inline]
pub(crate) fn is_log_time_ms(before_ms: u64, clock_ms: u64, log_time_ms: u64) -> bool {
    log_time_ms == self::log_time_ms(before_ms, log_time_ms, clock_ms)
}

#[inline]
fn put_before(room: &mut [u8; HEAD_BYTES_MAX], at: &mut usize, value: u64) {
    if value < 0x80 {
        *at -= 1;
        room[*at] = value as u8;
    } else {
        put_long_before(room, at, value);
    }
}

fn put_long_before(room: &mut [u8; HEAD_BYTES_MAX], at: &mut usize, mut value: u64) {
    let bytes = (u64::BITS - value.leading_zeros()).div_ceil(7) as usize;
    *at -= bytes;
    for byte in &mut room[*at..*at + bytes - 1] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    room[*at + bytes - 1] = value as u8;
}

fn take_narrow<T: TryFrom<u64>>(bytes: &mut &[u8], field: &'static str) -> Result<T, DecodeError> {
    let value = take_varint(bytes)?;
    T::try_from(value).map_err(|_| DecodeError::BadValue { field, value })
}

fn take_clock(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let (clock, rest) = bytes.split_first_chunk::<CLOCK_BYTES>().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    let mut wide = [0; 8];
    wide[..CLOCK_BYTES].copy_from_slice(clock);
    Ok(u64::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(head: &Head) -> Vec<u8> {
        let mut room = [0xee; HEAD_BYTES_MAX];
        let at = head.encode_before(&mut room);
        room[at..].to_vec()
    }

    #[test]
    fn the_bytes_of_a_head_are_pinned() {
        let head = Head {
            begins: true,
            rules: 1,
            group: Group(2),
            control: 300,
            sender: 3,
            incarnation: 4,
            seq: 500,
            settled: 499,
            clock_ms: 1_794_765_600_000,
        };
        assert_eq!(encoded(&head), b"\x14\x01\x01\x02\xac\x02\x03\x04\xf4\x03\x02\x00\xb5\x5d\xe0\xa1\x01");
    }

    #[test]
    fn bytes_without_a_head_are_left_alone() {
        let mut records: &[u8] = b"\x02\x03v:1";
        assert_eq!(Head::take(&mut records), Ok(None));
        assert_eq!(records, b"\x02\x03v:1");
    }

    #[test]
    fn log_time_follows_the_append_unless_the_clock_of_its_appender_is_far_behind() {
        let minute = 60_000;
        assert_eq!(log_time_ms(100, 200, 150), 200);
        assert_eq!(log_time_ms(300, 200, 150), 300, "it never runs backwards");
        // A broker that is an hour ahead brings it five minutes ahead, and it goes on from there.
        assert_eq!(log_time_ms(0, 60 * minute, 0), 5 * minute);
        assert_eq!(log_time_ms(5 * minute, minute, minute), 5 * minute);
        assert!(is_log_time_ms(5 * minute, minute, 5 * minute) && is_log_time_ms(0, minute, 6 * minute));
        assert!(!is_log_time_ms(0, minute, 6 * minute + 1) && !is_log_time_ms(2, 0, 1));
    }

    proptest! {
        #[test]
        fn a_head_survives_its_bytes(
            begins: bool, rules: u32, group: u16, control: u64, sender: u64, incarnation: u64, seq in 0..u64::MAX,
            unsettled: u64, clock_ms in 0..=CLOCK_MS_MAX,
        ) {
            let settled = (seq + 1).saturating_sub(unsettled);
            let head = Head { begins, rules, group: Group(group), control, sender, incarnation, seq, settled, clock_ms };
            let bytes = encoded(&head);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(Head::take(&mut rest), Ok(Some(head)));
            prop_assert!(rest.is_empty());
            for cut in 1..bytes.len() {
                prop_assert!(Head::take(&mut &bytes[..cut]).is_err(), "cut at {}", cut);
            }
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Head::take(&mut [&[tag::HEAD][..], &bytes].concat().as_slice());
        }
    }
}
