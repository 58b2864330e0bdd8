//! What three papers state about other hardware, for tables beside ours.
//!
//! - ForsaOS 2.0 host-level performance: two Xeon Platinum 8160M, 500 GB volume in memory, fio at
//!   queue depth 1 for 30 minutes. Read rows count 10^6 bytes, write rows KiB over 1000.
//! - Fusion ioMemory on Red Hat Enterprise Linux 6 (2011): peak over queue depths, in KiB over
//!   1000. Operations from 256K on are device requests split at 128K; the sequential reads at 64K
//!   are printed twice as high as their own throughput allows.
//! - AMPS I/O engine on disk, PCIe flash and eXFlash (2014): 512-byte messages.

use serde_json::{Value, json};

use crate::figure::Figure;

/// Patterns in the order of the ForsaOS paper, as fio calls them.
pub(crate) const FORSA_PATTERNS: [(&str, &str); 4] = [
    ("read", "Sequential read"),
    ("randread", "Random read"),
    ("write", "Sequential write"),
    ("randwrite", "Random write"),
];

/// Patterns in the order of the Fusion paper.
pub(crate) const FUSION_PATTERNS: [(&str, &str); 4] = [
    ("write", "Sequential writes"),
    ("read", "Sequential reads"),
    ("randwrite", "Random writes"),
    ("randread", "Random reads"),
];

/// A measurement of the ForsaOS paper: MB/s, operations a second, mean total latency in µs.
struct Forsa {
    block_bytes: u64,
    jobs: u64,
    /// In the order of [`FORSA_PATTERNS`].
    rows: [(f64, f64, f64); 4],
}

const FORSA: [Forsa; 4] = [
    Forsa {
        block_bytes: 4096,
        jobs: 1,
        rows: [
            (2073.0, 506_000.0, 1.8),
            (2002.0, 489_000.0, 1.9),
            (1177.0, 294_126.0, 2.7),
            (1104.0, 276_038.0, 2.9),
        ],
    },
    Forsa {
        block_bytes: 131_072,
        jobs: 1,
        rows: [
            (7184.0, 54_800.0, 18.1),
            (7298.0, 55_700.0, 17.8),
            (2059.0, 16_089.0, 45.1),
            (2071.0, 16_179.0, 45.1),
        ],
    },
    Forsa {
        block_bytes: 4096,
        jobs: 32,
        rows: [
            (41_446.0, 10_121_000.0, 2.9),
            (36_507.0, 8_922_000.0, 3.3),
            (24_696.0, 6_174_015.0, 4.2),
            (22_870.0, 5_717_675.0, 4.7),
        ],
    },
    Forsa {
        block_bytes: 131_072,
        jobs: 32,
        rows: [
            (168_557.0, 1_282_400.0, 24.9),
            (78_276.0, 593_500.0, 56.5),
            (49_177.0, 384_198.0, 59.2),
            (44_345.0, 346_450.0, 69.3),
        ],
    },
];

/// KiB of a transfer, then peak MB/s and operations a second by [`FUSION_PATTERNS`].
const FUSION: [(u64, [u32; 4], [u32; 4]); 10] = [
    (2, [4777, 6764, 3412, 2639], [2_388_488, 3_382_185, 1_706_205, 1_319_743]),
    (4, [7717, 8385, 6334, 5783], [1_929_280, 2_096_151, 1_583_569, 1_445_821]),
    (8, [10_027, 11_250, 8670, 6540], [1_253_313, 1_406_300, 1_083_795, 817_511]),
    (16, [10_060, 11_982, 9996, 9139], [628_748, 748_876, 624_777, 571_215]),
    (32, [9909, 12_433, 9934, 9391], [309_649, 388_523, 310_432, 293_460]),
    (64, [9699, 12_129, 9691, 12_016], [151_548, 379_047, 151_428, 187_753]),
    (128, [9667, 12_873, 9611, 12_390], [75_520, 100_569, 75_086, 96_796]),
    (256, [9711, 12_872, 9616, 12_614], [75_869, 100_560, 75_127, 98_544]),
    (512, [9651, 12_871, 9684, 12_620], [75_395, 100_558, 75_657, 98_594]),
    (1024, [9662, 12_854, 9607, 12_630], [75_483, 100_423, 75_055, 98_674]),
];

/// Devices of the AMPS paper, with messages a second at 100/0 and at 80/20.
pub(crate) const AMPS: [(&str, f64, f64); 3] = [
    ("Disk, 10,000 rpm", 600_000.0, 500_000.0),
    ("PCIe flash", 1_840_000.0, 365_000.0),
    ("eXFlash on the memory channel", 2_150_000.0, 1_870_000.0),
];

/// Block sizes and job counts that the ForsaOS paper tabulates.
pub(crate) fn forsa_tables() -> impl Iterator<Item = (usize, u64, u64)> {
    FORSA.iter().enumerate().map(|(index, table)| (index, table.block_bytes, table.jobs))
}

/// MB/s in bytes, operations a second, latency in ns, of a row of a ForsaOS table.
pub(crate) fn forsa_row(table: usize, row: usize) -> [Figure; 3] {
    let (megabytes, iops, latency_us) = FORSA[table].rows[row];
    let values =
        [("bytes_per_s", megabytes * 1e6), ("iops", iops), ("latency_ns", latency_us * 1e3)];
    values.map(|(name, value)| Figure {
        value,
        pointer: format!("/papers/forsa/{table}/rows/{row}/{name}"),
    })
}

/// Transfer sizes of the Fusion paper, in bytes.
pub(crate) fn fusion_sizes() -> impl Iterator<Item = (usize, u64)> {
    FUSION.iter().enumerate().map(|(index, (kib, ..))| (index, kib << 10))
}

/// Bytes a second and operations a second at a size and pattern.
pub(crate) fn fusion_cell(size: usize, pattern: usize) -> [Figure; 2] {
    let (_, megabytes, iops) = &FUSION[size];
    let values =
        [("bytes_per_s", f64::from(megabytes[pattern]) * 1e6), ("iops", f64::from(iops[pattern]))];
    values.map(|(name, value)| Figure {
        value,
        pointer: format!("/papers/fusion/{size}/{name}/{pattern}"),
    })
}

/// Messages a second at 100/0 and at 80/20, and the second over the first.
pub(crate) fn amps_row(device: usize) -> [Figure; 3] {
    let (_, appends, mixed) = AMPS[device];
    let values = [("100/0", appends), ("80/20", mixed), ("ratio", mixed / appends)];
    values.map(|(name, value)| Figure {
        value,
        pointer: format!("/papers/amps/{device}/{}", name.replace('/', "~1")),
    })
}

/// The papers' figures as the page embeds them.
pub(crate) fn document() -> Value {
    let forsa = FORSA.iter().map(|table| {
        let rows: Vec<Value> = table.rows.iter().map(forsa_json).collect();
        json!({"block_bytes": table.block_bytes, "jobs": table.jobs, "rows": rows})
    });
    let fusion = FUSION.iter().map(|(kib, megabytes, iops)| {
        let bytes = megabytes.map(|megabytes| f64::from(megabytes) * 1e6);
        json!({"block_bytes": kib << 10, "bytes_per_s": bytes, "iops": iops})
    });
    let amps = AMPS.iter().map(|(device, appends, mixed)| {
        json!({"device": device, "100/0": appends, "80/20": mixed, "ratio": mixed / appends})
    });
    json!({
        "forsa": forsa.collect::<Vec<_>>(),
        "fusion": fusion.collect::<Vec<_>>(),
        "amps": amps.collect::<Vec<_>>(),
    })
}

fn forsa_json(&(megabytes, iops, latency_us): &(f64, f64, f64)) -> Value {
    json!({
        "bytes_per_s": megabytes * 1e6,
        "iops": iops,
        "latency_ns": latency_us * 1e3,
    })
}
