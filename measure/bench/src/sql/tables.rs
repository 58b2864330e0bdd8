//! Result tables of the suite, each system beside its comparison.

use results::{FIRST_READ_NS, INDEX_BYTES_PER_KEY, LOOKUPS_PER_S, RECORDS_PER_S, Row};

use super::filters::Share;
use super::many::{self, ROWS_PER_S};
use super::produce::{BEHIND_NS, KEEPING, PLAIN};
use super::record::{BROKER, CONSUMER, LIVE_QUERY, POSTGRESQL};
use super::{delivery, follow, keys, point, scan};
use crate::medians::{Medians, cell, thousands};
use crate::output::{Table, heading};

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    medians.page([
        ("Beside PostgreSQL, each on one core: medians", queries(&medians)),
        ("One live query beside a consumer of all records: records a second", follow(&medians)),
        ("Many live queries at once", many(&medians)),
        ("From when a message was due, microseconds", deliveries(&medians)),
        ("Current values", values(&medians)),
    ])
}

fn over(of: Option<f64>, to: Option<f64>) -> String {
    cell(of.zip(to).map(|(of, to)| of / to), 2)
}

fn queries(medians: &Medians) -> Table {
    let mut table = heading("what | of | broker, /s | PostgreSQL, /s | times");
    let scans = scan::FILTERS.iter().chain([&scan::GROUPS]).map(|query| query.case);
    let scans = scans.map(|case| (case, RECORDS_PER_S, "records"));
    for (case, figure, of) in [(point::CASE, LOOKUPS_PER_S, "lookups")].into_iter().chain(scans) {
        let [own, other] = [BROKER, POSTGRESQL].map(|it| medians.median(it, case, figure));
        if own.is_some() {
            let cells = [case.to_owned(), of.to_owned(), thousands(own), thousands(other)];
            table.push([&cells[..], &[over(own, other)]].concat());
        }
    }
    table
}

fn follow(medians: &Medians) -> Table {
    let mut table = heading("what | records/s | of the consumer's");
    for way in follow::WAYS {
        let all = follow::case(way, None);
        let consumer = medians.median(CONSUMER, &all, RECORDS_PER_S);
        if consumer.is_some() {
            table.push(vec![format!("consumer: {all}"), thousands(consumer), String::new()]);
        }
        for percent in follow::PERCENTS {
            let case = follow::case(way, Some(percent));
            let own = medians.median(LIVE_QUERY, &case, RECORDS_PER_S);
            if own.is_some() {
                table.push(vec![case, thousands(own), over(own, consumer)]);
            }
        }
    }
    table
}

fn many(medians: &Medians) -> Table {
    let mut table = heading("what | records/s | rows/s");
    for case in Share::ALL.map(many::case) {
        let of = |figure| medians.median(LIVE_QUERY, &case, figure);
        if let Some(records) = of(RECORDS_PER_S) {
            table.push(vec![case.clone(), thousands(Some(records)), thousands(of(ROWS_PER_S))]);
        }
    }
    table
}

fn deliveries(medians: &Medians) -> Table {
    let mut table = heading("at | mean | p50 | p99 | p99.9 | max");
    for target in [CONSUMER, LIVE_QUERY] {
        let of = |what: &str| {
            let measure = format!("latency_ns_{what}");
            medians.median(target, delivery::CASE, &measure).map(|ns| ns / 1e3)
        };
        if of("p50").is_some() {
            let cells = ["mean", "p50", "p99", "p999", "max"].map(|what| cell(of(what), 1));
            table.push([&[target.to_owned()], &cells[..]].concat());
        }
    }
    table
}

fn values(medians: &Medians) -> Table {
    let mut table = heading("what | figure");
    let mut add = |what: &str, value: Option<f64>, text: &dyn Fn(f64) -> String| {
        if let Some(value) = value {
            table.push(vec![what.to_owned(), text(value)]);
        }
    };
    let of = |case: &str, figure: &str| medians.median(BROKER, case, figure);
    add(keys::INDEX, of(keys::INDEX, INDEX_BYTES_PER_KEY), &|it| format!("{it:.1} bytes a key"));
    for case in [keys::RESTART, keys::KILL] {
        add(case, of(case, FIRST_READ_NS), &|ns| format!("{:.3} s", ns / 1e9));
    }
    let [plain, keeping] = [PLAIN, KEEPING].map(|case| of(case, RECORDS_PER_S));
    let rate = |it: f64| format!("{} records/s", thousands(Some(it)));
    add(PLAIN, plain, &rate);
    add(KEEPING, keeping, &rate);
    let share = plain.zip(keeping).map(|(plain, keeping)| keeping / plain);
    add("of a producer's rate without current values", share, &|it| format!("{it:.2}"));
    add("values behind the last record", of(KEEPING, BEHIND_NS), &|ns| {
        format!("{:.1} ms", ns / 1e6)
    });
    table
}

#[cfg(test)]
mod tests {
    use results::Suite;

    use super::*;

    fn row(case: &str, target: &str, figure: &str, value: f64) -> Row {
        let mut row = Row::new(Suite::Sql, case, target);
        row.figures.insert(figure.to_owned(), value);
        row
    }

    #[test]
    fn figures_stand_beside_what_they_are_compared_with() {
        let followed = follow::case(follow::WAYS[0], Some(50));
        let rows = [
            row(scan::GROUPS.case, BROKER, RECORDS_PER_S, 4e6),
            row(scan::GROUPS.case, POSTGRESQL, RECORDS_PER_S, 1e6),
            row(&follow::case(follow::WAYS[0], None), CONSUMER, RECORDS_PER_S, 2e6),
            row(&followed, LIVE_QUERY, RECORDS_PER_S, 1.5e6),
            row(keys::INDEX, BROKER, INDEX_BYTES_PER_KEY, 24.5),
            row(keys::RESTART, BROKER, FIRST_READ_NS, 1.25e9),
        ];
        let text = describe(&rows.each_ref());
        for expected in ["4,000,000", "4.00", "0.75", "24.5 bytes a key", "1.250 s"] {
            assert!(text.contains(expected), "no {expected} in {text}");
        }
    }
}
