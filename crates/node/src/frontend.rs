//! What clients talk to.
