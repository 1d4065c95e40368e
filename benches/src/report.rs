//! What a contest has shown.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::conditions::Conditions;
use crate::passing::Passing;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which way was measured.
    pub name: String,
    /// How many bytes travel each way.
    pub payload_bytes: u64,
    /// How they do, if they are arguments of an execution by a driver.
    pub arguments: Option<Passing>,
    /// The median over rounds of the round's median, in nanoseconds a round trip.
    pub p50_ns: f64,
    /// The median over rounds of the round's 99 % quantile.
    pub p99_ns: f64,
    /// The median over rounds of the round's 99.9 % quantile.
    pub p999_ns: f64,
    /// The longest round trip of all.
    pub max_ns: f64,
    /// The median over rounds of the ratio of the round's medians, this row's to the ping-pong's.
    pub ratio_p50: f64,
    /// The same to the ping-pong that copies as many bytes, if that was measured.
    pub ratio_copied_p50: Option<f64>,
}

/// All rows with the conditions that they were measured under. As JSON it has no histograms.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The conditions.
    pub conditions: Conditions,
    /// The rows, in the order in which they were measured.
    pub rows: Vec<Row>,
    /// All samples of each row, in nanoseconds.
    #[serde(skip)]
    pub histograms: Vec<Histogram<u64>>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditions = &self.conditions;
        writeln!(
            f,
            "round trips between two processes on processors {} and {}, {}; {} rounds; {}, kernel {}",
            conditions.cpus_used[0],
            conditions.cpus_used[1],
            conditions.scheduling,
            conditions.rounds,
            conditions.cpu,
            conditions.kernel
        )?;
        writeln!(
            f,
            "load before {}; device {}; reading the clock takes {} ns, which are taken off{}",
            conditions.load_before,
            conditions.device,
            conditions.clock_ns,
            if conditions.optimised {
                ""
            } else {
                "; NOT OPTIMISED"
            }
        )?;
        for note in &conditions.notes {
            writeln!(f, "{note}")?;
        }
        writeln!(
            f,
            "\n{:<28} {:<14} {:>9} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8}",
            "way", "arguments", "bytes", "p50", "p99", "p99.9", "max", "x limit", "x copied"
        )?;
        for row in &self.rows {
            let arguments = row.arguments.map_or("", Passing::name);
            let copied = row
                .ratio_copied_p50
                .map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let times = [row.p50_ns, row.p99_ns, row.p999_ns, row.max_ns].map(duration);
            writeln!(
                f,
                "{:<28} {:<14} {:>9} {:>10} {:>10} {:>10} {:>10} {:>8.2} {copied:>8}",
                row.name, arguments, row.payload_bytes, times[0], times[1], times[2], times[3], row.ratio_p50
            )?;
        }
        Ok(())
    }
}

/// Nanoseconds with a unit that suits them.
#[must_use]
pub fn duration(nanoseconds: f64) -> String {
    if nanoseconds < 10_000.0 {
        format!("{nanoseconds:.0} ns")
    } else if nanoseconds < 10_000_000.0 {
        format!("{:.1} us", nanoseconds / 1000.0)
    } else {
        format!("{:.1} ms", nanoseconds / 1_000_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            conditions: Conditions::of_this_machine(7),
            rows: vec![Row {
                name: "ping_pong".into(),
                payload_bytes: 8,
                arguments: None,
                p50_ns: 230.0,
                p99_ns: 300.0,
                p999_ns: 310.0,
                max_ns: 12_345.0,
                ratio_p50: 1.0,
                ratio_copied_p50: None,
            }],
            histograms: Vec::new(),
        }
    }

    #[test]
    fn json_has_conditions_and_rows() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["rows"][0]["name"], "ping_pong");
        assert_eq!(json["rows"][0]["ratio_p50"], 1.0);
        assert_eq!(json["rows"][0]["arguments"], serde_json::Value::Null);
        assert_eq!(json["conditions"]["rounds"], 7);
        assert_eq!(json.as_object().unwrap().len(), 2);
    }

    #[test]
    fn ways_to_pass_arguments_have_the_same_names_everywhere() {
        for way in [
            Passing::Inline,
            Passing::OwnMemory,
            Passing::SharedMemory,
            Passing::DeviceBuffers,
        ] {
            assert_eq!(serde_json::to_value(way).unwrap(), way.name());
        }
    }

    #[test]
    fn table_has_a_line_for_each_row() {
        let text = report().to_string();
        let line = text.lines().last().unwrap();
        assert!(
            line.starts_with("ping_pong") && line.contains("12.3 us"),
            "{text}"
        );
    }
}
