//! Result tables of the suite.

use results::Row;

use super::estimate::Estimate;
use crate::medians::{Medians, cell};
use crate::output::{bytes_text, heading, table};
use crate::targets::Kind;

/// Name of the estimator as a target.
pub(super) const ESTIMATE: &str = "estimate";

/// Targets on which the same data is stored.
pub(super) const TARGETS: [Kind; 2] = [Kind::Volume, Kind::Zram];

/// Formats the estimate of one source.
pub(super) fn of_estimate(source: &str, estimate: &Estimate) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut lines = vec![
        format!("{source}: {} would take {}", bytes_text(estimate.data_bytes), used(estimate)),
        format!("  reduction    {:.2}", estimate.reduction),
        format!("  fill         {} of all blocks", percent(estimate.fill_share)),
        format!("  duplicates   {} of all blocks", percent(estimate.duplicate_share)),
        format!("  compression  {:.2} of what is left", estimate.compression),
        format!("  pages        {}", bytes_text(estimate.page_bytes)),
        format!("  maps, index  {}", bytes_text(estimate.map_bytes + estimate.index_bytes)),
    ];
    if estimate.one_in > 1.0 {
        lines.push(format!(
            "  from a sample of one in {} distinct blocks; duplicates to within {}",
            estimate.one_in,
            percent(estimate.duplicate_share_error)
        ));
    }
    lines.join("\n")
}

fn used(estimate: &Estimate) -> String {
    let used = bytes_text(estimate.used_bytes);
    match estimate.used_bytes_error {
        0 => used,
        error => format!("{used} ± {}", bytes_text(error)),
    }
}

/// Formats all data by target, relative to zram.
pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut lines =
        heading("data | target | data MiB | used MiB | reduction | over zram | settled in s");
    let mut cases: Vec<&str> = rows.iter().map(|row| &*row.case).collect();
    cases.dedup();
    cases.sort_unstable();
    cases.dedup();
    let [volume, zram] = TARGETS.map(|kind| kind.to_string());
    for case in cases {
        let of = |target: &str, measure: &str| medians.median(target, case, measure);
        for target in [ESTIMATE, &volume, &zram] {
            let mib = |measure| of(target, measure).map(|bytes| bytes / f64::from(1 << 20));
            let used = of(target, "used_bytes").zip(of(&zram, "used_bytes"));
            lines.push(vec![
                case.to_owned(),
                target.to_owned(),
                cell(mib("data_bytes"), 1),
                cell(mib("used_bytes"), 1),
                cell(of(target, "reduction"), 3),
                cell(used.map(|(own, zram)| own / zram), 3),
                cell(of(target, "settling_s"), 1),
            ]);
        }
    }
    let mut parts = vec![table(&lines)];
    parts.extend(medians.remarks());
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use results::Suite;

    use super::*;

    #[test]
    fn a_target_is_held_against_zram() {
        let row = |target: &str, used_bytes: f64| {
            let mut row = Row::new(Suite::Reduction, "programs", target);
            row.figures.insert("used_bytes".to_owned(), used_bytes);
            row
        };
        let rows = [row("volume attached", 80e6), row("zram lz4", 100e6)];
        let text = describe(&rows.each_ref());
        assert!(
            text.lines().any(|line| line.contains("volume") && line.contains("0.800")),
            "{text}"
        );
    }
}
