//! Fills roll-ups that were added to running counters with what was counted before, from the archive (ADR 37).
//!
//! A stand-in begins beside the roll-up. What it lacks is reckoned in SQL, at one position and a page of keys at a time, and added to it by
//! records of the log; when nothing is left it takes the roll-up's place. Each page is of a snapshot of its own, in which the stand-in has
//! what was added so far: so whoever is interrupted begins anew and finds the rest, and nothing has to be remembered. Before all that,
//! entities that count are told what they were counted for, so that what they take back is taken from there.

mod page;

use super::recount::{Entities, Lacking, Of, Start, takes_back};
use super::scene::{Scene, cannot_recount, first_number, numbers, optional_texts};
use super::{ReconcileError, Reconciler};
use crate::clock::rfc3339;
use page::{Page, parted, records};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tally_core::counter::{Counter, Direction};
use tally_core::event::Event;
use tally_core::id::{SEPARATOR, name_of};
use tally_core::ledger::{Fill, FillKey, FillStep};
use tally_core::limits::FILL_ROWS_MAX;
use tally_core::machine::Machine;
use tally_core::values::KeptRollup;

/// So many times as long as a record took it rests: others write as well.
const REST_TIMES: u32 = 3;
/// How long one that has failed waits, twice as long each time.
const FAILED_PAUSE_MS: u64 = 60_000;
const FAILED_PAUSE_MS_MAX: u64 = 24 * 3_600_000;
/// A run comes within a second.
const BEHIND_THE_RUN_MS: u64 = 2_000;
/// Keys of the first page: each one after it may have more.
const KEYS_AT_FIRST: usize = 1_000;
/// How often a page is reckoned again because keys were cleared meanwhile.
const REFUSED_MAX: u32 = 20;

/// Why roll-ups are not filled, by their counters and numbers.
pub(super) type NotFilled = Arc<Mutex<BTreeMap<(String, u16), String>>>;

#[derive(Default)]
pub(super) struct Fills {
    under_way: Option<Filling>,
    pub not_filled: NotFilled,
    /// How often in a row each has failed.
    failures: BTreeMap<(String, u16), u32>,
    /// When those are looked at again that wait, or have failed.
    waits: BTreeMap<(String, u16), u64>,
    /// Of counters with roll-ups since some time.
    told: BTreeMap<(String, u64), Told>,
    pub are_off: bool,
}

/// A roll-up that is filled.
struct Filling {
    counter: String,
    kept: KeptRollup,
    /// Where counting began with the first page.
    begins: Option<(Start, Option<u64>)>,
    place: Place,
    /// Keys that are looked at at once: so many that what they come to fits into memory.
    keys_at_once: usize,
    /// Up to where corrections had touched more than they added, when a page has ended within a key.
    disturbed: Option<i64>,
    entities: Told,
    parts: u64,
    refused: u32,
}

impl Filling {
    fn new(counter: String, kept: KeptRollup, told: &BTreeMap<(String, u64), Told>) -> Filling {
        let since_ms = kept.since_ms.unwrap_or(0);
        let entities = told.get(&(counter.clone(), since_ms)).copied().unwrap_or(Told::UpTo(None));
        let (place, keys_at_once) = (Place::Whole(None), KEYS_AT_FIRST);
        Filling { counter, kept, begins: None, place, keys_at_once, disturbed: None, entities, parts: 0, refused: 0 }
    }

    fn key(&self) -> (String, u16) {
        (self.counter.clone(), self.kept.number)
    }

    fn begin_again(&mut self) {
        (self.place, self.disturbed) = (Place::Whole(None), None);
    }

    fn step(&self, rollup: u16, step: FillStep) -> Fill {
        Fill { counter: self.counter.clone(), rollup, step }
    }
}

/// Where nothing is lacking up to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: the counter as a whole comes first. Or up to one of its buckets.
    Whole(Option<u64>),
    /// Up to a key, and one of the buckets of the next one.
    Keys { behind: Option<Vec<u8>>, within: Option<(String, u64)> },
}

/// How far entities know what they were counted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    UpTo(Option<u64>),
    All,
}

/// What a look at a roll-up came to.
enum Looked {
    /// There is another one in its place, or none.
    Gone,
    Cannot(String),
    /// Late entries from before it wait until then: of what they belong to only what other roll-ups needed is remembered.
    Waits(u64),
    /// Events of entities that are to be told what they were counted for, and the last of them if there are more.
    Entities {
        events: Vec<Vec<u8>>,
        behind: Option<u64>,
    },
    /// It has no stand-in.
    NotBegun,
    /// Another roll-up of the counter has one, and comes first.
    Instead(KeptRollup),
    Page {
        stand_in: u16,
        keys: Vec<FillKey>,
        /// Where that ends; `None` if nothing is behind it.
        place: Option<Place>,
        keys_at_once: usize,
        disturbed: i64,
    },
    /// What so many keys come to does not fit into memory.
    TooMuch(ReconcileError),
}

/// What is to be done next.
enum Filled {
    Some,
    All,
    Cannot(String),
    Waits { until_ms: u64, why: String },
}

impl Fills {
    fn tell(&self, key: (String, u16), why: Option<String>) {
        let mut not_filled = self.not_filled.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => not_filled.insert(key, why),
            None => not_filled.remove(&key),
        };
    }

    /// When something may be filled that waits. What waits for something else as well has its turn then.
    pub fn again_ms(&self, now_ms: u64) -> Option<u64> {
        self.waits.values().copied().filter(|until_ms| *until_ms > now_ms && !self.are_off).min()
    }
}

impl Reconciler {
    /// Fills a page of a roll-up that lacks something; `false` if there is none.
    pub(super) async fn fill_some(&mut self) -> Result<bool, ReconcileError> {
        let under_way = self.fills.under_way.take();
        let Some(mut filling) = under_way.or_else(|| self.next_fill()) else { return Ok(false) };
        let filled = match self.never(&filling.counter) {
            Some(why) => Ok(Filled::Cannot(why)),
            None => self.fill_page(&mut filling).await,
        };
        let now_ms = self.engine.clock().now_ms();
        let (counter, rollup, parts) = (&filling.counter, filling.kept.rollup.to_string(), filling.parts);
        let key = filling.key();
        self.fills.told.insert((counter.clone(), filling.kept.since_ms.unwrap_or(0)), filling.entities);
        if matches!(filled, Ok(Filled::All | Filled::Cannot(_))) {
            self.fills.failures.remove(&key);
        }
        match filled {
            Ok(Filled::Some) => {
                self.fills.tell(key, None);
                self.fills.under_way = Some(filling);
            }
            Ok(Filled::All) => {
                tracing::info!(counter, rollup, parts, "a roll-up that was added later is filled");
                self.fills.tell(key, None);
            }
            Ok(Filled::Cannot(why)) => {
                tracing::info!(counter, rollup, why, "a roll-up that was added later is not filled");
                self.fills.waits.insert(key.clone(), u64::MAX);
                self.fills.tell(key, Some(why));
            }
            Ok(Filled::Waits { until_ms, why }) => {
                self.fills.waits.insert(key.clone(), until_ms.max(now_ms) + BEHIND_THE_RUN_MS);
                self.fills.tell(key, Some(why));
            }
            Err(error) => {
                let failures = self.fills.failures.entry(key.clone()).or_default();
                *failures += 1;
                let pause_ms = (FAILED_PAUSE_MS << failures.saturating_sub(1).min(16)).min(FAILED_PAUSE_MS_MAX);
                self.fills.waits.insert(key.clone(), now_ms + pause_ms);
                self.fills.tell(key, Some(format!("it is tried again: {error}")));
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Why a roll-up of a counter can never be filled, as far as that is known without a look at the archive.
    fn never(&self, counter: &str) -> Option<String> {
        let declarations = self.engine.declarations();
        let counter = declarations.counters().iter().find(|declared| *declared.name == *counter)?;
        cannot_recount(counter, &[], Start::Beginning)
    }

    /// How far it is, in words.
    pub(super) fn fill_progress(&self) -> String {
        match &self.fills.under_way {
            Some(Filling { counter, kept, parts, .. }) => {
                format!("filling {} of {counter}: {parts} parts so far", kept.rollup)
            }
            None => "nothing is being filled".to_owned(),
        }
    }

    /// A roll-up that lacks what was before it. What decides about the values of another one comes before that, whatever it takes.
    fn next_fill(&self) -> Option<Filling> {
        let declarations = self.engine.declarations();
        let now_ms = self.engine.clock().now_ms();
        let mut all = Vec::new();
        for counter in declarations.counters() {
            let lacking = declarations.rollups_of(&counter.name).iter().filter(|kept| kept.since_ms.is_some());
            all.extend(lacking.map(|kept| (!decides(counter, kept), counter.name.to_string(), kept.clone())));
        }
        let waits_until = |counter: &String, number| self.fills.waits.get(&(counter.clone(), number)).copied();
        let cannot = |counter: &String, number| waits_until(counter, number) == Some(u64::MAX);
        let deciding = all.iter().filter(|(follows, counter, kept)| !follows && !cannot(counter, kept.number));
        let deciding: Vec<(String, Box<str>)> =
            deciding.map(|(_, counter, kept)| (counter.clone(), kept.rollup.dimensions[0].clone())).collect();
        let is_decided = |counter: &str, kept: &KeptRollup| {
            deciding.iter().any(|(of, name)| *of == counter && kept.rollup.dimensions.contains(name))
        };
        all.retain(|(follows, counter, kept)| {
            let is_due = waits_until(counter, kept.number).is_none_or(|until_ms| until_ms <= now_ms);
            is_due && !(*follows && is_decided(counter, kept))
        });
        let (_, counter, kept) = all.into_iter().next().filter(|_| !self.fills.are_off)?;
        Some(Filling::new(counter, kept, &self.fills.told))
    }

    async fn fill_page(&self, filling: &mut Filling) -> Result<Filled, ReconcileError> {
        let clock = self.engine.clock();
        let begun = clock.passed();
        let (scene, looked) = self.undisturbed(async |scene| self.look(scene, filling).await).await?;
        let took = clock.passed() - begun;
        let (stand_in, keys, place, disturbed) = match looked {
            Looked::Gone => return Ok(Filled::All),
            Looked::Waits(until_ms) => {
                let until = rfc3339(until_ms);
                let why = format!("late entries from before it wait for their runs, the last one at {until}");
                return Ok(Filled::Waits { until_ms, why });
            }
            Looked::Cannot(why) => {
                if let Some(stand_in) = stand_in_for(&scene.state, filling) {
                    self.engine.fill(&filling.step(stand_in.number, FillStep::Drop)).await?;
                }
                return Ok(Filled::Cannot(why));
            }
            Looked::Entities { events, behind } => {
                let before = scene.snapshot.position().offset;
                for events in records(events, Vec::len) {
                    self.add(&filling.step(filling.kept.number, FillStep::Describe { before, events })).await?;
                }
                filling.entities = behind.map_or(Told::All, |behind| Told::UpTo(Some(behind)));
                return Ok(Filled::Some);
            }
            Looked::Instead(kept) => {
                let waits_until = self.fills.waits.get(&(filling.counter.clone(), kept.number));
                if let Some(until_ms) = waits_until.copied().filter(|until_ms| *until_ms > self.engine.clock().now_ms())
                {
                    let why = format!("{} is filled first, and waits", kept.rollup);
                    return Ok(Filled::Waits { until_ms, why });
                }
                *filling = Filling::new(filling.counter.clone(), kept, &self.fills.told);
                return Ok(Filled::Some);
            }
            Looked::NotBegun => {
                if !self.engine.fill(&filling.step(filling.kept.number, FillStep::Begin)).await? {
                    let why = format!("nothing can be begun beside {} of {}", filling.kept.rollup, filling.counter);
                    return Err(ReconcileError::Wrong(why.into()));
                }
                return Ok(Filled::Some);
            }
            Looked::TooMuch(error) if filling.keys_at_once == 1 => return Err(error),
            Looked::TooMuch(_) => {
                filling.keys_at_once = (filling.keys_at_once / 8).max(1);
                return Ok(Filled::Some);
            }
            Looked::Page { stand_in, keys, place, keys_at_once, disturbed } => {
                filling.keys_at_once = keys_at_once;
                (stand_in, keys, place, disturbed)
            }
        };
        let begins = (scene.from, scene.base_ms);
        if filling.begins.replace(begins).is_some_and(|before| before != begins) {
            // What was before a later base is not to be in it any more, also of the keys before this page.
            filling.begin_again();
            return Ok(Filled::Some);
        }
        if filling.disturbed.is_some_and(|before| before != disturbed) {
            // The buckets before the cut belong to another sum than those behind it.
            filling.begin_again();
            return Ok(Filled::Some);
        }
        for keys in records(parted(keys), FillKey::bytes) {
            let parts: usize = keys.iter().map(|key| key.parts.len()).sum();
            let add = FillStep::Add { generation: scene.generation, keys };
            if !self.add(&filling.step(stand_in, add)).await? {
                filling.refused += 1;
                if filling.refused > REFUSED_MAX {
                    let why = format!(
                        "keys of {} were cleared each time while it was reckoned what {} lacks",
                        filling.counter, filling.kept.rollup
                    );
                    return Err(ReconcileError::Wrong(why.into()));
                }
                clock.sleep(took).await;
                return Ok(Filled::Some);
            }
            filling.parts += parts as u64;
        }
        filling.refused = 0;
        if let Some(place) = place {
            let is_within = matches!(place, Place::Whole(Some(_)) | Place::Keys { within: Some(_), .. });
            filling.disturbed = is_within.then_some(disturbed);
            filling.place = place;
            return Ok(Filled::Some);
        }
        let end = FillStep::End { since_ms: scene.base_ms };
        // If it is not there any more, the next look finds what is.
        let is_done = self.engine.fill(&filling.step(stand_in, end)).await?;
        Ok(if is_done { Filled::All } else { Filled::Some })
    }

    /// Adds something, and rests.
    async fn add(&self, fill: &Fill) -> Result<bool, ReconcileError> {
        let clock = self.engine.clock();
        let begun = clock.passed();
        let is_done = self.engine.fill(fill).await?;
        clock.sleep((clock.passed() - begun) * REST_TIMES).await;
        Ok(is_done)
    }

    async fn look(&self, scene: &Scene, filling: &Filling) -> Result<Looked, ReconcileError> {
        let found = scene.declarations.counters().iter().find(|counter| *counter.name == *filling.counter);
        let is_it = |kept: &&KeptRollup| kept.number == filling.kept.number && kept.since_ms.is_some();
        let rollups = scene.declarations.rollups_of(&filling.counter);
        let Some((counter, kept)) = found.zip(rollups.iter().find(is_it)) else { return Ok(Looked::Gone) };
        let since_ms = kept.since_ms.unwrap_or(0);
        if let Some(why) = cannot_fill(scene, counter, since_ms) {
            return Ok(Looked::Cannot(why));
        }
        if let Some(until_ms) = late_until(scene, &filling.counter, since_ms) {
            return Ok(Looked::Waits(until_ms));
        }
        let in_the_way = scene.state.values.stand_in(&filling.counter).and_then(|kept| kept.stands_in_for);
        if let Some(other) =
            rollups.iter().find(|kept| Some(kept.number) == in_the_way && kept.number != filling.kept.number)
        {
            return Ok(Looked::Instead(other.clone()));
        }
        let Some(stand_in) = stand_in_for(&scene.state, filling) else {
            if let Told::UpTo(behind) = filling.entities
                && let Some(looked) = self.entities(scene, counter, Entities { up_to_ms: since_ms, behind }).await?
            {
                return Ok(looked);
            }
            return Ok(Looked::NotBegun);
        };
        self.page(scene, filling, counter, stand_in, since_ms).await
    }

    /// What the next keys lack.
    async fn page(
        &self,
        scene: &Scene,
        filling: &Filling,
        counter: &Counter,
        stand_in: &KeptRollup,
        since_ms: u64,
    ) -> Result<Looked, ReconcileError> {
        let recount = scene.recount(counter);
        let disturbed = first_number(&self.ask(scene, recount.last_disturbed()).await?);
        let mut keys_at_once = filling.keys_at_once;
        let page = |keys, place, keys_at_once| {
            Ok(Looked::Page { stand_in: stand_in.number, keys, place, keys_at_once, disturbed })
        };
        let Some(ids) = ids_of(scene, counter, filling)? else { return page(Vec::new(), None, keys_at_once) };
        let (of, behind) = match &filling.place {
            Place::Whole(behind) => (Of::Whole, *behind),
            Place::Keys { within: Some((id, bucket)), .. } => (Of::Keys { from: id, to: id }, Some(*bucket)),
            Place::Keys { .. } => (Of::Keys { from: &ids[0], to: &ids[ids.len() - 1] }, None),
        };
        let lacking = Lacking { stand_in, since_ms, decides: decides(counter, stand_in), of, behind };
        let answer = match self.ask_for(scene, recount.lacking(&lacking), FILL_ROWS_MAX).await {
            Err(error @ ReconcileError::Sql(_)) => return Ok(Looked::TooMuch(error)),
            answer => answer?,
        };
        let Some(Page { keys, cut, rows }) = Page::read(&answer, stand_in) else {
            let why = "the parts of one key and bucket are larger than an answer in SQL may be";
            return Ok(Looked::Cannot(why.to_owned()));
        };
        let place = match (&filling.place, cut) {
            (Place::Whole(_), Some((_, bucket))) => Some(Place::Whole(bucket)),
            (Place::Whole(_), None) => counter.has_keys().then_some(Place::Keys { behind: None, within: None }),
            (Place::Keys { behind, .. }, Some((id, Some(bucket)))) => {
                keys_at_once = 1;
                Some(Place::Keys { behind: behind.clone(), within: Some((id, bucket)) })
            }
            (Place::Keys { .. }, Some((id, None))) => {
                keys_at_once = (keys_at_once / 2).max(1);
                Some(Place::Keys { behind: Some(id.into_bytes()), within: None })
            }
            (Place::Keys { .. }, None) => {
                if rows < FILL_ROWS_MAX / 8 {
                    keys_at_once = (keys_at_once * 4).min(FILL_ROWS_MAX);
                }
                Some(Place::Keys { behind: ids.last().map(|id| id.clone().into_bytes()), within: None })
            }
        };
        page(keys, place, keys_at_once)
    }
}

/// The keys that are looked at next, in the order of their ids; `None` if there are none any more.
fn ids_of(scene: &Scene, counter: &Counter, filling: &Filling) -> Result<Option<Vec<String>>, ReconcileError> {
    let behind = match &filling.place {
        Place::Whole(_) => return Ok(Some(vec![counter.name.to_string()])),
        Place::Keys { within: Some((id, _)), .. } => return Ok(Some(vec![id.clone()])),
        Place::Keys { behind, within: None } => behind,
    };
    let (prefix, mut after) = ([counter.name.as_bytes(), &[SEPARATOR]].concat(), behind.clone());
    loop {
        let page = scene.snapshot.page_of(&prefix, after.as_deref(), filling.keys_at_once)?;
        // A key of a declared counter is a text.
        let ids = page.counters.into_iter().filter_map(|(id, _)| String::from_utf8(id).ok()).collect::<Vec<_>>();
        match page.next {
            _ if !ids.is_empty() => return Ok(Some(ids)),
            None => return Ok(None),
            next => after = next,
        }
    }
}

impl Reconciler {
    /// The events of entities that are on; `None` if there are none.
    async fn entities(
        &self,
        scene: &Scene,
        counter: &Counter,
        wanted: Entities,
    ) -> Result<Option<Looked>, ReconcileError> {
        let recount = scene.recount(counter);
        let Some(statement) = recount.entities(&wanted) else { return Ok(None) };
        let answer = self.ask_for(scene, statement, FILL_ROWS_MAX).await?;
        let (names, mut events, mut last) = (recount.entity_dimensions(), Vec::new(), None);
        for batch in &answer.rows {
            let columns: Vec<Vec<Option<String>>> =
                (2..batch.num_columns()).map(|column| optional_texts(batch, column)).collect();
            for (row, (at, own_ms)) in numbers(batch, 0).into_iter().zip(numbers(batch, 1)).enumerate() {
                let text = |column: usize| columns[column][row].as_deref();
                let on = still_on(counter, text(0).unwrap_or_default());
                let mut event = Event::new(on, own_ms.max(0) as u64);
                (event.session, event.event_id) = (text(1).map(Cow::Borrowed), text(2).map(Cow::Borrowed));
                event.occurred_at_ms = Some(own_ms);
                let dimensions = names.iter().enumerate();
                event.dimensions =
                    dimensions.filter_map(|(n, name)| Some(((*name).into(), text(3 + n)?.into()))).collect();
                let mut bytes = Vec::new();
                event.encode(&mut bytes);
                events.push(bytes);
                last = Some(at as u64);
            }
        }
        let behind = last.filter(|_| answer.is_truncated);
        Ok((!events.is_empty()).then_some(Looked::Entities { events, behind }))
    }
}

/// The type of an event that turned something on, or one that would do so today.
fn still_on<'a>(counter: &'a Counter, event_type: &'a str) -> &'a str {
    let mut rules = counter.rules.iter().filter(|rule| rule.op == Direction::Increment);
    let is_known = counter.rules.iter().any(|rule| *rule.on == *event_type);
    if is_known { event_type } else { rules.next().map_or(event_type, |rule| &rule.on) }
}

/// Why what was counted before a roll-up cannot be reckoned, if so.
fn cannot_fill(scene: &Scene, counter: &Counter, since_ms: u64) -> Option<String> {
    if let Some(why) = scene.cannot_compare(counter) {
        return Some(why);
    }
    if scene.base_ms.is_some_and(|base_ms| base_ms >= since_ms) {
        return Some("the archive has let go of what was counted before it".to_owned());
    }
    let is_unknown = matches!(scene.from, Start::Base(_)) && takes_back(counter);
    is_unknown.then(|| {
        "by which dimensions something was counted that is taken back may be known by an event that is gone".to_owned()
    })
}

/// When the last of the late entries counts that came before a roll-up was added and wait for their runs.
fn late_until(scene: &Scene, counter: &str, since_ms: u64) -> Option<u64> {
    let from_before = scene.state.parked().iter().map(|(_, _, entry)| entry);
    let from_before =
        from_before.filter(|entry| entry.first_ms <= since_ms && name_of(&entry.id) == counter.as_bytes());
    from_before.map(|entry| entry.due_ms).max()
}

/// The stand-in of the roll-up that is filled.
fn stand_in_for<'m>(state: &'m Machine, filling: &Filling) -> Option<&'m KeptRollup> {
    state.values.stand_in(&filling.counter).filter(|kept| kept.stands_in_for == Some(filling.kept.number))
}

/// Whether a roll-up says which values of a dimension a key admits.
fn decides(counter: &Counter, kept: &KeptRollup) -> bool {
    let is_limited = |name: &str| counter.rollups.limits.iter().any(|(limited, _)| **limited == *name);
    kept.rollup.unit.is_none() && matches!(&*kept.rollup.dimensions, [only] if is_limited(only))
}
