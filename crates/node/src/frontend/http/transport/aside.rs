//! What a task attends to beside its work. It is looked at only when it has something to say: a connection goes on several times for
//! each request, while the node stops once.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A future that is polled when it was woken, however often its task is.
pub struct Aside<F> {
    future: F,
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    is_rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future + Unpin> Aside<F> {
    pub fn new(future: F) -> Aside<F> {
        // It has to be asked once to know whom to wake.
        let bell = Arc::new(Bell { is_rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Aside { future, waker: Waker::from(Arc::clone(&bell)), bell }
    }
}

impl<F: Future + Unpin> Future for Aside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Before the look at the bell: whoever rings it behind the look wakes this task.
        self.bell.task.register(context.waker());
        if !self.bell.is_rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.bell.is_rung.store(false, Ordering::Release);
        let Aside { future, waker, .. } = &mut *self;
        Pin::new(future).poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::poll_fn;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn it_is_asked_once_and_then_only_when_it_was_woken() {
        let (send, mut receive) = oneshot::channel();
        let asked = Cell::new(0);
        let something = poll_fn(|context| {
            asked.update(|times| times + 1);
            Pin::new(&mut receive).poll(context)
        });
        let mut aside = Aside::new(something);
        for _ in 0..10 {
            let is_pending = poll_fn(|context| Poll::Ready(Pin::new(&mut aside).poll(context).is_pending())).await;
            assert!(is_pending);
        }
        assert_eq!(asked.get(), 1);
        send.send(7).unwrap();
        assert_eq!(aside.await, Ok(7));
        assert_eq!(asked.get(), 2);
    }
}
