//! The suite's figures for people.

use results::projection::{APPLICATION, CORES};
use results::{CPIO_CYCLES, Row};

use super::measure::MEMORY_BANDWIDTH;

use crate::medians::Medians;
use crate::output;

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let heading = [
        "case",
        "target",
        "cycles/IO",
        "without driver",
        "application",
        "driver",
        "store",
        "rest",
        "used",
        "to 1 core",
    ];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    let mut known: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(|row| row.is_valid()) {
        let key = (&*row.case, &*row.target);
        if known.contains(&key) {
            continue;
        }
        known.push(key);
        let of = |measure: &str| {
            let median = medians.of(&row.target, &row.case, measure).map(|it| it.median);
            median.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
        };
        let used = medians.of(&row.target, &row.case, "utilisation_share");
        table.push(vec![
            row.case.clone(),
            row.target.clone(),
            of(CPIO_CYCLES),
            of("cpio_without_driver_cycles"),
            of("application_cycles"),
            of("driver_cycles"),
            of("store_cycles"),
            of("rest_cycles"),
            used.map_or_else(|| "-".to_owned(), |it| format!("{:.0} %", it.median * 100.0)),
            growth(row, rows, &medians),
        ]);
    }
    let mut parts = vec![
        "CPU cycles per I/O of 512 bytes where they are counted: medians".to_owned(),
        output::left_table(&table),
    ];
    let mut counted: Vec<&str> = rows.iter().filter_map(|row| bandwidth(row)).collect();
    counted.sort_unstable();
    counted.dedup();
    parts.push(format!("Memory bandwidth and copy count: {}", counted.join("; ")));
    parts.extend(medians.remarks());
    parts.join("\n")
}

fn bandwidth(row: &Row) -> Option<&str> {
    row.params.get(MEMORY_BANDWIDTH)?.as_str()
}

/// The case's cycles over those of the same application with one core.
fn growth(row: &Row, rows: &[&Row], medians: &Medians) -> String {
    let is_one = |it: &&&Row| {
        let is_same =
            it.target == row.target && it.params.get(APPLICATION) == row.params.get(APPLICATION);
        is_same && it.params.get(CORES).and_then(serde_json::Value::as_u64) == Some(1)
    };
    let cycles = |row: &Row| medians.of(&row.target, &row.case, CPIO_CYCLES).map(|it| it.median);
    let one = rows.iter().find(is_one).and_then(|one| cycles(one));
    let ratio = cycles(row).zip(one).map(|(many, one)| many / one);
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}
