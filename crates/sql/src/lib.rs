//! Questions in SQL: over the archive, which has every event, and over what counters say now, as tables of one database.
//!
//! DataFusion plans and runs them, on threads of its own that give way to everybody else's. A question reads, and nothing else; it
//! is bounded in time, in memory (beyond which it spills to disk) and in rows, and it ends when nobody waits for its answer any more.

mod archive;
mod engine;
mod live;
mod neighbours;
mod pool;
mod scope;
mod yielding;

pub use engine::make;
