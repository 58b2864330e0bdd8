//! Result tables of the comparison: medians with intervals, ratios, and other costs and guarantees.

use results::{Estimate, Row};

use super::idle;
use super::pgbench::{self, TRANSACTIONS_PER_S};
use crate::fio_step::AWAKE_SUFFIX;
use crate::medians::{Medians, cell, thousands};
use crate::output::{Table, heading};

/// Each case with its heading and measure.
const CASES: [(&str, &str, &str); 8] = [
    ("randread 4096 jobs=1 depth=1", "4K read us", LATENCY),
    ("randwrite 4096 jobs=1 depth=1", "4K write us", LATENCY),
    ("randread 131072 jobs=1 depth=1", "128K read us", LATENCY),
    ("randwrite 131072 jobs=1 depth=1", "128K write us", LATENCY),
    ("randread 4096 jobs=1 depth=16", "4K read IOPS QD16", IOPS),
    ("randwrite 4096 jobs=1 depth=16", "4K write IOPS QD16", IOPS),
    ("randread 131072 jobs=1 depth=16", "128K read IOPS QD16", IOPS),
    ("randwrite 131072 jobs=1 depth=16", "128K write IOPS QD16", IOPS),
];

const LATENCY: &str = "latency_ns_mean";
const IOPS: &str = "iops";

/// Peers with the volume access path that they correspond to.
const PAIRS: &[(&str, &[&str])] = &[
    ("volume attached", &["zram lz4", "loop over tmpfs", "brd", "null_blk in memory", "disk file"]),
    ("volume FUSE file", &["QEMU FUSE export over tmpfs", "tmpfs file"]),
    ("volume, memlane run", &["tmpfs file", "zram lz4"]),
    (
        "volume vhost-user-blk",
        &[
            "QEMU vhost-user-blk over tmpfs",
            "QEMU vhost-user-blk, iothread, over tmpfs",
            "QEMU vhost-user-blk, iothread, io_uring, over tmpfs",
        ],
    ),
    ("volume NBD", &["nbdkit memory", "qemu-nbd over tmpfs", "QEMU NBD export over tmpfs"]),
];

/// Minimum processor time for reliable figures, because the ticks are 10 ms.
const CPU_SECONDS_MIN: f64 = 20.0;

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    medians.page([
        (
            "Medians with the ends of their 95 % intervals; mean total latency at queue depth 1",
            speeds(&medians),
        ),
        (
            "A volume over each peer of its kind: latency ratios (below 1: the volume is faster), \
             IOPS ratios at depth 16 (above 1: faster). ~: intervals touch or are missing",
            ratios(&medians),
        ),
        ("What each promises and costs", costs(&medians, rows)),
        ("PostgreSQL, pgbench: transactions/s", databases(&medians)),
        ("Idle: percent of one core", idles(&medians)),
    ])
}

fn speeds(medians: &Medians) -> Table {
    let mut table = heading(&format!("target | {}", CASES.map(|(_, title, _)| title).join(" | ")));
    for target in ordered(medians) {
        let mut row = vec![target.to_owned()];
        for (case, _, measure) in CASES {
            row.push(shown(medians.of(target, case, measure), measure));
        }
        if row[1..].iter().any(|cell| cell != "-") {
            table.push(row);
        }
    }
    table
}

/// Returns targets in the order of the suite.
fn ordered<'row>(medians: &Medians<'row>) -> Vec<&'row str> {
    let mut targets = medians.targets();
    targets.sort_by_key(|target| {
        let is_kind = |kind: &super::Kind| target.starts_with(&kind.to_string());
        let place = super::TARGETS.iter().position(is_kind);
        (place.unwrap_or(super::TARGETS.len()), *target)
    });
    targets
}

fn shown(estimate: Option<Estimate>, measure: &str) -> String {
    let Some(estimate) = estimate else { return "-".to_owned() };
    let text = |value: f64| match measure {
        LATENCY => cell(Some(value / 1e3), 1),
        _ => thousands(Some(value)),
    };
    match estimate.ci95 {
        Some((low, high)) => format!("{} [{} {}]", text(estimate.median), text(low), text(high)),
        None => text(estimate.median),
    }
}

fn ratios(medians: &Medians) -> Table {
    let titles = CASES.map(|(_, title, _)| title.replace(" us", "")).join(" | ");
    let mut table = heading(&format!("volume / peer | {titles}"));
    for (own, peers) in PAIRS {
        for peer in *peers {
            for suffix in ["", AWAKE_SUFFIX] {
                // The unmodified volume against the peer with its cores kept awake.
                let peer = format!("{peer}{suffix}");
                let mut row = vec![format!("{own} / {peer}")];
                for (case, _, measure) in CASES {
                    let of = |target| medians.of(target, case, measure);
                    row.push(ratio(of(own), of(&peer)));
                }
                if row[1..].iter().any(|cell| cell != "-") {
                    table.push(row);
                }
            }
        }
    }
    table
}

fn ratio(own: Option<Estimate>, peer: Option<Estimate>) -> String {
    match own.zip(peer) {
        Some((own, peer)) => {
            let doubt = if own.differs_from(&peer) { "" } else { "~" };
            format!("{doubt}{:.2}", own.median / peer.median)
        }
        None => "-".to_owned(),
    }
}

fn costs(medians: &Medians, rows: &[&Row]) -> Table {
    let mut table = heading(
        "target | reduction | used/size | CPU us per 4K read | of its server | 4K write | \
         of its server | idle % of a core | durability",
    );
    for target in ordered(medians) {
        let Some(row) = medians.rows_of(target).find(|row| row.params.contains_key("reduces"))
        else {
            continue;
        };
        let reduces = row.params.get("reduces").and_then(|it| it.as_bool()).unwrap_or(false);
        let used = row.store.map(|it| it.used_bytes as f64 / it.written_bytes as f64);
        let idle = medians.median(target, idle::CASE, idle::CORE_PERCENT);
        let [read, write] = [CASES[0].0, CASES[1].0].map(|case| cpu(rows, target, case));
        table.push(vec![
            target.to_owned(),
            if reduces { "yes" } else { "no" }.to_owned(),
            cell(used, 2),
            read.0,
            read.1,
            write.0,
            write.1,
            cell(idle, 3),
            row.params.get("durability").and_then(|it| it.as_str()).unwrap_or("-").to_owned(),
        ]);
    }
    table
}

/// Returns processor time per request of the whole machine and of the server, over all repeats.
fn cpu(rows: &[&Row], target: &str, case: &str) -> (String, String) {
    let (mut seconds, mut ops, mut busy_s, mut server_s) = (0.0, 0.0, 0.0, 0.0);
    for row in rows.iter().filter(|row| row.is_valid() && row.target == target && row.case == case)
    {
        if let Some((cpu, app)) = row.cpu.zip(row.app) {
            seconds += row.time.duration_s;
            ops += app.ops as f64;
            busy_s += cpu.busy_s();
            server_s += cpu.server_s;
        }
    }
    if ops == 0.0 {
        return ("-".to_owned(), "-".to_owned());
    }
    let doubt = if seconds < CPU_SECONDS_MIN { "~" } else { "" };
    let text = |spent_s: f64| format!("{doubt}{:.1}", spent_s / ops * 1e6);
    (text(busy_s), text(server_s))
}

fn databases(medians: &Medians) -> Table {
    let clients = [1, 4];
    let mut table = heading("target | 1 client | 4 clients | of zram, 4 clients");
    let of = |target, clients| medians.of(target, &pgbench::case_name(clients), TRANSACTIONS_PER_S);
    for target in ordered(medians) {
        let found = clients.map(|clients| of(target, clients));
        if found.iter().all(Option::is_none) {
            continue;
        }
        let mut row = vec![target.to_owned()];
        row.extend(found.map(|estimate| shown(estimate, TRANSACTIONS_PER_S)));
        row.push(ratio(of(target, 4), of("zram lz4 + ext4", 4)));
        table.push(row);
    }
    table
}

fn idles(medians: &Medians) -> Table {
    let mut table = heading("target | case | percent");
    let firsts = medians.firsts();
    for target in ordered(medians) {
        let is_idle = |row: &&&Row| row.target == target && row.case.starts_with(idle::CASE);
        for row in firsts.iter().filter(is_idle) {
            let percent = medians.median(target, &row.case, idle::CORE_PERCENT);
            table.push(vec![target.to_owned(), row.case.clone(), cell(percent, 3)]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use results::{Cpu, Io, Latency, LatencyKind, Suite};
    use serde_json::json;

    use super::*;

    fn row(target: &str, mean: f64, repeat: u32) -> Row {
        let mut row = Row::new(Suite::Peers, CASES[0].0, target);
        row.repeat = repeat;
        row.params.insert("reduces".to_owned(), json!(target.starts_with("volume")));
        row.params.insert("durability".to_owned(), json!("lost at power loss"));
        row.time.duration_s = 10.0;
        row.app = Some(Io { ops: 1_000_000, bytes: 1, iops: 1e6, bytes_per_s: 1.0 });
        row.cpu = Some(Cpu { user_s: 2.0, system_s: 1.0, server_s: 0.5, ..Cpu::default() });
        row.latency = Some(Latency {
            kind: LatencyKind::Service,
            mean,
            p50: 1,
            p90: 1,
            p99: 1,
            p999: 1,
            p9999: 1,
            max: 1,
            submission_mean: None,
            completion_mean: None,
            histogram: Vec::new(),
        });
        row
    }

    fn described(pairs: &[(&str, [f64; 3])]) -> String {
        let rows: Vec<Row> = pairs
            .iter()
            .flat_map(|(target, means)| {
                means.iter().zip(0..).map(|(mean, repeat)| row(target, *mean, repeat))
            })
            .collect();
        describe(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_volume_is_put_beside_the_peer_of_its_kind() {
        let loops = ("loop over tmpfs", [60_000.0, 60_100.0, 59_900.0]);
        let text = described(&[("volume attached", [15_000.0, 15_010.0, 14_990.0]), loops]);
        let line = text.lines().find(|line| line.contains("volume attached / loop"));
        assert!(line.is_some_and(|line| line.contains(" 0.25")), "{text}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_marked() {
        let loops = ("loop over tmpfs", [60_000.0, 90_000.0, 30_000.0]);
        let text = described(&[("volume attached", [50_000.0, 80_000.0, 20_000.0]), loops]);
        let line = text.lines().find(|line| line.contains("volume attached / loop"));
        assert!(line.is_some_and(|line| line.contains("~0.83")), "{text}");
    }

    #[test]
    fn processor_time_and_durability_stand_beside_the_speed() {
        let text = described(&[("volume attached", [1000.0; 3])]);
        let line = text.lines().rfind(|line| line.contains("lost at power loss"));
        let line = line.expect("durability is shown");
        // 3 s per million requests, of which the server used 0.5.
        for part in ["yes", " 3.0", " 0.5"] {
            assert!(line.contains(part), "no {part} in {line}");
        }
    }
}
