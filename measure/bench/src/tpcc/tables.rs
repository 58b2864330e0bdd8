//! Result tables of the suite.

use results::{NOPM, Row};

use crate::medians::{Medians, cell};
use crate::output::{self, heading};

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut table =
        heading("case | target | NOPM | least | most | TPM | new order, mean ms | 99 % | 99.9 %");
    let mut checks = Vec::new();
    for row in medians.firsts() {
        let of = |measure: &str, unit: f64, digits: usize| {
            let median = medians.median(&row.target, &row.case, measure);
            cell(median.map(|value| value / unit), digits)
        };
        let mut line = vec![row.case.clone(), row.target.clone()];
        line.extend([NOPM, "nopm_least", "nopm_most", "tpm"].map(|rate| of(rate, 1.0, 0)));
        let waits = ["latency_ns_mean", "latency_ns_p99", "latency_ns_p999"];
        line.extend(waits.map(|wait| of(wait, 1e6, 2)));
        table.push(line);
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
