//! Counter declarations.

/// All declared counters of a node.
#[derive(Debug, Default)]
pub struct Declarations {}
