//! The counters of the test and what they are split into: once as the server reads it, once as the model does.

/// All modes; clocks that are changed, and clocks that are off by half an hour and by a quarter of one.
pub const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rollups: [[country], [country, device], [country, hour], [day]]
    timezone: Asia/Kolkata
    dedup: {by: [session, seq], window: 60s}
    rules: [{on: view, op: increment}]
  - counterName: heard
    mode: display
    dimensions: [video]
    rollups: [[country], [country, hour], [day]]
    timezone: America/St_Johns
    dedup: {by: [session, seq], window: 60s}
    lateness: {allowed: 1d, corrected: 2d, every: 1s, restated: 1s}
    rules: [{on: view, op: increment}]
  - counterName: likes
    mode: transition
    dimensions: [video]
    entity: [user, video]
    rollups: [[country], [country, device], [country, hour], [day]]
    timezone: Europe/Berlin
    maxCardinality: {device: 2}
    rules: [{on: like, op: increment}, {on: unlike, op: decrement}]
  - counterName: votes
    mode: transition
    dimensions: [video]
    entity: [user]
    rollups: [[device], [hour], [week]]
    rules: [{on: like, op: increment}, {on: unlike, op: decrement}]
  - counterName: paid
    mode: persistent
    dimensions: [video]
    rollups: [[country], [country, device], [country, hour], [day]]
    timezone: Asia/Kathmandu
    rules: [{on: ad, op: increment}]
";

pub const VIDEOS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    Views,
    Heard,
    Likes,
    Votes,
    Paid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    Country,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Hour,
    Day,
    Week,
}

/// Dimensions, and a bucket of time.
pub type Rollup = (&'static [Dimension], Option<Unit>);

const COUNTRY: Rollup = (&[Dimension::Country], None);
const COUNTRY_DEVICE: Rollup = (&[Dimension::Country, Dimension::Device], None);
const COUNTRY_HOUR: Rollup = (&[Dimension::Country], Some(Unit::Hour));
const DEVICE: Rollup = (&[Dimension::Device], None);
const HOUR: Rollup = (&[], Some(Unit::Hour));
const DAY: Rollup = (&[], Some(Unit::Day));
const WEEK: Rollup = (&[], Some(Unit::Week));

impl Counter {
    pub const ALL: [Counter; 5] = [Counter::Views, Counter::Heard, Counter::Likes, Counter::Votes, Counter::Paid];

    pub fn name(self) -> &'static str {
        ["views", "heard", "likes", "votes", "paid"][self as usize]
    }

    /// The id of one key, or of the counter as a whole.
    pub fn id(self, video: Option<usize>) -> String {
        video.map_or_else(|| self.name().to_owned(), |video| format!("{}:v{video}", self.name()))
    }

    pub fn zone(self) -> &'static str {
        ["Asia/Kolkata", "America/St_Johns", "Europe/Berlin", "UTC", "Asia/Kathmandu"][self as usize]
    }

    pub fn rollups(self) -> &'static [Rollup] {
        match self {
            Counter::Heard => &[COUNTRY, COUNTRY_HOUR, DAY],
            // By device as well: a dimension with a limit has a roll-up of its own, which decides what is admitted.
            Counter::Likes => &[COUNTRY, COUNTRY_DEVICE, COUNTRY_HOUR, DAY, DEVICE],
            Counter::Votes => &[DEVICE, HOUR, WEEK],
            Counter::Views | Counter::Paid => &[COUNTRY, COUNTRY_DEVICE, COUNTRY_HOUR, DAY],
        }
    }

    /// How many devices a key has parts for.
    pub fn devices_max(self) -> Option<usize> {
        (self == Counter::Likes).then_some(2)
    }
}

impl Dimension {
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Country => "country",
            Dimension::Device => "device",
        }
    }
}

impl Unit {
    pub fn name(self) -> &'static str {
        ["hour", "day", "week"][self as usize]
    }

    pub fn step(self) -> &'static str {
        ["1h", "1d", "1w"][self as usize]
    }
}
