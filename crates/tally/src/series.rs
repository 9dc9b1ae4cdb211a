//! `tally series`: what counters came to, step by step of time and by dimensions.

use crate::failure::{Failure, Result};
use crate::http::{HttpAnswer, HttpArgs, escaped};
use crate::output::{Output, readable, remark};
use clap::Args;
use serde_json::Value;

/// The longest bar behind a value.
const BAR_CELLS: usize = 40;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Print what counters came to, step by step of time
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally series views:v42                           the last 24 hours, hour by hour
  tally series views --step 1d --from -30d         all videos, day by day
  tally series views:v42 --by country --top 5      a column for each country
  tally series views:v42 --by country --csv        at,country,value
  tally series 'views:v4*'                         all keys that match, added up
  tally series views:v1 views:v2 likes             several, one behind the other

A roll-up of the counter answers, or the archive if there is none that can. If
the archive cannot either, the error names the roll-up to declare.")]
pub struct SeriesArgs {
    /// Counters such as views:v42, names of declared ones (over all their keys), or patterns such as views:v*
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// How long a point is: 1m, 5m, 1h, 6h, 1d, 1w, 1mo
    #[arg(long, value_name = "STEP", default_value = "1h")]
    step: String,
    /// Where it begins: a time, or a duration before now such as -24h; 24 steps before its end if left out
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Where it ends; now if left out
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Split by these dimensions, with commas between them
    #[arg(long, value_name = "DIMENSIONS")]
    by: Option<String>,
    /// Only so many parts, the greatest
    #[arg(long, value_name = "N", requires = "by")]
    top: Option<u64>,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: SeriesArgs, out: &mut Output) -> Result<()> {
    let answer = args.ask()?;
    if args.csv {
        return out.text(answer.body);
    }
    let answer = answer.json()?;
    if args.json {
        return out.json(&answer);
    }
    let Some(several) = answer["series"].as_array() else { return print(&answer, out) };
    for (at, series) in several.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        print(series, out)?;
    }
    Ok(())
}

impl SeriesArgs {
    /// One is asked for by itself, several are as of one moment.
    fn ask(&self) -> Result<HttpAnswer> {
        let top = self.top.map(|top| top.to_string());
        let mut parameters = vec![
            ("step", Some(&*self.step)),
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("by", self.by.as_deref()),
            ("top", top.as_deref()),
            ("fill", Some("zero")),
            ("format", Some(if self.csv { "csv" } else { "json" })),
        ];
        if let [id] = &*self.ids {
            return self.server.get(&format!("/v1/counters/{}/series", escaped(id)), &parameters);
        }
        parameters.extend(self.ids.iter().map(|id| ("id", Some(&**id))));
        self.server.get("/v1/series", &parameters)
    }
}

fn print(series: &Value, out: &mut Output) -> Result<()> {
    let points = series["points"].as_array().ok_or_else(|| Failure::new("the server gave a strange answer"))?;
    let values: Vec<i64> = points.iter().map(|point| point["value"].as_i64().unwrap_or(0)).collect();
    let total: i128 = values.iter().map(|value| i128::from(*value)).sum();
    out.line(format_args!("{}  {}  {total}", readable(text(&series["id"]).as_bytes()), sparkline(&values)))?;
    match parts(points) {
        names if names.is_empty() => print_bars(points, &values, out)?,
        names => print_table(points, &names, out)?,
    }
    if let Some(zone) = series["timezone"].as_str().filter(|zone| *zone != "UTC") {
        remark(format_args!("times are of UTC; hours and days begin as in {zone}"));
    }
    if let Some(since) = series["since"].as_str() {
        remark(format_args!("this roll-up was added at {since} and knows of nothing before"));
    }
    if let Some(as_of) = series["asOf"].as_str() {
        remark(format_args!("no roll-up has this: it was counted again from the archive, which goes up to {as_of}"));
    }
    if let Some(parked @ 1..) = series["provisional"]["parked"].as_u64() {
        remark(format_args!("{parked} late entries wait for their run, and will change it"));
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// To the minute: steps are no shorter.
fn at(point: &Value) -> String {
    text(&point["at"]).chars().take(16).collect::<String>().replace('T', " ")
}

fn print_bars(points: &[Value], values: &[i64], out: &mut Output) -> Result<()> {
    let most = values.iter().copied().max().unwrap_or(0);
    let width = values.iter().map(|value| value.to_string().len()).max().unwrap_or(0);
    for (point, value) in points.iter().zip(values) {
        out.line(format!("{}  {value:>width$}  {}", at(point), bar(*value, most, BAR_CELLS)).trim_end())?;
    }
    Ok(())
}

/// As long as a value is great, of so many cells for the greatest.
pub fn bar(value: i64, most: i64, cells_max: usize) -> String {
    let cells = i128::from(value.max(0)) * cells_max as i128 / i128::from(most.max(1));
    "█".repeat(cells as usize)
}

/// The names of all parts, those of the first points first.
pub fn parts(points: &[Value]) -> Vec<&str> {
    let mut names = Vec::new();
    for name in points.iter().filter_map(|point| point["parts"].as_object()).flat_map(|parts| parts.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name.as_str());
        }
    }
    names
}

/// What a part has at a point: nothing if it is not there.
pub fn part(point: &Value, name: &str) -> i64 {
    point["parts"][name].as_i64().unwrap_or(0)
}

fn print_table(points: &[Value], names: &[&str], out: &mut Output) -> Result<()> {
    let cell = |point: &Value, name: &str| part(point, name).to_string();
    let titles: Vec<String> = names.iter().map(|name| readable(name.as_bytes())).collect();
    let width = |(name, title): (&&str, &String)| {
        points.iter().map(|point| cell(point, name).len()).max().unwrap_or(0).max(title.chars().count())
    };
    let widths: Vec<usize> = names.iter().zip(&titles).map(width).collect();
    let columns = |texts: Vec<String>| -> String {
        texts.iter().zip(&widths).map(|(text, width)| format!("  {text:>width$}")).collect()
    };
    out.line(format_args!("{:16}{}", "", columns(titles.clone())))?;
    for point in points {
        out.line(format_args!("{}{}", at(point), columns(names.iter().map(|name| cell(point, name)).collect())))?;
    }
    Ok(())
}

pub fn sparkline(values: &[i64]) -> String {
    let most = i128::from(values.iter().copied().max().unwrap_or(0).max(1));
    let spark = |value: &i64| SPARKS[(i128::from((*value).max(0)) * (SPARKS.len() as i128 - 1) / most) as usize];
    values.iter().map(spark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_goes_from_nothing_to_the_most() {
        assert_eq!(sparkline(&[0, 1, 4, 7, -3]), "▁▂▅█▁");
        assert_eq!(sparkline(&[i64::MAX, 0]), "█▁");
        assert_eq!(sparkline(&[]), "");
    }

    #[test]
    fn a_bar_is_as_long_as_its_value_is_great() {
        let lengths = [-5, 0, 1, 5, 10].map(|value| bar(value, 10, 4).chars().count());
        assert_eq!(lengths, [0, 0, 0, 2, 4]);
        assert_eq!(bar(i64::MAX, i64::MAX, 4), "████");
        assert_eq!(bar(0, 0, 4), "");
    }
}
