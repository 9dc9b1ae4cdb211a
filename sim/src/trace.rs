//! What happened in a run: a digest of every line, and the lines themselves if somebody wants them.

use std::fmt::{Arguments, Write as _};

#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub digest: u64,
    pub lines: Vec<String>,
    keep: bool,
    buffer: String,
}

impl Trace {
    pub fn new(keep: bool) -> Trace {
        Trace { keep, ..Trace::default() }
    }

    pub fn note(&mut self, line: Arguments<'_>) {
        self.buffer.clear();
        self.buffer.write_fmt(line).expect("a string takes everything");
        // FNV-1a: what is compared is whether two runs are the same, not whether somebody forges one.
        for byte in self.buffer.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.keep {
            self.lines.push(self.buffer.clone());
        }
    }
}
