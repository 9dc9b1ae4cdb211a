//! Which of what was counted for a cell is there: clears take it away, and reverting a clear brings it back.
//!
//! What an entity counted is known by the generation at which it was counted. Spans say of every generation whether its counts
//! are there, and which correction decided so last. A correction that reverts another one turns exactly the spans that this one
//! decided. So undoing a like is right before a clear, after it, and after the clear was reverted.
//!
//! Only cells that were cleared have any. They are few: beyond [`SPANS_MAX`] the oldest are joined, and the clears they stood for
//! can no longer be reverted.

use crate::limits::SPANS_MAX;
use crate::record::{DecodeError, put_varint, take_byte, take_varint};
use std::sync::Arc;

/// Counts of the generations from `from` on, up to the next span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u64,
    /// The generation of the correction that decided last; [`NOBODY`] if none did, [`FORGOTTEN`] if several did.
    by: u64,
    is_taken: bool,
    /// How many of the counts were undone since then.
    undone: u64,
}

const NOBODY: u64 = 0;
const FORGOTTEN: u64 = u64::MAX;

/// In ascending order, the first from 0 on; none at all if everything is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Option<Arc<[Span]>>);

impl Spans {
    /// As earlier versions knew it: only the last clear.
    pub fn of_last_clear(generation: u64) -> Spans {
        let mut spans = Spans::default();
        if generation > 0 {
            spans.clear(generation);
        }
        spans
    }

    /// Memory in use beside this.
    pub fn bytes(&self) -> usize {
        size_of_val(self.spans())
    }

    /// Whether what was counted at a generation is there.
    pub fn is_there(&self, generation: u64) -> bool {
        self.find(generation).is_none_or(|index| !self.spans()[index].is_taken)
    }

    /// Everything counted before generation `at` is taken away by it.
    pub fn clear(&mut self, at: u64) {
        let mut spans = self.spans().to_vec();
        if spans.is_empty() {
            spans.push(Span { from: 0, by: NOBODY, is_taken: false, undone: 0 });
        }
        for span in spans.iter_mut().filter(|span| !span.is_taken) {
            *span = Span { by: at, is_taken: true, undone: 0, ..*span };
        }
        spans.push(Span { from: at, by: NOBODY, is_taken: false, undone: 0 });
        self.set(spans);
    }

    /// Whether a revert of generation `of` would turn anything.
    pub fn has(&self, of: u64) -> bool {
        self.spans().iter().any(|span| span.by == of)
    }

    /// Reverts what generation `of` decided.
    pub fn revert(&mut self, of: u64, at: u64) {
        let mut spans = self.spans().to_vec();
        for span in spans.iter_mut().filter(|span| span.by == of) {
            *span = Span { by: at, is_taken: !span.is_taken, undone: 0, ..*span };
        }
        self.set(spans);
    }

    /// What was counted at a generation is undone. Answers whether that has to be remembered.
    pub fn undo(&mut self, generation: u64) -> bool {
        let Some(index) = self.find(generation).filter(|index| self.spans()[*index].by != NOBODY) else { return false };
        let mut spans = self.spans().to_vec();
        spans[index].undone += 1;
        self.set(spans);
        true
    }

    /// By how much the opposite of what generation `of` did would be wrong: of what it took, some was undone since and must not
    /// come back; of what it brought back, some was undone since and must not be taken again.
    pub fn undone_since(&self, of: u64) -> i64 {
        let signed = |span: &Span| if span.is_taken { -(span.undone as i64) } else { span.undone as i64 };
        self.spans().iter().filter(|span| span.by == of).map(signed).sum()
    }

    fn spans(&self) -> &[Span] {
        self.0.as_deref().unwrap_or_default()
    }

    fn find(&self, generation: u64) -> Option<usize> {
        self.spans().partition_point(|span| span.from <= generation).checked_sub(1)
    }

    fn set(&mut self, mut spans: Vec<Span>) {
        spans.dedup_by(|next, span| {
            let same = (next.by, next.is_taken) == (span.by, span.is_taken);
            if same {
                span.undone += next.undone;
            }
            same
        });
        while spans.len() > SPANS_MAX {
            let Some(first) = spans.windows(2).position(|pair| pair[0].is_taken && pair[1].is_taken) else { break };
            spans.remove(first + 1);
            spans[first].by = FORGOTTEN;
        }
        self.0 = (!spans.is_empty()).then(|| spans.into());
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.spans().len() as u64);
        for span in self.spans() {
            put_varint(out, span.from);
            put_varint(out, span.by);
            out.push(span.is_taken.into());
            put_varint(out, span.undone);
        }
    }

    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Spans, DecodeError> {
        let len = take_varint(bytes)?;
        let span = |bytes: &mut &[u8]| {
            let (from, by) = (take_varint(bytes)?, take_varint(bytes)?);
            let is_taken = match take_byte(bytes)? {
                0 => false,
                1 => true,
                other => return Err(DecodeError::BadValue { field: "taken", value: other.into() }),
            };
            Ok(Span { from, by, is_taken, undone: take_varint(bytes)? })
        };
        let spans: Vec<_> = (0..len).map(|_| span(bytes)).collect::<Result<_, _>>()?;
        Ok(Spans((!spans.is_empty()).then(|| spans.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One like and everything that was ever done to it.
    struct Like {
        generation: u64,
        is_there: bool,
        by: u64,
    }

    proptest! {
        #[test]
        fn a_like_is_there_unless_a_clear_that_nobody_reverted_took_it(
            story in proptest::collection::vec((0..3u8, 0..6usize), 1..40)
        ) {
            let (mut spans, mut likes) = (Spans::default(), Vec::new());
            let (mut done, mut reverted) = (Vec::new(), Vec::new());
            let mut generation = 0;
            for (what, which) in story {
                match what {
                    0 => likes.push(Like { generation, is_there: true, by: 0 }),
                    1 => {
                        generation += 1;
                        spans.clear(generation);
                        for like in likes.iter_mut().filter(|like| like.is_there) {
                            (like.is_there, like.by) = (false, generation);
                        }
                        done.push(generation);
                    }
                    _ => {
                        let open: Vec<u64> = done.iter().copied().filter(|of| !reverted.contains(of)).collect();
                        let Some(&of) = open.get(which) else { continue };
                        generation += 1;
                        spans.revert(of, generation);
                        for like in likes.iter_mut().filter(|like| like.by == of) {
                            (like.is_there, like.by) = (!like.is_there, generation);
                        }
                        reverted.push(of);
                        done.push(generation);
                    }
                }
                for like in &likes {
                    prop_assert_eq!(spans.is_there(like.generation), like.is_there, "{:?}", &spans);
                }
            }
            let mut bytes = Vec::new();
            spans.encode(&mut bytes);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(Spans::decode(&mut rest).unwrap(), spans);
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_was_undone_meanwhile_does_not_come_back() {
        let mut spans = Spans::default();
        spans.clear(1);
        assert!(spans.undo(0) && spans.undo(0));
        assert!(!spans.undo(1), "what was counted after the clear is nobody's");
        assert_eq!(spans.undone_since(1), -2);
        spans.revert(1, 2);
        assert_eq!(spans.undone_since(2), 0);
        assert!(spans.undo(0));
        assert_eq!(spans.undone_since(2), 1);
    }

    #[test]
    fn the_spans_of_many_clears_are_bounded_and_the_newest_can_be_reverted() {
        let mut spans = Spans::default();
        (1..=1000).for_each(|generation| spans.clear(generation));
        assert_eq!(spans.spans().len(), SPANS_MAX);
        assert!((0..1000).all(|generation| !spans.is_there(generation)) && spans.is_there(1000));
        assert!(spans.has(1000) && spans.has(950) && !spans.has(900));
        spans.revert(950, 1001);
        assert!(spans.is_there(949) && !spans.is_there(948) && !spans.is_there(950));
    }
}
