//! What this host offers the daemon, and what is missing: looked at from outside, without a daemon.
//!
//! Nothing is changed and nothing is loaded. What the host lacks decides the exit code only where
//! the daemon does not work without it.

use std::fs::{self, OpenOptions};
use std::path::Path;

use api::ByteSize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Form, Report};
use crate::table::{Side, Table};

/// The oldest kernel whose FUSE connections a new daemon can take over.
const KERNEL_MIN: (u32, u32) = (6, 9);

/// A daemon with many clients has this many descriptors open.
const DESCRIPTORS_MIN: u64 = 4096;

/// With less memory than this a pool is a toy.
const MEMORY_BYTES_MIN: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// It works, with less speed or without a feature.
    Lacking,
    /// The daemon, or what most use it for, does not work.
    Missing,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Lacking => "lacking",
            Self::Missing => "missing",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    /// What was found, and what to do about it.
    detail: String,
}

pub(super) fn run(form: Form) -> Result<Report, Failure> {
    let findings = [
        kernel(&read("/proc/sys/kernel/osrelease")),
        root(),
        openable("/dev/fuse", "attached volumes over loop devices; modprobe fuse"),
        openable("/dev/loop-control", "attached volumes over loop devices; modprobe loop"),
        ublk(),
        huge_pages(&read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
        memory(&read("/proc/meminfo")),
        swap(&read("/proc/swaps")),
        descriptors(&read("/proc/self/limits")),
        group(&read("/etc/group")),
    ];
    let missing: Vec<_> =
        findings.iter().filter(|it| it.verdict == Verdict::Missing).map(|it| it.check).collect();
    if missing.is_empty() || form == Form::Json {
        return Ok(Report { text: text(&findings), json: json_of(&findings) });
    }
    Err(Failure::other(format!("missing here: {}\n{}", missing.join(", "), text(&findings))))
}

fn text(findings: &[Finding]) -> String {
    let mut table =
        Table::new(&[("CHECK", Side::Left), ("STATE", Side::Left), ("WHAT", Side::Left)]);
    for finding in findings {
        let Finding { check, verdict, detail } = finding;
        let cells = [(*check).to_owned(), verdict.name().to_owned(), detail.clone()];
        table.row(cells.map(Into::into).into());
    }
    table.to_text()
}

fn json_of(findings: &[Finding]) -> Value {
    let value =
        |it: &Finding| json!({"check": it.check, "state": it.verdict.name(), "what": it.detail});
    findings.iter().map(value).collect()
}

fn read(path: &str) -> String {
    // What cannot be read is found missing by whoever looks into it.
    fs::read_to_string(path).unwrap_or_default()
}

fn kernel(release: &str) -> Finding {
    let release = release.trim();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = KERNEL_MIN;
    let (verdict, detail) = match version >= KERNEL_MIN {
        true => (Verdict::Good, release.to_owned()),
        false => (
            Verdict::Lacking,
            format!(
                "{release}; Memlane is tested on {major}.{minor} and later. Before, loop devices \
                 are lost when the daemon is killed"
            ),
        ),
    };
    Finding { check: "kernel", verdict, detail }
}

fn root() -> Finding {
    let status = read("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let is_root = line.split_whitespace().nth(1) == Some("0");
    let (verdict, detail) = match is_root {
        true => (Verdict::Good, "root: volumes can be attached".to_owned()),
        false => (
            Verdict::Lacking,
            "not root: volumes over NBD, the ring and virtual machines alone".to_owned(),
        ),
    };
    Finding { check: "user", verdict, detail }
}

fn openable(path: &'static str, what_for: &str) -> Finding {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let (verdict, detail) = match opened {
        Ok(_) => (Verdict::Good, "it can be opened".to_owned()),
        Err(error) => (Verdict::Lacking, format!("{error}; needed for {what_for}")),
    };
    Finding { check: path, verdict, detail }
}

fn ublk() -> Finding {
    let path = "/dev/ublk-control";
    let (verdict, detail) = match Path::new(path).exists() {
        true => (Verdict::Good, "volumes are attached as ublk devices".to_owned()),
        false => (
            Verdict::Lacking,
            "not there: loop devices are used, which are slower; modprobe ublk_drv".to_owned(),
        ),
    };
    Finding { check: path, verdict, detail }
}

fn huge_pages(setting: &str) -> Finding {
    let (verdict, detail) = match setting.trim() {
        "" | "deny" => {
            (Verdict::Lacking, "none for the pool: the kernel has them not, or denies them")
        }
        _ => (Verdict::Good, "the pool's tmpfs gets huge pages"),
    };
    Finding { check: "huge pages", verdict, detail: detail.to_owned() }
}

fn memory(meminfo: &str) -> Finding {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    let bytes = kibibytes.map_or(0, |kibibytes: u64| kibibytes.saturating_mul(1024));
    let available = ByteSize(bytes).rounded();
    let (verdict, detail) = match bytes >= MEMORY_BYTES_MIN {
        true => (
            Verdict::Good,
            format!("{available} can be had; a pool takes half of it, or --pool-size"),
        ),
        false => (Verdict::Missing, format!("{available} can be had; free some for a pool")),
    };
    Finding { check: "memory", verdict, detail }
}

fn swap(swaps: &str) -> Finding {
    let devices = swaps.lines().skip(1).count();
    let (verdict, detail) = match devices {
        0 => (Verdict::Good, "none: the pool stays in memory"),
        _ => (Verdict::Lacking, "there is swap: parts of the pool may be moved to a disk"),
    };
    Finding { check: "swap", verdict, detail: detail.to_owned() }
}

fn descriptors(limits: &str) -> Finding {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default();
    let is_enough = hard == "unlimited" || hard.parse().is_ok_and(|n: u64| n >= DESCRIPTORS_MIN);
    let (verdict, detail) = match is_enough {
        true => (Verdict::Good, format!("{hard} at most")),
        false => (
            Verdict::Lacking,
            format!("{hard} at most; with many clients {DESCRIPTORS_MIN} are needed (LimitNOFILE)"),
        ),
    };
    Finding { check: "open files", verdict, detail }
}

fn group(groups: &str) -> Finding {
    let (verdict, detail) = match groups.lines().any(|line| line.starts_with("memlane:")) {
        true => (Verdict::Good, "its members may use the sockets"),
        false => (
            Verdict::Lacking,
            "there is none: only root and the daemon's own user may use the sockets; \
             groupadd --system memlane",
        ),
    };
    Finding { check: "group memlane", verdict, detail: detail.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(finding: Finding, verdict: Verdict) {
        assert_eq!(finding.verdict, verdict, "{finding:?}");
    }

    #[test]
    fn each_thing_is_good_or_told_of() {
        check(kernel("6.9.0-rc1-amd64\n"), Verdict::Good);
        check(kernel("7.0"), Verdict::Good);
        check(kernel("6.1.0-30-amd64"), Verdict::Lacking);
        check(kernel(""), Verdict::Lacking);
        check(huge_pages("always within_size advise [never] deny force\n"), Verdict::Good);
        check(huge_pages(""), Verdict::Lacking);
        check(memory("MemAvailable:    8388608 kB\n"), Verdict::Good);
        check(memory("MemAvailable:       2048 kB\n"), Verdict::Missing);
        check(memory(""), Verdict::Missing);
        check(swap("Filename Type\n"), Verdict::Good);
        check(swap("Filename Type\n/dev/sda2 partition\n"), Verdict::Lacking);
        check(descriptors("Max open files   1024   524288   files\n"), Verdict::Good);
        check(descriptors("Max open files   1024   1024   files\n"), Verdict::Lacking);
        check(group("root:x:0:\nmemlane:x:998:ann\n"), Verdict::Good);
        check(group("root:x:0:\n"), Verdict::Lacking);
    }
}
