//! The lists as a checkpoint has them (`docs/formats/keys.md`, "State").

use super::{Leaders, Listed, Lists, Moment, Recent};
use crate::id::CellHasher;
use crate::memory::cell::Table;
use crate::record::{
    DecodeError, put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_str, take_varint,
};

impl Lists {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, (self.active.len() + self.retired.len()) as u64);
        self.all().for_each(|listed| listed.encode(out));
    }

    /// Those of a state that did not keep them: nobody knows anything.
    pub fn resume_unknown(&mut self, name: Box<str>) {
        let listed = Listed { name: name.clone(), leaders: Leaders::unknown(), recent: Recent::default() };
        self.retired.insert(name, listed);
    }

    pub fn resume(&mut self, bytes: &mut &[u8], table: &mut Table, hasher: &CellHasher) -> Result<(), DecodeError> {
        for _ in 0..take_varint(bytes)? {
            let listed = Listed::take(bytes, table, hasher)?;
            self.retired.insert(listed.name.clone(), listed);
        }
        Ok(())
    }
}

impl Listed {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        let (bound, walks) = self.leaders.standing();
        put_signed(out, bound);
        out.push(walks.into());
        put_varint(out, self.leaders.ids().len() as u64);
        self.leaders.ids().for_each(|id| put_bytes(out, id));
        let changed = self.recent.sorted();
        put_varint(out, self.recent.since());
        put_varint(out, changed.len() as u64);
        for (Moment { offset, at_ms }, id) in changed {
            put_varint(out, offset);
            put_varint(out, at_ms);
            put_bytes(out, id);
        }
    }

    fn take(bytes: &mut &[u8], table: &mut Table, hasher: &CellHasher) -> Result<Listed, DecodeError> {
        let name = take_str(bytes)?.into();
        let (bound, walks) = (take_signed(bytes)?, take_byte(bytes)? != 0);
        let leaders = (0..take_varint(bytes)?).map(|_| take_bytes(bytes).map(|id| (hasher.key(id), id.into())));
        let leaders = leaders.collect::<Result<_, _>>()?;
        let since = take_varint(bytes)?;
        let changed = (0..take_varint(bytes)?).map(|_| {
            let moment = Moment { offset: take_varint(bytes)?, at_ms: take_varint(bytes)? };
            let id = take_bytes(bytes)?;
            Ok((hasher.key(id), moment, id.into()))
        });
        let changed = changed.collect::<Result<Vec<_>, DecodeError>>()?;
        let (leaders, recent) =
            (Leaders::resume(table, bound, walks, leaders), Recent::resume(since, changed.into_iter()));
        Ok(Listed { name, leaders, recent })
    }
}
