//! The page that is printed and kept as `docs/benchmarks.md`.

use super::load::{Figure, Generator};
use super::requirement::amount;
use super::rows::{Line, Results, Table};
use std::fmt::Write;

pub fn render(machine: &str, generator: &Generator, results: &Results) -> String {
    let Generator { seconds, repetitions, .. } = generator;
    let mut page = String::from("# Benchmarks\n\n");
    let date = jiff::Zoned::now().strftime("%Y-%m-%d");
    push(&mut page, format_args!("Measured on {date}: {machine}.\n"));
    push(
        &mut page,
        format_args!(
            "\nOne generator (`tally bench`, one thread) loads each server alone, over loopback, from the same machine. Every\n\
         figure is the median of {repetitions} runs of {seconds} s (longer where cuts are to be seen), each figure by itself. 50 connections for the Redis protocol, 8 for\n\
         events if nothing else is said. A latency is that of a whole question: all commands of a pipeline, all events of a request; that of a load at a\n\
         pace counts from when it was due. Repeat it with `cargo xtask bench` (`--long` for 50 and 100 million counters, 100 million event ids,\n\
         50 million parts and the greatest of 10 million keys; `cargo xtask bench p64 mix` for some rows).\n\n\
         *Limit* is what the machine does with a program that has no logic. *The floor* (`crates/floor`) parses, hashes, writes and syncs past the page cache,\n\
         adds in one flat table and answers, on one thread; over HTTP it is axum, splits lines, writes and syncs as many bytes as Tally's records have (of a compact batch\n\
         all of it) and answers a constant. axum and nginx with *a constant* take the same requests and write nothing.\n\n\
         Rates differ from run to run and from machine to machine; instructions hardly do: [instructions.md](instructions.md) has those of one operation on\n\
         the hot paths, and `cargo xtask test` holds every change to them.\n"
        ),
    );
    if !results.lines.is_empty() {
        push_lines(&mut page, &results.lines);
    }
    results.tables.iter().for_each(|table| push_table(&mut page, table));
    push_requirements(&mut page, results);
    if !results.notes.is_empty() {
        page.push_str("\n## Also measured\n\n");
        results.notes.iter().for_each(|note| push(&mut page, format_args!("- {note}\n")));
    }
    page
}

fn push_lines(page: &mut String, lines: &[Line]) {
    page.push_str(
        "\n## Throughput and latency\n\n\
         | load | server | operations/s | per server CPU-second | p50 ms | p99 ms | p999 ms | peak MiB | ratio |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut sorted: Vec<&Line> = lines.iter().collect();
    sorted.sort_by_key(|line| line.row);
    for line in &sorted {
        let Figure { per_second, per_cpu_second, latency, peak_bytes } = line.figure;
        // Lines of one load stand together, Tally first.
        let first = sorted.iter().find(|other| other.row == line.row).expect("it finds at least itself");
        push(
            page,
            format_args!(
                "| {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {} | {} |\n",
                line.row.title(),
                line.peer,
                amount(per_second),
                amount(per_cpu_second),
                latency.p50 / 1000.0,
                latency.p99 / 1000.0,
                latency.p999 / 1000.0,
                peak_bytes.map(|bytes| format!("{:.0}", bytes / f64::from(1 << 20))).unwrap_or_default(),
                if first.peer == line.peer {
                    String::new()
                } else {
                    format!("{:.2}×", first.figure.per_second / per_second)
                }
            ),
        );
    }
    page.push_str(
        "\nThe ratio is Tally's operations per second, those of the first line of a load, over those of the line. Peak is the most memory that\nthe server had resident since it was started.\n",
    );
}

fn push_table(page: &mut String, table: &Table) {
    let Table { title, about, head, rows } = table;
    push(page, format_args!("\n## {title}\n\n{about}\n\n| {} |\n|---|", head.join(" | ")));
    head.iter().skip(1).for_each(|_| page.push_str("---:|"));
    page.push('\n');
    rows.iter().for_each(|row| push(page, format_args!("| {} |\n", row.join(" | "))));
}

fn push_requirements(page: &mut String, results: &Results) {
    page.push_str("\n## What is required\n\n| what | required | measured | |\n|---|---:|---:|---|\n");
    for requirement in &results.requirements {
        let verdict = if requirement.met { "met" } else { "**missed**" };
        push(
            page,
            format_args!(
                "| {} | {} | {} | {verdict} |\n",
                requirement.what, requirement.required, requirement.measured
            ),
        );
    }
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a string cannot fail");
}
