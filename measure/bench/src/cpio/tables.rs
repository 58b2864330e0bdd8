//! The suite's figures for people.

use results::{CPIO_CYCLES, Row};

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
        ]);
    }
    let mut parts = vec![
        "CPU cycles per I/O of 512 bytes at the block device: medians".to_owned(),
        output::left_table(&table),
        "Memory bandwidth and copy count: not measurable here".to_owned(),
    ];
    parts.extend(medians.remarks());
    parts.join("\n")
}
