//! What one lane has brought, as plainly as it can be said: for each key and place how much, and the state of each entity.
//!
//! Nobody else sends the events of a lane, or those of its users; so the order of its requests is all the order there is.

use super::counters::{Counter, VIDEOS};
use super::event::{COUNTRIES, DEVICES, Event, Kind, Place, SLOTS};
use std::collections::HashMap;
use std::ops::AddAssign;

const PLACES: usize = COUNTRIES.len() * DEVICES.len() * SLOTS;

/// What became of entries. Whether one was late, the order of all lanes decides; it counts in the end either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boxes {
    pub counted_or_late: u64,
    pub duplicate: u64,
    pub conflict: u64,
    pub ignored: u64,
}

impl AddAssign for Boxes {
    fn add_assign(&mut self, other: Boxes) {
        self.counted_or_late += other.counted_or_late;
        self.duplicate += other.duplicate;
        self.conflict += other.conflict;
        self.ignored += other.ignored;
    }
}

/// An event of a request; an altered one stands under an id that stood before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub number: u64,
    pub altered: bool,
}

/// Between two clears of a key is an epoch. What was counted in one is there unless it was cleared, and again if that is reverted.
#[derive(Clone, Debug)]
pub struct Epochs {
    keys: HashMap<(Counter, usize), Vec<u32>>,
    last: u32,
}

impl Epochs {
    pub fn new() -> Epochs {
        let keys = Counter::ALL.into_iter().flat_map(|counter| (0..VIDEOS).map(move |video| (counter, video)));
        Epochs { keys: keys.map(|key| (key, vec![0])).collect(), last: 0 }
    }

    /// The one in which counts are made now.
    fn now(&self, key: (Counter, usize)) -> u32 {
        *self.keys[&key].last().expect("a key always has one")
    }

    fn is_there(&self, key: (Counter, usize), epoch: u32) -> bool {
        self.keys[&key].contains(&epoch)
    }

    /// Begins a new one; answers those that are gone.
    pub fn clear(&mut self, key: (Counter, usize)) -> Vec<u32> {
        self.last += 1;
        self.keys.insert(key, vec![self.last]).expect("every key has epochs")
    }

    pub fn bring_back(&mut self, key: (Counter, usize), mut cleared: Vec<u32>) {
        let epochs = self.keys.get_mut(&key).expect("every key has epochs");
        cleared.append(epochs);
        *epochs = cleared;
    }
}

/// Where an entity was counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    video: usize,
    place: Place,
    epoch: u32,
}

#[derive(Clone, Copy, Debug)]
struct State {
    time_ms: i64,
    on: Option<Counted>,
}

pub struct Model {
    lane: u64,
    /// By number, whether it was taken.
    seen: Vec<bool>,
    entities: HashMap<(Counter, u64, usize), State>,
    keys: Vec<i32>,
    wholes: Vec<i32>,
    /// What was undone that was cleared at the time.
    undone: HashMap<(Counter, usize, u32), i64>,
}

impl Model {
    pub fn new(lane: u64) -> Model {
        let counters = Counter::ALL.len();
        Model {
            lane,
            seen: Vec::new(),
            entities: HashMap::new(),
            keys: vec![0; counters * VIDEOS * PLACES],
            wholes: vec![0; counters * PLACES],
            undone: HashMap::new(),
        }
    }

    /// The next event of this lane.
    pub fn take(&mut self, sent: Sent, epochs: &Epochs) -> Boxes {
        let event = Event::of(self.lane, sent.number);
        match event.kind {
            Kind::View => self.take_once(&event, &[Counter::Views, Counter::Heard]),
            Kind::Ad if sent.altered => Boxes { conflict: 1, ..Boxes::default() },
            Kind::Ad => self.take_once(&event, &[Counter::Paid]),
            Kind::Like | Kind::Unlike => {
                let mut boxes = self.take_state(&event, (Counter::Likes, event.user, event.video), epochs);
                boxes += self.take_state(&event, (Counter::Votes, event.user, 0), epochs);
                boxes
            }
        }
    }

    fn take_once(&mut self, event: &Event, counters: &[Counter]) -> Boxes {
        let number = event.number as usize;
        if self.seen.len() <= number {
            self.seen.resize(number + 1, false);
        }
        if std::mem::replace(&mut self.seen[number], true) {
            return Boxes { duplicate: counters.len() as u64, ..Boxes::default() };
        }
        counters.iter().for_each(|counter| self.add(*counter, event.video, event.place, 1));
        Boxes { counted_or_late: counters.len() as u64, ..Boxes::default() }
    }

    /// The newest event of an entity decides its state and its key.
    fn take_state(&mut self, event: &Event, entity: (Counter, u64, usize), epochs: &Epochs) -> Boxes {
        let ignored = Boxes { ignored: 1, ..Boxes::default() };
        let (counter, time_ms) = (entity.0, event.time_ms());
        let state = *self.entities.entry(entity).or_insert(State { time_ms: i64::MIN, on: None });
        if time_ms < state.time_ms {
            return ignored;
        }
        let turns_on = event.kind == Kind::Like;
        let stays = state.on.filter(|on| turns_on && on.video == event.video);
        let epoch = epochs.now((counter, event.video));
        let goes_on = turns_on.then_some(Counted { video: event.video, place: event.place, epoch });
        self.entities.insert(entity, State { time_ms, on: stays.or(goes_on) });
        if stays.is_some() || (state.on.is_none() && !turns_on) {
            return ignored;
        }
        if let Some(on) = state.on {
            self.take_back(counter, on, epochs);
        }
        if turns_on {
            self.add(counter, event.video, event.place, 1);
        }
        Boxes { counted_or_late: 1, ..Boxes::default() }
    }

    fn take_back(&mut self, counter: Counter, on: Counted, epochs: &Epochs) {
        if epochs.is_there((counter, on.video), on.epoch) {
            self.add(counter, on.video, on.place, -1);
        } else {
            *self.undone.entry((counter, on.video, on.epoch)).or_default() += 1;
        }
    }

    fn add(&mut self, counter: Counter, video: usize, place: Place, delta: i32) {
        let at = (place.country * DEVICES.len() + place.device) * SLOTS + place.slot;
        self.keys[(counter as usize * VIDEOS + video) * PLACES + at] += delta;
        self.wholes[counter as usize * PLACES + at] += delta;
    }

    fn cells(&self, counter: Counter, video: Option<usize>) -> &[i32] {
        let (all, at) = match video {
            Some(video) => (&self.keys, counter as usize * VIDEOS + video),
            None => (&self.wholes, counter as usize),
        };
        &all[at * PLACES..][..PLACES]
    }

    /// What a key, or a counter as a whole, has where.
    pub fn places(&self, counter: Counter, video: Option<usize>) -> impl Iterator<Item = (Place, i64)> {
        let cells = self.cells(counter, video).iter().enumerate();
        cells.filter(|(_, sum)| **sum != 0).map(|(at, sum)| {
            let (pair, slot) = (at / SLOTS, at % SLOTS);
            (Place { country: pair / DEVICES.len(), device: pair % DEVICES.len(), slot }, i64::from(*sum))
        })
    }

    /// A key begins anew.
    pub fn clear(&mut self, counter: Counter, video: usize) {
        self.keys[(counter as usize * VIDEOS + video) * PLACES..][..PLACES].fill(0);
    }

    /// How much of what was counted in an epoch was undone while it was cleared.
    pub fn take_undone(&mut self, counter: Counter, video: usize, epoch: u32) -> i64 {
        self.undone.remove(&(counter, video, epoch)).unwrap_or(0)
    }
}
