//! The rules of the contracts once more, in SQL: what each key of a counter should be worth at a position, by the archive alone.
//!
//! This shares nothing with how entries are judged but what was declared. It is meant to be read beside `docs/guide/contracts.md`.

mod entities;
mod lacking;
mod rules;
mod slices;
mod zones;

pub use entities::Entities;
pub use lacking::{Lacking, Of};
pub use slices::{At, Slices};

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tally_archive::stays_in_map;
use tally_core::contract::Contract;
use tally_core::counter::{Counter, Declarations, Direction, Field};

/// Declarations, and under which versions they were in force.
#[derive(Clone)]
pub struct Era {
    pub versions: RangeInclusive<u64>,
    /// The offset at which others replaced them.
    pub until: u64,
    pub declarations: Arc<Declarations>,
}

impl Era {
    /// Whether any of the events came under them that are counted from there on.
    pub fn is_behind(&self, from: Start) -> bool {
        matches!(from, Start::Base(base) if self.until > base) || from == Start::Beginning
    }

    /// The dimensions that events had a column for.
    fn named_dimensions(&self) -> impl Iterator<Item = &str> {
        self.declarations.counters().iter().flat_map(|counter| counter.named_dimensions())
    }

    /// As it was declared then.
    pub fn counter(&self, name: &str) -> Option<&Counter> {
        self.declarations.counters().iter().find(|counter| *counter.name == *name)
    }
}

/// Where counting begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first event: every rule can be applied.
    Beginning,
    /// Behind a base. What came before is gone, so that something is a repeat of it is taken from `fates`.
    Base(u64),
}

/// What many keys come to, which may be more than one of them can be worth.
pub const WIDE_SUM: &str = "coalesce(sum(CAST(value AS DECIMAL(38, 0))), 0)";

/// What is counted again.
#[derive(Clone, Copy)]
pub struct Recount<'a> {
    pub counter: &'a Counter,
    pub eras: &'a [Era],
    /// Under which the archive took events in: what was declared then has a column.
    pub archived: &'a [Era],
    pub from: Start,
    /// Up to the record at this offset.
    pub to: u64,
    /// Some of its keys were cleared.
    pub has_clears: bool,
}

/// Keys that are not compared, since what they should be worth is not known.
pub struct LeftOut {
    pub why: &'static str,
    /// A statement whose rows (`id`) are these keys.
    pub ids: String,
}

impl Recount<'_> {
    /// A row (`id`, `live`, `recount`, `cleared`) for each key that is not worth what it should be, the worst first; `cleared` is 1 if it
    /// was cleared since counting began.
    pub fn differences(&self) -> String {
        format!(
            "SELECT id, live, recount, CASE WHEN cleared_id IS NULL THEN 0 ELSE 1 END AS cleared FROM (
  SELECT id, sum(live) AS live, sum(recount) AS recount FROM (
    SELECT id, value AS live, 0 AS recount FROM ({live}) AS live
    UNION ALL
    SELECT id, 0 AS live, value AS recount FROM ({expected}) AS expected
  ) AS both_sides WHERE {known} GROUP BY id
) AS compared LEFT JOIN (SELECT DISTINCT counter AS cleared_id FROM corrections WHERE {cleared}) AS clears ON id = cleared_id
WHERE live <> recount ORDER BY abs(live - recount) DESC, id",
            live = self.live(),
            expected = self.expected(),
            known = self.is_known(),
            cleared = self.cleared(),
        )
    }

    /// Of corrections: that it has cleared something that is counted again.
    fn cleared(&self) -> String {
        let from = if let Start::Base(from) = self.from { from } else { 0 };
        format!("cause = 'clear' AND {}", self.corrected_behind(from))
    }

    /// Keys of which the archive does not say what they should be worth.
    pub fn left_out(&self) -> Option<LeftOut> {
        let Start::Base(from) = self.from else { return None };
        if takes_back(self.counter) {
            // What was cleared is not taken away again by what goes off, and the clear may be gone with what was before the base.
            let why = "they were corrected, and whether what goes off behind the base was cleared before is not in the archive";
            let ids =
                format!("SELECT id FROM counters WHERE counter = {} AND generation > 0", text(&self.counter.name));
            return Some(LeftOut { why, ids });
        }
        let why = "a correction restored them without naming a bucket, and whether that was for what is in the base is not known";
        let ids = format!(
            "SELECT counter AS id FROM corrections WHERE {} AND purpose = 'restore' AND bucket IS NULL",
            self.corrected_behind(from)
        );
        Some(LeftOut { why, ids })
    }

    /// Keys that can be compared.
    fn is_known(&self) -> String {
        self.left_out().map_or("TRUE".to_owned(), |left_out| format!("id NOT IN ({})", left_out.ids))
    }

    /// Rows (`id`, `value`) that add up to what each key is worth. Late entries that wait for their run are among what is counted
    /// again, unless that begins with a base: then the corrections of the runs are.
    pub fn live(&self) -> String {
        let name = text(&self.counter.name);
        let counters = format!("SELECT id, \"sum\" AS value FROM counters WHERE counter = {name}");
        match self.from {
            Start::Beginning => {
                format!("{counters} UNION ALL SELECT id, delta AS value FROM parked WHERE counter = {name}")
            }
            Start::Base(_) => counters,
        }
    }

    /// Rows (`id`, `value`) that add up to what each key should be worth. An event has the offset of its record; a correction that of
    /// the end of its commit, so one that ends where something begins is from before it.
    fn expected(&self) -> String {
        let to = self.to;
        let (own, counted) = (self.own_ids("counter"), self.summed(&self.counted(""), ""));
        let undone = self.undone_after_clears();
        let undone = undone
            .map_or(String::new(), |undone| format!("\n  UNION ALL\n  SELECT id, value FROM ({undone}) AS undone"));
        match self.from {
            Start::Beginning => format!(
                "{counted}{undone}
  UNION ALL
  SELECT counter AS id, delta AS value FROM corrections
  WHERE purpose = 'adjust' AND {own} AND \"offset\" <= {to}"
            ),
            // A base is as wrong as the counters were: what restored something before it belongs to what they are worth.
            Start::Base(from) => format!(
                "{counted}
  UNION ALL
  SELECT counter AS id, value FROM base WHERE {own} AND \"offset\" = {from}
  UNION ALL
  SELECT counter AS id, delta AS value FROM corrections
  WHERE {} AND (purpose IN ('adjust', 'count')
    OR bucket < (SELECT min(log_time) FROM base WHERE \"offset\" = {from}))",
                self.corrected_behind(from)
            ),
        }
    }

    /// Corrections of this counter that are not in a base.
    fn corrected_behind(&self, base: u64) -> String {
        format!("{} AND \"offset\" > {base} AND \"offset\" <= {}", self.own_ids("counter"), self.to)
    }

    /// Rows whose column has ids of this counter.
    pub fn own_ids(&self, column: &str) -> String {
        let name = &self.counter.name;
        format!("({column} = {} OR starts_with({column}, {}))", text(name), text(&format!("{name}:")))
    }

    /// Entries of this counter that were not rejected. What its sender was told to be rejected may have been sent again.
    fn own_entries(&self) -> String {
        format!("{} AND {} AND {}", self.within(), self.own_types(), not_rejected(&[&self.counter.name]))
    }

    /// Events whose ids are claimed: those that any counter of the contract counts, since all of them do or none.
    fn claims(&self) -> String {
        let any = self.claimed_types();
        let names = self.eras.iter().flat_map(|era| era.declarations.counters().iter().filter(is_persistent));
        let mut names: Vec<&str> = names.map(|counter| &*counter.name).collect();
        names.sort_unstable();
        names.dedup();
        format!("{} AND {any} AND {}", self.within(), not_rejected(&names))
    }

    fn claimed_types(&self) -> String {
        self.types(|declarations| declarations.counters().iter().filter(is_persistent).collect())
    }

    fn within(&self) -> String {
        match self.from {
            Start::Beginning => format!("\"offset\" < {}", self.to),
            Start::Base(from) => format!("\"offset\" >= {from} AND \"offset\" < {}", self.to),
        }
    }

    /// Events of types that feed it, while they did.
    fn own_types(&self) -> String {
        let name = &self.counter.name;
        self.types(|declarations| declarations.counters().iter().filter(|counter| counter.name == *name).collect())
    }

    fn types(&self, of: impl Fn(&Declarations) -> Vec<&Counter>) -> String {
        let types = |declarations: &Declarations| {
            let rules = of(declarations).into_iter().flat_map(|counter| &counter.rules);
            rules.map(|rule| text(&rule.on)).collect()
        };
        let term = |(when, types): &(String, BTreeSet<String>)| {
            format!("{when} AND type IN ({})", types.iter().cloned().collect::<Vec<_>>().join(", "))
        };
        any_of(&self.while_same(types).iter().map(term).collect::<Vec<_>>())
    }

    /// What an entry adds.
    fn change(&self) -> String {
        let downwards = |declarations: &Declarations| {
            let own = declarations.counters().iter().filter(|counter| counter.name == self.counter.name);
            let rules = own.flat_map(|counter| &counter.rules).filter(|rule| rule.op == Direction::Decrement);
            rules.map(|rule| text(&rule.on)).collect()
        };
        let mut cases = String::new();
        for (when, types) in self.while_same(downwards) {
            for on in types {
                let _ = write!(cases, " WHEN {when} AND type = {on} THEN -delta");
            }
        }
        if cases.is_empty() { "delta".to_owned() } else { format!("CASE{cases} ELSE delta END") }
    }

    /// Conditions on when an event came, and the types that declarations told from then on, if any. Configurations that follow each other
    /// and tell the same are one: otherwise every change of anything would make every statement longer.
    fn while_same(&self, told: impl Fn(&Declarations) -> BTreeSet<String>) -> Vec<(String, BTreeSet<String>)> {
        let mut stretches: Vec<(RangeInclusive<u64>, BTreeSet<String>)> = Vec::new();
        for Era { versions, declarations, .. } in self.eras {
            let types = told(declarations);
            match stretches.last_mut() {
                Some((before, same)) if *same == types && before.end() + 1 == *versions.start() => {
                    *before = *before.start()..=*versions.end();
                }
                _ => stretches.push((versions.clone(), types)),
            }
        }
        let when = |versions: RangeInclusive<u64>| {
            format!("config_version BETWEEN {} AND {}", versions.start(), versions.end())
        };
        let told = stretches.into_iter().filter(|(_, types)| !types.is_empty());
        told.map(|(versions, types)| (when(versions), types)).collect()
    }

    /// The id of the key that an event belongs to.
    fn id(&self) -> String {
        self.id_of(self.key_columns())
    }

    fn id_of(&self, values: impl Iterator<Item = String>) -> String {
        let mut id = text(&self.counter.name);
        for value in values {
            let _ = write!(id, " || ':' || replace(replace({value}, '%', '%25'), ':', '%3A')");
        }
        id
    }

    /// The values that an id is made of, as columns of an event.
    fn key_columns(&self) -> impl Iterator<Item = String> {
        self.counter.dimensions.iter().map(|dimension| self.dimension(dimension))
    }

    /// A field of an event as a column.
    fn column(&self, field: &Field) -> String {
        match field {
            Field::EventId => "event_id".to_owned(),
            Field::Session => "session".to_owned(),
            Field::Seq => "seq".to_owned(),
            Field::Type => "type".to_owned(),
            Field::Dimension(name) => self.dimension(name),
        }
    }

    /// A dimension has a column or is in the map, as the archive has put it: a column from when on it was declared.
    fn dimension(&self, name: &str) -> String {
        let in_map = format!("dimensions[{}]", text(name));
        if stays_in_map(name) || !self.has_column(name) {
            return in_map;
        }
        let column = format!("\"{}\"", name.replace('"', "\"\""));
        if self.was_declared_throughout(name) { column } else { format!("coalesce({column}, {in_map})") }
    }

    /// Of those that are called the same but for the case of their letters the first one that was declared has the column.
    fn has_column(&self, name: &str) -> bool {
        let mut named = self.archived.iter().flat_map(Era::named_dimensions);
        named.find(|known| known.eq_ignore_ascii_case(name)) == Some(name)
    }

    /// Whether a dimension had been declared whenever one of the events came that are judged by it.
    fn was_declared_throughout(&self, name: &str) -> bool {
        let names = |era: &&Era| era.named_dimensions().any(|known| known == name);
        let overlap =
            |a: &Era, b: &Era| a.versions.start() <= b.versions.end() && b.versions.start() <= a.versions.end();
        let mut judging = self.eras.iter().filter(names);
        judging.all(|era| self.archived.iter().filter(|was| overlap(era, was)).all(|was| names(&was)))
    }

    /// And as rules call them.
    fn key_names(&self) -> impl Iterator<Item = String> {
        (0..self.counter.dimensions.len()).map(|index| format!("key_{index}"))
    }

    /// Rows (`id`, `value`, and `by`, which begins with a comma if it is anything) of what a rule's rows come to: an id is put together
    /// once for each key, not for each event.
    fn summed(&self, rows: &str, by: &str) -> String {
        self.summed_with(rows, by, "", "")
    }

    /// The same with a column `first` that says where each of them came first.
    fn summed_in_order(&self, rows: &str, by: &str) -> String {
        self.summed_with(rows, by, ", min(first) AS first", ", first")
    }

    fn summed_with(&self, rows: &str, by: &str, more: &str, names: &str) -> String {
        let (keys, id) = match self.key_names().collect::<Vec<_>>().join(", ") {
            keys if keys.is_empty() => ("id".to_owned(), "id".to_owned()),
            keys => (keys, self.id_of(self.key_names())),
        };
        format!(
            "SELECT {id} AS id{by}, value{names} FROM (
    SELECT {keys}{by}, sum(value) AS value{more} FROM ({rows}) AS counted GROUP BY {keys}{by}) AS summed"
        )
    }
}

/// One of these holds. Halves of halves: whoever reads a statement goes as deep as it is nested.
fn any_of(terms: &[String]) -> String {
    match terms {
        [] => "FALSE".to_owned(),
        [term] => format!("({term})"),
        terms => {
            let (some, others) = terms.split_at(terms.len() / 2);
            format!("({} OR {})", any_of(some), any_of(others))
        }
    }
}

/// Whether an entry may take back what another one has counted.
pub fn takes_back(counter: &Counter) -> bool {
    matches!(&counter.contract, Contract::Transition(transition) if !transition.entity.is_empty())
}

/// Whether an entity that is counted for one key can be counted for another one instead: that is so unless it tells the key.
pub fn can_leave_a_key(counter: &Counter) -> bool {
    let Contract::Transition(transition) = &counter.contract else { return false };
    let tells = |name: &str| transition.entity.contains(&Field::Dimension(name.into()));
    takes_back(counter) && !counter.dimensions.iter().all(|name| tells(name))
}

fn is_persistent(counter: &&Counter) -> bool {
    matches!(counter.contract, Contract::Persistent(_))
}

fn not_rejected(counters: &[&str]) -> String {
    let names = counters.iter().map(|name| text(name)).collect::<Vec<_>>().join(", ");
    format!("\"offset\" NOT IN (SELECT \"offset\" FROM fates WHERE counter IN ({names}) AND fate = 'rejected')")
}

/// As a literal.
pub fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eras(yamls: impl Iterator<Item = String>) -> Vec<Era> {
        let parsed = yamls.map(|yaml| Arc::new(Declarations::parse(&yaml).expect("it is valid")));
        parsed
            .enumerate()
            .map(|(n, declarations)| Era { versions: n as u64..=n as u64, until: u64::MAX, declarations })
            .collect()
    }

    fn statement(eras: &[Era]) -> String {
        let counter = eras[0].counter("a").expect("it is declared");
        let from = Start::Beginning;
        Recount { counter, eras, archived: eras, from, to: 1000, has_clears: false }.differences()
    }

    fn declared(description: u64, on: &str) -> String {
        let rules = format!("[{{on: {on}, op: increment}}, {{on: undone, op: decrement}}]");
        format!("counters:\n  - {{counterName: a, mode: persistent, description: \"{description}\", rules: {rules}}}\n")
    }

    #[test]
    fn a_change_that_is_no_business_of_a_counter_makes_no_statement_longer() {
        let one = statement(&eras((0..1).map(|n| declared(n, "e"))));
        let many = statement(&eras((0..500).map(|n| declared(n, "e"))));
        assert_eq!(many.replace("BETWEEN 0 AND 499", "BETWEEN 0 AND 0"), one);
    }

    #[test]
    fn a_statement_is_nested_no_deeper_for_many_rules_than_for_few() {
        let statement = statement(&eras((0..256).map(|n| declared(0, &format!("e{n}")))));
        assert!(statement.contains("type IN ('e255', 'undone')"));
        let mut depth = 0;
        let depths = statement.chars().map(|letter| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            depth
        });
        assert!(depths.max() < Some(30));
    }
}
