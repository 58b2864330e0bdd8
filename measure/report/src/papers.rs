//! Figures of four papers about other hardware, displayed beside ours and embedded in the page.

use results::papers::{
    AMPS, AmpsDevice, CPIO_COLUMNS, CPIO_ENERGY, CPIO_IOPS, ForsaLine, FusionCell,
    cpio_line_millions, forsa_tables, fusion_cell as cell, fusion_sizes_kib,
};
use serde_json::{Value, json};

use crate::figure::Figure;

/// Patterns by fio's names, in the order of the ForsaOS paper.
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

/// Returns bytes per second, operations per second and latency in ns of a row of a ForsaOS table.
pub(crate) fn forsa_row(table: usize, row: usize, line: &ForsaLine) -> [Figure; 3] {
    forsa_values(line).map(|(name, value)| Figure {
        value,
        pointer: format!("/papers/forsa/{table}/rows/{row}/{name}"),
    })
}

/// Returns bytes per second, and operations per second as printed, for a size and pattern.
pub(crate) fn fusion_figures(size: usize, kib: u32, pattern: usize) -> [Figure; 2] {
    let FusionCell { bytes_per_s, device_iops, .. } = fusion(kib, pattern);
    [("bytes_per_s", bytes_per_s), ("iops", device_iops)].map(|(name, value)| Figure {
        value,
        pointer: format!("/papers/fusion/{size}/{name}/{pattern}"),
    })
}

/// Returns messages per second at 100/0 and 80/20, and their ratio.
pub(crate) fn amps_row(device: usize) -> [Figure; 3] {
    let AmpsDevice { appends, mixed, .. } = AMPS[device];
    let values = [("100/0", appends), ("80/20", mixed), ("ratio", mixed / appends)];
    values.map(|(name, value)| Figure {
        value,
        pointer: format!("/papers/amps/{device}/{}", name.replace('/', "~1")),
    })
}

/// Returns I/Os per second of a row of the slides' table, by column.
pub(crate) fn cpio_iops(row: usize) -> [Figure; 4] {
    [0, 1, 2, 3].map(|column| Figure {
        value: CPIO_IOPS[row].millions[column] * 1e6,
        pointer: format!("/papers/cpio/iops/{row}/printed/{column}"),
    })
}

/// Returns the values computed by a line through the slides' other rows, if the row is a projected
/// one.
pub(crate) fn cpio_line(row: usize) -> Option<[Figure; 4]> {
    let is_projected = CPIO_IOPS[row].scenario == "projected";
    is_projected.then(|| {
        [0, 1, 2, 3].map(|column| Figure {
            value: cpio_line_iops(row, column),
            pointer: format!("/papers/cpio/iops/{row}/by_line/{column}"),
        })
    })
}

/// Returns kWh of a row of the slides' energy table.
pub(crate) fn cpio_energy(row: usize) -> [Figure; 3] {
    [0, 1, 2].map(|column| Figure {
        value: CPIO_ENERGY[row].billion_kwh[column].0 * 1e9,
        pointer: format!("/papers/cpio/energy/{row}/kwh/{column}"),
    })
}

fn cpio_line_iops(row: usize, column: usize) -> f64 {
    let millions = cpio_line_millions(CPIO_IOPS[row].load, column);
    millions.expect("the table has every load and column") * 1e6
}

fn cpio() -> Value {
    let iops = CPIO_IOPS.iter().enumerate().map(|(index, row)| {
        let by_line: Vec<f64> = match cpio_line(index) {
            Some(figures) => figures.map(|figure| figure.value).to_vec(),
            None => Vec::new(),
        };
        json!({
            "load": row.load,
            "scenario": row.scenario,
            "printed": row.millions.map(|millions| millions * 1e6),
            "by_line": by_line,
        })
    });
    let energy = CPIO_ENERGY.iter().map(|line| {
        let cells = line.billion_kwh.map(|(value, _)| value * 1e9);
        json!({"name": line.name, "server_watts": line.server_watts, "kwh": cells})
    });
    json!({
        "columns": CPIO_COLUMNS,
        "iops": iops.collect::<Vec<_>>(),
        "energy": energy.collect::<Vec<_>>(),
    })
}

/// Returns the papers' figures as embedded in the page.
pub(crate) fn document() -> Value {
    let forsa = forsa_tables().map(|lines| {
        let row = |line| Value::from_iter(forsa_values(line));
        let rows: Vec<Value> = lines.iter().map(row).collect();
        json!({"block_bytes": lines[0].block_bytes, "jobs": lines[0].jobs, "rows": rows})
    });
    let fusion = fusion_sizes_kib().map(|kib| {
        let cells = [0, 1, 2, 3].map(|pattern| fusion(kib, pattern));
        json!({
            "block_bytes": u64::from(kib) << 10,
            "bytes_per_s": cells.map(|cell| cell.bytes_per_s),
            "iops": cells.map(|cell| cell.device_iops),
        })
    });
    let amps = AMPS.iter().map(|AmpsDevice { name, appends, mixed }| {
        json!({"device": name, "100/0": appends, "80/20": mixed, "ratio": mixed / appends})
    });
    json!({
        "forsa": forsa.collect::<Vec<_>>(),
        "fusion": fusion.collect::<Vec<_>>(),
        "amps": amps.collect::<Vec<_>>(),
        "cpio": cpio(),
    })
}

fn forsa_values(line: &ForsaLine) -> [(&'static str, f64); 3] {
    [("bytes_per_s", line.bytes_per_s()), ("iops", line.iops), ("latency_ns", line.latency_ns())]
}

fn fusion(kib: u32, pattern: usize) -> FusionCell {
    cell(kib, FUSION_PATTERNS[pattern].0).expect("every size has every pattern")
}
