//! Bars on a terminal; elsewhere nothing is drawn.

use indicatif::{ProgressBar, ProgressStyle};

pub fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3}%  {msg}").expect("the template is constant");
    ProgressBar::new(length).with_style(style)
}
