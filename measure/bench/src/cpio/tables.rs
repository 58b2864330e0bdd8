//! Result tables of the suite.

use results::projection::{APPLICATION, CORES};
use results::{CPIO_CYCLES, Row};

use super::measure::MEMORY_BANDWIDTH;

use crate::medians::{Medians, cell};
use crate::output::{self, heading};

const CYCLES: [&str; 6] = [
    CPIO_CYCLES,
    "cpio_without_driver_cycles",
    "application_cycles",
    "driver_cycles",
    "store_cycles",
    "rest_cycles",
];

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut table = heading(
        "case | target | cycles/IO | without driver | application | driver | store | rest | used | \
         to 1 core",
    );
    for row in medians.firsts() {
        let of = |measure: &str| medians.median(&row.target, &row.case, measure);
        let mut line = vec![row.case.clone(), row.target.clone()];
        line.extend(CYCLES.map(|measure| cell(of(measure), 0)));
        let used = of("utilisation_share").map(|share| format!("{:.0} %", share * 100.0));
        line.push(used.unwrap_or_else(|| "-".to_owned()));
        line.push(growth(row, rows, &medians));
        table.push(line);
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

/// Returns the case's cycles relative to one core.
fn growth(row: &Row, rows: &[&Row], medians: &Medians) -> String {
    let is_one = |it: &&&Row| {
        let is_same =
            it.target == row.target && it.params.get(APPLICATION) == row.params.get(APPLICATION);
        is_same && it.params.get(CORES).and_then(serde_json::Value::as_u64) == Some(1)
    };
    let cycles = |row: &Row| medians.median(&row.target, &row.case, CPIO_CYCLES);
    let one = rows.iter().find(is_one).and_then(|one| cycles(one));
    cell(cycles(row).zip(one).map(|(many, one)| many / one), 2)
}
