//! The shape itself, on one thread, in simulated time: nothing here takes any.

use super::*;
use crate::clock::Hands;
use crate::engine::{Trouble, Troubles};
use crate::metrics::Metrics;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

const SECOND: Duration = Duration::from_secs(1);
const RETRY: Retry = Retry { first: SECOND, most: Duration::from_secs(5) };

/// Everything that workers need, and a hand on their time.
struct Stage {
    workers: Workers,
    hands: Arc<Hands>,
    troubles: Arc<Troubles>,
    metrics: Arc<Metrics>,
}

impl Stage {
    fn new(spawner: Spawner, clock: Clock, hands: Arc<Hands>) -> Stage {
        let metrics = Arc::new(Metrics::new());
        let troubles = Arc::new(Troubles::new(metrics.clone()));
        let workers = Workers::new(spawner, clock, metrics.workers.clone(), troubles.clone());
        Stage { workers, hands, troubles, metrics }
    }

    /// Time passes, and everybody does what there is to do.
    async fn pass(&self, time: Duration) {
        self.hands.pass(time.as_millis() as u64);
        settle().await;
    }

    fn shown(&self, name: &str) -> ShownStatus {
        let statuses = self.workers.board().statuses();
        statuses.iter().find(|status| status.spec.name == name).expect("it was started").shown()
    }

    fn state(&self, name: &str) -> WorkerState {
        self.shown(name).state
    }
}

/// Runs a test on a runtime without a clock: whoever asked for the machine's would panic.
fn simulated(test: impl AsyncFnOnce(Stage)) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (clock, hands) = Clock::simulated(1_800_000_000_000);
        test(Stage::new(Spawner::Here, clock, hands)).await;
    });
}

/// Lets all tasks of this thread go on until each of them waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Does as it is told, and then waits to be woken.
#[derive(Default)]
struct Script {
    units: VecDeque<fn() -> Result<Next, WorkFailure>>,
    begun: Rc<Cell<u64>>,
}

impl Work for Script {
    async fn work(&mut self, _: &Context) -> Result<Next, WorkFailure> {
        self.begun.update(|begun| begun + 1);
        self.units.pop_front().map_or(Ok(Next::WhenWoken), |unit| unit())
    }
}

fn script(units: &[fn() -> Result<Next, WorkFailure>]) -> (Script, Rc<Cell<u64>>) {
    let script = Script { units: units.iter().copied().collect(), ..Script::default() };
    let begun = script.begun.clone();
    (script, begun)
}

fn spec() -> Spec {
    Spec::new("x", "is tested", RETRY)
}

#[test]
fn a_unit_follows_when_its_time_has_come_and_not_before() {
    simulated(async |stage| {
        let (work, begun) = script(&[|| Ok(Next::Again), || Ok(Next::After(SECOND))]);
        stage.workers.beside(spec(), work);
        settle().await;
        assert_eq!((begun.get(), stage.state("x")), (2, WorkerState::Waiting));
        assert_eq!(stage.shown("x").next_at_ms, Some(1_800_000_001_000));
        stage.pass(SECOND - Duration::from_millis(1)).await;
        assert_eq!(begun.get(), 2);
        stage.pass(Duration::from_millis(1)).await;
        assert_eq!((begun.get(), stage.state("x")), (3, WorkerState::Idle));
        stage.pass(1000 * SECOND).await;
        let shown = stage.shown("x");
        assert_eq!((shown.units, shown.errors, shown.next_at_ms), (3, 0, None), "it waits to be woken");
    });
}

#[test]
fn a_wake_ends_a_wait_also_if_it_comes_before_it() {
    simulated(async |stage| {
        let wake = Wake::default();
        let (work, begun) = script(&[|| Ok(Next::After(1000 * SECOND))]);
        wake.wake();
        stage.workers.beside(spec().woken_by(&wake), work);
        settle().await;
        assert_eq!((begun.get(), stage.state("x")), (2, WorkerState::Idle));
        wake.wake();
        settle().await;
        assert_eq!((begun.get(), stage.state("x")), (3, WorkerState::Idle));
    });
}

#[test]
fn a_stop_wakes_everybody_at_once() {
    simulated(async |stage| {
        let begun: Vec<_> = [
            ("waiting", WorkerState::Waiting, (|| Ok(Next::After(SECOND))) as fn() -> _),
            ("idle", WorkerState::Idle, || Ok(Next::WhenWoken)),
            ("throttled", WorkerState::Throttled, || Err("no".into())),
        ]
        .map(|(name, state, unit)| {
            let (work, begun) = script(&[unit]);
            stage.workers.beside(Spec { name: name.into(), ..spec() }, work);
            (name, state, begun)
        })
        .into();
        settle().await;
        for (name, state, _) in &begun {
            assert_eq!(stage.state(name), *state);
        }
        stage.workers.stop();
        settle().await;
        for (name, _, begun) in &begun {
            assert_eq!((stage.state(name), begun.get()), (WorkerState::Done, 1), "{name}");
        }
        assert_eq!(stage.hands.until_next_ms(), None, "nobody waits for a time any more");
    });
}

#[test]
fn a_node_that_is_gone_is_one_that_has_stopped() {
    simulated(async |stage| {
        let (work, begun) = script(&[]);
        stage.workers.beside(spec(), work);
        settle().await;
        let board = stage.metrics.workers.clone();
        drop(stage.workers);
        settle().await;
        assert_eq!((board.statuses()[0].shown().state, begun.get()), (WorkerState::Done, 1));
    });
}

#[test]
fn what_fails_is_tried_again_after_longer_and_longer_up_to_a_bound() {
    simulated(async |stage| {
        let wake = Wake::default();
        let fails: fn() -> _ = || Err("no".into());
        let (work, begun) = script(&[fails; 5]);
        stage.workers.beside(spec().woken_by(&wake), work);
        settle().await;
        for (in_a_row, seconds) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)] {
            let shown = stage.shown("x");
            assert_eq!((shown.state, shown.errors_in_a_row), (WorkerState::Throttled, in_a_row));
            wake.wake();
            stage.pass(seconds * SECOND - Duration::from_millis(1)).await;
            assert_eq!(begun.get(), in_a_row, "whoever asks again has to wait, too");
            stage.pass(Duration::from_millis(1)).await;
        }
        let shown = stage.shown("x");
        assert_eq!((shown.state, shown.errors_in_a_row, shown.errors), (WorkerState::Idle, 0, 5));
        let at_ms = 1_800_000_012_000;
        assert_eq!(shown.last_error, Some(LastError { text: "no".into(), at_ms }), "the last one stays to be read");
        assert!(stage.troubles.lasting().is_empty());
    });
}

#[test]
fn what_somebody_waits_for_is_tried_again_as_soon_as_they_ask() {
    simulated(async |stage| {
        let wake = Wake::default();
        let fails: fn() -> _ = || Err("no".into());
        let (work, begun) = script(&[fails; 2]);
        stage.workers.beside(spec().woken_by(&wake).tried_again_when_woken(), work);
        settle().await;
        assert_eq!((stage.state("x"), begun.get()), (WorkerState::Throttled, 1));
        wake.wake();
        settle().await;
        assert_eq!((stage.state("x"), begun.get()), (WorkerState::Throttled, 2));
        stage.pass(2 * SECOND).await;
        assert_eq!((stage.state("x"), begun.get()), (WorkerState::Idle, 3));
    });
}

#[test]
fn a_panic_is_an_error_like_any_other_where_no_write_depends_on_it() {
    simulated(async |stage| {
        let (work, begun) = script(&[|| panic!("for a test")]);
        stage.workers.beside(spec(), work);
        settle().await;
        let shown = stage.shown("x");
        assert_eq!((shown.state, shown.errors), (WorkerState::Throttled, 1));
        assert_eq!(&*shown.last_error.unwrap().text, "it panicked: for a test");
        stage.pass(SECOND).await;
        assert_eq!((stage.state("x"), begun.get()), (WorkerState::Idle, 2));
        assert!(stage.troubles.failed().is_none());
    });
}

#[test]
fn a_panic_that_writes_depend_on_ends_them_and_is_told() {
    simulated(async |stage| {
        let wake = Wake::default();
        let (work, begun) = script(&[|| panic!("half {}", "done")]);
        stage.workers.beside(spec().woken_by(&wake).vital(), work);
        settle().await;
        wake.wake();
        stage.pass(1000 * SECOND).await;
        assert_eq!((stage.state("x"), begun.get()), (WorkerState::Failed, 1), "it is not tried again");
        let (trouble, what) = stage.troubles.lasting().pop().unwrap();
        assert!(trouble == Trouble::WorkerFailed && trouble.refuses_all_writes());
        assert!(what.ends_with("x: it panicked: half done"), "{what}");
        assert_eq!(stage.troubles.failed().unwrap().to_string(), *what);
    });
}

#[test]
fn an_error_of_something_vital_ends_nothing() {
    simulated(async |stage| {
        let (work, _) = script(&[|| Err("no".into())]);
        stage.workers.beside(spec().vital(), work);
        settle().await;
        assert_eq!(stage.state("x"), WorkerState::Throttled);
        stage.pass(SECOND).await;
        assert_eq!(stage.state("x"), WorkerState::Idle);
        assert!(stage.troubles.failed().is_none());
    });
}

/// Adds up what comes through a queue, and says how far it is.
struct Adder {
    numbers: flume::Receiver<u64>,
    next: Option<u64>,
    sum: Rc<RefCell<u64>>,
}

impl Work for Adder {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        *self.sum.borrow_mut() += self.next.take().unwrap_or(0);
        context.queue(self.numbers.len());
        context.progress(format!("at {}", self.sum.borrow()));
        Ok(if self.numbers.is_empty() { Next::WhenWoken } else { Next::Again })
    }

    async fn wait(&mut self) -> ControlFlow<()> {
        self.next = self.numbers.recv_async().await.ok();
        if self.next.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

#[test]
fn a_worker_of_a_queue_is_done_when_nobody_can_ask_any_more() {
    simulated(async |stage| {
        let (ask, numbers) = flume::bounded(10);
        let sum = Rc::default();
        stage.workers.beside(spec(), Adder { numbers, next: None, sum: Rc::clone(&sum) });
        settle().await;
        for number in 1..=3 {
            ask.send(number).unwrap();
            settle().await;
        }
        let shown = stage.shown("x");
        assert_eq!((*sum.borrow(), shown.state, shown.units), (6, WorkerState::Idle, 4));
        assert_eq!((shown.queue, shown.progress), (Some(0), None), "there is progress only in what is under way");
        drop(ask);
        settle().await;
        assert_eq!(stage.state("x"), WorkerState::Done);
    });
}

#[test]
fn what_is_not_tried_again_waits_for_the_next_who_asks() {
    simulated(async |stage| {
        let wake = Wake::default();
        let (work, begun) = script(&[|| Err("no".into()), || Err("nor this".into())]);
        stage.workers.beside(Spec { retry: Retry::NEVER, ..spec().woken_by(&wake) }, work);
        for failed in 1..=2 {
            settle().await;
            let shown = stage.shown("x");
            assert_eq!((shown.state, shown.units, shown.errors_in_a_row), (WorkerState::Idle, 0, failed));
            wake.wake();
        }
        settle().await;
        assert_eq!((begun.get(), stage.shown("x").units, stage.shown("x").errors_in_a_row), (3, 1, 0));
    });
}

#[test]
fn a_worker_on_a_thread_of_its_own_is_woken_and_stopped_in_the_middle_of_a_long_wait() {
    struct Told(flume::Sender<&'static str>);
    impl Work for Told {
        async fn work(&mut self, _: &Context) -> Result<Next, WorkFailure> {
            self.0.send(if std::thread::current().name() == Some("tally-x") { "apart" } else { "elsewhere" })?;
            Ok(Next::After(Duration::from_secs(1_000_000)))
        }
    }
    let (clock, wake) = (Clock::system(), Wake::default());
    let stage = Stage::new(Spawner::Threads, clock, Clock::settable(0).1);
    let (told, tells) = flume::bounded(1);
    stage.workers.apart(spec().woken_by(&wake), Told(told)).unwrap();
    assert_eq!(tells.recv(), Ok("apart"));
    wake.wake();
    assert_eq!(tells.recv(), Ok("apart"));
    stage.workers.stop();
    stage.workers.join();
    assert_eq!((stage.state("x"), tells.recv().is_err()), (WorkerState::Done, true));
}

#[test]
fn a_scrape_shows_every_worker_in_its_state() {
    simulated(async |stage| {
        let (work, _) = script(&[|| Ok(Next::Again), || Err("no".into())]);
        stage.workers.beside(spec(), work);
        let (_ask, numbers) = flume::bounded(1);
        stage.workers.beside(Spec { name: "sum".into(), ..spec() }, Adder { numbers, next: None, sum: Rc::default() });
        settle().await;
        let text = stage.metrics.encode();
        for line in [
            "# TYPE tally_worker_units counter",
            r#"tally_worker_state{worker="x",state="throttled"} 1"#,
            r#"tally_worker_state{worker="x",state="busy"} 0"#,
            r#"tally_worker_state{worker="sum",state="idle"} 1"#,
            r#"tally_worker_units_total{worker="x"} 1"#,
            r#"tally_worker_errors_total{worker="x"} 1"#,
            r#"tally_worker_errors_in_a_row{worker="x"} 1"#,
            r#"tally_worker_queue{worker="sum"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains(r#"tally_worker_queue{worker="x"}"#), "it has none");
    });
}
