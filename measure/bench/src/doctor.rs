//! Report of measurements that are possible here, and those that will be skipped, with reasons.

use std::path::PathBuf;

use anyhow::Result;
use results::{Host, Probe};
use serde::Serialize;
use system::{Ability, missing};

use crate::output::{self, Form, bytes_text};
use crate::run::{self, Options, PlannedSuite, Session, Skip};

/// Programs used by suites, with their purpose.
const PROGRAMS: [(&str, &str); 10] = [
    ("fio", "forsa, fusion, peers: load generator"),
    ("nbdkit", "peers: a RAM disk over NBD"),
    ("qemu-nbd", "peers: a RAM disk over NBD"),
    ("qemu-storage-daemon", "peers: exports over NBD, FUSE and vhost-user"),
    ("mkfs.ext4", "log, peers: file systems on volumes"),
    ("wipefs", "--destroy: check that a device is empty"),
    ("blkid", "--destroy: check that a device is empty"),
    ("taskset", "sql: servers on one core, clients on the others"),
    ("perf", "hardware counters"),
    ("modprobe", "peers: brd and null_blk, if the kernel has the modules"),
];

/// Minimum memory for the engine suite's default size.
const MEMORY_BYTES_MIN: u64 = 8 << 30;

/// Complete output of the doctor.
#[derive(Debug, Serialize)]
struct Findings {
    host: Host,
    memory_available_bytes: u64,
    checks: Vec<Check>,
    suites: Vec<SuiteFindings>,
    /// Measurements skipped with default settings.
    skipped: Vec<Skip>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: String,
    is_available: bool,
    /// Finding, or what is missing and how to fix it.
    detail: String,
    needed_for: &'static str,
}

/// Plan of a suite with the quick profile.
#[derive(Debug, Serialize)]
struct SuiteFindings {
    name: &'static str,
    steps: usize,
    skipped: usize,
    seconds: f64,
    memory_bytes: u64,
    /// Reason why no plan is possible, if so.
    obstacle: Option<String>,
}

/// Examines the machine and the plans of `suites`. Changes nothing.
pub(crate) fn run(options: &Options, suites: &[Box<dyn PlannedSuite>], form: Form) -> Result<()> {
    let session = Session::new(options, PathBuf::new());
    let mut skipped = Vec::new();
    let suites = suites.iter().map(|suite| examine(&**suite, &session, &mut skipped)).collect();
    let findings = Findings {
        host: run::describe_host(),
        memory_available_bytes: session.memory_available_bytes,
        checks: checks(&session),
        suites,
        skipped,
    };
    match form {
        Form::Json => output::json(&findings),
        Form::Text => output::note(&text(&findings)),
    }
    Ok(())
}

fn examine(suite: &dyn PlannedSuite, session: &Session, skipped: &mut Vec<Skip>) -> SuiteFindings {
    let name = suite.suite().name();
    let plan = match suite.plan(session) {
        Ok(plan) => plan,
        Err(error) => {
            let obstacle = Some(format!("{error:#}"));
            return SuiteFindings {
                name,
                steps: 0,
                skipped: 0,
                seconds: 0.0,
                memory_bytes: 0,
                obstacle,
            };
        }
    };
    let cost = plan.cost();
    let count = plan.skipped.len();
    skipped.extend(plan.skipped);
    SuiteFindings {
        name,
        steps: plan.steps.len(),
        skipped: count,
        seconds: cost.seconds,
        memory_bytes: cost.memory_bytes,
        obstacle: None,
    }
}

fn checks(session: &Session) -> Vec<Check> {
    let mut checks = vec![root(), memory(session), huge_pages()];
    let able = |name: &str, ability, needed_for| {
        let reason = missing(&[ability]);
        let is_available = reason.is_none();
        let detail = reason.unwrap_or_else(|| "available".to_owned());
        Check { name: name.to_owned(), is_available, detail, needed_for }
    };
    checks.push(able("block devices", Ability::BlockDevices, "volumes attached, loop, ext4"));
    checks.push(able("zram", Ability::Zram, "peers, log, reduction: kernel devices"));
    let mut probes = run::probe();
    for (name, needed_for) in PROGRAMS {
        let version = probes.remove(name).map(|probe| probe.detail);
        let reason = missing(&[Ability::Program(name)]);
        let is_available = reason.is_none();
        let found = version.unwrap_or_else(|| "found".to_owned());
        let detail = reason.unwrap_or(found);
        checks.push(Check { name: name.to_owned(), is_available, detail, needed_for });
    }
    checks.push(postgres(probes.remove("postgres")));
    checks.push(daemon(probes.remove("memlaned")));
    checks.push(broker());
    for (name, needed_for) in [
        ("pmu", "optional: without it, cycles are those of the time stamp counter"),
        ("rapl", "optional: energy"),
        ("cgroup", "optional: CPU time by cgroup"),
    ] {
        if let Some(Probe { is_available, detail }) = probes.remove(name) {
            checks.push(Check { name: name.to_owned(), is_available, detail, needed_for });
        }
    }
    checks
}

fn root() -> Check {
    let is_available = rustix::process::geteuid().is_root();
    let detail = if is_available { "yes" } else { "run as root to attach devices and mount" };
    let needed_for = "block devices, huge pages, mounts";
    Check { name: "root".to_owned(), is_available, detail: detail.to_owned(), needed_for }
}

fn memory(session: &Session) -> Check {
    let available = session.memory_available_bytes;
    let is_available = available >= MEMORY_BYTES_MIN;
    let found = bytes_text(available);
    let detail = match is_available {
        true => format!("{found} available"),
        false => format!("{found} available; free some, or give smaller sizes (--working-mib)"),
    };
    let needed_for = "working sets larger than the caches";
    Check { name: "memory".to_owned(), is_available, detail, needed_for }
}

fn huge_pages() -> Check {
    let place = crate::pool::Place::new();
    let is_available = place.as_ref().is_ok_and(crate::pool::Place::has_huge_pages);
    let detail = match (is_available, place) {
        (true, _) => "a tmpfs with huge pages can be mounted".to_owned(),
        (false, Ok(_)) => {
            "cannot mount a tmpfs with huge pages: pools and figures use small pages".to_owned()
        }
        (false, Err(error)) => format!("{error:#}"),
    };
    let needed_for = "pools and reference copies without TLB misses";
    Check { name: "huge pages".to_owned(), is_available, detail, needed_for }
}

fn postgres(probe: Option<Probe>) -> Check {
    let is_available = probe.is_some();
    let detail = probe.map_or_else(|| "install postgresql".to_owned(), |probe| probe.detail);
    let needed_for = "peers, sql, tpcc, placement: a separate server, and pgbench";
    Check { name: "postgres".to_owned(), is_available, detail, needed_for }
}

fn daemon(probe: Option<Probe>) -> Check {
    let is_available = probe.is_some();
    let missing = || "build memlaned beside this program: cargo build --release".to_owned();
    let detail = probe.map_or_else(missing, |probe| probe.detail);
    let needed_for = "volumes in forsa, fusion, log, peers";
    Check { name: "memlaned".to_owned(), is_available, detail, needed_for }
}

fn broker() -> Check {
    let reason = crate::sql::missing_broker();
    let is_available = reason.is_none();
    let detail = reason.unwrap_or_else(|| "found".to_owned());
    let needed_for = "log, sql: topics, and queries of them";
    Check { name: "memlane-broker".to_owned(), is_available, detail, needed_for }
}

fn text(findings: &Findings) -> String {
    let host = &findings.host;
    let mut parts = vec![format!(
        "{} cores of {}, {} of memory, kernel {}, virtualisation: {}",
        host.cores,
        host.cpu,
        bytes_text(host.memory_bytes),
        host.kernel,
        host.virtualisation.as_deref().unwrap_or("unknown")
    )];
    let mut table = output::heading(" | what | needed for | found");
    table.extend(findings.checks.iter().map(|check| {
        let mark = if check.is_available { "yes" } else { "NO" };
        vec![mark.to_owned(), check.name.clone(), check.needed_for.to_owned(), check.detail.clone()]
    }));
    parts.push(output::left_table(&table));
    let mut table = output::heading("suite | steps | skipped | time (quick) | memory");
    table.extend(findings.suites.iter().map(|suite| {
        vec![
            suite.name.to_owned(),
            suite.steps.to_string(),
            suite.skipped.to_string(),
            run::duration_text(suite.seconds),
            bytes_text(suite.memory_bytes),
        ]
    }));
    parts.push(output::left_table(&table));
    let obstacles = findings.suites.iter().filter_map(|suite| {
        suite.obstacle.as_ref().map(|obstacle| format!("{}: {obstacle}", suite.name))
    });
    parts.extend(obstacles);
    let skips = run::skips_text(&findings.skipped);
    if !skips.is_empty() {
        parts.push(skips.join("\n"));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(reason: Option<&str>) -> Findings {
        let skip = |reason| Skip::new(results::Suite::Peers, "randread", "brd", reason);
        Findings {
            host: Host::default(),
            memory_available_bytes: 1,
            checks: vec![root()],
            suites: Vec::new(),
            skipped: reason.into_iter().map(skip).collect(),
        }
    }

    #[test]
    fn what_will_be_skipped_is_told_with_its_reason() {
        let told = text(&findings(Some("the kernel has no brd")));
        assert!(told.contains("peers randread on brd: the kernel has no brd"), "{told}");
        assert!(!text(&findings(None)).contains("skipped:"));
    }

    #[test]
    fn a_machine_with_too_little_memory_is_told_what_to_do() {
        let mut session = Session::new(&Options::default(), PathBuf::new());
        session.memory_available_bytes = 1 << 30;
        let check = memory(&session);
        assert!(!check.is_available);
        assert!(check.detail.contains("--working-mib"), "{}", check.detail);
    }
}
