//! Bytes that are to stand in a text again.

use super::scan::Scanner;

/// Bytes to be recognised; up to 32 of them at a stroke.
#[derive(Debug, Default)]
pub(super) struct Literal {
    bytes: Vec<u8>,
    words: [u128; 2],
    masks: [u128; 2],
}

impl Literal {
    pub fn new(text: &str) -> Literal {
        let mut literal = Literal { bytes: text.as_bytes().to_vec(), ..Literal::default() };
        for (at, byte) in literal.bytes.iter().enumerate().take(32) {
            literal.words[at / 16] |= u128::from(*byte) << (at % 16 * 8);
            literal.masks[at / 16] |= 0xff << (at % 16 * 8);
        }
        literal
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Steps over it, if it is what comes next.
    #[inline(always)]
    pub fn take(&self, scanner: &mut Scanner<'_>) -> Option<()> {
        self.is_at(scanner.rest()).then(|| scanner.skip(self.bytes.len()))
    }

    #[inline(always)]
    fn is_at(&self, rest: &[u8]) -> bool {
        let differs = |block: &[u8; 16], at: usize| (u128::from_le_bytes(*block) ^ self.words[at]) & self.masks[at];
        match (self.bytes.len(), rest.first_chunk::<32>()) {
            (0..=16, Some(block)) => differs(block.first_chunk().expect("16 of 32"), 0) == 0,
            (17..=32, Some(block)) => {
                let [first, second] = block.as_chunks::<16>().0 else { unreachable!("twice 16 are 32") };
                differs(first, 0) | differs(second, 1) == 0
            }
            _ => rest.starts_with(&self.bytes),
        }
    }
}
