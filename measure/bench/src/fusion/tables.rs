//! The paper's tables of peaks with its figures beside ours, and the queue depth of each peak.

use results::{Row, papers};

use crate::medians::{Medians, thousands};
use crate::output::{self, Table, heading};
use crate::targets::fio::Pattern;

/// Order of the paper's columns.
const PATTERNS: [Pattern; 4] =
    [Pattern::SequentialWrite, Pattern::SequentialRead, Pattern::RandomWrite, Pattern::RandomRead];

const REMARK: &str = "At: the queue depth of the peak. Theirs: the paper's figures, on their \
                      hardware: for the shape, not for the size. MB are 10^6 bytes; the paper \
                      gives KiB / 1000, and its IOPS are those of its devices, where requests were \
                      split at 128 KiB. ?: twice what the paper's own throughput allows.";

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut parts = Vec::new();
    for target in medians.targets() {
        let peaks = Peaks::new(&medians, target);
        parts.push(format!("{target}: peak throughput for each transfer size, MB/s (Table 3)"));
        parts.push(output::table(&peaks.throughput()));
        parts.push(String::new());
        parts.push(format!(
            "{target}: IOPS at these peaks, of the application and at the device (Table 4)"
        ));
        parts.push(output::table(&peaks.requests()));
        parts.push(String::new());
    }
    parts.push(REMARK.to_owned());
    parts.extend(medians.remarks());
    parts.join("\n")
}

/// Creates a heading with the transfer size, and for each pattern its name and other columns.
fn pattern_heading(others: &str) -> Table {
    let patterns = PATTERNS.map(|pattern| format!("{}s | {others}", pattern.title()));
    heading(&format!("KiB | {}", patterns.join(" | ")))
}

/// Peak of a transfer size and pattern.
struct Peak {
    depth: u64,
    bytes_per_s: f64,
    iops: f64,
    device_iops: Option<f64>,
}

struct Peaks<'row> {
    medians: &'row Medians<'row>,
    target: &'row str,
    sizes_kib: Vec<u32>,
}

impl<'row> Peaks<'row> {
    fn new(medians: &'row Medians<'row>, target: &'row str) -> Self {
        let sizes = medians.rows_of(target).filter_map(|row| row.params.get("block_bytes"));
        let mut sizes_kib: Vec<u32> =
            sizes.filter_map(|bytes| u32::try_from(bytes.as_u64()? >> 10).ok()).collect();
        sizes_kib.sort_unstable();
        sizes_kib.dedup();
        Self { medians, target, sizes_kib }
    }

    fn peak(&self, kib: u32, pattern: Pattern) -> Option<Peak> {
        let is_of = |row: &&Row| {
            row.params.get("block_bytes").and_then(|it| it.as_u64()) == Some(u64::from(kib) << 10)
                && row.params.get("rw").and_then(|it| it.as_str()) == Some(&pattern.to_string())
        };
        let mut cases: Vec<(u64, &str)> = Vec::new();
        for row in self.medians.rows_of(self.target).filter(is_of) {
            let depth = row.params.get("queue_depth")?.as_u64()?;
            if !cases.contains(&(depth, &row.case)) {
                cases.push((depth, &row.case));
            }
        }
        let peaks = cases.into_iter().filter_map(|(depth, case)| {
            let of = |measure| self.medians.median(self.target, case, measure);
            Some(Peak {
                depth,
                bytes_per_s: of("bytes_per_s")?,
                iops: of("iops")?,
                device_iops: of("device_iops"),
            })
        });
        peaks.max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
    }

    fn throughput(&self) -> Table {
        let mut rows = pattern_heading("at | theirs");
        for &kib in &self.sizes_kib {
            let mut row = vec![kib.to_string()];
            for pattern in PATTERNS {
                let peak = self.peak(kib, pattern);
                let theirs = papers::fusion_cell(kib, &pattern.to_string())
                    .map(|cell| cell.bytes_per_s / 1e6);
                row.push(thousands(peak.as_ref().map(|peak| peak.bytes_per_s / 1e6)));
                row.push(peak.map_or_else(|| "-".to_owned(), |peak| peak.depth.to_string()));
                row.push(thousands(theirs));
            }
            rows.push(row);
        }
        rows
    }

    fn requests(&self) -> Table {
        let mut rows = pattern_heading("device | theirs | device");
        for &kib in &self.sizes_kib {
            let mut row = vec![kib.to_string()];
            for pattern in PATTERNS {
                let peak = self.peak(kib, pattern);
                let theirs = papers::fusion_cell(kib, &pattern.to_string());
                let mark = if theirs.is_some_and(|cell| cell.is_doubtful) { "?" } else { "" };
                row.push(thousands(peak.as_ref().map(|peak| peak.iops)));
                row.push(thousands(peak.and_then(|peak| peak.device_iops)));
                row.push(thousands(theirs.map(|cell| cell.application_iops)));
                row.push(thousands(theirs.map(|cell| cell.device_iops)) + mark);
            }
            rows.push(row);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use results::{Io, Suite};
    use serde_json::json;

    use super::*;

    fn row(depth: u64, bytes_per_s: f64) -> Row {
        let case = format!("read 65536 jobs=1 depth={depth}");
        let mut row = Row::new(Suite::Fusion, case, "volume attached");
        row.add_params([
            ("rw", json!("read")),
            ("block_bytes", json!(65_536)),
            ("queue_depth", json!(depth)),
        ]);
        let iops = bytes_per_s / 65_536.0;
        row.app = Some(Io { ops: 1, bytes: 1, iops, bytes_per_s });
        row.figures.insert("device_iops".to_owned(), iops * 2.0);
        row
    }

    #[test]
    fn the_peak_over_depths_is_shown_with_its_depth_beside_the_papers() {
        let rows = [row(1, 1e9), row(8, 6.5536e9), row(64, 3e9)];
        let text = describe(&rows.each_ref());
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let lines: Vec<_> = lines.iter().filter(|line| line.first() == Some(&"64")).collect();
        // Sequential writes come first and were not measured.
        assert_eq!(lines[0][..7], ["64", "-", "-", "9,932", "6,554", "8", "12,420"], "{text}");
        assert_eq!(lines[1][5..9], ["100,000", "200,000", "189,516", "379,047?"], "{text}");
    }
}
