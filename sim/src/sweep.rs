//! Many seeds at once. Each is run by one thread from its beginning to its end and shares nothing with the others, so how many
//! threads there are changes nothing about it.

use crate::fault::Faults;
use crate::{WorldKind, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    pub from: u64,
    pub count: u64,
}

/// The smallest seed that was found to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub seed: u64,
    pub failure: String,
}

/// Runs seeds on threads. Answers the faults that struck, or a seed that failed; none is begun any more then.
pub fn sweep(world: WorldKind, seeds: Seeds, threads: usize) -> Result<Faults, Failed> {
    let next = AtomicU64::new(seeds.from);
    let (faults, failed) = (Mutex::new(Faults::default()), Mutex::new(None::<Failed>));
    let end = seeds.from + seeds.count;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut hit = Faults::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let outcome = run(world, seed, false);
                    hit.add(&outcome.faults);
                    if let Some(failure) = outcome.failure {
                        next.fetch_max(end, Ordering::Relaxed);
                        note(&mut failed.lock().expect("nobody panics here"), Failed { seed, failure });
                    }
                }
                faults.lock().expect("nobody panics here").add(&hit);
            });
        }
    });
    match failed.into_inner().expect("nobody panics here") {
        Some(failed) => Err(failed),
        None => Ok(faults.into_inner().expect("nobody panics here")),
    }
}

/// Threads end in any order: the smallest seed is told.
fn note(known: &mut Option<Failed>, failed: Failed) {
    if known.as_ref().is_none_or(|known| failed.seed < known.seed) {
        *known = Some(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn on_however_many_threads_the_same_seeds_meet_the_same_faults() {
        for world in WorldKind::ALL {
            let hits = |threads| {
                let faults = sweep(world, Seeds { from: 3, count: 12 }, threads).unwrap();
                Fault::ALL.map(|fault| faults.of(fault))
            };
            assert_eq!(hits(1), hits(4));
        }
    }
}
