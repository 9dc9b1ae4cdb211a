//! A broken assertion is a failure of its seed like any other, wherever it strikes: a task of the engine that panics takes nobody
//! else along, and would be taken for one that was killed.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// The first panic of the run that this thread is at.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

static LISTENING: Once = Once::new();

/// Lets a world run. Answers the first panic of it or of anything that it has started on this thread.
pub fn listen<W>(world: &mut W, run: impl FnOnce(&mut W)) -> Option<String> {
    LISTENING.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            FIRST.with_borrow_mut(|first| _ = first.get_or_insert_with(|| panic.to_string()));
            before(panic);
        }));
    });
    FIRST.set(None);
    // Nobody looks at the world any more but for its trace.
    let _ = catch_unwind(AssertUnwindSafe(|| run(world)));
    FIRST.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_somebody_has_caught_is_a_failure_all_the_same() {
        let caught = |_: &mut ()| drop(catch_unwind(|| panic!("it does not add up")));
        assert!(listen(&mut (), caught).is_some_and(|told| told.contains("it does not add up")));
        assert_eq!(listen(&mut (), |_| ()), None);
    }
}
