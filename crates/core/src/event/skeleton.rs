//! What the client's own data has between its texts, numbers and words, learnt from an event that was read in full.
//!
//! Data in which all of that stands again is well formed if those are. Other data is read as any JSON is.

use super::literal::Literal;
use super::scan::Scanner;
use crate::limits::JSON_DEPTH_MAX;

/// Texts, numbers and words in data that is worth learning, and the bytes between them.
const BONES_MAX: usize = 32;
const BONE_BYTES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Skeleton {
    bones: Vec<Bone>,
    end: Literal,
}

/// What stands before a value, and what kind of value it is.
#[derive(Debug)]
struct Bone {
    before: Literal,
    value: BoneValue,
}

/// How a value is read. The quotes of texts belong to what stands around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoneValue {
    Text,
    Number,
    Word,
}

impl Skeleton {
    /// Steps over one value of any kind; `None` if it is not JSON.
    #[inline(always)]
    pub fn read(&self, scanner: &mut Scanner<'_>) -> Option<()> {
        let start = scanner.at();
        if self.end.len() > 0 && self.read_known(scanner).is_some() {
            return Some(());
        }
        scanner.rewind(start);
        // A space before it belongs to what stands around it: then the event looks different.
        scanner.peek().filter(|byte| *byte > b' ')?;
        scanner.value().ok().map(drop)
    }

    #[inline(always)]
    fn read_known(&self, scanner: &mut Scanner<'_>) -> Option<()> {
        for bone in &self.bones {
            bone.before.take(scanner)?;
            match bone.value {
                BoneValue::Text => drop(scanner.plain_text()),
                BoneValue::Number => drop(scanner.number().ok()?),
                BoneValue::Word => read_word(scanner)?,
            }
        }
        self.end.take(scanner)
    }

    /// The skeleton of a value that is well formed; an empty one if it is not worth learning.
    pub fn learn(text: &str) -> Skeleton {
        let mut learner =
            SkeletonLearner { text, scanner: Scanner::new(text), learnt: 0, skeleton: Skeleton::default() };
        match learner.value(JSON_DEPTH_MAX) {
            Some(()) if text.len() <= BONE_BYTES_MAX => {
                learner.skeleton.end = Literal::new(&text[learner.learnt..]);
                learner.skeleton
            }
            _ => Skeleton::default(),
        }
    }
}

#[inline]
fn read_word(scanner: &mut Scanner<'_>) -> Option<()> {
    (scanner.take(b"true") || scanner.take(b"false") || scanner.take(b"null")).then_some(())
}

struct SkeletonLearner<'a> {
    text: &'a str,
    scanner: Scanner<'a>,
    /// Up to where the text is in the skeleton.
    learnt: usize,
    skeleton: Skeleton,
}

impl SkeletonLearner<'_> {
    fn value(&mut self, depth_left: usize) -> Option<()> {
        match self.scanner.next_token()? {
            b'{' => self.object(depth_left.checked_sub(1)?),
            b'[' => self.array(depth_left.checked_sub(1)?),
            b'"' => self.bone(BoneValue::Text),
            b't' | b'f' | b'n' => self.bone(BoneValue::Word),
            _ => self.bone(BoneValue::Number),
        }
    }

    fn object(&mut self, depth_left: usize) -> Option<()> {
        let mut more = self.scanner.first_member().ok()?;
        while more {
            self.scanner.key().ok()?;
            self.value(depth_left)?;
            more = self.scanner.next_member().ok()?;
        }
        Some(())
    }

    fn array(&mut self, depth_left: usize) -> Option<()> {
        let mut more = self.scanner.first_element().ok()?;
        while more {
            self.value(depth_left)?;
            more = self.scanner.next_element().ok()?;
        }
        Some(())
    }

    /// Adds what stands between the last value and this one.
    fn bone(&mut self, value: BoneValue) -> Option<()> {
        let quote = usize::from(value == BoneValue::Text);
        let before = Literal::new(&self.text[self.learnt..self.scanner.at() + quote]);
        self.scanner.value().ok()?;
        self.learnt = self.scanner.at() - quote;
        self.skeleton.bones.push(Bone { before, value });
        (self.skeleton.bones.len() <= BONES_MAX).then_some(())
    }
}
