//! The two text formats that a scraper may ask for. Prometheus and its like say in `Accept` what they read; OpenMetrics is
//! given to those who name it, the older format to everybody else, `curl` included.

pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a scraper asks for OpenMetrics, and does not say that it would rather not.
pub fn wants_openmetrics(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next() == Some("application/openmetrics-text") && !parts.any(|part| matches!(part, "q=0" | "q=0.0"))
    })
}

/// The older format: names of counters end in `_total` everywhere, and there are no units, no infos and no end.
pub fn plain(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    // The help of a metric comes before its type, on which its name depends.
    let mut help = None;
    for line in openmetrics.lines() {
        let words = line.strip_prefix("# ").and_then(|line| line.split_once(' '));
        match words {
            Some(("HELP", rest)) => help = rest.split_once(' ').map(|(_, help)| help),
            Some(("TYPE", rest)) => describe(rest, help.take().unwrap_or_default(), &mut text),
            Some(("UNIT", _)) => {}
            _ if line == "# EOF" => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

fn describe(name_and_type: &str, help: &str, text: &mut String) {
    let (name, kind) = name_and_type.split_once(' ').unwrap_or((name_and_type, "untyped"));
    let (suffix, kind) = match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        kind => ("", kind),
    };
    text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_what_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2";
        assert!(wants_openmetrics(prometheus));
        for plain in ["", "*/*", "text/plain", "text/html,*/*;q=0.8", "application/openmetrics-text;q=0"] {
            assert!(!wants_openmetrics(plain), "{plain}");
        }
    }

    #[test]
    fn the_older_format_has_its_own_names_of_types() {
        let openmetrics = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum 1\n\
            # HELP b Many.\n# TYPE b counter\nb_total 2\n# HELP c About.\n# TYPE c info\nc_info{v=\"# EOF\"} 1\n# EOF\n";
        let expected = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\na_seconds_sum 1\n\
            # HELP b_total Many.\n# TYPE b_total counter\nb_total 2\n# HELP c_info About.\n# TYPE c_info gauge\nc_info{v=\"# EOF\"} 1\n";
        assert_eq!(plain(openmetrics), expected);
    }
}
