//! Synthetic runs of every suite for the tests.

use results::{
    Cpu, DeviceIo, Host, Io, Latency, LatencyKind, Manifest, Row, SCHEMA, Series, Slice, StoreUse,
    Strip, Suite, Tool, Validity,
};
use serde_json::{Value, json};

const REPEATS: u32 = 5;

pub(crate) fn manifest() -> Manifest {
    Manifest {
        schema: SCHEMA.to_owned(),
        id: "made-up".to_owned(),
        started_unix_ms: 1_769_903_999_000,
        tool: Tool { version: "0.1.0".to_owned(), commit: Some("0123abcd".to_owned()) },
        host: Host { cpu: "A </script> & \"B\"".to_owned(), cores: 2, ..Host::default() },
        probes: std::collections::BTreeMap::new(),
        profile: "standard".to_owned(),
        seed: 42,
        configuration: json!({}),
        command_line: vec!["memlane".to_owned(), "bench".to_owned(), "all".to_owned()],
    }
}

/// Returns valid and invalid rows of all suites.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for repeat in 0..REPEATS {
        rows.extend(engine(repeat));
        rows.extend(forsa(repeat));
        rows.extend(peers(repeat));
        rows.extend(log(repeat));
        rows.extend(reduction(repeat));
        rows.extend(durability(repeat));
        rows.extend(cpio(repeat));
        rows.extend(tpcc(repeat));
        rows.extend(placement(repeat));
        rows.extend(sql(repeat));
    }
    rows.extend(fusion());
    rows.extend(others());
    rows
}

fn row(suite: Suite, case: &str, target: &str, params: &[(&str, Value)]) -> Row {
    let mut row = Row::new(suite, case, target);
    row.params = params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    row.time.duration_s = 30.0;
    row
}

fn cpio(repeat: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    let targets =
        [("volume attached + ext4", 1.0), ("loop over tmpfs + ext4", 1.25), ("disk file", 1.5)];
    for (target, factor) in targets {
        for (application, cores, cycles) in
            [("fio", 1, 1000.0), ("fio", 2, 1200.0), ("sort", 1, 30_000.0), ("sort", 2, 36_000.0)]
        {
            let params = [("application", json!(application)), ("cores", json!(cores))];
            let case = format!("{application} cores={cores}");
            let mut row = row(Suite::Cpio, &case, target, &params);
            row.repeat = repeat;
            row.add_figures([
                ("cpio_cycles", cycles * factor),
                ("utilisation_share", 0.7),
                ("frequency_hz", 2.4e9),
                ("application_cycles", cycles * factor * 0.5),
                ("driver_cycles", 0.0),
                ("store_cycles", cycles * factor * 0.2),
                ("rest_cycles", cycles * factor * 0.3),
                ("user_s", 12.0),
                ("system_s", 20.0),
                ("idle_s", 6.0),
                ("io_wait_s", 2.0),
            ]);
            rows.push(row);
        }
    }
    rows
}

/// Varies a value deterministically by a few percent.
fn wobble(repeat: u32, value: f64) -> f64 {
    value * (1.0 + f64::from((repeat * 37) % 11) / 400.0)
}

fn latency(mean: f64) -> Latency {
    let at = |factor: f64| {
        let text = format!("{:.0}", mean * factor);
        text.parse().expect("a whole number")
    };
    Latency {
        kind: LatencyKind::Service,
        mean,
        p50: at(0.95),
        p90: at(1.2),
        p99: at(2.1),
        p999: at(4.4),
        p9999: at(12.0),
        max: at(90.0),
        submission_mean: Some(mean * 0.8),
        completion_mean: Some(mean * 0.2),
        histogram: Vec::new(),
    }
}

fn io(iops: f64, block_bytes: f64) -> Io {
    let ops = format!("{:.0}", iops * 30.0).parse().expect("a whole number");
    let bytes = format!("{:.0}", iops * 30.0 * block_bytes).parse().expect("a whole number");
    Io { ops, bytes, iops, bytes_per_s: iops * block_bytes }
}

fn engine(repeat: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for (op, block_bytes, floor) in
        [("read", 4096, 470.0), ("overwrite", 4096, 420.0), ("read", 131_072, 6600.0)]
    {
        for (data, factor) in [("random", 1.21), ("compressible", 1.9), ("duplicate", 1.6)] {
            let case = format!("{op} {block_bytes} rand {data} threads=1");
            let mut row = row(
                Suite::Engine,
                &case,
                "engine",
                &[
                    ("op", json!(op)),
                    ("block_bytes", json!(block_bytes)),
                    ("pattern", json!("rand")),
                    ("data", json!(data)),
                    ("threads", json!(1)),
                ],
            );
            let ns = wobble(repeat, floor * factor);
            row.repeat = repeat;
            row.figures.insert("ns_mean".to_owned(), ns);
            row.figures.insert("floor_ns_mean".to_owned(), floor);
            row.figures.insert("ratio_to_floor".to_owned(), ns / floor);
            row.latency = Some(latency(ns));
            rows.push(row);
        }
    }
    rows
}

const PATTERNS: [(&str, f64); 4] =
    [("read", 9_000.0), ("randread", 10_000.0), ("write", 12_000.0), ("randwrite", 13_500.0)];

fn forsa(repeat: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for block_bytes in [4096_u32, 131_072] {
        for jobs in [1_u32, 2, 4, 8, 16, 32] {
            for (rw, ns) in PATTERNS {
                let case = format!("{rw} {block_bytes} jobs={jobs} depth=1");
                let mut row = row(
                    Suite::Forsa,
                    &case,
                    "volume attached",
                    &[
                        ("rw", json!(rw)),
                        ("block_bytes", json!(block_bytes)),
                        ("jobs", json!(jobs)),
                        ("queue_depth", json!(1)),
                    ],
                );
                let size = 1.0 + f64::from(block_bytes) / 40_000.0;
                let ns = wobble(repeat, ns * size * f64::from(jobs.max(2)) / 2.0);
                row.repeat = repeat;
                row.latency = Some(latency(ns));
                row.app = Some(io(f64::from(jobs) * 1e9 / ns, f64::from(block_bytes)));
                row.generator_share = Some(0.06);
                if jobs > 2 {
                    row.flag("more jobs than cores");
                }
                rows.push(row);
            }
        }
    }
    rows
}

fn fusion() -> Vec<Row> {
    let mut rows = Vec::new();
    for shift in 11..=20_u32 {
        for depth_shift in 0..=6_u32 {
            for (rw, ns) in PATTERNS {
                let (block_bytes, depth) = (1_u64 << shift, 1_u32 << depth_shift);
                let case = format!("{rw} {block_bytes} jobs=1 depth={depth}");
                let mut row = row(
                    Suite::Fusion,
                    &case,
                    "volume attached",
                    &[
                        ("rw", json!(rw)),
                        ("block_bytes", json!(block_bytes)),
                        ("jobs", json!(1)),
                        ("queue_depth", json!(depth)),
                    ],
                );
                let size = f64::from(1_u32 << shift);
                let service = ns + size / 9.0;
                let iops = 1e9 / service * f64::from(depth).sqrt().min(5.0);
                row.app = Some(io(iops, size));
                row.latency = Some(latency(service * f64::from(depth).sqrt()));
                row.device = Some(DeviceIo { read_requests: 1_000_000, ..DeviceIo::default() });
                rows.push(row);
            }
        }
    }
    rows
}

const TARGETS: [(&str, f64, &str); 9] = [
    (
        "volume attached",
        12_000.0,
        "survives kill -9 of its server, clients go on; lost at power loss",
    ),
    ("zram lz4", 4600.0, "no server to kill; lost at power loss"),
    ("loop over tmpfs", 29_800.0, "no server to kill; lost at power loss"),
    ("nbdkit memory", 64_000.0, "lost at kill -9 of its server; lost at power loss"),
    (
        "volume NBD",
        15_000.0,
        "survives kill -9 of its server, clients see errors; lost at power loss",
    ),
    ("qemu-nbd over tmpfs", 31_000.0, "lost at kill -9 of its server; lost at power loss"),
    (
        "volume FUSE file",
        9_000.0,
        "survives kill -9 of its server, clients go on; lost at power loss",
    ),
    ("loop over tmpfs (cores kept awake)", 25_000.0, "no server to kill; lost at power loss"),
    ("disk file", 84_000.0, "no server to kill; survives power loss"),
];

fn peers(repeat: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for (rw, factor) in [("randread", 1.0), ("randwrite", 1.2)] {
        for (target, ns, durability) in TARGETS {
            let case = format!("{rw} 4096 jobs=1 depth=1");
            let mut row = row(
                Suite::Peers,
                &case,
                target,
                &[
                    ("rw", json!(rw)),
                    ("block_bytes", json!(4096)),
                    ("jobs", json!(1)),
                    ("queue_depth", json!(1)),
                    ("durability", json!(durability)),
                ],
            );
            let ns = wobble(repeat, ns * factor);
            row.repeat = repeat;
            row.latency = Some(latency(ns));
            row.app = Some(io(1e9 / ns, 4096.0));
            row.figures.insert(results::CPU_FOR_EACH_IO.to_owned(), ns * 1.4);
            row.cpu = Some(Cpu { user_s: 3.0, system_s: 8.0, ..Cpu::default() });
            rows.push(row);
        }
    }
    rows
}

fn log(repeat: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for (target, ns) in
        [("volume embedded", 15_000.0), ("volume attached", 40_000.0), ("disk file", 160_000.0)]
    {
        for (mix, factor) in [("100/0", 1.0), ("80/20", 1.1)] {
            let case = format!("{mix} threads=2 closed");
            let mut row = row(
                Suite::Log,
                &case,
                target,
                &[("mix", json!(mix)), ("loop", json!("closed")), ("threads", json!(2))],
            );
            let ns = wobble(repeat, ns * factor);
            row.repeat = repeat;
            row.latency = Some(latency(ns));
            let messages = 128e9 / ns;
            row.figures.insert("messages_per_s_total".to_owned(), messages);
            row.figures.insert("messages_per_s_write".to_owned(), messages * 0.2);
            if mix == "80/20" {
                row.figures.insert("messages_per_s_read".to_owned(), messages * 0.8);
                row.figures.insert("total_ratio_to_100_0".to_owned(), 1.0 / factor);
                row.figures.insert("all_service_p999_to_p50".to_owned(), 4.6);
            }
            let slice = |index: u64| {
                let p50 = row.latency.as_ref().map_or(1, |latency| latency.p50);
                Slice { ops: 100, min: p50 / 2, p50, max: p50 * (2 + index * 7 % 13) }
            };
            let slices = (0..100).map(slice).collect();
            row.series.push(Series { name: "appends".to_owned(), slice_ms: 100, slices });
            rows.push(row);
        }
    }
    rows
}

fn reduction(repeat: u32) -> Vec<Row> {
    [("volume attached", 640_u64), ("zram lz4", 779), ("estimate", 636)]
        .into_iter()
        .map(|(target, mib)| {
            let mut row = row(
                Suite::Reduction,
                "programs and libraries full",
                target,
                &[("data", json!("programs and libraries")), ("reduction", json!("full"))],
            );
            row.repeat = repeat;
            let (written_bytes, used_bytes) = (1335 << 20, (mib << 20) + u64::from(repeat) * 4096);
            row.store = Some(StoreUse { written_bytes, used_bytes });
            row.figures.insert(
                "reduction".to_owned(),
                1335.0 / f64::from(u16::try_from(mib).expect("small")),
            );
            row
        })
        .collect()
}

fn placement(repeat: u32) -> Vec<Row> {
    const FAST: &str = "journal volume attached + ext4";
    let mut rows = Vec::new();
    for (workload, rate) in [("orders", "nopm"), ("reports", "reports_per_minute")] {
        for (placement, words, value, used_bytes) in [
            ("none", "nothing", 1_000.0, None),
            ("whole", "whole database", 2_500.0, Some(1e9)),
            ("logs", "logs only", 2_200.0, Some(4e7)),
            ("temporary", "temporary tables only", 1_010.0, Some(2e7)),
        ] {
            let target = if used_bytes.is_some() { FAST } else { "disk file" };
            for (detail, users, share) in
                [("users=1", 1, 0.6), ("users=2", 2, 1.0), ("saturated", 0, 1.0)]
            {
                let mut params = vec![
                    ("workload_kind", json!(workload)),
                    ("placement", json!(placement)),
                    ("slow", json!("disk file")),
                    ("durability", json!("no server to kill; survives power loss")),
                ];
                if users > 0 {
                    params.push(("users", json!(users)));
                }
                let case = format!("{workload}, {words}, {detail}");
                let mut row = row(Suite::Placement, &case, target, &params);
                row.repeat = repeat;
                row.figures.insert(rate.to_owned(), wobble(repeat, value * share));
                row.figures.insert("memory_limit_bytes".to_owned(), 256e6);
                if let Some(bytes) = used_bytes {
                    row.figures.insert("fast_used_bytes".to_owned(), bytes);
                }
                let columns = ["user_share", "system_share", "io_wait_share", "rate_per_minute"];
                row.strips = columns
                    .map(|name| Strip {
                        name: name.to_owned(),
                        interval_ms: 1_000,
                        values: vec![0.25; 3],
                    })
                    .to_vec();
                rows.push(row);
            }
        }
    }
    rows
}

fn sql(repeat: u32) -> Vec<Row> {
    const OWN: &str = "memlane-broker";
    const LIVE: &str = "live query of memlane-broker";
    const CONSUMER: &str = "Kafka consumer of memlane-broker";
    let keys = [("keys", json!(10_000_000))];
    let (lookup, scan) = ("current value by key", "scan, range that 50 % pass");
    let filled = [("log", json!("filled"))];
    let none = [("log", json!("filled")), ("pass_percent", json!(0))];
    let many = |percent: &str| {
        let size = ("queries", json!(10_000));
        [("op", json!("many live queries")), size, ("pass_percent", json!(percent))]
    };
    type Made<'a> = (&'a str, &'a str, &'a [(&'a str, Value)], &'a str, f64);
    let made: [Made; 12] = [
        (lookup, OWN, &[], "lookups_per_s", 30_000.0),
        (lookup, "PostgreSQL", &[], "lookups_per_s", 20_000.0),
        (scan, OWN, &[], "records_per_s", 3e6),
        (scan, "PostgreSQL", &[], "records_per_s", 1e6),
        ("follow over a filled log, all records", CONSUMER, &filled, "records_per_s", 1e6),
        ("follow over a filled log, 0 % pass", LIVE, &none, "records_per_s", 9e5),
        ("many, 0.1 %", LIVE, &many("0.1"), "records_per_s", 9e4),
        ("many, 0.001 %", LIVE, &many("0.001"), "records_per_s", 4e5),
        ("current values, memory beside the log", OWN, &keys, "index_bytes_per_key", 24.0),
        ("first read of a current value after a restart", OWN, &keys, "first_read_ns", 3e9),
        ("produce, memlane.values=latest", OWN, &[], "records_per_s", 9e5),
        ("produce, memlane.values=none", OWN, &[], "records_per_s", 1e6),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for (case, target, params, figure, value) in made {
        let mut row = row(Suite::Sql, case, target, params);
        row.figures.insert(figure.to_owned(), wobble(repeat, value));
        rows.push(row);
    }
    for (target, ns) in [(CONSUMER, 100_000.0), (LIVE, 130_000.0)] {
        let case = "delivery of 5000 messages/s";
        let mut row = row(Suite::Sql, case, target, &[("op", json!("delivery"))]);
        row.latency = Some(latency(wobble(repeat, ns)));
        rows.push(row);
    }
    rows.iter_mut().for_each(|row| row.repeat = repeat);
    rows
}

fn tpcc(repeat: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for (target, nopm) in [("volume attached + ext4", 40_000.0), ("disk file", 12_000.0)] {
        for (loop_name, driver, share) in
            [("closed", "own", 1.0), ("closed", "pgbench", 1.02), ("open", "own", 0.7)]
        {
            let case = format!("hammerdb {loop_name} warehouses=10 users=4 driver={driver}");
            let params = [
                ("loop", json!(loop_name)),
                ("driver", json!(driver)),
                ("warehouses", json!(10)),
                ("users", json!(4)),
                ("databases", json!(1)),
                ("durability", json!("no server to kill; survives power loss")),
            ];
            let mut row = row(Suite::Tpcc, &case, target, &params);
            row.figures.insert("nopm".to_owned(), wobble(repeat, nopm * share));
            row.figures.insert("tpm".to_owned(), wobble(repeat, nopm * share * 2.3));
            match driver {
                "own" => row.latency = Some(latency(wobble(repeat, 6e10 / nopm))),
                _ => drop(row.figures.insert("pgbench_difference_share".to_owned(), 0.02)),
            }
            rows.push(row);
        }
    }
    let params = [("loop", json!("closed")), ("driver", json!("own")), ("databases", json!(4))];
    let target = "clones of a volume attached + ext4";
    let mut clones = row(Suite::Tpcc, "hammerdb closed databases=4", target, &params);
    for (name, value) in [
        ("nopm", 90_000.0),
        ("nopm_least", 20_000.0),
        ("nopm_most", 25_000.0),
        ("one_used_bytes", 8e8),
        ("used_bytes_before", 1.1e9),
        ("clones_ram_ratio", 1.4),
        ("reduction_before", 4.0),
        ("reduction_after", 3.0),
    ] {
        clones.figures.insert(name.to_owned(), wobble(repeat, value));
    }
    rows.push(clones);
    rows.iter_mut().for_each(|row| row.repeat = repeat);
    rows
}

fn durability(repeat: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for (target, ns, gain) in [
        ("files on the disk", 160_000.0, 4.0),
        ("journal volume attached + ext4", 210_000.0, 3.6),
        ("journal volume NBD", 180_000.0, 2.5),
    ] {
        for (writers, times) in [(1_u32, 1.0), (8, gain)] {
            let params = [("op", json!("durable write")), ("writers", json!(writers))];
            let case = format!("durable write 4096 writers={writers}");
            let mut row = row(Suite::Durability, &case, target, &params);
            let ns = wobble(repeat, ns);
            row.latency = Some(latency(ns * f64::from(writers) / times));
            row.app = Some(io(times * 1e9 / ns, 4096.0));
            rows.push(row);
        }
    }
    for (case, times) in
        [("overwrite 4096 rand", 1.0), ("overwrite 4096 rand, a snapshot each second", 2.2)]
    {
        let mut row =
            row(Suite::Durability, case, "volume embedded", &[("op", json!("overwrite"))]);
        row.latency = Some(latency(wobble(repeat, 1500.0 * times)));
        rows.push(row);
    }
    for (case, target, figure, value) in [
        ("image save", "volume of class image", "bytes_per_s", 900e6),
        ("image save", "disk, direct I/O", "bytes_per_s", 1000e6),
        ("first read after the loss of memory", "volume of class image", "first_read_ns", 3e8),
    ] {
        let mut row = row(Suite::Durability, case, target, &[]);
        row.figures.insert(figure.to_owned(), wobble(repeat, value));
        rows.push(row);
    }
    rows.iter_mut().for_each(|row| row.repeat = repeat);
    rows
}

fn others() -> Vec<Row> {
    let mut idle = row(Suite::Peers, "idle", "nbdkit memory", &[("op", json!("idle"))]);
    idle.figures.insert("idle_core_percent".to_owned(), 0.3);
    let eight = "idle with 8 volumes attached";
    let mut eight = row(Suite::Peers, eight, "volume attached", &[("op", json!("idle"))]);
    eight.figures.insert("idle_core_percent".to_owned(), 0.12);
    let pgbench = |target, transactions_per_s| {
        let params = [("op", json!("pgbench")), ("clients", json!(4))];
        let mut row = row(Suite::Peers, "pgbench clients=4", target, &params);
        row.figures.insert("transactions_per_s".to_owned(), transactions_per_s);
        row
    };
    let mut skipped = row(Suite::Peers, "randread 4096 jobs=1 depth=1", "brd", &[]);
    skipped.validity = Validity::Skipped("this kernel has no brd <b>module</b>".to_owned());
    let mut invalid = row(Suite::Peers, "randread 4096 jobs=1 depth=16", "nbdkit memory", &[]);
    invalid.validity = Validity::Invalid("other guests took 12 % of the processor time".to_owned());
    let ours = pgbench("volume attached + ext4", 3550.25);
    vec![skipped, invalid, idle, eight, ours, pgbench("zram lz4 + ext4", 3489.5)]
}
