//! Result tables: the paper's layout, and the composition of time.

use std::collections::BTreeSet;

use results::papers::{AMPS, AmpsDevice};
use results::{Row, Validity};

use super::record::{
    CONSUMED, CONSUMED_LEAST, CONSUMED_MOST, DELIVERY_NS, MESSAGES_READ, MESSAGES_TOTAL,
    MESSAGES_WRITE, RATIO_TO_APPENDS,
};
use crate::medians::{Medians, cell};
use crate::output::{self, Table, heading};

/// Formats messages per second by target and mix, then latencies, then remarks.
pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut parts = vec![
        "Messages of 512 bytes per second, 128 to an operation, medians over repeats".to_owned(),
        output::table(&throughput(&medians)),
        "The paper's rows are other machines and another load generator: for the shape, not for \
         the size"
            .to_owned(),
        String::new(),
        "Latency of an operation in microseconds; closed: from when it was sent, open: from when \
         it was due"
            .to_owned(),
        output::table(&latencies(&medians)),
    ];
    for (heading, table) in [
        (
            "From when a message is due to when a waiting consumer has it, microseconds",
            deliveries(&medians),
        ),
        ("Consumers that read all of the log at once, MiB a second", consumers(&medians)),
    ] {
        if table.len() > 1 {
            parts.extend([heading.to_owned(), output::table(&table)]);
        }
    }
    parts.extend(remarks(rows));
    parts.join("\n")
}

fn throughput(medians: &Medians) -> Table {
    let mut table =
        heading("target | mix | threads | read/s | write/s | total/s | of 100/0 | load");
    for row in medians.firsts().into_iter().filter(|row| is(row, "loop", "closed")) {
        let of = |name| medians.median(&row.target, &row.case, name);
        let param = |name| row.params.get(name).map_or("-".into(), value_text);
        let mut line = vec![row.target.clone(), param("mix"), param("threads")];
        let rates = [MESSAGES_READ, MESSAGES_WRITE, MESSAGES_TOTAL];
        line.extend(rates.map(|name| of(name).map_or("-".into(), count_text)));
        line.push(of(RATIO_TO_APPENDS).map_or(String::new(), |it| format!("{it:.2}")));
        let load = medians.estimate((&row.target, &row.case), |row| row.generator_share);
        line.push(load.map_or("-".into(), |it| format!("{:.0}%", it.median * 100.0)));
        table.push(line);
    }
    for AmpsDevice { name, appends, mixed } in AMPS {
        for (mix, total, ratio) in
            [("100/0", appends, String::new()), ("80/20", mixed, format!("{:.2}", mixed / appends))]
        {
            let target = format!("paper, their {name}");
            let total = count_text(total);
            let cells = [&*target, mix, "-", "-", "-", &total, &ratio, "-"];
            table.push(cells.map(str::to_owned).to_vec());
        }
    }
    table
}

fn latencies(medians: &Medians) -> Table {
    let mut table = heading(
        "target | case | of | mean | p50 | p99 | p99.9 | p99.99 | max | p99.9/p50 | sent: p99.9",
    );
    for row in medians.firsts() {
        let kind = if is(row, "loop", "open") { "intended" } else { "service" };
        for of in ["read", "append"] {
            let value = |kind: &str, what: &str| {
                medians.median(&row.target, &row.case, &format!("{of}_{kind}_{what}"))
            };
            if value(kind, "ns_p50").is_none() {
                continue;
            }
            let mut line = vec![row.target.clone(), row.case.clone(), of.to_owned()];
            let names = ["ns_mean", "ns_p50", "ns_p99", "ns_p999", "ns_p9999", "ns_max"];
            line.extend(names.map(|name| micros(value(kind, name))));
            line.push(cell(value(kind, "p999_to_p50"), 1));
            line.push(micros(value("service", "ns_p999")));
            table.push(line);
        }
    }
    table
}

fn micros(ns: Option<f64>) -> String {
    cell(ns.map(|ns| ns / 1e3), 1)
}

fn deliveries(medians: &Medians) -> Table {
    let mut table = heading("target | case | mean | p50 | p99 | p999 | p9999 | max");
    let names = ["mean", "p50", "p99", "p999", "p9999", "max"];
    for row in medians.firsts().into_iter().filter(|row| is(row, "op", "delivery")) {
        let of = |name| medians.median(&row.target, &row.case, &format!("{DELIVERY_NS}{name}"));
        let mut line = vec![row.target.clone(), row.case.clone()];
        line.extend(names.map(|name| micros(of(name))));
        table.push(line);
    }
    table
}

fn consumers(medians: &Medians) -> Table {
    let mut table = heading("target | case | all | the one with least | the one with most");
    for row in medians.firsts().into_iter().filter(|row| is(row, "op", "consume")) {
        let mut line = vec![row.target.clone(), row.case.clone()];
        line.extend([CONSUMED, CONSUMED_LEAST, CONSUMED_MOST].map(|name| {
            let rate = medians.median(&row.target, &row.case, name);
            cell(rate.map(|it| it / f64::from(1 << 20)), 0)
        }));
        table.push(line);
    }
    table
}

fn is(row: &Row, parameter: &str, value: &str) -> bool {
    row.params.get(parameter).and_then(serde_json::Value::as_str) == Some(value)
}

/// Returns each distinct flag, then failed measurements.
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

/// Formats `2_150_000` messages as `2.15 M`.
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
        row.add_params([("loop", json!("closed")), ("mix", json!(mix)), ("threads", json!(1))]);
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
