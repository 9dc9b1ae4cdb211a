//! What the numbers of a counter mean, remembered so that a later configuration cannot change it behind their back.
//!
//! Contract, measure, key and entity decide what was added to a number, and for money also which events are added and which
//! subtracted. They are kept by name, also of counters that are no longer
//! declared, and new declarations are held against them. The bytes are [`Meaning::encode`]'s: varints and texts as in
//! records.

use super::declare::{self, FieldPlace};
use super::{
    ConfigError, ConfigErrors, Contract, Counter, Declarations, Direction, Field, Measure, Mode, Rollups, Rule,
};
use crate::limits::{IDENTITY_FIELDS_MAX, KEY_DIMENSIONS_MAX, NAMES_EVER_MAX};
use crate::record::{DecodeError, put_bytes, put_varint, take_byte, take_str, take_varint};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// With those of its settings that decide what the numbers mean. The others may change.
    pub contract: Contract,
    pub measure: Measure,
    pub dimensions: Box<[Box<str>]>,
    /// The events that ever fed it, and how they did last.
    pub rules: Vec<Rule>,
    /// Whether reads show 0 for a sum below it, as it was declared last. It may change: the sum itself is kept.
    pub floor_at_zero: bool,
}

impl Meaning {
    /// The numbers of contract and measure, four bits each; the dimensions, the fields that the contract means, the rules, each list with
    /// its length before it; the floor.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.contract.mode() as u8 | (self.measure as u8) << MEASURE_SHIFT);
        put_varint(out, self.dimensions.len() as u64);
        for dimension in &self.dimensions {
            put_bytes(out, dimension.as_bytes());
        }
        put_varint(out, self.contract.meant().len() as u64);
        for field in self.contract.meant() {
            put_field(out, field);
        }
        put_varint(out, self.rules.len() as u64);
        for rule in &self.rules {
            put_bytes(out, rule.on.as_bytes());
            out.push(rule.op as u8);
        }
        out.push(self.floor_at_zero.into());
    }

    /// Decodes the meaning at the front of `bytes` and moves past it. `version` is that of the state in which it stands: the first
    /// had no rules in it, the second no floor.
    pub fn decode(bytes: &mut &[u8], version: u8) -> Result<Meaning, DecodeError> {
        let (mode, measure) = take_numbers(bytes)?;
        let dimensions = take_length(bytes, "dimensions", KEY_DIMENSIONS_MAX)?;
        let dimensions = (0..dimensions).map(|_| Ok(take_str(bytes)?.into())).collect::<Result<_, DecodeError>>()?;
        let entity = take_length(bytes, "entity", IDENTITY_FIELDS_MAX)?;
        let fields: Box<[Field]> = (0..entity).map(|_| take_field(bytes)).collect::<Result<_, _>>()?;
        let unmeant = DecodeError::BadValue { field: "entity", value: fields.len() as u64 };
        let contract = mode.of_meant(fields).ok_or(unmeant)?;
        let rules = if version >= 2 { take_varint(bytes)? } else { 0 };
        let rules = (0..rules).map(|_| take_rule(bytes)).collect::<Result<_, _>>()?;
        let floor_at_zero = version >= 3 && take_byte(bytes)? != 0;
        Ok(Meaning { contract, measure, dimensions, rules, floor_at_zero })
    }

    /// Takes note of the events that feed the counter now, and of its floor.
    pub fn learn(&mut self, counter: &Counter) {
        self.floor_at_zero = counter.floor_at_zero;
        for rule in &counter.rules {
            match self.rules.iter_mut().find(|known| known.on == rule.on) {
                Some(known) => known.op = rule.op,
                None => self.rules.push(rule.clone()),
            }
        }
    }

    /// A counter of this meaning that counts nothing any more.
    pub(super) fn counter(&self, name: &str) -> Counter {
        Counter {
            name: name.into(),
            contract: self.contract.clone(),
            measure: self.measure,
            dimensions: self.dimensions.clone(),
            rules: self.rules.clone(),
            description: None,
            floor_at_zero: self.floor_at_zero,
            lateness: None,
            durability: None,
            is_archived: true,
            rollups: Rollups::default(),
        }
    }

    /// The first part that `other` has different.
    fn change_to(&self, other: &Meaning) -> Option<MeaningChange> {
        if let Some((field, was, is)) = self.difference(other) {
            let undo = was.as_ref().map_or(format!("remove {field}"), |was| format!("write {was} again"));
            let shown = |written: WrittenMeaning| written.unwrap_or(format!("no {field}"));
            let what = format!("was declared with {} and would now have {}", shown(was), shown(is));
            return Some(MeaningChange { place: FieldPlace::Field(field), what, undo });
        }
        let known = |rule: &Rule| self.rules.iter().find(|known| known.on == rule.on && known.op != rule.op);
        let (index, is, was) = other.rules.iter().enumerate().find_map(|(index, is)| Some((index, is, known(is)?)))?;
        let (was, is, on) = (was.op.name(), is.op.name(), &is.on);
        let what = format!("has counted {on:?} with op: {was} and would now count it with op: {is}");
        let change = MeaningChange { place: FieldPlace::Op(index), what, undo: format!("write op: {was} again") };
        self.contract.mode().terms().direction_is_meant.then_some(change)
    }

    /// The first field that `other` has different: its name, and how each of the two is written.
    fn difference(&self, other: &Meaning) -> Option<(&'static str, WrittenMeaning, WrittenMeaning)> {
        let (mode, other_mode) = (self.contract.mode(), other.contract.mode());
        if mode != other_mode {
            let written = |mode: Mode| Some(format!("mode: {}", mode.name()));
            return Some(("mode", written(mode), written(other_mode)));
        }
        if self.measure != other.measure {
            let written = |measure: Measure| Some(format!("measure: {}", measure.name()));
            return Some(("measure", written(self.measure), written(other.measure)));
        }
        if self.dimensions != other.dimensions {
            let written = |names: &[Box<str>]| written_list("dimensions", names.iter().map(|name| &**name));
            return Some(("dimensions", written(&self.dimensions), written(&other.dimensions)));
        }
        let (field, was, is) = (mode.terms().meant_by, self.contract.meant(), other.contract.meant());
        let written = |fields: &[Field]| written_list(field, fields.iter().map(Field::name));
        (was != is).then(|| (field, written(was), written(is)))
    }
}

/// How a meaning would change.
struct MeaningChange {
    place: FieldPlace<'static>,
    /// As in "counter x *was this and would be that*".
    what: String,
    undo: String,
}

/// A field as it stands in YAML; `None` if it does not stand there.
type WrittenMeaning = Option<String>;

fn written_list<'n>(field: &str, names: impl Iterator<Item = &'n str>) -> WrittenMeaning {
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| format!("{field}: [{}]", names.join(", ")))
}

impl Counter {
    pub fn meaning(&self) -> Meaning {
        let meant = self.contract.meant().into();
        Meaning {
            contract: self.mode().of_meant(meant).expect("a contract means what it means"),
            measure: self.measure,
            dimensions: self.dimensions.clone(),
            rules: self.rules.clone(),
            floor_at_zero: self.floor_at_zero,
        }
    }
}

impl Declarations {
    /// What each declared counter means, by name, in the order of the file.
    pub fn meanings(&self) -> impl Iterator<Item = (&str, Meaning)> {
        self.all_counters().iter().map(|counter| (&*counter.name, counter.meaning()))
    }

    /// Refuses declarations under which the numbers of a known counter would mean something else, at the places where
    /// they say so. A known counter that is not declared any more is no trouble.
    pub fn check_change(&self, known: &BTreeMap<Box<str>, Meaning>) -> Result<(), ConfigErrors> {
        let fresh = self.all_counters().iter().filter(|counter| !known.contains_key(&counter.name)).count();
        if known.len() + fresh > NAMES_EVER_MAX {
            let message =
                format!("more than {NAMES_EVER_MAX} counters would have been declared in this data directory");
            let fix = "use dimensions instead of more names, or another data directory";
            return Err(ConfigError::new(self.yaml(), (0, 0), message, fix.to_owned()).into());
        }
        let changed = self.meanings().enumerate().filter_map(|(index, (name, wanted))| {
            let change = known.get(name)?.change_to(&wanted)?;
            let message = format!("counter {name:?} {}, which changes what its numbers mean", change.what);
            let fix = format!("declare it under another name, or {}", change.undo);
            Some(declare::error_at(self.yaml(), index, change.place, message, fix))
        });
        ConfigErrors::of(changed.collect())
    }
}

mod tag {
    pub const EVENT_ID: u8 = 0;
    pub const SESSION: u8 = 1;
    pub const SEQ: u8 = 2;
    pub const TYPE: u8 = 3;
    pub const DIMENSION: u8 = 4;
}

fn put_field(out: &mut Vec<u8>, field: &Field) {
    match field {
        Field::EventId => out.push(tag::EVENT_ID),
        Field::Session => out.push(tag::SESSION),
        Field::Seq => out.push(tag::SEQ),
        Field::Type => out.push(tag::TYPE),
        Field::Dimension(name) => {
            out.push(tag::DIMENSION);
            put_bytes(out, name.as_bytes());
        }
    }
}

fn take_field(bytes: &mut &[u8]) -> Result<Field, DecodeError> {
    Ok(match take_byte(bytes)? {
        tag::EVENT_ID => Field::EventId,
        tag::SESSION => Field::Session,
        tag::SEQ => Field::Seq,
        tag::TYPE => Field::Type,
        tag::DIMENSION => Field::Dimension(take_str(bytes)?.into()),
        value => return Err(DecodeError::BadValue { field: "entity", value: value.into() }),
    })
}

fn take_rule(bytes: &mut &[u8]) -> Result<Rule, DecodeError> {
    let on = take_str(bytes)?.into();
    let value = take_byte(bytes)?;
    let op = [Direction::Increment, Direction::Decrement].into_iter().find(|op| *op as u8 == value);
    Ok(Rule { on, op: op.ok_or(DecodeError::BadValue { field: "op", value: value.into() })? })
}

/// How far the number of the measure stands above that of the contract.
const MEASURE_SHIFT: u32 = 4;

fn take_numbers(bytes: &mut &[u8]) -> Result<(Mode, Measure), DecodeError> {
    let value = take_byte(bytes)?;
    let (contract, kept) = (value & ((1 << MEASURE_SHIFT) - 1), value >> MEASURE_SHIFT);
    let mode = Mode::ALL.into_iter().find(|mode| *mode as u8 == contract);
    let measure = Measure::ALL.into_iter().find(|measure| *measure as u8 == kept);
    let bad = |field| DecodeError::BadValue { field, value: value.into() };
    Ok((mode.ok_or(bad("mode"))?, measure.ok_or(bad("measure"))?))
}

fn take_length(bytes: &mut &[u8], field: &'static str, most: usize) -> Result<usize, DecodeError> {
    let value = take_varint(bytes)?;
    usize::try_from(value).ok().filter(|len| *len <= most).ok_or(DecodeError::BadValue { field, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Transition;

    const LIKES: &str = "\
counters:
  - counterName: likes
    mode: transition
    dimensions: [content]
    entity: [user, content]
    rules: [{on: content.liked, op: increment}]
";

    fn known(yaml: &str) -> BTreeMap<Box<str>, Meaning> {
        let declarations = Declarations::parse(yaml).unwrap();
        declarations.meanings().map(|(name, meaning)| (name.into(), meaning)).collect()
    }

    #[track_caller]
    fn refused(next: &str, (line, column): (u64, u64), message: &str) {
        let errors = Declarations::parse(next).unwrap().check_change(&known(LIKES)).unwrap_err();
        let [error] = &errors.shown[..] else { panic!("{errors}") };
        assert_eq!((error.line, error.column), (line, column));
        assert_eq!(format!("{}; {}", error.message, error.fix), message);
        assert_eq!(error.text, next.lines().nth(line as usize - 1).unwrap());
    }

    #[test]
    fn what_keeps_the_meaning_may_change() {
        let same = |yaml: &str| Declarations::parse(yaml).unwrap().check_change(&known(LIKES));
        assert_eq!(same(LIKES), Ok(()));
        assert_eq!(same(""), Ok(()), "a counter may go");
        assert_eq!(same(&LIKES.replace("likes", "loves")), Ok(()), "another name is another counter");
        let more =
            LIKES.replace("increment}", "increment}, {on: content.unliked, op: decrement}") + "    floorAtZero: true\n";
        assert_eq!(same(&more), Ok(()));
        assert_eq!(Declarations::parse(LIKES).unwrap().check_change(&BTreeMap::new()), Ok(()));
    }

    #[test]
    fn a_changed_meaning_is_refused_where_it_stands_with_what_it_was() {
        let why = "which changes what its numbers mean; declare it under another name, or";
        refused(
            &LIKES.replace("transition", "persistent").replace("    entity: [user, content]\n", ""),
            (3, 11),
            &format!(
                "counter \"likes\" was declared with mode: transition and would now have mode: persistent, {why} \
                 write mode: transition again"
            ),
        );
        refused(
            &LIKES.replace("dimensions: [content]", "dimensions: [content, country]"),
            (4, 17),
            &format!(
                "counter \"likes\" was declared with dimensions: [content] and would now have \
                 dimensions: [content, country], {why} write dimensions: [content] again"
            ),
        );
        refused(
            &LIKES.replace("[user, content]", "[session, content]"),
            (5, 13),
            &format!(
                "counter \"likes\" was declared with entity: [user, content] and would now have \
                 entity: [session, content], {why} write entity: [user, content] again"
            ),
        );
    }

    #[test]
    fn a_part_that_is_gone_is_refused_at_its_counter_and_a_new_one_at_its_place() {
        let other = "  - {counterName: other, mode: simple}\n";
        let moved = LIKES.replace("counters:\n", &format!("counters:\n{other}"));
        let change = |from: &str, to: &str| {
            Declarations::parse(to).unwrap().check_change(&known(from)).unwrap_err().shown.remove(0)
        };
        for part in ["entity: [user, content]", "dimensions: [content]"] {
            let without = moved.replace(&format!("    {part}\n"), "");
            let field = part.split(':').next().unwrap();
            let gone = change(&moved, &without);
            assert_eq!((gone.line, gone.column), (3, 5));
            assert!(gone.message.contains(&format!("with {part} and would now have no {field},")), "{gone}");
            assert!(gone.fix.ends_with(&format!("or write {part} again")), "{gone}");
            let new = change(&without, &moved);
            assert_eq!(new.text.trim(), part);
            assert!(new.message.contains(&format!("with no {field} and would now have {part},")), "{new}");
            assert!(new.fix.ends_with(&format!("or remove {field}")), "{new}");
        }
    }

    #[test]
    fn which_way_money_goes_is_part_of_what_it_means() {
        let rules = |mode: &str, first: &str, second: &str| {
            format!(
                "counters:\n  - counterName: c\n    mode: {mode}\n    rules: [{{on: a, op: {first}}}, {{on: b, op: {second}}}]\n"
            )
        };
        let money = known(&rules("persistent", "increment", "decrement"));
        let changed = |yaml: &str| Declarations::parse(yaml).unwrap().check_change(&money);
        let errors = changed(&rules("persistent", "increment", "increment")).unwrap_err();
        let [error] = &errors.shown[..] else { panic!("{errors}") };
        assert_eq!((error.line, error.column), (4, 49));
        assert_eq!(
            error.message,
            "counter \"c\" has counted \"b\" with op: decrement and would now count it with op: increment, \
             which changes what its numbers mean"
        );
        assert_eq!(error.fix, "declare it under another name, or write op: decrement again");
        let one = "counters: [{counterName: c, mode: persistent, rules: [{on: a, op: increment}]}]";
        assert_eq!(changed(one), Ok(()), "events may be left out");
        let simple = known(&rules("simple", "increment", "decrement"));
        let flipped = Declarations::parse(&rules("simple", "decrement", "increment")).unwrap();
        assert_eq!(flipped.check_change(&simple), Ok(()));
    }

    #[test]
    fn a_rule_that_was_left_out_is_remembered() {
        let rule = |on: &str, op| Rule { on: on.into(), op };
        let mut meaning = every_part();
        let rules = vec![rule("f", Direction::Increment), rule("g", Direction::Decrement)];
        meaning.learn(&Meaning { rules, floor_at_zero: false, ..every_part() }.counter("c"));
        assert!(!meaning.floor_at_zero, "the floor is as it was declared last");
        let learnt = [("e", Direction::Increment), ("f", Direction::Increment), ("g", Direction::Decrement)];
        assert_eq!(meaning.rules, learnt.map(|(on, op)| rule(on, op)));
    }

    fn every_part() -> Meaning {
        Meaning {
            contract: Contract::Transition(Transition {
                entity: [Field::EventId, Field::Session, Field::Seq, Field::Type, Field::Dimension("d".into())].into(),
            }),
            measure: Measure::Sum,
            dimensions: ["a".into(), "bc".into()].into(),
            rules: vec![
                Rule { on: "e".into(), op: Direction::Increment },
                Rule { on: "f".into(), op: Direction::Decrement },
            ],
            floor_at_zero: true,
        }
    }

    #[test]
    fn the_bytes_of_a_meaning_are_pinned() {
        let mut bytes = Vec::new();
        every_part().encode(&mut bytes);
        assert_eq!(bytes, b"\x02\x02\x01a\x02bc\x05\x00\x01\x02\x03\x04\x01d\x02\x01e\x00\x01f\x01\x01");
        let numbers = Mode::ALL.map(|mode| (mode.name(), mode as u8));
        assert_eq!(numbers[..4], [("simple", 0), ("display", 1), ("transition", 2), ("persistent", 3)]);
        assert_eq!(Measure::ALL.map(|measure| (measure.name(), measure as u8))[..1], [("sum", 0)]);
    }

    #[test]
    fn a_meaning_is_read_as_it_was_written_and_what_is_none_is_refused() {
        let mut bytes = Vec::new();
        every_part().encode(&mut bytes);
        let mut rest = &[&bytes[..], b"rest"].concat()[..];
        assert_eq!(Meaning::decode(&mut rest, 3), Ok(every_part()));
        assert_eq!(rest, b"rest");
        for cut in 0..bytes.len() {
            assert_eq!(Meaning::decode(&mut &bytes[..cut], 3), Err(DecodeError::Truncated), "{cut}");
        }
        let (before_floor, before_rules) = (&bytes[..bytes.len() - 1], &bytes[..bytes.len() - 8]);
        let without_floor = Meaning { floor_at_zero: false, ..every_part() };
        let without_rules = Meaning { rules: Vec::new(), ..without_floor.clone() };
        assert_eq!(Meaning::decode(&mut &before_floor[..], 2), Ok(without_floor), "as it was written once");
        assert_eq!(Meaning::decode(&mut &before_rules[..], 1), Ok(without_rules), "and before that");
        let bad = |field, value| Err(DecodeError::BadValue { field, value });
        assert_eq!(Meaning::decode(&mut &b"\x0f\x00\x00"[..], 3), bad("mode", 15));
        assert_eq!(Meaning::decode(&mut &b"\xf0\x00\x00"[..], 3), bad("measure", 240));
        assert_eq!(Meaning::decode(&mut &b"\x00\x11"[..], 3), bad("dimensions", 17));
        assert_eq!(Meaning::decode(&mut &b"\x01\x00\x01\x01\x00\x00"[..], 3), bad("entity", 1), "display has none");
        assert_eq!(Meaning::decode(&mut &b"\x00\x00\x01\x05"[..], 3), bad("entity", 5));
        assert_eq!(Meaning::decode(&mut &b"\x00\x01\x01\xff\x00"[..], 3), Err(DecodeError::NotUtf8));
    }
}
