//! A series as it is told. Numbers are many and names are few: what is the same in every point is made once for each answer.

use axum::http::header::{CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};
use std::ops::Range;
use tally_core::counter::rollup::{bucket_ms, minute_of};
use tally_core::limits::HTTP_ANSWER_BYTES;
use tally_core::position::Position;
use tally_core::series::{Ranking, Series};
use tally_core::values::KeptRollup;

use super::{Asked, Planned, Provisional, SeriesBody, Whose};
use crate::counters::SeriesFound;
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::format::{JSON, csv_field};

/// What stands between the values of a part that has several.
const BETWEEN: &str = "|";
/// What is beyond the top.
const REST: &str = "(rest)";

/// A series that was added up.
pub(super) struct Told<'a> {
    whose: Whose<'a>,
    kept: KeptRollup,
    /// How far the archive is that it comes from; `None` if it comes from the roll-up.
    archived_to: Option<Position>,
    asked: &'a Asked,
    found: SeriesFound,
    /// None if nobody asks for parts.
    ranking: Ranking,
    /// Of the parts in their order, and of the rest.
    names: Texts<String>,
    totals: Vec<i64>,
}

impl<'a> Told<'a> {
    pub fn new(planned: Planned<'a>, asked: &'a Asked, found: SeriesFound) -> Told<'a> {
        Told::of(planned.whose, planned.kept, None, asked, found)
    }

    /// The same from the archive, as if there were such a roll-up.
    pub fn archived(
        whose: Whose<'a>,
        kept: KeptRollup,
        asked: &'a Asked,
        found: SeriesFound,
        to: Position,
    ) -> Told<'a> {
        Told::of(whose, kept, Some(to), asked, found)
    }

    fn of(
        whose: Whose<'a>,
        kept: KeptRollup,
        archived_to: Option<Position>,
        asked: &'a Asked,
        found: SeriesFound,
    ) -> Told<'a> {
        let series = &found.series;
        let ranking = if asked.by.is_empty() { Ranking::default() } else { series.ranked(asked.top) };
        let names = names(series, &ranking);
        Told { whose, kept, archived_to, asked, totals: series.totals(), found, ranking, names }
    }

    pub fn numbers(&self) -> usize {
        self.names.ends.len().max(1) * self.totals.len()
    }

    /// Those that have a point.
    fn steps(&self) -> impl Iterator<Item = usize> {
        let is_there =
            |step: &usize| self.asked.fill || self.totals[*step] != 0 || self.sums(*step).any(|sum| sum != 0);
        (0..self.totals.len()).filter(is_there)
    }

    /// What parts come to in a step, in the order of their names.
    fn sums(&self, step: usize) -> impl Iterator<Item = i64> {
        let Ranking { shown, rest } = &self.ranking;
        let sums = self.found.series.sums(step);
        let shown = shown.iter().map(|part| sums.get(*part as usize).copied().unwrap_or(0));
        shown.chain(rest.iter().map(move |rest| rest[step]))
    }

    /// Where a step begins.
    fn at(&self, step: usize) -> String {
        rfc3339(bucket_ms(self.found.series.steps()[step]))
    }

    fn body(&self) -> SeriesBody<'_> {
        let Told { whose, kept, archived_to, .. } = self;
        let SeriesFound { series, keys, parked, generation, as_of_ms, .. } = &self.found;
        let minutes = series.minutes();
        let now = minute_of(*as_of_ms as i64);
        let running = series.steps().iter().rev().find(|start| **start <= now && now < minutes.end);
        SeriesBody {
            id: &whose.id,
            keys: whose.matching.is_some().then_some(*keys),
            from: rfc3339(bucket_ms(minutes.start)),
            to: rfc3339(bucket_ms(minutes.end)),
            step: self.asked.step.map(|step| step.to_string()),
            by: self.asked.by(),
            source: if archived_to.is_some() { "archive" } else { "rollup" },
            archived_to: archived_to.map(|to| to.to_string()),
            as_of: archived_to.map(|_| rfc3339(*as_of_ms)),
            rollup: kept.rollup.words().filter(|_| archived_to.is_none()).collect(),
            timezone: kept.zone.name(),
            since: kept.since_ms.map(rfc3339),
            generation: *generation,
            provisional: Provisional { from: running.map(|start| rfc3339(bucket_ms(*start))), parked: *parked },
            points: [],
        }
    }

    pub fn json(&self) -> Vec<u8> {
        const END: &[u8] = b"]}";
        let mut out = serde_json::to_vec(&self.body()).expect(NEVER_FAILS);
        assert!(out.ends_with(END), "points come last");
        out.truncate(out.len() - END.len());
        let texts = label_texts(&self.names);
        let labels: Vec<Label<'_>> = texts.spans().map(|span| Label::new(&texts.all[span])).collect();
        let most = self.totals.len() * (POINT_BYTES + texts.all.len() + DIGITS * labels.len());
        out.reserve(most.min(HTTP_ANSWER_BYTES));
        for step in self.steps() {
            self.json_of_point(step, &labels, &mut out);
            out.push(b',');
        }
        end_list(&mut out);
        out.extend_from_slice(END);
        out
    }

    fn json_of_point(&self, step: usize, labels: &[Label<'_>], out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"at\":\"");
        out.extend_from_slice(self.at(step).as_bytes());
        out.extend_from_slice(b"\",\"value\":");
        put_number_and_comma(self.totals[step], out);
        if !self.asked.by.is_empty() {
            out.extend_from_slice(b"\"parts\":{");
            for (label, sum) in labels.iter().zip(self.sums(step)).filter(|(_, sum)| *sum != 0) {
                label.put(out);
                put_number_and_comma(sum, out);
            }
            end_list(out);
            out.push(b'}');
        }
        end_list(out);
        out.push(b'}');
    }

    fn csv_of_point(&self, step: usize, begin: &str, lines: &mut String) {
        let at = self.at(step);
        if self.asked.by.is_empty() {
            return lines.push_str(&format!("{begin}{at},{}\r\n", self.totals[step]));
        }
        for (span, sum) in self.names.spans().zip(self.sums(step)).filter(|(_, sum)| *sum != 0) {
            lines.push_str(&format!("{begin}{at},"));
            csv_field(&self.names.all[span], lines);
            lines.push_str(&format!(",{sum}\r\n"));
        }
    }
}

const NEVER_FAILS: &str = "it has no keys but texts, and memory takes it all";

/// About as much as a point takes beside its parts, and as a number takes.
const POINT_BYTES: usize = 80;
const DIGITS: usize = 4;

/// Texts that stand one behind the other, and where each ends.
struct Texts<T> {
    all: T,
    ends: Vec<usize>,
}

impl<T> Texts<T> {
    fn spans(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| start..*end)
    }
}

fn names(series: &Series, ranking: &Ranking) -> Texts<String> {
    let mut names = Texts { all: String::new(), ends: Vec::with_capacity(ranking.shown.len() + 1) };
    for part in &ranking.shown {
        for (at, value) in series.values(*part).enumerate() {
            names.all.push_str(if at == 0 { "" } else { BETWEEN });
            names.all.push_str(&String::from_utf8_lossy(value));
        }
        names.ends.push(names.all.len());
    }
    if ranking.rest.is_some() {
        names.all.push_str(REST);
        names.ends.push(names.all.len());
    }
    names
}

/// What stands before the number of each part in JSON.
fn label_texts(names: &Texts<String>) -> Texts<Vec<u8>> {
    let mut labels = Texts { all: Vec::with_capacity(2 * names.all.len()), ends: Vec::with_capacity(names.ends.len()) };
    for span in names.spans() {
        serde_json::to_writer(&mut labels.all, &names.all[span]).expect(NEVER_FAILS);
        labels.all.push(b':');
        labels.ends.push(labels.all.len());
    }
    labels
}

/// What stands before the number of a part in JSON.
struct Label<'t> {
    text: &'t [u8],
    /// How it begins. A copy of so many bytes is one instruction, where one of any number is a call.
    begin: [u8; LABEL_BEGIN],
}

const LABEL_BEGIN: usize = 16;

impl<'t> Label<'t> {
    fn new(text: &'t [u8]) -> Label<'t> {
        let mut begin = [0; LABEL_BEGIN];
        begin.iter_mut().zip(text).for_each(|(begin, byte)| *begin = *byte);
        Label { text, begin }
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        match LABEL_BEGIN.checked_sub(self.text.len()) {
            Some(beyond) => put_but(&self.begin, beyond, out),
            None => out.extend_from_slice(self.text),
        }
    }
}

/// Most numbers are short. Each of these stands here with the comma behind it.
static SHORT_NUMBERS: [[u8; 4]; 1000] = {
    let (mut numbers, mut at) = ([[b','; 4]; 1000], 0);
    while at < numbers.len() {
        let (mut left, mut digit) = (at, digits(at));
        while digit > 0 {
            digit -= 1;
            numbers[at][digit] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        at += 1;
    }
    numbers
};

const fn digits(number: usize) -> usize {
    1 + (number >= 10) as usize + (number >= 100) as usize
}

#[inline]
fn put_number_and_comma(number: i64, out: &mut Vec<u8>) {
    match SHORT_NUMBERS.get(number as usize) {
        Some(text) => put_but(text, 3 - digits(number as usize), out),
        None => {
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            out.push(b',');
        }
    }
}

/// Appends some bytes but the last of them.
#[inline]
fn put_but<const N: usize>(bytes: &[u8; N], last: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    out.truncate(out.len() - last);
}

/// Takes back the comma behind the last of a list, if there is one.
fn end_list(out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
}

pub(super) fn json(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, JSON.1), (VARY, "accept")], body).into_response()
}

/// A line for each part of each point, behind the id if there may be several.
pub(super) fn csv(by: &[String], all: &[Told<'_>], with_id: bool) -> Response {
    let mut lines = String::new();
    let id = if with_id { "id," } else { "" };
    let by = if by.is_empty() { String::new() } else { format!("{},", by.join(BETWEEN)) };
    lines.push_str(&format!("{id}at,{by}value\r\n"));
    for told in all {
        let mut begin = String::new();
        if with_id {
            csv_field(&told.whose.id, &mut begin);
            begin.push(',');
        }
        told.steps().for_each(|step| told.csv_of_point(step, &begin, &mut lines));
    }
    ([(CONTENT_TYPE, "text/csv; charset=utf-8"), (VARY, "accept")], lines).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_written_as_everybody_writes_them() {
        for number in (0..=1001).chain([-1, 65_536, i64::MAX, i64::MIN]) {
            let mut out = b"x".to_vec();
            put_number_and_comma(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{number},"));
        }
    }

    proptest! {
        #[test]
        fn labels_are_names_as_json_has_them(names in prop::collection::vec(".{0,20}", 0..8)) {
            let ends = names.iter().scan(0, |end, name| { *end += name.len(); Some(*end) }).collect();
            let texts = label_texts(&Texts { all: names.concat(), ends });
            let mut out = Vec::new();
            texts.spans().for_each(|span| Label::new(&texts.all[span]).put(&mut out));
            let expected: String = names.iter().map(|name| format!("{}:", serde_json::json!(name))).collect();
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
