//! The tables that people see: the paper's layout, and where the time went.

use std::collections::BTreeSet;

use results::papers::{AMPS, AmpsDevice};
use results::{Row, Validity};

use super::record::{
    CONSUMED, CONSUMED_LEAST, CONSUMED_MOST, DELIVERY_NS, MESSAGES_READ, MESSAGES_TOTAL,
    MESSAGES_WRITE, RATIO_TO_APPENDS,
};
use crate::output;

/// Messages a second of each target and mix, then latencies, then what else is to be said.
pub(crate) fn describe(rows: &[&Row]) -> String {
    let mut parts = vec![
        "Messages of 512 bytes per second, 128 to an operation, medians over repeats".to_owned(),
        output::table(&throughput(rows)),
        "The paper's rows are other machines and another load generator: for the shape, not for \
         the size"
            .to_owned(),
        String::new(),
        "Latency of an operation in microseconds; closed: from when it was sent, open: from when \
         it was due"
            .to_owned(),
        output::table(&latencies(rows)),
    ];
    for (heading, table) in [
        (
            "From when a message is due to when a waiting consumer has it, microseconds",
            deliveries(rows),
        ),
        ("Consumers that read all of the log at once, MiB a second", consumers(rows)),
    ] {
        if table.len() > 1 {
            parts.extend([heading.to_owned(), output::table(&table)]);
        }
    }
    parts.extend(remarks(rows));
    parts.join("\n")
}

fn throughput(rows: &[&Row]) -> Vec<Vec<String>> {
    let heading = ["target", "mix", "threads", "read/s", "write/s", "total/s", "of 100/0", "load"];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    for (target, case) in cases(rows, |row| row.params.get("loop") == Some(&"closed".into())) {
        let repeats = repeats(rows, &target, &case);
        let count = |name| median(&repeats, |row| figure(row, name)).map_or("-".into(), count_text);
        let param = |name| repeats[0].params.get(name).map_or("-".into(), value_text);
        table.push(vec![
            target,
            param("mix"),
            param("threads"),
            count(MESSAGES_READ),
            count(MESSAGES_WRITE),
            count(MESSAGES_TOTAL),
            median(&repeats, |row| figure(row, RATIO_TO_APPENDS))
                .map_or(String::new(), |it| format!("{it:.2}")),
            median(&repeats, |row| row.generator_share)
                .map_or("-".into(), |it| format!("{:.0}%", it * 100.0)),
        ]);
    }
    for AmpsDevice { name, appends, mixed } in AMPS {
        for (mix, total, ratio) in
            [("100/0", appends, String::new()), ("80/20", mixed, format!("{:.2}", mixed / appends))]
        {
            let target = format!("paper, their {name}");
            let [mix, total] = [mix.into(), count_text(total)];
            table.push(vec![
                target,
                mix,
                "-".into(),
                "-".into(),
                "-".into(),
                total,
                ratio,
                "-".into(),
            ]);
        }
    }
    table
}

fn latencies(rows: &[&Row]) -> Vec<Vec<String>> {
    let heading = [
        "target",
        "case",
        "of",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "p99.99",
        "max",
        "p99.9/p50",
        "sent: p99.9",
    ];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    for (target, case) in cases(rows, |_| true) {
        let repeats = repeats(rows, &target, &case);
        let is_open = repeats[0].params.get("loop") == Some(&"open".into());
        let kind = if is_open { "intended" } else { "service" };
        for of in ["read", "append"] {
            let value = |kind: &str, what: &str| {
                median(&repeats, |row| figure(row, &format!("{of}_{kind}_{what}")))
            };
            if value(kind, "ns_p50").is_none() {
                continue;
            }
            let micros = |it: Option<f64>| it.map_or("-".into(), |ns| format!("{:.1}", ns / 1e3));
            let mut line = vec![target.clone(), case.clone(), of.to_owned()];
            let names = ["ns_mean", "ns_p50", "ns_p99", "ns_p999", "ns_p9999", "ns_max"];
            line.extend(names.map(|name| micros(value(kind, name))));
            line.push(value(kind, "p999_to_p50").map_or("-".into(), |it| format!("{it:.1}")));
            line.push(micros(value("service", "ns_p999")));
            table.push(line);
        }
    }
    table
}

fn deliveries(rows: &[&Row]) -> Vec<Vec<String>> {
    let names = ["mean", "p50", "p99", "p999", "p9999", "max"];
    let heading = ["target", "case"].into_iter().chain(names);
    let mut table = vec![heading.map(str::to_owned).collect()];
    for (target, case) in cases(rows, |row| row.params.get("op") == Some(&"delivery".into())) {
        let repeats = repeats(rows, &target, &case);
        let mut line = vec![target.clone(), case.clone()];
        line.extend(names.map(|name| {
            let ns = median(&repeats, |row| figure(row, &format!("{DELIVERY_NS}{name}")));
            ns.map_or("-".into(), |ns| format!("{:.1}", ns / 1e3))
        }));
        table.push(line);
    }
    table
}

fn consumers(rows: &[&Row]) -> Vec<Vec<String>> {
    let heading = ["target", "case", "all", "the one with least", "the one with most"];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    for (target, case) in cases(rows, |row| row.params.get("op") == Some(&"consume".into())) {
        let repeats = repeats(rows, &target, &case);
        let mut line = vec![target.clone(), case.clone()];
        line.extend([CONSUMED, CONSUMED_LEAST, CONSUMED_MOST].map(|name| {
            let rate = median(&repeats, |row| figure(row, name));
            rate.map_or("-".into(), |it| format!("{:.0}", it / f64::from(1 << 20)))
        }));
        table.push(line);
    }
    table
}

/// Flags once each, then what could not be measured.
fn remarks(rows: &[&Row]) -> Vec<String> {
    let mut remarks = BTreeSet::new();
    for row in rows {
        let what = format!("{} {}", row.target, row.case);
        match &row.validity {
            Validity::Valid => {
                remarks.extend(row.flags.iter().map(|flag| format!("{what}: {flag}")));
            }
            Validity::Invalid(reason) => {
                remarks.insert(format!("{what}: failed: {reason}"));
            }
            Validity::Skipped(reason) => {
                remarks.insert(format!("{what}: left out: {reason}"));
            }
        }
    }
    remarks.into_iter().collect()
}

/// Each target with each case, in the order of their first rows.
fn cases(rows: &[&Row], is_wanted: impl Fn(&Row) -> bool) -> Vec<(String, String)> {
    let mut cases = Vec::new();
    for row in rows.iter().filter(|row| row.is_valid() && is_wanted(row)) {
        let case = (row.target.clone(), row.case.clone());
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

fn repeats<'a>(rows: &[&'a Row], target: &str, case: &str) -> Vec<&'a Row> {
    let is_one = |row: &&&Row| row.is_valid() && row.target == target && row.case == case;
    rows.iter().filter(is_one).copied().collect()
}

fn figure(row: &Row, name: &str) -> Option<f64> {
    row.figures.get(name).copied()
}

/// None when no row has the figure.
fn median(rows: &[&Row], figure: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| figure(row)).collect();
    results::median(&values)
}

/// `2_150_000` messages as `2.15 M`.
fn count_text(value: f64) -> String {
    match value {
        1e6.. => format!("{:.2} M", value / 1e6),
        1e3.. => format!("{:.0} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

fn value_text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use results::Suite;
    use serde_json::json;

    use super::*;

    fn row(mix: &str, total: f64, repeat: u32) -> Row {
        let mut row = Row::new(Suite::Log, format!("{mix} threads=1 closed"), "volume embedded");
        row.repeat = repeat;
        let params = [("loop", json!("closed")), ("mix", json!(mix)), ("threads", json!(1))];
        row.params.extend(params.map(|(name, value)| (name.to_owned(), value)));
        row.figures.insert(MESSAGES_TOTAL.to_owned(), total);
        row.figures.insert("append_service_ns_p50".to_owned(), 9000.0);
        row
    }

    #[test]
    fn the_middle_of_the_repeats_is_shown() {
        let rows = [row("100/0", 1e6, 0), row("100/0", 9e6, 1), row("100/0", 2e6, 2)];
        let text = describe(&rows.each_ref());
        assert!(text.contains("2.00 M"), "{text}");
        assert!(text.contains("9.0"), "{text}");
        assert!(!text.contains("1.00 M"), "{text}");
    }

    #[test]
    fn the_papers_figures_stand_beside_and_are_called_theirs() {
        let text = describe(&[]);
        assert!(text.contains("their eXFlash DIMMs  80/20"), "{text}");
        assert!(text.contains("0.87"), "{text}");
    }

    #[test]
    fn what_failed_is_told_with_its_reason() {
        let mut failed = row("80/20", 1e6, 0);
        failed.validity = Validity::Invalid("the disk is on fire".to_owned());
        let text = describe(&[&failed]);
        assert!(text.contains("failed: the disk is on fire"), "{text}");
        assert!(!text.contains("1.00 M"), "{text}");
    }
}
