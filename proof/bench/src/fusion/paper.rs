//! What Red Hat's brief "Optimizing Fusion ioMemory on Red Hat Enterprise Linux 6" reports in its
//! Tables 3 and 4, of eight ioDrives in a server of 16 cores.

use targets::fio::Pattern;

/// Requests above this size were split below the application.
const DEVICE_REQUEST_KIB: u32 = 128;

/// The order of the paper's columns.
pub(super) const PATTERNS: [Pattern; 4] =
    [Pattern::SequentialWrite, Pattern::SequentialRead, Pattern::RandomWrite, Pattern::RandomRead];

/// A size, its throughput as printed under the heading MB/sec, and its IOPS as printed.
type Line = (u32, [f64; 4], [f64; 4]);

const LINES: [Line; 10] = [
    (2, [4777.0, 6764.0, 3412.0, 2639.0], [2388488.0, 3382185.0, 1706205.0, 1319743.0]),
    (4, [7717.0, 8385.0, 6334.0, 5783.0], [1929280.0, 2096151.0, 1583569.0, 1445821.0]),
    (8, [10027.0, 11250.0, 8670.0, 6540.0], [1253313.0, 1406300.0, 1083795.0, 817511.0]),
    (16, [10060.0, 11982.0, 9996.0, 9139.0], [628748.0, 748876.0, 624777.0, 571215.0]),
    (32, [9909.0, 12433.0, 9934.0, 9391.0], [309649.0, 388523.0, 310432.0, 293460.0]),
    (64, [9699.0, 12129.0, 9691.0, 12016.0], [151548.0, 379047.0, 151428.0, 187753.0]),
    (128, [9667.0, 12873.0, 9611.0, 12390.0], [75520.0, 100569.0, 75086.0, 96796.0]),
    (256, [9711.0, 12872.0, 9616.0, 12614.0], [75869.0, 100560.0, 75127.0, 98544.0]),
    (512, [9651.0, 12871.0, 9684.0, 12620.0], [75395.0, 100558.0, 75657.0, 98594.0]),
    (1024, [9662.0, 12854.0, 9607.0, 12630.0], [75483.0, 100423.0, 75055.0, 98674.0]),
];

/// A cell of both tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// In true units: the paper prints KiB / 1000.
    pub(super) bytes_per_s: f64,
    /// Requests at the devices: larger ones of the application were split at 128 KiB.
    pub(super) device_iops: f64,
    /// Of the application, worked out from the throughput.
    pub(super) application_iops: f64,
    /// The printed number of requests is twice what the throughput allows.
    pub(super) is_doubtful: bool,
}

pub(super) fn cell(kib: u32, pattern: Pattern) -> Option<Cell> {
    let (_, throughput, requests) = LINES.iter().find(|(size, ..)| *size == kib)?;
    let column = PATTERNS.iter().position(|it| *it == pattern)?;
    let kib_per_s = throughput[column] * 1000.0;
    let device_iops = requests[column];
    let expected = kib_per_s / f64::from(kib.min(DEVICE_REQUEST_KIB));
    Some(Cell {
        bytes_per_s: kib_per_s * 1024.0,
        device_iops,
        application_iops: kib_per_s / f64::from(kib),
        is_doubtful: (device_iops / expected - 1.0).abs() > 0.1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cells_but_one_agree_with_themselves() {
        let mut doubtful = Vec::new();
        for (kib, ..) in LINES {
            for pattern in PATTERNS {
                if cell(kib, pattern).expect("every size has every pattern").is_doubtful {
                    doubtful.push((kib, pattern));
                }
            }
        }
        assert_eq!(doubtful, [(64, Pattern::SequentialRead)]);
    }

    #[test]
    fn large_requests_were_split_below_the_application() {
        let cell = cell(1024, Pattern::SequentialRead).expect("the paper has it");
        assert!((cell.device_iops / cell.application_iops - 8.0).abs() < 0.01);
    }
}
