//! Result tables of the suite.

use results::placement::{
    FAST_USED_BYTES, Placement, Workload, gain_share, memory_share, sentence,
};
use results::{Estimate, Row, Validity};
use serde_json::Value;

use crate::medians::{Medians, thousands};
use crate::output::{self, Table, heading};

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut parts = vec![
        "A server with memory limited, medians at the best number of users. The gain is what the \
         rate is above that with nothing on fast storage."
            .to_owned(),
    ];
    for workload in Workload::ALL {
        let table = table(&medians, workload);
        if table.len() > 1 {
            parts.push(output::left_table(&table));
        }
    }
    parts.extend(sentences(&medians));
    parts.extend(survivals(rows));
    parts.extend(medians.remarks());
    parts.join("\n")
}

/// Default engine of the suite.
const ENGINE: &str = "PostgreSQL";

/// Formats `orders, logs only, saturated`, and for another engine `orders on MariaDB, …`.
pub(super) fn case(engine: &str, workload: Workload, placement: Placement, detail: &str) -> String {
    let place = if engine == ENGINE { String::new() } else { format!(" on {engine}") };
    format!("{}{place}, {}, {detail}", workload.name(), placement.words())
}

/// Returns the best result, of any engine.
fn best(
    medians: &Medians<'_>,
    target: &str,
    (workload, placement): (Workload, Placement),
    measure: &str,
) -> Option<Estimate> {
    [ENGINE, "MariaDB"].into_iter().find_map(|engine| {
        medians.of(target, &case(engine, workload, placement, "saturated"), measure)
    })
}

/// Returns the median of a placement's best rates.
fn rate(
    medians: &Medians<'_>,
    target: &str,
    (workload, placement): (Workload, Placement),
) -> Option<f64> {
    let found = best(medians, target, (workload, placement), workload.rate());
    found.map(|it| it.median)
}

fn memory(
    medians: &Medians<'_>,
    target: &str,
    (workload, placement): (Workload, Placement),
) -> Option<f64> {
    best(medians, target, (workload, placement), FAST_USED_BYTES).map(|it| it.median)
}

/// Returns the rate with nothing on fast storage, for any slow target.
fn slow_rate(medians: &Medians<'_>, workload: Workload) -> Option<f64> {
    let targets = medians.targets();
    targets.iter().find_map(|target| rate(medians, target, (workload, Placement::None)))
}

fn shares(
    medians: &Medians<'_>,
    target: &str,
    (workload, placement): (Workload, Placement),
) -> (Option<f64>, Option<f64>) {
    let none = slow_rate(medians, workload);
    let whole = rate(medians, target, (workload, Placement::Whole));
    let part = rate(medians, target, (workload, placement));
    let gain = none.zip(whole).zip(part);
    let gain = gain.and_then(|((none, whole), part)| gain_share(none, whole, part));
    let whole = memory(medians, target, (workload, Placement::Whole));
    let part = memory(medians, target, (workload, placement));
    (gain, whole.zip(part).and_then(|(whole, part)| memory_share(whole, part)))
}

fn table(medians: &Medians<'_>, workload: Workload) -> Table {
    let rate_name = match workload {
        Workload::Orders => "NOPM",
        Workload::Reports => "reports a minute",
    };
    let mut table = heading(&format!(
        "on fast storage | target | {rate_name} | users | of the slow | gain | memory | of it"
    ));
    for placement in Placement::ALL {
        for target in medians.targets() {
            let Some(found) = rate(medians, target, (workload, placement)) else { continue };
            let users = best(medians, target, (workload, placement), "users_at_best");
            let used = memory(medians, target, (workload, placement));
            let (gain, of_memory) = shares(medians, target, (workload, placement));
            let times = slow_rate(medians, workload).filter(|slow| *slow > 0.0);
            let dash = || "-".to_owned();
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            table.push(vec![
                placement.words().to_owned(),
                target.to_owned(),
                thousands(Some(found)),
                users.map_or_else(dash, |it| format!("{:.0}", it.median)),
                times.map_or_else(dash, |slow| format!("{:.2}", found / slow)),
                gain.map_or_else(dash, percent),
                used.map_or_else(dash, |bytes| format!("{:.0} MiB", bytes / f64::from(1 << 20))),
                of_memory.map_or_else(dash, percent),
            ]);
        }
    }
    table
}

/// Returns sentences such as `orders on zram lz4 + ext4, logs only: 61 % of the gain for 3.0 % of
/// the memory`.
fn sentences(medians: &Medians<'_>) -> Vec<String> {
    let mut told = Vec::new();
    for workload in Workload::ALL {
        for target in medians.targets() {
            for placement in [Placement::Logs, Placement::Temporary] {
                let shares = shares(medians, target, (workload, placement));
                if let (Some(gain), Some(memory)) = shares {
                    let (workload, words) = (workload.name(), placement.words());
                    let sentence = sentence(gain, memory);
                    told.push(format!("{workload} on {target}, {words}: {sentence}"));
                }
            }
        }
    }
    told
}

/// Returns the durability of each placement and target, without repetition.
fn survivals(rows: &[&Row]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| !matches!(row.validity, Validity::Skipped(_))) {
        let (placement, durability) = (word(row, "placement"), word(row, "durability"));
        let (Some(placement), Some(durability)) = (placement, durability) else { continue };
        let words = Placement::ALL.into_iter().find(|it| it.name() == placement);
        let words = match words {
            Some(known) => known.words(),
            None => placement,
        };
        let line = format!("survival: {words} on {}: {durability}", row.target);
        if !told.contains(&line) {
            told.push(line);
        }
    }
    told
}

fn word<'row>(row: &'row Row, name: &str) -> Option<&'row str> {
    row.params.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use results::{NOPM, Suite};
    use serde_json::json;

    use super::*;

    fn row(placement: Placement, target: &str, (nopm, bytes): (f64, f64)) -> Row {
        let mut row = Row::new(
            Suite::Placement,
            case(ENGINE, Workload::Orders, placement, "saturated"),
            target,
        );
        row.figures.insert(NOPM.to_owned(), nopm);
        row.figures.insert(FAST_USED_BYTES.to_owned(), bytes);
        row.params.insert("placement".to_owned(), json!(placement.name()));
        row.params.insert("durability".to_owned(), json!("lost at power loss"));
        row
    }

    #[test]
    fn each_part_is_held_against_the_whole() {
        let mut none = row(Placement::None, "disk file", (1_000.0, 0.0));
        none.figures.remove(FAST_USED_BYTES);
        let rows = [
            none,
            row(Placement::Whole, "zram", (3_000.0, 1e9)),
            row(Placement::Logs, "zram", (2_220.0, 3e7)),
        ];
        let text = describe(&rows.each_ref());
        let expected = "orders on zram, logs only: 61 % of the gain for 3.0 % of the memory";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("survival: logs only on zram: lost at power loss"), "{text}");
    }

    #[test]
    fn without_the_slow_rate_there_is_no_gain() {
        let rows = [row(Placement::Whole, "zram", (3_000.0, 1e9))];
        let text = describe(&rows.each_ref());
        assert!(!text.contains("% of the gain"), "{text}");
        assert!(text.contains("3,000"), "{text}");
    }
}
