//! Report of measurements that are possible here, and those that will be skipped, with reasons.

use std::path::PathBuf;

use anyhow::Result;
use results::{Host, Probe};
use serde::Serialize;
use system::{Ability, missing};

use crate::output::{self, Form, bytes_text};
use crate::run::{self, Options, Plan, PlannedSuite, Session, Skip};

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

impl Check {
    /// Makes a check of what was found, or what is missing and how to fix it.
    fn new(name: &str, needed_for: &'static str, found: Result<String, String>) -> Self {
        let is_available = found.is_ok();
        let detail = found.unwrap_or_else(|missing| missing);
        Self { name: name.to_owned(), is_available, detail, needed_for }
    }
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
    let (plan, obstacle) = match suite.plan(session) {
        Ok(plan) => (plan, None),
        Err(error) => (Plan::default(), Some(format!("{error:#}"))),
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
        obstacle,
    }
}

fn checks(session: &Session) -> Vec<Check> {
    let mut checks = vec![root(), memory(session), huge_pages()];
    let able = |name: &str, ability, needed_for| {
        let found = missing(&[ability]).map_or(Ok("available".to_owned()), Err);
        Check::new(name, needed_for, found)
    };
    checks.push(able("block devices", Ability::BlockDevices, "volumes attached, loop, ext4"));
    checks.push(able("zram", Ability::Zram, "peers, log, reduction: kernel devices"));
    let mut probes = run::probe();
    for (name, needed_for) in PROGRAMS {
        let version = probes.remove(name).map(|probe| probe.detail);
        let found = version.unwrap_or_else(|| "found".to_owned());
        let found = missing(&[Ability::Program(name)]).map_or(Ok(found), Err);
        checks.push(Check::new(name, needed_for, found));
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
            let found = if is_available { Ok(detail) } else { Err(detail) };
            checks.push(Check::new(name, needed_for, found));
        }
    }
    checks
}

fn root() -> Check {
    let found = match rustix::process::geteuid().is_root() {
        true => Ok("yes".to_owned()),
        false => Err("run as root to attach devices and mount".to_owned()),
    };
    Check::new("root", "block devices, huge pages, mounts", found)
}

fn memory(session: &Session) -> Check {
    let available = session.memory_available_bytes;
    let text = format!("{} available", bytes_text(available));
    let found = match available >= MEMORY_BYTES_MIN {
        true => Ok(text),
        false => Err(format!("{text}; free some, or give smaller sizes (--working-mib)")),
    };
    Check::new("memory", "working sets larger than the caches", found)
}

fn huge_pages() -> Check {
    let found =
        match crate::pool::Place::new() {
            Ok(place) if place.has_huge_pages() => {
                Ok("a tmpfs with huge pages can be mounted".to_owned())
            }
            Ok(_) => Err("cannot mount a tmpfs with huge pages: pools and figures use small pages"
                .to_owned()),
            Err(error) => Err(format!("{error:#}")),
        };
    Check::new("huge pages", "pools and reference copies without TLB misses", found)
}

fn postgres(probe: Option<Probe>) -> Check {
    let found = probe.map(|it| it.detail).ok_or_else(|| "install postgresql".to_owned());
    Check::new("postgres", "peers, sql, tpcc, placement: a separate server, and pgbench", found)
}

fn daemon(probe: Option<Probe>) -> Check {
    let missing = || "build memlaned beside this program: cargo build --release".to_owned();
    let found = probe.map(|it| it.detail).ok_or_else(missing);
    Check::new("memlaned", "volumes in forsa, fusion, log, peers", found)
}

fn broker() -> Check {
    let found = crate::sql::missing_broker().map_or(Ok("found".to_owned()), Err);
    Check::new("memlane-broker", "log, sql: topics, and queries of them", found)
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
