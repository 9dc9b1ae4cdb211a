//! The story: what is special about Tally, step by step. Each step is sent to the running server over HTTP, like anybody's
//! requests, and told as the server answers. Nothing else counts the keys that it uses.

use super::teller::{Teller, rows, text, time_of_day};
use super::{COUNTRIES, DEVICES};
use crate::failure::{Failure, Result};
use crate::http::HttpArgs;
use crate::series::{bar, part, parts, sparkline};
use crate::serve::say;
use crate::signals::Stop;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};
use tally_node::clock::wall_ms;

const VIEWS: u64 = 1000;
const VIEWS_SPAN_MS: u64 = 10 * 60 * 1000;
const IMPRESSIONS: u64 = 100;
/// Long before the other views, and well within the half hour that the story looks back.
const LATE_MS: u64 = 25 * 60 * 1000;
/// Late events are counted by a run every 2 s.
const RUN_LOOK_EVERY: Duration = Duration::from_millis(100);
const RUN_LOOKS_MAX: usize = 300;
const BAR_CELLS: usize = 20;

type Step = fn(&Teller) -> Result<()>;

const STEPS: [(&str, Step); 6] = [
    ("Views: a batch that is sent again counts once", views),
    ("Likes: one state for each user and video", likes),
    ("Impressions: each event id once, forever", impressions),
    ("A late event: it counts in the minute in which it happened", late),
    ("A correction: proposed, previewed, applied, and explained", correction),
    ("Roll-ups: parts that add up to the value at every moment", rollups),
];

/// Tells it to the end, or until it is time to stop.
pub fn tell(server: &HttpArgs, stop: &Stop) -> Result<()> {
    let teller = Teller { server, stop };
    for (number, (title, step)) in (1..).zip(STEPS) {
        if stop.is_asked() {
            break;
        }
        say(&format!("\n{number}  {title}"));
        step(&teller)?;
    }
    Ok(())
}

fn views(teller: &Teller) -> Result<()> {
    let batch = views_until(wall_ms());
    teller.events(&format!("{VIEWS} views of the last 10 minutes, each with session and seq"), &batch)?;
    teller.events("the same batch again, as after an answer that was lost", &batch)?;
    teller.value("views:trailer")
}

/// The oldest first, as they happened, and more and more of them.
fn views_until(now_ms: u64) -> String {
    let mut random = SmallRng::seed_from_u64(1);
    let view = |n: u64| {
        let passed = (n as f64 / (VIEWS - 1) as f64).sqrt();
        let ago_ms = VIEWS_SPAN_MS - (VIEWS_SPAN_MS as f64 * passed) as u64;
        let dimensions = json!({
            "video": "trailer",
            // The first ones are more frequent.
            "country": COUNTRIES[random.random_range(0..COUNTRIES.len()).min(random.random_range(0..COUNTRIES.len()))],
            "device": DEVICES[random.random_range(0..DEVICES.len())],
        });
        json!({"type": "video.viewed", "session": format!("story-{}", n / 10), "seq": n % 10,
            "occurredAt": moment(now_ms - ago_ms), "dimensions": dimensions})
    };
    lines((0..VIEWS).map(view))
}

fn likes(teller: &Teller) -> Result<()> {
    let of = |user: &str, what: &str| json!({"type": what, "dimensions": {"user": user, "video": "trailer", "country": "DE"}});
    let like = |user| of(user, "video.liked");
    let liked = lines(["ann", "ann", "bob", "cleo"].map(like));
    teller.events("ann likes it twice, bob and cleo once", &liked)?;
    teller.value("likes:trailer")?;
    teller.events("ann unlikes it", &lines([of("ann", "video.unliked")]))?;
    teller.value("likes:trailer")
}

fn impressions(teller: &Teller) -> Result<()> {
    let shown = |number: u64, ad: &str| {
        json!({"type": "ad.shown", "eventId": format!("imp-{number}"),
            "dimensions": {"ad": ad, "country": "DE", "device": "tv"}})
    };
    let all = lines((1..=IMPRESSIONS).map(|number| shown(number, "launch")));
    teller.events(&format!("{IMPRESSIONS} impressions of the ad launch, imp-1 to imp-{IMPRESSIONS}"), &all)?;
    teller.events("imp-1 again", &lines([shown(1, "launch")]))?;
    teller.events("imp-1 again, but of another ad", &lines([shown(1, "sale")]))?;
    teller.value("impressions:launch")?;
    let audit = teller.get("/v1/duplicates?eventId=imp-1")?;
    rows(&audit["duplicates"]).iter().for_each(|row| teller.answered(repeat(row)));
    Ok(())
}

/// What the audit has about an event id that came again.
fn repeat(row: &Value) -> String {
    let (again, first) = (time_of_day(&row["seenAgain"]), time_of_day(&row["firstSeen"]));
    let ad = |event: &Value| text(&event["dimensions"]["ad"]).to_owned();
    match row["conflict"] == true {
        true => format!("{again} conflict: of the ad {}, but {} at {first}", ad(row), ad(&row["first"])),
        false => format!("{again} duplicate: first seen at {first}"),
    }
}

fn late(teller: &Teller) -> Result<()> {
    let view = json!({"type": "video.viewed", "session": "story-late", "seq": 0, "occurredAt": moment(wall_ms() - LATE_MS),
        "dimensions": {"video": "trailer", "country": "DE", "device": "phone"}});
    teller.events("a view of 25 minutes ago", &lines([view]))?;
    teller.value("views:trailer")?;
    teller.and("… until the next run, which counts what is late …");
    if !wait_until_counted(teller)? {
        return Ok(());
    }
    let history = teller.get("/v1/counters/views:trailer/history")?;
    rows(&history["generations"]).iter().for_each(|row| teller.answered(generation(row)));
    let series = teller.get("/v1/counters/views:trailer/series?step=1m&from=-30m&to=-20m")?;
    for point in rows(&series["points"]) {
        let minute: String = time_of_day(&point["at"]).chars().take("00:00".len()).collect();
        teller.answered(format!("{} at {minute}", point["value"]));
    }
    Ok(())
}

/// Waits for the run that counts what is late; false if it is time to stop.
fn wait_until_counted(teller: &Teller) -> Result<bool> {
    for _ in 0..RUN_LOOKS_MAX {
        if teller.stop.within(RUN_LOOK_EVERY) {
            return Ok(false);
        }
        let read = teller.server.get("/v1/counters/views:trailer", &[])?.json()?;
        if read["kind"] != "provisional" {
            return Ok(true);
        }
    }
    Err(Failure::new("the late event was not counted").why("no run has come in 30 s, and one is due every 2 s"))
}

fn correction(teller: &Teller) -> Result<()> {
    let proposal = json!({"reason": "a crawler watched it", "author": "ann",
        "deltas": [{"id": "views:trailer", "delta": -100}]});
    let proposed = teller.post("/v1/corrections", "-100 for views:trailer, \"a crawler watched it\"", &proposal)?;
    let path = format!("/v1/corrections/{}", proposed["number"]);
    teller.answered(format!("number {}, {}", proposed["number"], text(&proposed["state"])));
    let preview = teller.get(&format!("{path}/preview"))?;
    for counter in rows(&preview["counters"]) {
        teller.answered(format!("{} would change: {}", text(&counter["id"]), change(counter)));
    }
    let applied = teller.post(&format!("{path}/apply"), "by bob", &json!({"author": "bob"}))?;
    teller.answered(format!("{}, generation {}", text(&applied["state"]), applied["generation"]));
    let explained = teller.get("/v1/counters/views:trailer/explain")?;
    explain(teller, &explained);
    let history = teller.get("/v1/counters/views:trailer/history")?;
    rows(&history["generations"]).iter().for_each(|row| teller.answered(generation(row)));
    Ok(())
}

fn explain(teller: &Teller, explained: &Value) {
    let Value::Object(boxes) = &explained["boxes"]["key"] else { return };
    let others: Vec<String> = boxes.iter().map(|(name, entries)| format!("{name} {entries}")).collect();
    teller.answered(format!(
        "value {} = counted {} + corrected {}; not counted: {}",
        explained["value"],
        explained["counted"],
        explained["corrected"],
        others.join(", ")
    ));
    let checks = rows(&explained["checks"]);
    let holding = checks.iter().filter(|check| check["holds"] == true).count();
    teller.and(format!("{holding} of {} checks hold: what is known in two ways agrees", checks.len()));
}

/// What one generation did, and whose it is.
fn generation(row: &Value) -> String {
    let (author, applied_by) = (text(&row["author"]), text(&row["appliedBy"]));
    let by = if author == applied_by { author.to_owned() } else { format!("{author}, applied by {applied_by}") };
    format!("generation {}: {}, \"{}\", by {by}", row["generation"], change(row), text(&row["reason"]))
}

fn change(row: &Value) -> String {
    format!("{} → {}", row["before"], row["after"])
}

fn rollups(teller: &Teller) -> Result<()> {
    let series = teller.get("/v1/counters/views:trailer/series?by=country&step=1m&from=-30m&fill=zero")?;
    let points = rows(&series["points"]);
    let mut columns: Vec<Column> = parts(points).into_iter().map(|name| Column::new(points, name)).collect();
    columns.sort_by_key(|column| std::cmp::Reverse(column.total));
    let most = columns.first().map_or(0, |column| column.total);
    let total: i64 = columns.iter().map(|column| column.total).sum();
    teller.answered(format!("{total} in the last 30 minutes, by minute and as a whole:"));
    columns.iter().for_each(|column| teller.and(column.line(most)));
    let devices = teller.get("/v1/counters/views:trailer/series?by=device")?;
    if let Some(Value::Object(parts)) = rows(&devices["points"]).first().map(|point| &point["parts"]) {
        let shown: Vec<String> = parts.iter().map(|(name, value)| format!("{name} {value}")).collect();
        teller.answered(shown.join(", "));
    }
    Ok(())
}

/// One part of a series, over all of its points.
struct Column<'a> {
    name: &'a str,
    values: Vec<i64>,
    total: i64,
}

impl<'a> Column<'a> {
    fn new(points: &[Value], name: &'a str) -> Column<'a> {
        let values: Vec<i64> = points.iter().map(|point| part(point, name)).collect();
        Column { name, total: values.iter().sum(), values }
    }

    fn line(&self, most: i64) -> String {
        let line = format!(
            "{:12} {} {:>5}  {}",
            self.name,
            sparkline(&self.values),
            self.total,
            bar(self.total, most, BAR_CELLS)
        );
        line.trim_end().to_owned()
    }
}

fn moment(at_ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at_ms)).to_string()
}

fn lines(events: impl IntoIterator<Item = Value>) -> String {
    events.into_iter().map(|event| format!("{event}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_come_in_the_order_in_which_they_happened_so_that_none_is_late() {
        let now_ms = 1_800_000_000_000;
        let batch = views_until(now_ms);
        let views: Vec<Value> = batch.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(views.len() as u64, VIEWS);
        assert!(views.is_sorted_by_key(|view| text(&view["occurredAt"]).to_owned()), "{batch}");
        assert_eq!(text(&views[0]["occurredAt"]), moment(now_ms - VIEWS_SPAN_MS));
        assert_eq!(text(&views[VIEWS as usize - 1]["occurredAt"]), moment(now_ms));
        let ids: std::collections::HashSet<_> =
            views.iter().map(|view| format!("{} {}", view["session"], view["seq"])).collect();
        assert_eq!(ids.len() as u64, VIEWS);
    }

    #[test]
    fn who_applies_a_correction_is_named_if_it_is_somebody_else() {
        let mut row =
            json!({"generation": 2, "before": 10, "after": 7, "reason": "twice", "author": "ann", "appliedBy": "bob"});
        assert_eq!(generation(&row), "generation 2: 10 → 7, \"twice\", by ann, applied by bob");
        row["appliedBy"] = json!("ann");
        assert_eq!(generation(&row), "generation 2: 10 → 7, \"twice\", by ann");
    }
}
