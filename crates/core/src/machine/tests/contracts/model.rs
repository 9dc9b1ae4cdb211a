//! What clients may send, and a model that remembers all of it.

use crate::event::Event;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// One thing that a client may send; small domains, so that everything repeats.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) kind: u8,
    pub(super) video: u8,
    pub(super) user: u8,
    pub(super) id: u8,
    pub(super) session: u8,
    pub(super) seq: u64,
    /// How long ago it happened, as the sender says; before 0 if its clock runs ahead.
    pub(super) ago_ms: i64,
    /// How long it waited before it came.
    pub(super) waited_ms: u64,
    pub(super) pause_ms: u64,
}

pub(super) fn told() -> impl Strategy<Value = Told> {
    let pause = prop_oneof![8 => Just(0u64), 3 => 0..700u64, 1 => 900..3500u64];
    let seq = prop_oneof![6 => 0..12u64, 1 => (u64::MAX - 2)..=u64::MAX];
    let ago = prop_oneof![4 => 0..900i64, 1 => 900..20_000i64, 1 => -250_000..0i64];
    let waited = prop_oneof![6 => Just(0u64), 1 => 0..30_000u64];
    (0..5u8, 0..3u8, 0..2u8, 0..20u8, 0..3u8, seq, ago, (waited, pause)).prop_map(
        |(kind, video, user, id, session, seq, ago_ms, (waited_ms, pause_ms))| Told {
            kind,
            video,
            user,
            id,
            session,
            seq,
            ago_ms,
            waited_ms,
            pause_ms,
        },
    )
}

impl Told {
    pub(super) fn event(&self, now_ms: u64) -> Event<'static> {
        let kinds = ["viewed", "liked", "unliked", "ad", "undone"];
        let received_ms = now_ms - self.waited_ms;
        let mut event = Event::new(kinds[usize::from(self.kind)], received_ms);
        event.event_id = Some(format!("e{}", self.id).into());
        event.session = Some(format!("s{}", self.session).into());
        event.seq = Some(self.seq);
        event.occurred_at_ms = Some(received_ms as i64 - self.ago_ms);
        for (name, value) in [("video", self.video), ("user", self.user), ("creator", self.video % 2 + self.id % 2)] {
            event.dimensions.push((name.into(), value.to_string().into()));
        }
        event
    }
}

/// Remembers everything, compares everything with everything.
#[derive(Default)]
pub(super) struct Model {
    pub(super) values: BTreeMap<String, i64>,
    pub(super) fates: BTreeMap<(&'static str, &'static str), i64>,
    /// (counter, identity) and the log times at which it stood.
    pub(super) stood: HashMap<(&'static str, String), Vec<u64>>,
    pub(super) watermark_ms: Option<i64>,
    pub(super) claimed: HashMap<String, String>,
    /// Per counter and entity: all that was ever said, with the cell that it would count for.
    pub(super) said: HashMap<(&'static str, String), Said>,
}

#[derive(Default)]
pub(super) struct Said {
    pub(super) greatest: Option<(i64, usize)>,
    pub(super) counted: Option<String>,
}

impl Model {
    pub(super) fn fate(&mut self, counter: &'static str, fate: &'static str) {
        *self.fates.entry((counter, fate)).or_default() += 1;
    }

    pub(super) fn count(&mut self, counter: &'static str, id: String, delta: i64) {
        *self.values.entry(id).or_default() += delta;
        self.fate(counter, "counted");
    }

    /// The display rule: the same stood earlier in the current or the previous tumbling window (and nothing here is rejected).
    pub(super) fn stood(&mut self, counter: &'static str, identity: String, now_ms: u64, window_ms: u64) -> bool {
        let times = self.stood.entry((counter, identity)).or_default();
        let repeated = times.iter().any(|then_ms| now_ms / window_ms - then_ms / window_ms <= 1);
        times.push(now_ms);
        repeated
    }

    pub(super) fn take(&mut self, n: usize, told: &Told, event: &Event<'_>, now_ms: u64) {
        let video = told.video.to_string();
        match told.kind {
            0 => {
                match self.stood("views", format!("{}/{}", told.session, told.seq), now_ms, 1000) {
                    true => self.fate("views", "duplicate"),
                    false => self.count("views", format!("views:{video}"), 1),
                }
                match self.stood("hosts", video.clone(), now_ms, 2000) {
                    true => self.fate("hosts", "duplicate"),
                    false => self.count("hosts", "hosts".to_owned(), 1),
                }
                let time_ms = event.time_ms();
                let received_ms = event.received_at_ms as i64;
                let shown_ms = time_ms.min(received_ms);
                let watermark_ms = self.watermark_ms.map_or(shown_ms, |watermark_ms| watermark_ms.max(shown_ms));
                self.watermark_ms = Some(watermark_ms);
                match watermark_ms.min(received_ms) - time_ms > 1000 {
                    true => self.fate("timely", "late"),
                    false => self.count("timely", format!("timely:{video}"), 1),
                }
            }
            1 | 2 => {
                let creator = event.dimension("creator").expect("all have one");
                for (counter, id) in [("likes", format!("likes:{video}")), ("fans", format!("fans:{creator}"))] {
                    self.say(counter, format!("{}/{video}", told.user), (event.time_ms(), n), told.kind == 1, id);
                }
            }
            _ => {
                let on_ad = told.kind == 3;
                let content = format!("{} {:?}", event.event_type, event.dimensions);
                let first = self.claimed.entry(format!("e{}", told.id)).or_insert_with(|| format!("new {content}"));
                let fate = match first.strip_prefix("new ") {
                    Some(_) => None,
                    None if *first == content => Some("duplicate"),
                    None => Some("conflict"),
                };
                *first = first.trim_start_matches("new ").to_owned();
                let fed: &[(&'static str, String, i64)] = match on_ad {
                    true => &[("shown", format!("shown:{video}"), 1), ("billed", "billed".to_owned(), 1)],
                    false => &[("shown", format!("shown:{video}"), -1)],
                };
                for (counter, id, delta) in fed {
                    match fate {
                        Some(fate) => self.fate(counter, fate),
                        None => self.count(counter, id.clone(), *delta),
                    }
                }
            }
        }
    }

    pub(super) fn say(&mut self, counter: &'static str, entity: String, when: (i64, usize), on: bool, id: String) {
        let said = self.said.entry((counter, entity)).or_default();
        let wins = said.greatest.is_none_or(|greatest| when > greatest);
        if wins {
            said.greatest = Some(when);
        }
        match (wins, on, said.counted.take()) {
            (true, true, None) => {
                said.counted = Some(id.clone());
                self.count(counter, id, 1);
            }
            (true, false, Some(counted)) => self.count(counter, counted, -1),
            // The newest alone decides which key it counts for.
            (true, true, Some(counted)) if counted != id => {
                *self.values.entry(counted).or_default() -= 1;
                said.counted = Some(id.clone());
                self.count(counter, id, 1);
            }
            (_, _, counted) => {
                said.counted = counted;
                self.fate(counter, "ignored");
            }
        }
    }
}
