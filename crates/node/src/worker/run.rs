//! The loop that every worker runs in.

use super::{Context, Next, Work, WorkFailure, WorkerState};
use crate::engine::Troubles;
use futures_util::FutureExt;
use std::any::Any;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// How a unit of work ended.
enum Ended {
    Well(Next),
    /// To be tried again after this time, if at all.
    Badly(Option<Duration>),
    /// In its middle, and nobody knows what it left behind.
    Broken,
}

/// Works and waits until there is nothing to do any more or the node stops.
///
/// A panic is an error like any other, unless writes depend on what was left half done: then it is told as a trouble, and no
/// writes are taken any more. (Where panics abort the process, as they do in a release, there is nobody left to ask.)
pub(super) async fn run(mut work: impl Work, context: Context, troubles: &Troubles) {
    while !context.is_stopping() {
        context.status.enters(WorkerState::Busy);
        let goes_on = match unit(&mut work, &context).await {
            Ended::Well(next) => pause(&mut work, &context, next).await,
            Ended::Badly(Some(time)) => back_off(&context, time).await,
            Ended::Badly(None) => pause(&mut work, &context, Next::WhenWoken).await,
            Ended::Broken => return fail(&context, troubles),
        };
        if goes_on.is_break() {
            break;
        }
    }
    context.status.enters(WorkerState::Done);
}

async fn unit(work: &mut impl Work, context: &Context) -> Ended {
    let spec = &context.status.spec;
    let (text, is_panic) = match AssertUnwindSafe(work.work(context)).catch_unwind().await {
        Ok(Ok(next)) => {
            if context.status.did() > 0 {
                tracing::info!(worker = spec.name, "it works again");
            }
            return Ended::Well(next);
        }
        Ok(Err(WorkFailure(text))) => (text, false),
        Err(panic) => (format!("it panicked: {}", words(&*panic)), true),
    };
    let in_a_row = context.status.erred(&text, context.clock.now_ms());
    if is_panic && spec.is_vital {
        return Ended::Broken;
    }
    let time = spec.retry.pause(in_a_row);
    // What asked for the unit may be gone because the node stops. Of many errors in a row the first says it.
    if in_a_row == 1 && !context.is_stopping() {
        let again = time.map_or("with the next one".to_owned(), |time| format!("in {} s", time.as_secs_f64()));
        tracing::warn!(worker = spec.name, error = text, again, "this work cannot be done");
    }
    Ended::Badly(time)
}

/// Whichever comes first: the stop, a wake, the time, or what the work itself waits for.
async fn pause(work: &mut impl Work, context: &Context, next: Next) -> ControlFlow<()> {
    let (state, time) = match next {
        Next::Again => {
            tokio::task::yield_now().await;
            return ControlFlow::Continue(());
        }
        Next::After(time) => (WorkerState::Waiting, Some(time)),
        Next::WhenWoken => (WorkerState::Idle, None),
    };
    context.status.pauses(state, context.clock.now_ms(), time);
    let passed = async {
        match time {
            Some(time) => context.clock.sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = context.stopped() => ControlFlow::Break(()),
        () = context.status.spec.wake.woken() => ControlFlow::Continue(()),
        () = passed => ControlFlow::Continue(()),
        comes = work.wait() => comes,
    }
}

/// Only time and the stop end this, as a rule: who asks again and again is not to be answered by errors as often.
async fn back_off(context: &Context, time: Duration) -> ControlFlow<()> {
    context.status.pauses(WorkerState::Throttled, context.clock.now_ms(), Some(time));
    let spec = &context.status.spec;
    tokio::select! {
        biased;
        () = context.stopped() => ControlFlow::Break(()),
        () = spec.wake.woken(), if spec.is_tried_again_when_woken => ControlFlow::Continue(()),
        () = context.clock.sleep(time) => ControlFlow::Continue(()),
    }
}

fn fail(context: &Context, troubles: &Troubles) {
    context.status.enters(WorkerState::Failed);
    let error = context.status.shown().last_error.expect("it was told before");
    troubles.fail_worker(&context.status.spec.name, &error.text);
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}
