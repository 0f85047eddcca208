//! Prometheus text format encoder.
//!
//! In its text format, version 0.0.4: a line of help and one of the type for each family, then its samples.

use core::fmt::{Display, Write as _};

use crate::activity::{BOUNDS, Histogram};

/// What the text is, for the header of the answer.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Labels with their values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A number that only grows; its name ends in `_total`.
    pub fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, "counter", help);
        Family { page: self, name: name.to_owned() }
    }

    /// A number that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help);
        Family { page: self, name: name.to_owned() }
    }

    /// Times; the name ends in `_seconds`.
    pub fn histogram(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help);
        Family { page: self, name: name.to_owned() }
    }

    fn line(
        &mut self,
        name: &str,
        suffix: &str,
        labels: Labels<'_>,
        bound: Option<&str>,
        value: impl Display,
    ) {
        let _ = write!(self.text, "{name}{suffix}");
        let bound = bound.map(|bound| ("le", bound));
        for (index, (label, value)) in labels.iter().copied().chain(bound).enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if index == 0 { '{' } else { ',' }, escaped(value));
        }
        if bound.is_some() || !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// A family whose samples are being written.
pub struct Family<'a> {
    page: &'a mut Page,
    name: String,
}

impl Family<'_> {
    /// One sample.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Self {
        self.page.line(&self.name, "", labels, None, value);
        self
    }

    /// The samples of one histogram.
    pub fn times(&mut self, labels: Labels<'_>, times: &Histogram) -> &mut Self {
        let mut sum = 0_u64;
        for (index, count) in times.buckets.iter().enumerate() {
            sum = sum.wrapping_add(*count);
            let bound = BOUNDS.get(index).map_or("+Inf".to_owned(), |bound| seconds(*bound).to_string());
            self.page.line(&self.name, "_bucket", labels, Some(&bound), sum);
        }
        self.page.line(&self.name, "_sum", labels, None, seconds(times.sum));
        self.page.line(&self.name, "_count", labels, None, sum);
        self
    }
}

/// Nanoseconds as seconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A label's value: quotes, backslashes and ends of lines are escaped.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn samples_stand_below_their_family() {
        let mut page = Page::default();
        page.counter("a_total", "How many.").sample(&[], 3).sample(&[("why", "no \"key\"\\\n")], 4);
        page.gauge("b_bytes", "How much.").sample(&[("x", "1"), ("y", "2")], 0.5);
        assert_eq!(
            page.finish(),
            "# HELP a_total How many.\n# TYPE a_total counter\na_total 3\na_total{why=\"no \\\"key\\\"\\\\\\n\"} 4\n\
             # HELP b_bytes How much.\n# TYPE b_bytes gauge\nb_bytes{x=\"1\",y=\"2\"} 0.5\n"
        );
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let mut times = Histogram::default();
        [1, 3, 3_000_000].into_iter().for_each(|time| times.add(Duration::from_micros(time)));
        times.add(Duration::from_secs(1000));
        let mut page = Page::default();
        page.histogram("t_seconds", "Times.").times(&[("via", "tcp")], &times);
        let text = page.finish();
        let counts: Vec<u64> = text
            .lines()
            .filter(|line| line.contains("_bucket"))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
            .collect();
        assert_eq!(counts[..3], [1, 2, 2]);
        assert_eq!(counts[counts.len() - 2..], [3, 4]);
        for line in [
            "t_seconds_bucket{via=\"tcp\",le=\"0.000001\"} 1",
            "t_seconds_bucket{via=\"tcp\",le=\"0.004096\"} 2",
            "t_seconds_bucket{via=\"tcp\",le=\"+Inf\"} 4",
            "t_seconds_sum{via=\"tcp\"} 1003.000004",
            "t_seconds_count{via=\"tcp\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
