//! What becomes of the entries of one fates partition, by its log alone.

use super::Happening;
use super::spec::{Counter, Mode, Spec};
use super::worth::Expected;
use std::collections::{BTreeMap, BTreeSet};

/// Where entries end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boxes {
    pub received: i64,
    pub counted: i64,
    pub duplicate: i64,
    pub conflict: i64,
    pub rejected: i64,
    pub ignored: i64,
    pub late: i64,
}

impl Boxes {
    pub fn add(&mut self, other: &Boxes) {
        self.received += other.received;
        self.counted += other.counted;
        self.duplicate += other.duplicate;
        self.conflict += other.conflict;
        self.rejected += other.rejected;
        self.ignored += other.ignored;
        self.late += other.late;
    }

    /// What came since there were those.
    pub fn since(&self, before: &Boxes) -> Boxes {
        Boxes {
            received: self.received - before.received,
            counted: self.counted - before.counted,
            duplicate: self.duplicate - before.duplicate,
            conflict: self.conflict - before.conflict,
            rejected: self.rejected - before.rejected,
            ignored: self.ignored - before.ignored,
            late: self.late - before.late,
        }
    }

    pub fn adds_up(&self) -> bool {
        self.received == self.counted + self.duplicate + self.conflict + self.rejected + self.ignored + self.late
    }
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    pub delta: i64,
    /// The generation that a late run makes of it.
    pub generation: Option<u64>,
    pub entity: Option<Of>,
}

/// What an entity does to a key: it counts, under a number of its own, or takes back what it counted under one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Count(u64),
    Undo(u64),
}

#[derive(Clone, Debug, Default)]
pub struct Judge {
    pub boxes: BTreeMap<&'static str, Boxes>,
    /// Entries that ended in another box than `counted`, late ones included that counted later.
    pub exceptions: Boxes,
    pub log_time_ms: u64,
    pub control: u64,
    /// What happened to keys, by the offset of the batch.
    pub changes: Vec<(u64, Change)>,
    /// (counter, session, seq) by window.
    stood: BTreeMap<(&'static str, u64), BTreeSet<(String, u64)>>,
    watermarks: BTreeMap<&'static str, u64>,
    /// What waits: by key and hour, how much, how many, and when it is due.
    pub parked: BTreeMap<(String, u64), Parked>,
    entities: BTreeMap<(&'static str, String, String), Entity>,
    /// How often something counted for an entity.
    counts: u64,
    claims: BTreeMap<String, Happening>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    pub counter: &'static str,
    pub delta: i64,
    pub entries: i64,
    pub due_ms: u64,
}

#[derive(Clone, Debug)]
struct Entity {
    on: bool,
    at: (u64, u64),
    key: String,
    /// The number of what it has counted.
    count: u64,
}

const FIVE_MINUTES_MS: u64 = 5 * 60 * 1000;
const HOUR_MS: u64 = 60 * 60 * 1000;

impl Judge {
    /// A batch stands in the log, for the first time or not.
    pub fn pass_time(&mut self, appended_ms: u64, clock_ms: u64) {
        self.log_time_ms = self.log_time_ms.max(appended_ms.min(clock_ms + FIVE_MINUTES_MS));
    }

    /// A late run takes effect before the batch at an offset.
    pub fn run(&mut self, offset: u64, due_by_ms: u64, generation: u64) {
        let due: Vec<_> =
            self.parked.iter().filter(|(_, parked)| parked.due_ms <= due_by_ms).map(|(at, _)| at.clone()).collect();
        for at in due {
            let parked = self.parked.remove(&at).expect("it was there");
            let boxes = self.boxes.entry(parked.counter).or_default();
            boxes.late -= parked.entries;
            boxes.counted += parked.entries;
            let (key, delta, generation) = (at.0, parked.delta, Some(generation));
            self.changes.push((offset, Change { key, delta, generation, entity: None }));
        }
    }

    /// An event of the batch at an offset, for the counters of a group.
    pub fn event(&mut self, spec: &Spec, group: &str, offset: u64, event: &Happening) {
        let listening: Vec<&Counter> = spec
            .counters
            .iter()
            .filter(|counter| counter.group() == group && counter.listens(event.kind).is_some())
            .collect();
        let persistent = listening.iter().all(|counter| counter.mode == Mode::Persistent);
        let whole = listening.iter().all(|counter| counter.key(event).is_some()) && event.id.is_some();
        let claim = persistent && whole;
        let known = event.id.as_ref().and_then(|id| self.claims.get(id)).cloned();
        for counter in &listening {
            self.boxes.entry(counter.name).or_default().received += 1;
            if persistent {
                self.persistent(counter, offset, event, claim, known.as_ref());
            } else {
                self.entry(counter, offset, event);
            }
        }
        if let (true, None, Some(id)) = (claim, known, &event.id) {
            self.claims.insert(id.clone(), event.clone());
        }
    }

    /// An increment by name that is made once is an entry as well, on one node.
    pub fn once(&mut self, counter: &'static str, came_to: Expected) {
        let boxes = self.boxes.entry(counter).or_default();
        boxes.received += 1;
        *match came_to {
            Expected::Repeated(_) => &mut boxes.duplicate,
            Expected::OtherDelta(_) => &mut boxes.conflict,
            Expected::Value(_) | Expected::Done(_) => &mut boxes.counted,
        } += 1;
    }

    fn persistent(
        &mut self,
        counter: &Counter,
        offset: u64,
        event: &Happening,
        claim: bool,
        known: Option<&Happening>,
    ) {
        match known {
            _ if !claim => self.put(counter, |boxes| &mut boxes.rejected),
            None => self.count(counter, offset, event),
            Some(known) if same_content(known, event) => self.put(counter, |boxes| &mut boxes.duplicate),
            Some(_) => self.put(counter, |boxes| &mut boxes.conflict),
        }
    }

    fn entry(&mut self, counter: &Counter, offset: u64, event: &Happening) {
        if counter.key(event).is_none() || counter.mode == Mode::Transition && event.video.is_none() {
            return self.put(counter, |boxes| &mut boxes.rejected);
        }
        match counter.mode {
            Mode::Simple => self.count(counter, offset, event),
            Mode::Display { window_ms, .. } => {
                let window = self.log_time_ms / window_ms;
                let this = (event.session.clone(), event.seq);
                let before = window.checked_sub(1).and_then(|before| self.stood.get(&(counter.name, before)));
                let stood = before.is_some_and(|before| before.contains(&this));
                let again = !self.stood.entry((counter.name, window)).or_default().insert(this);
                match stood || again {
                    true => self.put(counter, |boxes| &mut boxes.duplicate),
                    false => self.in_time_or_late(counter, offset, event),
                }
            }
            Mode::Transition => self.transition(counter, offset, event),
            Mode::Persistent => unreachable!("it has a group of its own"),
        }
    }

    fn in_time_or_late(&mut self, counter: &Counter, offset: u64, event: &Happening) {
        let Mode::Display { lateness: Some(lateness), .. } = counter.mode else {
            return self.count(counter, offset, event);
        };
        let watermark = self.watermarks.entry(counter.name).or_default();
        *watermark = (*watermark).max(event.occurred_ms.min(event.received_ms));
        let behind_ms = (*watermark).min(event.received_ms).saturating_sub(event.occurred_ms);
        if behind_ms <= lateness.allowed_ms {
            return self.count(counter, offset, event);
        }
        let every_ms = if behind_ms <= lateness.corrected_ms { lateness.every_ms } else { lateness.restated_ms };
        let due_ms = (self.log_time_ms / every_ms + 1) * every_ms;
        let key = counter.key(event).expect("it was looked at before");
        let parked = Parked { counter: counter.name, delta: 0, entries: 0, due_ms };
        let parked = self.parked.entry((key, event.occurred_ms / HOUR_MS)).or_insert(parked);
        parked.delta += event.delta;
        parked.entries += 1;
        parked.due_ms = parked.due_ms.min(due_ms);
        self.put(counter, |boxes| &mut boxes.late);
    }

    /// Per entity the greatest time wins, and of two with the same time the later in the log.
    fn transition(&mut self, counter: &Counter, offset: u64, event: &Happening) {
        let up = counter.listens(event.kind).expect("it listens");
        let video = event.video.clone().expect("it was looked at before");
        let at = (event.occurred_ms, offset);
        let key = counter.key(event).expect("it was looked at before");
        let entity = (counter.name, event.user.clone(), video);
        let known = self.entities.get(&entity).cloned();
        if known.as_ref().is_some_and(|known| at < known.at) {
            return self.put(counter, |boxes| &mut boxes.ignored);
        }
        let counted = known.filter(|known| known.on);
        let stays = counted.as_ref().filter(|counted| !up || counted.key == key).cloned();
        let count = stays.as_ref().map_or(self.counts, |counted| counted.count);
        let now_at = stays.map_or(key.clone(), |counted| counted.key);
        self.entities.insert(entity, Entity { on: up, at, key: now_at, count });
        match (counted, up) {
            (Some(counted), true) if counted.key == key => return self.put(counter, |boxes| &mut boxes.ignored),
            (None, false) => return self.put(counter, |boxes| &mut boxes.ignored),
            (counted, _) => {
                if let Some(counted) = counted {
                    self.change(offset, counted.key, -1, Some(Of::Undo(counted.count)));
                }
                if up {
                    self.change(offset, key, 1, Some(Of::Count(count)));
                    self.counts += 1;
                }
            }
        }
        self.boxes.entry(counter.name).or_default().counted += 1;
    }

    fn count(&mut self, counter: &Counter, offset: u64, event: &Happening) {
        let up = counter.listens(event.kind).expect("it listens");
        let key = counter.key(event).expect("it was looked at before");
        self.change(offset, key, if up { event.delta } else { -event.delta }, None);
        self.boxes.entry(counter.name).or_default().counted += 1;
    }

    fn change(&mut self, offset: u64, key: String, delta: i64, entity: Option<Of>) {
        self.changes.push((offset, Change { key, delta, generation: None, entity }));
    }

    fn put(&mut self, counter: &Counter, of: impl Fn(&mut Boxes) -> &mut i64) {
        *of(self.boxes.entry(counter.name).or_default()) += 1;
        *of(&mut self.exceptions) += 1;
    }
}

/// Type, dimensions and delta; not its time, nor the session it came by.
fn same_content(a: &Happening, b: &Happening) -> bool {
    let content =
        |event: &Happening| (event.kind, event.user.clone(), event.video.clone(), event.country.clone(), event.delta);
    content(a) == content(b)
}
