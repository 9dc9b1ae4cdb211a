//! What is required of Tally, in figures, and whether it was reached.

/// One required figure and what was measured for it.
#[derive(Debug, PartialEq)]
pub struct Requirement {
    pub what: String,
    pub required: String,
    pub measured: String,
    pub met: bool,
}

impl Requirement {
    /// `measured` must be at least `least`; shown as a multiple.
    pub fn at_least_times(what: impl Into<String>, least: f64, measured: f64) -> Requirement {
        Requirement {
            what: what.into(),
            required: format!("≥ {least}×"),
            measured: format!("{measured:.2}×"),
            met: measured >= least,
        }
    }

    /// `measured` must be at least `least`.
    pub fn at_least(what: impl Into<String>, least: f64, measured: f64, unit: &str) -> Requirement {
        Requirement {
            what: what.into(),
            required: format!("≥ {} {unit}", amount(least)),
            measured: format!("{} {unit}", amount(measured)),
            met: measured >= least,
        }
    }

    /// `measured` must be at most `most`.
    pub fn at_most(what: impl Into<String>, most: f64, measured: f64, unit: &str) -> Requirement {
        Requirement {
            what: what.into(),
            required: format!("≤ {} {unit}", amount(most)),
            measured: format!("{} {unit}", amount(measured)),
            met: measured <= most,
        }
    }
}

/// A number with as many digits as mean something.
pub fn amount(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n if n >= 100.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_below_what_is_required_is_missed() {
        assert!(!Requirement::at_least_times("x", 4.0, 3.99).met);
        assert!(Requirement::at_least("x", 4.0, 4.0, "/s").met);
        assert!(Requirement::at_most("x", 40.0, 40.0, "bytes").met);
        assert!(!Requirement::at_most("x", 40.0, 40.1, "bytes").met);
    }

    #[test]
    fn amounts_are_short() {
        assert_eq!([2_345_678.0, 59_400.0, 345.6, 3.21].map(amount), ["2.35 M", "59 k", "346", "3.2"]);
    }
}
