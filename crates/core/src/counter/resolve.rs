//! The forms of an id: where its name ends, what of it is canonical, and whether it can be that of a declared counter.

use super::{Counter, Declarations};
use crate::database::Space;
use crate::event::excerpt;
use crate::id::{SEPARATOR, decode_part, encode_part};
use crate::limits::ID_BYTES_MAX;
use memchr::{memchr, memchr_iter};
use std::borrow::Cow;

/// Why an id names nothing. The texts name the id and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("a counter id has at most {ID_BYTES_MAX} bytes; this one has {bytes}")]
    TooLong { bytes: usize },
    #[error("counter id {id:?}: counter {counter:?} is counted by {expected}, so its ids look like {shape:?}")]
    WrongKey { id: String, counter: String, expected: String, shape: String },
    #[error(
        "counter id {id:?}: the % at byte {at} has no two hexadecimal digits behind it; write a % in a key as %25 and a : as %3A"
    )]
    BadEscape { id: String, at: usize },
    #[error("counter id {id:?}: the key of a declared counter is UTF-8 text")]
    NotUtf8 { id: String },
}

/// How the names of counters begin, roughly: an id that begins otherwise is ad hoc, without a look at the names.
#[derive(Clone, Debug, Default)]
pub(super) struct Beginnings([u64; 16]);

impl Beginnings {
    pub fn add(&mut self, name: &[u8]) {
        let (word, bit) = match *name {
            [first, second, ..] => Self::place(first, second),
            [only] => Self::place(only, SEPARATOR),
            [] => unreachable!("a counter has a name"),
        };
        self.0[word] |= bit;
    }

    /// Whether `id` may be that of a counter.
    #[inline]
    fn may_begin(&self, id: &[u8]) -> bool {
        let [first, second, ..] = *id else { return true };
        let (word, bit) = Self::place(first, second);
        self.0[word] & bit != 0
    }

    /// By the low five bits of both, which tell letters apart.
    #[inline]
    fn place(first: u8, second: u8) -> (usize, u64) {
        let place = usize::from(first & 31) << 5 | usize::from(second & 31);
        (place >> 6, 1 << (place & 63))
    }
}

impl Declarations {
    /// Whether `id` names an ad-hoc counter for certain, and is its own canonical form. If not, [`Self::resolve`] knows.
    #[inline]
    pub fn is_plainly_ad_hoc(&self, id: &[u8]) -> bool {
        id.len() <= ID_BYTES_MAX && Space::is_own_id(id) && !self.beginnings.may_begin(id)
    }
}

impl Counter {
    /// The one form of an id that begins with the counter's name.
    pub(super) fn canonical_id<'a>(&self, id: &'a [u8]) -> Result<Cow<'a, [u8]>, IdError> {
        let key = id.get(self.name.len() + 1..);
        let parts = key.map_or(0, |key| memchr_iter(SEPARATOR, key).count() + 1);
        if parts != self.dimensions.len() {
            return Err(self.wrong_key(id));
        }
        let Some(key) = key else { return Ok(Cow::Borrowed(id)) };
        let not_utf8 = || IdError::NotUtf8 { id: shown(id) };
        if memchr(b'%', key).is_none() {
            std::str::from_utf8(key).map_err(|_| not_utf8())?;
            return Ok(Cow::Borrowed(id));
        }
        let mut canonical = self.name.as_bytes().to_vec();
        let mut start = canonical.len() + 1;
        for part in key.split(|byte| *byte == SEPARATOR) {
            let value = decode_part(part).map_err(|at| IdError::BadEscape { id: shown(id), at: start + at })?;
            std::str::from_utf8(&value).map_err(|_| not_utf8())?;
            canonical.push(SEPARATOR);
            encode_part(&value, &mut canonical);
            start += part.len() + 1;
        }
        Ok(Cow::Owned(canonical))
    }

    #[cold]
    fn wrong_key(&self, id: &[u8]) -> IdError {
        let expected = match &*self.dimensions {
            [] => "nothing".to_owned(),
            dimensions => dimensions.join(", "),
        };
        let shape = self.dimensions.iter().fold(self.name.to_string(), |shape, name| format!("{shape}:<{name}>"));
        IdError::WrongKey { id: shown(id), counter: self.name.to_string(), expected, shape }
    }
}

fn shown(id: &[u8]) -> String {
    excerpt(&String::from_utf8_lossy(id))
}
