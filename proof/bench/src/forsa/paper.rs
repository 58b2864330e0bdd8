//! What the paper "ForsaOS 2.0 host level performance analysis" reports of its own server: two Xeon
//! Platinum 8160M with 24 cores each, 1.5 TB of memory, a device of 500 GB.

use targets::fio::Pattern;

pub(super) const BLOCK_BYTES: [u32; 2] = [4096, 131_072];
pub(super) const JOBS: [u32; 2] = [1, 32];

/// One line of the paper's tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) jobs: u32,
    pub(super) block_bytes: u32,
    pub(super) pattern: Pattern,
    /// As printed, under the heading MB/s.
    pub(super) printed_mb_per_s: f64,
    pub(super) iops: f64,
    pub(super) latency_us_mean: f64,
}

impl Line {
    pub(super) fn latency_ns(&self) -> f64 {
        self.latency_us_mean * 1000.0
    }

    /// What was printed, in true units: reads are given in 10^6 bytes, writes in KiB / 1000.
    pub(super) fn bytes_per_s(&self) -> f64 {
        let unit = if self.pattern.is_write() { 1_024_000.0 } else { 1_000_000.0 };
        self.printed_mb_per_s * unit
    }
}

pub(super) fn line(jobs: u32, block_bytes: u32, pattern: Pattern) -> Option<&'static Line> {
    let is_asked =
        |line: &&Line| (line.jobs, line.block_bytes, line.pattern) == (jobs, block_bytes, pattern);
    LINES.iter().find(is_asked)
}

const fn reported(
    (jobs, block_bytes, pattern): (u32, u32, Pattern),
    printed_mb_per_s: f64,
    iops: f64,
    latency_us_mean: f64,
) -> Line {
    Line { jobs, block_bytes, pattern, printed_mb_per_s, iops, latency_us_mean }
}

const SMALL: u32 = BLOCK_BYTES[0];
const LARGE: u32 = BLOCK_BYTES[1];

const LINES: &[Line] = &[
    reported((1, SMALL, Pattern::SequentialRead), 2_073.0, 506_000.0, 1.8),
    reported((1, SMALL, Pattern::RandomRead), 2_002.0, 489_000.0, 1.9),
    reported((1, SMALL, Pattern::SequentialWrite), 1_177.0, 294_126.0, 2.7),
    reported((1, SMALL, Pattern::RandomWrite), 1_104.0, 276_038.0, 2.9),
    reported((1, LARGE, Pattern::SequentialRead), 7_184.0, 54_800.0, 18.1),
    reported((1, LARGE, Pattern::RandomRead), 7_298.0, 55_700.0, 17.8),
    reported((1, LARGE, Pattern::SequentialWrite), 2_059.0, 16_089.0, 45.1),
    reported((1, LARGE, Pattern::RandomWrite), 2_071.0, 16_179.0, 45.1),
    reported((32, SMALL, Pattern::SequentialRead), 41_446.0, 10_121_000.0, 2.9),
    reported((32, SMALL, Pattern::RandomRead), 36_507.0, 8_922_000.0, 3.3),
    reported((32, SMALL, Pattern::SequentialWrite), 24_696.0, 6_174_015.0, 4.2),
    reported((32, SMALL, Pattern::RandomWrite), 22_870.0, 5_717_675.0, 4.7),
    reported((32, LARGE, Pattern::SequentialRead), 168_557.0, 1_282_400.0, 24.9),
    reported((32, LARGE, Pattern::RandomRead), 78_276.0, 593_500.0, 56.5),
    reported((32, LARGE, Pattern::SequentialWrite), 49_177.0, 384_198.0, 59.2),
    reported((32, LARGE, Pattern::RandomWrite), 44_345.0, 346_450.0, 69.3),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_agrees_with_its_own_number_of_requests_once_units_are_right() {
        assert_eq!(LINES.len(), 16);
        for line in LINES {
            let by_requests = line.iops * f64::from(line.block_bytes);
            let ratio = line.bytes_per_s() / by_requests;
            assert!((ratio - 1.0).abs() < 0.01, "{line:?}: {ratio}");
        }
    }
}
