//! What of a counter's entries counts, contract by contract. Each rule is a statement whose rows have the key's id and its values, what an
//! entry adds, and whatever else of the event is asked for.

use super::{Era, Recount, Start, text};
use tally_core::contract::{Contract, DedupSettings};
use tally_core::counter::Field;

/// When an event happened, by its sender or else by its arrival.
pub const OWN_TIME: &str = "coalesce(occurred_at, received_at)";

// What a rule reckons stands beside all columns of the events. A dimension may be called anything, but one with a dot in its name is no
// column (`tally_archive::stays_in_map`): so no two are called the same.
const NTH: &str = "\"own.nth\"";
const OWN_WINDOW: &str = "\"own.window\"";
const WINDOW_BEFORE: &str = "\"own.window_before\"";
const OWN_ID: &str = "\"own.id\"";
const HAPPENED: &str = "\"own.time\"";
const LATEST_BEFORE: &str = "\"own.latest_before\"";
const IS_ON: &str = "\"own.is_on\"";
const WAS_ON: &str = "\"own.was_on\"";
const WAS_ID: &str = "\"own.was_id\"";
const LAST_OFFSET: &str = "\"own.last_offset\"";
const LAST_ON_OFFSET: &str = "\"own.last_on_offset\"";
const BEGUN_OFFSET: &str = "\"own.begun_offset\"";

/// Whether an event of an entity is where something begins to count.
const BEGINS: &str = "\"own.is_on\" AND NOT (coalesce(\"own.was_on\", FALSE) AND \"own.was_id\" = \"own.id\")";

impl Recount<'_> {
    /// Rows (`id`, `key_0` and so on, `value`, and `more`, which begins with a comma if it is anything): what events come to.
    pub(super) fn counted(&self, more: &str) -> String {
        match self.from {
            Start::Beginning => self.by_the_rules(more),
            Start::Base(_) => self.not_named_in_fates(more, ""),
        }
    }

    /// The same as it will be when all runs of late entries have come, and with everything in the part that it belongs to.
    pub fn counted_in_the_end(&self, more: &str) -> String {
        match self.from {
            Start::Beginning => self.by_the_rules(more),
            Start::Base(_) => self.not_named_in_fates(more, " AND fate <> 'late'"),
        }
    }

    /// By the rules of the contract, without a look at what was made of the entries.
    pub(super) fn by_the_rules(&self, more: &str) -> String {
        match &self.counter.contract {
            Contract::Persistent(_) => self.first_of_each_id(more),
            Contract::Display(_) => self.outside_the_windows(more),
            Contract::Transition(transition) if !transition.entity.is_empty() => match more {
                "" => self.last_state(&transition.entity),
                more => self.turned_on(&transition.entity, more),
            },
            Contract::Transition(_) | Contract::Simple(_) => self.every_entry(more),
        }
    }

    /// An entry counts, whatever came before it.
    fn every_entry(&self, more: &str) -> String {
        self.every_entry_of(self, more)
    }

    fn every_entry_of(&self, time: &Recount<'_>, more: &str) -> String {
        let (key, change, own, has_key) = (self.key(), time.change(), time.own_entries(), self.has_all(&[]));
        format!("SELECT {key}, {change} AS value{more} FROM events WHERE {own} AND {has_key}")
    }

    /// Of those with the same event id the first counts, and no other, ever.
    fn first_of_each_id(&self, more: &str) -> String {
        let sees_all_claims = self.from == Start::Beginning && self.claims_are_archived();
        let known = if sees_all_claims { String::new() } else { self.not_repeated() };
        // What is not asked again is not carried through the sort.
        let own = Some(self.own_types()).filter(|own| *own != self.claimed_types());
        let own = own.map_or(String::new(), |own| format!(" AND {own}"));
        format!(
            "SELECT {key}, {change} AS value{more} FROM (
    SELECT *, row_number() OVER (PARTITION BY event_id ORDER BY \"offset\") AS {NTH} FROM events WHERE {claims}
  ) AS claimed WHERE {NTH} = 1 AND event_id IS NOT NULL AND {has_key}{own}{known}",
            key = self.key(),
            has_key = self.has_all(&[]),
            change = self.change(),
            claims = self.claims(),
        )
    }

    /// Whether every event that may have claimed an id is there. Those that only feed counters without an archive are not.
    fn claims_are_archived(&self) -> bool {
        let mut counters = self.eras.iter().flat_map(|era| era.declarations.counters());
        counters.all(|counter| counter.is_archived || !matches!(counter.contract, Contract::Persistent(_)))
    }

    /// That an id was claimed by an event that is gone, or was never there, is said by `fates` alone.
    fn not_repeated(&self) -> String {
        let name = text(&self.counter.name);
        format!(
            " AND \"offset\" NOT IN (
    SELECT \"offset\" FROM fates WHERE counter = {name} AND fate IN ('duplicate', 'conflict'))"
        )
    }

    /// A memory of repeats is of the fields and the window that were declared: each judges the events of its own time.
    fn outside_the_windows(&self, more: &str) -> String {
        let mut memories: Vec<(Option<&DedupSettings>, Vec<Era>)> = Vec::new();
        for era in self.eras {
            let Some(dedup) = self.dedup_in(era) else { continue };
            match memories.iter_mut().find(|(known, _)| same_memory(*known, dedup)) {
                Some((_, eras)) => eras.push(era.clone()),
                None => memories.push((dedup, vec![era.clone()])),
            }
        }
        let judged = memories.iter().map(|(dedup, eras)| {
            // What a dimension is called in the table follows from all eras, so that is not asked of one of them.
            let of_its_time = Recount { eras, ..*self };
            match dedup {
                Some(dedup) => self.outside_the_window(&of_its_time, dedup, more),
                None => self.every_entry_of(&of_its_time, more),
            }
        });
        let judged: Vec<String> = judged.collect();
        if judged.is_empty() { self.every_entry(more) } else { judged.join("\n  UNION ALL\n  ") }
    }

    /// What was remembered of repeats then, if anything was. `None` if the counter was not there or of another mode.
    fn dedup_in<'e>(&self, era: &'e Era) -> Option<Option<&'e DedupSettings>> {
        let Contract::Display(display) = &era.counter(&self.counter.name)?.contract else { return None };
        Some(display.dedup.as_ref())
    }

    /// What came before it under the same fields is two windows of log time away, or there is nothing.
    fn outside_the_window(&self, time: &Recount<'_>, dedup: &DedupSettings, more: &str) -> String {
        let mut by: Vec<String> = dedup.by.iter().map(|field| self.column(field)).collect();
        by.extend(dedup.seq.then(|| self.column(&Field::Seq)));
        let has_all = by.iter().map(|column| format!("{column} IS NOT NULL")).collect::<Vec<_>>().join(" AND ");
        // Where events need them, those without were rejected; where they do not, those count.
        let needs = |era: &Era| self.dedup_in(era).flatten().is_some_and(|dedup| dedup.required);
        let lacks = if time.eras.iter().all(needs) { "FALSE".to_owned() } else { format!("NOT ({has_all})") };
        let window_us = dedup.window_ms * 1000;
        format!(
            "SELECT {key}, {change} AS value{more} FROM (
    SELECT *, lag({OWN_WINDOW}) OVER (PARTITION BY {by} ORDER BY \"offset\") AS {WINDOW_BEFORE} FROM (
      SELECT *, CAST(log_time AS BIGINT) / {window_us} AS {OWN_WINDOW} FROM events WHERE {own}) AS windows
  ) AS seen WHERE {has_key} AND
    ({lacks} OR ({has_all}) AND ({WINDOW_BEFORE} IS NULL OR {WINDOW_BEFORE} < {OWN_WINDOW} - 1))",
            key = self.key(),
            has_key = self.has_all(&[]),
            change = time.change(),
            by = by.join(", "),
            own = time.own_entries(),
        )
    }

    /// Per entity the event that happened last decides; of two at the same time the later in the log.
    fn last_state(&self, entity: &[Field]) -> String {
        format!(
            "SELECT {key}, 1 AS value FROM (
    SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {OWN_TIME} DESC, \"offset\" DESC) AS {NTH}
    FROM events WHERE {own} AND {has_all}
  ) AS states WHERE {NTH} = 1 AND {change} > 0",
            key = self.key(),
            by = self.listed(entity),
            has_all = self.has_all(entity),
            own = self.own_entries(),
            change = self.change(),
        )
    }

    /// The same with the event that turned it on, which is where it counts: the first for its key since it was last off or elsewhere.
    pub(super) fn turned_on(&self, entity: &[Field], more: &str) -> String {
        format!(
            "SELECT {OWN_ID} AS id{key_values}, 1 AS value{more} FROM (
    SELECT *, max(\"offset\") OVER (PARTITION BY {by}) AS {LAST_OFFSET},
      max(CASE WHEN {IS_ON} THEN \"offset\" END) OVER (PARTITION BY {by}) AS {LAST_ON_OFFSET},
      max(CASE WHEN {BEGINS} THEN \"offset\" END) OVER (PARTITION BY {by}) AS {BEGUN_OFFSET}
    FROM ({in_order}) AS in_order
  ) AS states WHERE \"offset\" = {BEGUN_OFFSET} AND {LAST_ON_OFFSET} = {LAST_OFFSET}",
            key_values = self.key_values(),
            by = self.listed(entity),
            in_order = self.in_order(entity),
        )
    }

    /// The events of each entity that decide, with what it was before them. Those do not matter that came after one that happened later.
    fn in_order(&self, entity: &[Field]) -> String {
        format!(
            "SELECT *, lag({IS_ON}) OVER (PARTITION BY {by} ORDER BY \"offset\") AS {WAS_ON},
        lag({OWN_ID}) OVER (PARTITION BY {by} ORDER BY \"offset\") AS {WAS_ID}
      FROM (
        SELECT *, {change} > 0 AS {IS_ON}, {id} AS {OWN_ID}, {OWN_TIME} AS {HAPPENED},
          max({OWN_TIME}) OVER (
            PARTITION BY {by} ORDER BY \"offset\" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS {LATEST_BEFORE}
        FROM events WHERE {own} AND {has_all}) AS all_of_them
      WHERE {LATEST_BEFORE} IS NULL OR {HAPPENED} >= {LATEST_BEFORE}",
            id = self.id(),
            by = self.listed(entity),
            has_all = self.has_all(entity),
            own = self.own_entries(),
            change = self.change(),
        )
    }

    /// Rows (`id`, `value`, `log_time`): what a clear took that went off or elsewhere only after it. That takes nothing away then, so what
    /// the clear took is more than what is gone. `log_time` is that of the clear. `None` if there is no such clear.
    pub(super) fn undone_after_clears(&self) -> Option<String> {
        let Contract::Transition(transition) = &self.counter.contract else { return None };
        if transition.entity.is_empty() || !self.has_clears || self.from != Start::Beginning {
            return None;
        }
        let by = self.listed(&transition.entity);
        let before =
            format!("OVER (PARTITION BY {by} ORDER BY \"offset\" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)");
        Some(format!(
            "SELECT id, 1 AS value, min(cleared_at) AS log_time FROM (
  SELECT ended.{WAS_ID} AS id, ended.\"offset\" AS ended_at, clears.log_time AS cleared_at FROM (
    SELECT \"offset\", {WAS_ON}, {WAS_ID}, {IS_ON}, {OWN_ID},
      max(CASE WHEN {BEGINS} THEN generation END) {before} AS begun_generation
    FROM ({in_order}) AS in_order
  ) AS ended JOIN corrections AS clears ON clears.counter = ended.{WAS_ID}
    AND ended.begun_generation < clears.generation AND clears.\"offset\" <= ended.\"offset\"
  WHERE clears.cause = 'clear' AND clears.\"offset\" <= {to} AND ended.{WAS_ON} AND NOT (ended.{IS_ON} AND ended.{OWN_ID} = ended.{WAS_ID})
) AS undone GROUP BY id, ended_at",
            in_order = self.in_order(&transition.entity),
            to = self.to,
        ))
    }

    /// The id of an event's key, and the values that it is made of.
    fn key(&self) -> String {
        format!("{} AS id{}", self.id(), self.key_values())
    }

    fn key_values(&self) -> String {
        let named = self.key_columns().zip(self.key_names());
        named.map(|(value, name)| format!(", {value} AS {name}")).collect()
    }

    /// Entries without one of these fields, or without a dimension of the key, are rejected.
    fn has_all(&self, fields: &[Field]) -> String {
        let columns = fields.iter().map(|field| self.column(field)).chain(self.key_columns());
        let has = columns.map(|column| format!("{column} IS NOT NULL")).collect::<Vec<_>>().join(" AND ");
        if has.is_empty() { "TRUE".to_owned() } else { has }
    }

    fn listed(&self, fields: &[Field]) -> String {
        fields.iter().map(|field| self.column(field)).collect::<Vec<_>>().join(", ")
    }

    /// Every entry behind a base counts that is not said to have ended elsewhere.
    fn not_named_in_fates(&self, more: &str, but: &str) -> String {
        format!(
            "SELECT {}, {} AS value{more} FROM events WHERE {} AND {} AND \"offset\" NOT IN (
    SELECT \"offset\" FROM fates WHERE counter = {}{but})",
            self.key(),
            self.change(),
            self.within(),
            self.own_types(),
            text(&self.counter.name),
        )
    }
}

/// Whether what one remembers of repeats is known to the other: that events need the fields is no part of it.
fn same_memory(one: Option<&DedupSettings>, other: Option<&DedupSettings>) -> bool {
    let told = |dedup: &DedupSettings| (dedup.by.clone(), dedup.seq, dedup.window_ms);
    one.map(told) == other.map(told)
}
