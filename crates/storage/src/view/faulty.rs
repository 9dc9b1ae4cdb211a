//! A view with faults by a seed: calls fail, come late, come twice or lose their answer.

use super::{BucketPart, Shown, Update, Updated, View, ViewError, ViewRow};
use crate::chance::{Chance, Fault};
use std::sync::{Arc, Mutex, PoisonError};
use tally_core::limits::DELAYED_APPENDS_MAX;
use tally_core::position::Position;

pub struct FaultyView<V> {
    view: V,
    chance: Arc<Chance>,
    /// Calls that are still on their way.
    delayed: Mutex<Vec<Call>>,
}

enum Call {
    Update { bucket: u32, from: Position, to: Position, rows: Vec<ViewRow> },
    Send { bucket: u32, sending: u64, is_first: bool, last: Option<Position>, rows: Vec<ViewRow> },
}

impl Call {
    fn make(&self, view: &impl View) -> Result<Updated, ViewError> {
        match self {
            Call::Update { bucket, from, to, rows } => {
                view.update(Update { bucket: *bucket, from: *from, to: *to, rows })
            }
            Call::Send { bucket, sending, is_first, last, rows } => {
                let part = BucketPart { bucket: *bucket, sending: *sending, is_first: *is_first, last: *last, rows };
                view.send(part).map(|()| Updated::Written)
            }
        }
    }
}

impl<V: View> FaultyView<V> {
    pub fn new(view: V, chance: Arc<Chance>) -> FaultyView<V> {
        FaultyView { view, chance, delayed: Mutex::default() }
    }

    /// What it wraps, to lose buckets or to go back in time.
    pub fn inner(&self) -> &V {
        &self.view
    }

    /// Lets some of what is on its way arrive.
    fn arrive(&self) {
        let mut delayed = self.delayed.lock().unwrap_or_else(PoisonError::into_inner);
        while delayed.len() > DELAYED_APPENDS_MAX || (!delayed.is_empty() && self.chance.toss()) {
            let _ = delayed.remove(0).make(&self.view);
        }
    }

    fn write(&self, call: Call) -> Result<Updated, ViewError> {
        self.arrive();
        match self.chance.draw(&Fault::ALL) {
            None => call.make(&self.view),
            Some(Fault::Fails) => Err(retry()),
            Some(Fault::LosesAnswer) => call.make(&self.view).and(Err(unknown())),
            Some(Fault::Delays) => {
                self.delayed.lock().unwrap_or_else(PoisonError::into_inner).push(call);
                Err(unknown())
            }
            Some(Fault::Repeats) => {
                let updated = call.make(&self.view);
                let _ = call.make(&self.view);
                updated
            }
        }
    }

    fn may_fail(&self) -> Result<&V, ViewError> {
        self.arrive();
        self.chance.draw(&[Fault::Fails]).map_or(Ok(&self.view), |_| Err(retry()))
    }
}

impl<V: View> View for FaultyView<V> {
    fn update(&self, update: Update<'_>) -> Result<Updated, ViewError> {
        let Update { bucket, from, to, rows } = update;
        self.write(Call::Update { bucket, from, to, rows: rows.to_vec() })
    }

    fn send(&self, part: BucketPart<'_>) -> Result<(), ViewError> {
        let BucketPart { bucket, sending, is_first, last, rows } = part;
        self.write(Call::Send { bucket, sending, is_first, last, rows: rows.to_vec() }).map(drop)
    }

    fn read(&self, ids: &[(u32, &[u8])]) -> Result<Vec<Shown>, ViewError> {
        self.may_fail()?.read(ids)
    }

    fn positions(&self, buckets: &[u32]) -> Result<Vec<Option<Position>>, ViewError> {
        self.may_fail()?.positions(buckets)
    }
}

fn retry() -> ViewError {
    ViewError::Retry("a fault of the seed".to_owned())
}

fn unknown() -> ViewError {
    ViewError::Unknown("a fault of the seed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Odds;
    use crate::view::memory::MemoryView;
    use crate::view::suite::{self, at, row};

    const SEEDS: u64 = 50;

    /// An owner as it should be: does what the errors say, until the view stands where he does.
    fn publish(view: &FaultyView<MemoryView>, sending: &mut u64, truth: &[(u64, i64)], from: u64) {
        let (to, value) = truth[truth.len() - 1];
        let mut from = from;
        let mut rows = vec![row("a", value)];
        let mut is_whole = false;
        for _ in 0..10_000 {
            *sending += 1;
            let done = match is_whole {
                true => suite_send(view, *sending, to, &rows),
                false => suite::update(view, 1, from, to, &rows).map(drop),
            };
            match done {
                Ok(()) => return,
                Err(ViewError::Lost { .. }) => (is_whole, rows) = (true, vec![row("a", value)]),
                Err(ViewError::Behind { found, .. }) => from = found.offset,
                Err(ViewError::Retry(_) | ViewError::Unknown(_) | ViewError::Fenced { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it never went well")
    }

    fn suite_send(view: &dyn View, sending: u64, to: u64, rows: &[ViewRow]) -> Result<(), ViewError> {
        view.send(BucketPart { bucket: 1, sending, is_first: true, last: Some(at(to)), rows })
    }

    #[test]
    fn a_view_with_faults_never_shows_a_value_of_another_position_and_converges() {
        for seed in 0..SEEDS {
            let chance = Arc::new(Chance::new(seed, Odds::all(100)));
            let view = FaultyView::new(MemoryView::default(), chance.clone());
            let (mut truth, mut sending, mut old) = (vec![(0, 0)], 0, view.inner().copy());
            for n in 1..200u64 {
                truth.push((n * 10, n as i64 * 7));
                match (seed + n) % 37 {
                    5 => view.inner().lose(1),
                    11 => old = view.inner().copy(),
                    19 => view.inner().put_back(&old),
                    _ => {}
                }
                publish(&view, &mut sending, &truth, (n - 1) * 10);
                if let Ok(shown) = view.read(&[(1, b"a")])
                    && let Some(position) = shown[0].position
                {
                    let expected = truth.iter().find(|(at, _)| *at == position.offset).map(|(_, value)| *value);
                    assert_eq!(shown[0].value.map(|value| value.value), expected, "seed {seed} at {position}");
                }
            }
            chance.set_odds(Odds::default());
            truth.push((9_990, 1));
            // What is on its way may still arrive, and a first part empties the bucket: then it is sent again.
            while view.positions(&[1]).unwrap() != [Some(at(9_990))] {
                publish(&view, &mut sending, &truth, 1_990);
            }
            assert!(chance.hit().iter().all(|(_, hit)| *hit > 0), "{:?}", chance.hit());
        }
    }
}
