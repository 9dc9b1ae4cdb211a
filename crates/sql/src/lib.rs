//! Questions in SQL: over the archive, which has every event, and over what counters say now, as tables of one database.
//!
//! Each question is answered by a process of its own, which is this program again ([`answer`]): DataFusion plans and runs the statement
//! there, behind everybody else's work. A statement that makes it panic, overflow its stack or take memory that nobody counts ends that
//! process, and so does the end of its time or whoever hangs up. The node only starts it, hands it rows of what counters say, and looks
//! what it takes ([`make`]).
//!
//! ```text
//!   node: asking ──task──▶ process: answering ◀── files of the archive
//!     live rows ◀─request─┘ │
//!         └──────rows──────▶├──▶ answer
//! ```

mod answering;
mod archive;
mod asking;
mod live;
mod neighbours;
mod pool;
mod scope;
mod wire;
mod writing;
mod yielding;

pub use answering::answer;
pub use asking::{make, make_with};
