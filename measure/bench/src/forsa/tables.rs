//! The paper's four tables with its figures beside ours, and scaling with the number of jobs.

use results::papers::{self, FORSA_BLOCK_BYTES, FORSA_JOBS};
use results::{Row, generator_share};

use super::variant::Variant;
use crate::medians::{Medians, cell, thousands};
use crate::output::{self, Table, heading};
use crate::targets::fio::{Amount, Pattern};

const REMARK: &str = "Theirs: the paper's figures, on their hardware (48 cores): for the shape, \
                      not for the size. MB are 10^6 bytes in all columns; the paper gives its \
                      writes in KiB / 1000. Generator: the share of its time that fio spent \
                      outside its requests, on preparing them.";

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut parts = Vec::new();
    for target in medians.targets() {
        for variant in Variant::ALL {
            parts.extend(tables(&medians, target, variant));
        }
    }
    parts.push(REMARK.to_owned());
    parts.extend(medians.remarks());
    parts.join("\n")
}

fn tables(medians: &Medians, target: &str, variant: Variant) -> Vec<String> {
    let mut parts = Vec::new();
    let mut add = |what: String, table: Table| {
        if table.len() > 1 {
            let title = format!("{target}, {}: {what}", variant.name());
            parts.extend([title, output::table(&table), String::new()]);
        }
    };
    for jobs in FORSA_JOBS {
        for block_bytes in FORSA_BLOCK_BYTES {
            let size = block_bytes >> 10;
            let what = format!("{size} KB block size, queue depth = 1, numjobs = {jobs}");
            add(what, table(medians, (target, variant), (jobs, block_bytes)));
        }
    }
    for block_bytes in FORSA_BLOCK_BYTES {
        let what = format!("{} KB IOPS and mean latency over jobs", block_bytes >> 10);
        add(what, over_jobs(medians, (target, variant), block_bytes));
    }
    parts
}

fn case(variant: Variant, pattern: Pattern, block_bytes: u32, jobs: u32) -> String {
    variant.case(&variant.job(pattern, block_bytes, jobs, Amount::Once))
}

fn table(
    medians: &Medians,
    (target, variant): (&str, Variant),
    (jobs, block_bytes): (u32, u32),
) -> Table {
    let mut rows = heading(
        "I/O task | MB/s | theirs | IOPS | theirs | latency us | theirs | submission us | \
         completion us | generator % | theirs",
    );
    for pattern in Pattern::ALL {
        let case = case(variant, pattern, block_bytes, jobs);
        let of = |measure| medians.median(target, &case, measure);
        if of("iops").is_none() {
            continue;
        }
        let theirs = papers::forsa_line(jobs, block_bytes, &pattern.to_string());
        let us = |measure| of(measure).map(|ns| ns / 1e3);
        rows.push(vec![
            pattern.title().to_owned(),
            thousands(of("bytes_per_s").map(|it| it / 1e6)),
            thousands(theirs.map(|line| line.bytes_per_s() / 1e6)),
            thousands(of("iops")),
            thousands(theirs.map(|line| line.iops)),
            cell(us("latency_ns_mean"), 1),
            cell(theirs.map(|line| line.latency_us_mean), 1),
            cell(us("submission_ns_mean"), 1),
            cell(us("completion_ns_mean"), 1),
            cell(percent(of("iops"), of("latency_ns_mean"), jobs), 0),
            cell(
                theirs.and_then(|line| percent(Some(line.iops), Some(line.latency_ns()), jobs)),
                0,
            ),
        ]);
    }
    rows
}

/// Returns the share of its time that the load generator spent outside its requests, in percent.
fn percent(iops: Option<f64>, latency_ns: Option<f64>, jobs: u32) -> Option<f64> {
    Some(generator_share(iops?, latency_ns?, u64::from(jobs)) * 100.0)
}

fn over_jobs(medians: &Medians, (target, variant): (&str, Variant), block_bytes: u32) -> Table {
    let patterns = Pattern::ALL.map(|pattern| format!("{pattern} IOPS | us")).join(" | ");
    let mut rows = heading(&format!("jobs | {patterns}"));
    let mut counts: Vec<u64> =
        medians.rows_of(target).filter_map(|row| row.params.get("jobs")?.as_u64()).collect();
    counts.sort_unstable();
    counts.dedup();
    for jobs in counts.into_iter().filter_map(|jobs| u32::try_from(jobs).ok()) {
        let mut row = vec![jobs.to_string()];
        for pattern in Pattern::ALL {
            let case = case(variant, pattern, block_bytes, jobs);
            let of = |measure| medians.median(target, &case, measure);
            row.push(thousands(of("iops")));
            row.push(cell(of("latency_ns_mean").map(|ns| ns / 1e3), 1));
        }
        if row[1..].iter().any(|cell| cell != "-") {
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use results::{Io, Suite};
    use serde_json::json;

    use super::*;

    #[test]
    fn ours_stands_beside_theirs_in_true_units() {
        let mut row = Row::new(Suite::Forsa, "write 4096 jobs=1 depth=1", "volume attached");
        row.params.insert("jobs".to_owned(), json!(1));
        row.app = Some(Io { ops: 1, bytes: 4096, iops: 12_345.0, bytes_per_s: 50_565_120.0 });
        let text = describe(&[&row]);
        let line = text.lines().find(|line| line.contains("Sequential Write")).expect("a line");
        // 1,177 of the paper's write units are 1,205 MB. The paper's generator was outside its
        // requests for 21 % of the time.
        for part in ["51", "1,205", "12,345", "294,126", "2.7", " 21"] {
            assert!(line.contains(part), "no {part} in {line}");
        }
        assert!(text.contains("numjobs = 1\n"), "{text}");
        assert!(!text.contains("numjobs = 32"), "{text}");
    }
}
