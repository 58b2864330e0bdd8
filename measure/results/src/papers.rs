//! Published results of four papers for their own hardware, in correct units, for tables beside
//! ours.
//!
//! - "ForsaOS 2.0 host level performance analysis": two Xeon Platinum 8160M with 24 cores each,
//!   1.5 TB of memory, a device of 500 GB, fio at queue depth 1 for 30 minutes.
//! - Red Hat's brief "Optimizing Fusion ioMemory on Red Hat Enterprise Linux 6", Tables 3 and 4:
//!   eight ioDrives in a server of 16 cores, peaks over queue depths.
//! - "Extreme Storage Performance with eXFlash DIMM and AMPS": messages of 512 bytes.
//! - "Understanding scalability and performance requirements of I/O intensive applications on
//!   future multicore servers" (MASCOTS 2012), the slides: projections from cycles per I/O.
//!
//! Patterns have fio's names: `read`, `write`, `randread`, `randwrite`.

pub const FORSA_BLOCK_BYTES: [u32; 2] = [4096, 131_072];
pub const FORSA_JOBS: [u32; 2] = [1, 32];

/// Order of the rows in the ForsaOS paper's tables.
pub const FORSA_PATTERNS: [&str; 4] = ["read", "randread", "write", "randwrite"];

/// Order of the columns in the Fusion paper's tables.
pub const FUSION_PATTERNS: [&str; 4] = ["write", "read", "randwrite", "randread"];

/// Maximum device request in the Fusion paper. Larger application requests were split.
const FUSION_DEVICE_REQUEST_KIB: u32 = 128;

/// A line of the ForsaOS paper's tables.
#[derive(Clone, Copy, Debug)]
pub struct ForsaLine {
    pub jobs: u32,
    pub block_bytes: u32,
    pub pattern: &'static str,
    /// Throughput as printed in the column MB/s.
    printed_mb_per_s: f64,
    pub iops: f64,
    pub latency_us_mean: f64,
}

impl ForsaLine {
    pub fn latency_ns(&self) -> f64 {
        self.latency_us_mean * 1000.0
    }

    /// Returns the printed rate in bytes per second. Reads are printed in 10^6 bytes, writes in KiB
    /// / 1000.
    pub fn bytes_per_s(&self) -> f64 {
        let unit = if self.pattern.ends_with("write") { 1_024_000.0 } else { 1_000_000.0 };
        self.printed_mb_per_s * unit
    }
}

/// Returns the ForsaOS paper's tables, each with one line per pattern in [`FORSA_PATTERNS`].
pub fn forsa_tables() -> impl Iterator<Item = &'static [ForsaLine; 4]> {
    FORSA.iter()
}

/// Returns a line of the ForsaOS paper, if it has one.
pub fn forsa_line(jobs: u32, block_bytes: u32, pattern: &str) -> Option<&'static ForsaLine> {
    let is_asked = |line: &&ForsaLine| {
        (line.jobs, line.block_bytes, line.pattern) == (jobs, block_bytes, pattern)
    };
    FORSA.iter().flatten().find(is_asked)
}

/// Builds a table from MB/s as printed, IOPS and mean latency in microseconds, by
/// [`FORSA_PATTERNS`].
const fn forsa_table(jobs: u32, block_bytes: u32, rows: [(f64, f64, f64); 4]) -> [ForsaLine; 4] {
    let mut lines = [ForsaLine {
        jobs,
        block_bytes,
        pattern: "",
        printed_mb_per_s: 0.0,
        iops: 0.0,
        latency_us_mean: 0.0,
    }; 4];
    let mut row = 0;
    while row < rows.len() {
        lines[row].pattern = FORSA_PATTERNS[row];
        (lines[row].printed_mb_per_s, lines[row].iops, lines[row].latency_us_mean) = rows[row];
        row += 1;
    }
    lines
}

const FORSA: [[ForsaLine; 4]; 4] = [
    forsa_table(
        1,
        FORSA_BLOCK_BYTES[0],
        [
            (2_073.0, 506_000.0, 1.8),
            (2_002.0, 489_000.0, 1.9),
            (1_177.0, 294_126.0, 2.7),
            (1_104.0, 276_038.0, 2.9),
        ],
    ),
    forsa_table(
        1,
        FORSA_BLOCK_BYTES[1],
        [
            (7_184.0, 54_800.0, 18.1),
            (7_298.0, 55_700.0, 17.8),
            (2_059.0, 16_089.0, 45.1),
            (2_071.0, 16_179.0, 45.1),
        ],
    ),
    forsa_table(
        32,
        FORSA_BLOCK_BYTES[0],
        [
            (41_446.0, 10_121_000.0, 2.9),
            (36_507.0, 8_922_000.0, 3.3),
            (24_696.0, 6_174_015.0, 4.2),
            (22_870.0, 5_717_675.0, 4.7),
        ],
    ),
    forsa_table(
        32,
        FORSA_BLOCK_BYTES[1],
        [
            (168_557.0, 1_282_400.0, 24.9),
            (78_276.0, 593_500.0, 56.5),
            (49_177.0, 384_198.0, 59.2),
            (44_345.0, 346_450.0, 69.3),
        ],
    ),
];

/// A cell in both tables of the Fusion paper.
#[derive(Clone, Copy, Debug)]
pub struct FusionCell {
    /// Throughput, converted from the printed KiB / 1000.
    pub bytes_per_s: f64,
    /// Device requests per second, as printed. Application requests were split at 128 KiB.
    pub device_iops: f64,
    /// Application requests per second, computed from the throughput.
    pub application_iops: f64,
    /// Set if the printed request rate is twice what the throughput permits.
    pub is_doubtful: bool,
}

/// Returns the Fusion paper's transfer sizes, in KiB.
pub fn fusion_sizes_kib() -> impl Iterator<Item = u32> {
    FUSION.iter().map(|(kib, ..)| *kib)
}

/// Returns a cell of the Fusion paper, if it has one.
pub fn fusion_cell(kib: u32, pattern: &str) -> Option<FusionCell> {
    let (_, throughput, requests) = FUSION.iter().find(|(size, ..)| *size == kib)?;
    let column = FUSION_PATTERNS.iter().position(|it| *it == pattern)?;
    let kib_per_s = throughput[column] * 1000.0;
    let device_iops = requests[column];
    let expected = kib_per_s / f64::from(kib.min(FUSION_DEVICE_REQUEST_KIB));
    Some(FusionCell {
        bytes_per_s: kib_per_s * 1024.0,
        device_iops,
        application_iops: kib_per_s / f64::from(kib),
        is_doubtful: (device_iops / expected - 1.0).abs() > 0.1,
    })
}

/// Transfer size, throughput as printed in the column MB/sec, and IOPS as printed.
type FusionLine = (u32, [f64; 4], [f64; 4]);

const FUSION: [FusionLine; 10] = [
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

/// A device of the AMPS paper, with messages per second.
#[derive(Clone, Copy, Debug)]
pub struct AmpsDevice {
    pub name: &'static str,
    /// Appends only.
    pub appends: f64,
    /// 80 reads per 20 appends.
    pub mixed: f64,
}

pub const AMPS: [AmpsDevice; 3] = [
    AmpsDevice { name: "10K RPM disk", appends: 600e3, mixed: 500e3 },
    AmpsDevice { name: "PCIe flash", appends: 1_840e3, mixed: 365e3 },
    AmpsDevice { name: "eXFlash DIMMs", appends: 2_150e3, mixed: 1_870e3 },
];

/// Columns of [`CPIO_IOPS`].
pub const CPIO_COLUMNS: [&str; 4] = ["Average", "TPC-E", "HBase", "PSearchy"];

/// Number of cores of the servers in [`CPIO_IOPS`], and of the largest machine measured.
pub const CPIO_CORES: u32 = 4096;
pub const CPIO_CORES_MEASURED: u32 = 16;

/// A row of the slides' table of I/Os per second (512 bytes each).
#[derive(Clone, Copy, Debug)]
pub struct CpioIops {
    pub load: &'static str,
    pub scenario: &'static str,
    /// In the order of [`CPIO_COLUMNS`].
    pub millions: [f64; 4],
}

pub const CPIO_IOPS: [CpioIops; 6] = [
    CpioIops { load: "low", scenario: "projected", millions: [7.5, 9.0, 12.0, 12.0] },
    CpioIops { load: "high", scenario: "projected", millions: [59.0, 14.0, 107.0, 65.0] },
    CpioIops { load: "low", scenario: "today", millions: [476.0, 535.0, 563.0, 2207.0] },
    CpioIops { load: "high", scenario: "today", millions: [818.0, 743.0, 1405.0, 4509.0] },
    CpioIops { load: "low", scenario: "desired", millions: [969.0, 1743.0, 644.0, 2540.0] },
    CpioIops { load: "high", scenario: "desired", millions: [1810.0, 2469.0, 1652.0, 5941.0] },
];

/// A row of the slides' energy table, for a pass over 35e21 bytes.
#[derive(Clone, Copy, Debug)]
pub struct CpioEnergy {
    pub name: &'static str,
    /// Server power stated on the slide, and the power from which its figures follow.
    pub printed_watts: f64,
    pub server_watts: f64,
    /// Values for projected, today and desired, each with the unit of its last printed digit.
    pub billion_kwh: [(f64, f64); 3],
}

pub const CPIO_ENERGY: [CpioEnergy; 3] = [
    CpioEnergy {
        name: "0.5 W per core",
        printed_watts: 2500.0,
        server_watts: 2048.0,
        billion_kwh: [(29.0, 1.0), (0.27, 0.01), (0.175, 0.001)],
    },
    CpioEnergy {
        name: "1.25 kW",
        printed_watts: 1250.0,
        server_watts: 1250.0,
        billion_kwh: [(17.5, 0.5), (0.16, 0.01), (0.107, 0.001)],
    },
    CpioEnergy {
        name: "2006 level",
        printed_watts: 675.0,
        server_watts: 675.0,
        billion_kwh: [(9.5, 0.5), (0.09, 0.01), (0.057, 0.001)],
    },
];

/// Returns the value of the slides' "projected" cell, in millions, computed by a line through their
/// own "desired" (one core) and "today" (16 cores) cells. Most printed cells differ from it,
/// because the slides do not state the fitted points. Returns `None` for a load or column that the
/// table lacks.
pub fn cpio_line_millions(load: &str, column: usize) -> Option<f64> {
    let cell = |scenario: &str| {
        let row = CPIO_IOPS.iter().find(|row| row.load == load && row.scenario == scenario)?;
        row.millions.get(column).copied()
    };
    // Cycles are proportional to the reciprocal of I/Os per second. The frequency cancels out.
    let (one, most) = (1.0 / cell("desired")?, 1.0 / cell("today")?);
    let growth = (most - one) / (f64::from(CPIO_CORES_MEASURED) - 1.0);
    Some(1.0 / (one + growth * (f64::from(CPIO_CORES) - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_agrees_with_its_own_number_of_requests_once_units_are_right() {
        assert_eq!(forsa_tables().flatten().count(), 16);
        for line in forsa_tables().flatten() {
            let by_requests = line.iops * f64::from(line.block_bytes);
            let ratio = line.bytes_per_s() / by_requests;
            assert!((ratio - 1.0).abs() < 0.01, "{line:?}: {ratio}");
        }
    }

    #[test]
    fn all_cells_but_one_agree_with_themselves() {
        let mut doubtful = Vec::new();
        for kib in fusion_sizes_kib() {
            for pattern in FUSION_PATTERNS {
                if fusion_cell(kib, pattern).expect("every size has every pattern").is_doubtful {
                    doubtful.push((kib, pattern));
                }
            }
        }
        assert_eq!(doubtful, [(64, "read")]);
    }

    #[test]
    fn large_requests_were_split_below_the_application() {
        let cell = fusion_cell(1024, "read").expect("the paper has it");
        assert!((cell.device_iops / cell.application_iops - 8.0).abs() < 0.01);
    }
}
