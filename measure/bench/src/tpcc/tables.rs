//! The suite's figures for people.

use results::{NOPM, Row};

use crate::medians::Medians;
use crate::output;

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let heading =
        ["case", "target", "NOPM", "least", "most", "TPM", "new order, mean ms", "99 %", "99.9 %"];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    let mut known: Vec<(&str, &str)> = Vec::new();
    let mut checks = Vec::new();
    for row in rows.iter().filter(|row| row.is_valid()) {
        let key = (&*row.case, &*row.target);
        if known.contains(&key) {
            continue;
        }
        known.push(key);
        let of = |measure: &str, unit: f64, digits: usize| {
            let median = medians.of(&row.target, &row.case, measure).map(|it| it.median);
            median.map_or_else(|| "-".to_owned(), |value| format!("{:.digits$}", value / unit))
        };
        table.push(vec![
            row.case.clone(),
            row.target.clone(),
            of(NOPM, 1.0, 0),
            of("nopm_least", 1.0, 0),
            of("nopm_most", 1.0, 0),
            of("tpm", 1.0, 0),
            of("latency_ns_mean", 1e6, 2),
            of("latency_ns_p99", 1e6, 2),
            of("latency_ns_p999", 1e6, 2),
        ]);
        if row.figures.contains_key("pgbench_difference_share") {
            let percent = of("pgbench_difference_share", 0.01, 1);
            checks.push(format!("{}: pgbench and this driver differ by {percent} %", row.target));
        }
        if row.figures.contains_key("clones_ram_ratio") {
            let (times, before, after) = (
                of("clones_ram_ratio", 1.0, 2),
                of("reduction_before", 1.0, 2),
                of("reduction_after", 1.0, 2),
            );
            checks.push(format!(
                "{}: {times} times the memory of one before they run; reduction {before} before \
                 and {after} after the run",
                row.target
            ));
        }
    }
    let mut parts = vec![
        "TPC-C-derived, medians: NOPM are new orders a minute by the database; TPM are \
         transactions a minute as its engine counts them, and compare with those of that engine \
         alone. Neither is tpmC."
            .to_owned(),
        output::left_table(&table),
    ];
    parts.extend(checks);
    parts.extend(medians.remarks());
    parts.join("\n")
}
