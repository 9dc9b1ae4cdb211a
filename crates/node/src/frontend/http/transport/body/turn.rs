//! Large bodies take turns: of all that a thread reads, one is worked on, slice by slice, and between two slices the thread looks at
//! its sockets. So a small request waits for a slice at most, however many large ones are there, and the large ones are served in the
//! order in which they came.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

thread_local! {
    /// A connection never leaves its thread.
    static TURNS: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// Leave to work on a body, until it is dropped.
pub struct Turn(#[expect(dead_code, reason = "it is given back by being dropped")] Option<OwnedSemaphorePermit>);

impl Turn {
    pub async fn take() -> Turn {
        // It is never closed.
        let turn = Turn(TURNS.with(Arc::clone).acquire_owned().await.ok());
        turn.go_on().await;
        turn
    }

    /// Waits until everything else that is ready on this thread was done.
    pub async fn go_on(&self) {
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
    use tokio::task::LocalSet;

    #[tokio::test]
    async fn of_many_large_bodies_one_slice_is_worked_on_before_a_small_request_has_its_turn() {
        let done = Rc::new(RefCell::new(Vec::new()));
        let tasks = LocalSet::new();
        for body in 0..3 {
            let done = done.clone();
            tasks.spawn_local(async move {
                let turn = Turn::take().await;
                done.borrow_mut().push(body);
                turn.go_on().await;
                done.borrow_mut().push(body);
            });
        }
        let small = done.clone();
        tasks.spawn_local(async move {
            small.borrow_mut().push(100);
            yield_now().await;
            small.borrow_mut().push(101);
        });
        tasks.await;
        let done = done.borrow();
        assert_eq!(done.iter().filter(|&&body| body < 100).copied().collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        let place = |wanted| done.iter().position(|&body| body == wanted);
        assert!(place(100) == Some(0) && place(101) <= Some(2), "{done:?}");
    }
}
