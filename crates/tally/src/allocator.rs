//! The allocator, and how it is made to let go of what is free.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[expect(unsafe_code, reason = "a function of the allocator that takes and answers nothing but a flag")]
unsafe extern "C" {
    safe fn mi_collect(force: bool);
}

/// Gives everything that is free back to the system, whichever thread has freed it. By itself mimalloc does so after a second.
pub fn give_back() {
    mi_collect(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_node::metrics::resident_bytes;

    #[test]
    fn what_was_freed_is_the_systems_at_once() {
        const BLOCK_BYTES: usize = 64 << 20;
        let block = vec![1_u8; BLOCK_BYTES];
        let held = resident_bytes().unwrap();
        drop(block);
        give_back();
        let after = resident_bytes().unwrap();
        assert!(after + BLOCK_BYTES as u64 / 2 < held, "{after} of {held}");
    }
}
