//! `tally list`: which counters a running server has.

use crate::failure::{Failure, Result};
use crate::http::HttpArgs;
use crate::output::{Output, readable, remark};
use clap::{Args, ValueEnum};
use serde_json::Value;

/// Rows that one question asks for.
const ROWS_PER_PAGE: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListOrder {
    /// By id
    Name,
    /// The greatest first, of one declared counter
    Value,
    /// Those that changed last first, of one declared counter
    Changed,
}

impl ListOrder {
    fn name(self) -> &'static str {
        match self {
            ListOrder::Name => "name",
            ListOrder::Value => "value",
            ListOrder::Changed => "changed",
        }
    }
}

/// List counters with their values and when they last changed
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally list                          all counters, by id
  tally list 'views:*' --limit 20     the first twenty keys of views
  tally list views --order value      those with the greatest values first
  tally list views --order changed    those that changed last first
  tally list views --csv > views.csv  id,value,generation,changedAt

By value and by change up to 1,000 keys of one declared counter are listed. If
nothing matches, the exit code is 3.")]
pub struct ListArgs {
    /// A pattern in which * stands for any text, or the name of a declared counter
    #[arg(default_value = "*")]
    pattern: String,
    /// What comes first
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = ListOrder::Name)]
    order: ListOrder,
    /// Print at most this many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Print CSV, a line per counter behind one with the names of the fields
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: ListArgs, out: &mut Output) -> Result<()> {
    let (mut cursor, mut printed) = (None::<String>, 0);
    while printed < args.limit {
        let page = args.page(cursor.as_deref(), args.limit - printed)?;
        let rows = if args.csv {
            print_csv(&page.body, printed == 0, out)?
        } else {
            print_rows(&page.json()?, args.json, out)?
        };
        printed += rows;
        cursor = page.header("tally-cursor").map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if printed == 0 && args.limit > 0 {
        return Err(Failure::not_there(format!("no counter matches {}", args.pattern)));
    }
    if cursor.is_some() {
        remark(format_args!("there may be more than these {printed}; raise --limit to see them"));
    }
    Ok(())
}

impl ListArgs {
    fn page(&self, cursor: Option<&str>, rows: usize) -> Result<crate::http::HttpAnswer> {
        let limit = rows.min(ROWS_PER_PAGE).to_string();
        let format = if self.csv { "csv" } else { "json" };
        let parameters = [
            ("match", Some(&*self.pattern)),
            ("order", Some(self.order.name())),
            ("limit", Some(&*limit)),
            ("cursor", cursor),
            ("format", Some(format)),
        ];
        self.server.get("/v1/counters", &parameters)
    }
}

/// Prints the lines of a page; answers how many counters they are. Only the first page has the names of the fields.
fn print_csv(page: &str, is_first: bool, out: &mut Output) -> Result<usize> {
    let (names, lines) = page.split_once('\n').unwrap_or((page, ""));
    if is_first {
        out.line(names)?;
    }
    out.text(lines)?;
    // A line break within quotes is none of a row.
    let unquoted = lines.split('"').step_by(2);
    Ok(unquoted.map(|text| text.matches('\n').count()).sum())
}

fn print_rows(page: &Value, json: bool, out: &mut Output) -> Result<usize> {
    let rows = page["counters"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or("-").to_owned();
    let id = |row: &Value| readable(text(row, "id").as_bytes());
    let width = rows.iter().map(|row| id(row).chars().count()).max().unwrap_or(0);
    let digits = rows.iter().map(|row| row["value"].to_string().len()).max().unwrap_or(0);
    for row in rows {
        match json {
            true => out.json(row)?,
            false => {
                let (id, value, changed) = (id(row), row["value"].to_string(), text(row, "changedAt"));
                out.line(format_args!("{id:<width$}  {value:>digits$}  {changed}"))?;
            }
        }
    }
    Ok(rows.len())
}
