//! Checks of this host for the daemon. A running daemon is queried for its encryption, but is not
//! required.
//!
//! The checks change nothing and load no modules. A finding fails the command only if the daemon
//! does not work without the missing feature.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use api::{
    ByteSize, Certificate, CertificateState, EncryptionStatus, Status, StoreServerStatus, counted,
};
use rest_client::{Address, Client};
use serde_json::{Value, json};

use super::status::{encryption_text, previous_key};
use super::time_text;
use crate::failure::Failure;
use crate::output::{Form, Report};
use crate::table::{Cell, Table};

/// Oldest kernel version that is tested.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// First kernel version with the mount option `noswap` of tmpfs, with which a pool is mounted.
const NO_SWAP_SINCE: (u32, u32) = (6, 4);

/// Number of descriptors that a daemon with many clients needs.
const DESCRIPTORS_MIN: u64 = 4096;

/// Minimum memory for a useful pool.
const MEMORY_BYTES_MIN: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// It works, but slower or without a feature.
    Lacking,
    /// The daemon, or its main purpose, does not work.
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

/// Result of one check.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    /// Description of the finding, with advice.
    detail: String,
}

impl Finding {
    /// Creates a finding: good, or lacking with the reason `otherwise`.
    fn good_if(
        is_good: bool,
        check: &'static str,
        good: impl Into<String>,
        otherwise: impl Into<String>,
    ) -> Self {
        match is_good {
            true => Self { check, verdict: Verdict::Good, detail: good.into() },
            false => Self { check, verdict: Verdict::Lacking, detail: otherwise.into() },
        }
    }
}

pub(super) fn run(client: &Client, form: Form) -> Result<Report, Failure> {
    let release = read("/proc/sys/kernel/osrelease");
    let mut findings = vec![
        kernel(&release),
        root(),
        openable("/dev/fuse", "fuse"),
        openable("/dev/loop-control", "loop"),
        ublk(),
        huge_pages(&read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
        memory(&read("/proc/meminfo")),
        swap(&read("/proc/swaps"), &release),
        descriptors(&read("/proc/self/limits")),
        group(&read("/etc/group")),
    ];
    if let Some(status) = status_here(client) {
        findings.extend(status.store_server.as_ref().map(served_store));
        findings.extend(certificates(&status.certificates));
        findings.push(encryption(status.durability.encryption));
    }
    report_of(&findings, form)
}

/// Reports the findings. With `--json` they are printed even if something is missing.
fn report_of(findings: &[Finding], form: Form) -> Result<Report, Failure> {
    let missing: Vec<_> =
        findings.iter().filter(|it| it.verdict == Verdict::Missing).map(|it| it.check).collect();
    if missing.is_empty() || form == Form::Json {
        let report = Report::of(text(findings), &json_of(findings));
        return Ok(Report { is_failure: !missing.is_empty(), ..report });
    }
    Err(Failure::other(format!("missing on this host: {}\n{}", missing.join(", "), text(findings))))
}

fn text(findings: &[Finding]) -> String {
    let table = Table::of(
        findings,
        &[
            ("CHECK", &|it| Cell::text(it.check)),
            ("STATE", &|it| Cell::text(it.verdict.name())),
            ("WHAT", &|it| Cell::text(&it.detail)),
        ],
    );
    table.to_text()
}

fn json_of(findings: &[Finding]) -> Value {
    let value =
        |it: &Finding| json!({"check": it.check, "state": it.verdict.name(), "what": it.detail});
    findings.iter().map(value).collect()
}

fn read(path: &str) -> String {
    // An unreadable file counts as missing in each check.
    fs::read_to_string(path).unwrap_or_default()
}

/// Major and minor version of a kernel release, 0 where there is no number.
fn version_of(release: &str) -> (u32, u32) {
    let mut numbers = release.trim().split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn kernel(release: &str) -> Finding {
    let release = release.trim();
    let (major, minor) = KERNEL_MIN;
    let old = format!("{release}; Memlane is tested on {major}.{minor} and later");
    Finding::good_if(version_of(release) >= KERNEL_MIN, "kernel", release, old)
}

fn root() -> Finding {
    let status = read("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let is_root = line.split_whitespace().nth(1) == Some("0");
    let plain =
        "not root: block devices cannot be attached; NBD, the ring and virtual machines work";
    Finding::good_if(is_root, "user", "root: volumes can be attached", plain)
}

fn openable(path: &'static str, module: &str) -> Finding {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let failure = opened.err().map(|error| {
        let way = match error.kind() {
            io::ErrorKind::PermissionDenied => "run as root".to_owned(),
            _ => format!("run modprobe {module}"),
        };
        format!("cannot open: {error}; needed for attaching volumes as loop devices; {way}")
    });
    Finding::good_if(failure.is_none(), path, "available", failure.unwrap_or_default())
}

/// Reports the clients of the served image store, and whether it is nearly full.
fn served_store(server: &StoreServerStatus) -> Finding {
    let (used, max) = (server.used_bytes.unwrap_or(0), server.max_bytes.unwrap_or(u64::MAX));
    let names: Vec<&str> = server.clients.iter().map(|client| client.name.as_str()).collect();
    let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    let served = format!(
        "{} on {}, used by {names}; refused {}",
        server.directory,
        server.address,
        counted(server.refused, "connection")
    );
    let full = format!("{served}; more than nine tenths of max-bytes are used");
    Finding::good_if(used <= max / 10 * 9, "served image store", served, full)
}

/// Reports the certificate of the daemon that expires first, and all that have expired or will
/// within a month.
fn certificates(all: &[Certificate]) -> Option<Finding> {
    let check = "certificates";
    let describe = |it: &Certificate| {
        let verb = match it.state {
            CertificateState::Expired => "expired",
            CertificateState::Expiring | CertificateState::Valid => "expires",
        };
        let time = time_text(it.expires_unix_seconds);
        format!("{} ({}) {verb} on {time}", it.file, it.used_for)
    };
    let in_state = |state| all.iter().filter(move |it| it.state == state);
    let mut late = in_state(CertificateState::Expired);
    let mut soon = in_state(CertificateState::Expiring);
    let (verdict, detail) = match (late.next(), soon.next()) {
        (None, None) => {
            let first = all.iter().min_by_key(|it| it.expires_unix_seconds)?;
            (Verdict::Good, format!("{}, as the first of {}", describe(first), all.len()))
        }
        (late_first, soon_first) => {
            let is_late = late_first.is_some();
            let named = late_first.into_iter().chain(late).chain(soon_first).chain(soon);
            let named: Vec<_> = named.map(describe).collect();
            let verdict = if is_late { Verdict::Missing } else { Verdict::Lacking };
            (verdict, format!("{}: replace the files", named.join(", ")))
        }
    };
    Some(Finding { check, verdict, detail })
}

fn ublk() -> Finding {
    let path = "/dev/ublk-control";
    let absent = "not available: volumes are attached as loop devices, which are slower; run \
                  modprobe ublk_drv if the kernel has that module";
    let is_there = Path::new(path).exists();
    Finding::good_if(is_there, path, "volumes are attached as ublk devices", absent)
}

/// Reports whether a tmpfs can have huge pages. The value in brackets is in effect. `never` applies
/// only to file systems that are mounted without the option `huge`.
fn huge_pages(setting: &str) -> Finding {
    let has_them = !setting.trim().is_empty() && !setting.contains("[deny]");
    let none =
        "not available for tmpfs; set /sys/kernel/mm/transparent_hugepage/shmem_enabled to advise";
    Finding::good_if(has_them, "huge pages", "available for the pool's tmpfs", none)
}

fn memory(meminfo: &str) -> Finding {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    let bytes = kibibytes.map_or(0, |kibibytes: u64| kibibytes.saturating_mul(1024));
    let available = ByteSize(bytes).rounded();
    let (verdict, detail) = match bytes >= MEMORY_BYTES_MIN {
        true => (
            Verdict::Good,
            format!("{available} available; the pool takes half of it unless --pool-size is set"),
        ),
        false => {
            (Verdict::Missing, format!("{available} available, too little for a pool; free memory"))
        }
    };
    Finding { check: "memory", verdict, detail }
}

fn swap(swaps: &str, release: &str) -> Finding {
    let is_off = swaps.lines().nth(1).is_none();
    let is_avoided = version_of(release) >= NO_SWAP_SINCE;
    let good = match is_off {
        true => "off: the pool stays in memory",
        false => "on; the pool of a daemon that runs as root stays in memory (noswap)",
    };
    let (major, minor) = NO_SWAP_SINCE;
    let some = format!(
        "on: before Linux {major}.{minor}, parts of the pool may be swapped out to disk; run \
         swapoff -a"
    );
    Finding::good_if(is_off || is_avoided, "swap", good, some)
}

fn descriptors(limits: &str) -> Finding {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default();
    let is_enough = hard == "unlimited" || hard.parse().is_ok_and(|n: u64| n >= DESCRIPTORS_MIN);
    let few = format!("limit {hard}; many clients need {DESCRIPTORS_MIN} (raise LimitNOFILE=)");
    Finding::good_if(is_enough, "open files", format!("limit {hard}"), few)
}

fn group(groups: &str) -> Finding {
    let is_there = groups.lines().any(|line| line.starts_with("memlane:"));
    let none = "missing: only root and the daemon's user may use the sockets; run groupadd \
                --system memlane";
    Finding::good_if(is_there, "group memlane", "exists: its members may use the sockets", none)
}

/// Status of this host's daemon, if it responds.
fn status_here(client: &Client) -> Option<Status> {
    match client.address {
        Address::Socket(_) => client.get(api::STATUS_PATH).ok(),
        _ => None,
    }
}

fn encryption(status: Option<EncryptionStatus>) -> Finding {
    let text = encryption_text(status.as_ref());
    let is_new = status.as_ref().and_then(previous_key).is_none();
    let old = format!("{text}: keep that key, and run memlane image save");
    Finding::good_if(is_new, "encryption", text, old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(finding: Finding, verdict: Verdict) {
        assert_eq!(finding.verdict, verdict, "{finding:?}");
    }

    #[test]
    fn what_is_missing_is_a_failure_in_either_form() {
        let missing = [memory(""), swap("", "6.1")];
        let failure = report_of(&missing, Form::Text).expect_err("there is no memory");
        assert!(
            failure.message.starts_with("missing on this host: memory\n"),
            "{}",
            failure.message
        );
        let report = report_of(&missing, Form::Json).expect("it is printed");
        assert!(report.is_failure);
        assert_eq!(report.json[0]["state"], "missing");
        let lacking = report_of(&[huge_pages("")], Form::Json).expect("it is printed");
        assert!(!lacking.is_failure);
    }

    #[test]
    fn each_thing_is_good_or_told_of() {
        check(kernel("6.9.0-rc1-amd64\n"), Verdict::Good);
        check(kernel("6.1.0-57-cloud-amd64\n"), Verdict::Good);
        check(kernel("7.0"), Verdict::Good);
        check(kernel("5.14.0-503.el9.x86_64"), Verdict::Lacking);
        check(kernel(""), Verdict::Lacking);
        check(huge_pages("always within_size advise [never] deny force\n"), Verdict::Good);
        check(huge_pages("always within_size advise never [deny] force\n"), Verdict::Lacking);
        check(huge_pages(""), Verdict::Lacking);
        check(memory("MemAvailable:    8388608 kB\n"), Verdict::Good);
        check(memory("MemAvailable:       2048 kB\n"), Verdict::Missing);
        check(memory(""), Verdict::Missing);
        let on = "Filename Type\n/dev/sda2 partition\n";
        check(swap("Filename Type\n", "6.1.0-57-cloud-amd64\n"), Verdict::Good);
        check(swap(on, "6.1.0-57-cloud-amd64\n"), Verdict::Lacking);
        check(swap(on, "6.4.0\n"), Verdict::Good);
        check(descriptors("Max open files   1024   524288   files\n"), Verdict::Good);
        check(descriptors("Max open files   1024   1024   files\n"), Verdict::Lacking);
        check(group("root:x:0:\nmemlane:x:998:ann\n"), Verdict::Good);
        check(group("root:x:0:\n"), Verdict::Lacking);
    }

    #[test]
    fn certificates_that_expire_soon_or_have_expired_are_named_with_their_date() {
        let certificate = |file: &str, expires_unix_seconds, state| Certificate {
            used_for: "NBD".to_owned(),
            file: file.to_owned(),
            expires_unix_seconds,
            state,
        };
        assert!(certificates(&[]).is_none());
        let mut all = vec![
            certificate("/late.pem", 2_000_000_000, CertificateState::Valid),
            certificate("/early.pem", 1_900_000_000, CertificateState::Valid),
        ];
        let good = certificates(&all).expect("there are some");
        assert!(good.detail.starts_with("/early.pem (NBD) expires on 2030-03-17"), "{good:?}");
        check(good, Verdict::Good);
        all.push(certificate("/soon.pem", 1_800_000_000, CertificateState::Expiring));
        let soon = certificates(&all).expect("there are some");
        assert!(soon.detail.starts_with("/soon.pem (NBD) expires on 2027-01-15"), "{soon:?}");
        check(soon, Verdict::Lacking);
        all.push(certificate("/over.pem", 1_700_000_000, CertificateState::Expired));
        let over = certificates(&all).expect("there are some");
        assert!(over.detail.contains("/over.pem (NBD) expired on 2023-11-14"), "{over:?}");
        assert!(over.detail.contains("/soon.pem (NBD) expires on 2027-01-15"), "{over:?}");
        check(over, Verdict::Missing);
    }

    #[test]
    fn a_key_that_the_newest_image_still_needs_is_told_of() {
        let status = |images_wrapped_by: Option<&str>| {
            let images_wrapped_by = images_wrapped_by.map(str::to_owned);
            let (data_key, wrapped_by) = ("d0".to_owned(), "a1".to_owned());
            Some(EncryptionStatus { data_key, wrapped_by, images_wrapped_by })
        };
        check(encryption(None), Verdict::Good);
        check(encryption(status(None)), Verdict::Good);
        check(encryption(status(Some("a1"))), Verdict::Good);
        let old = encryption(status(Some("b2")));
        assert!(old.detail.contains("previous key b2: keep that key"), "{old:?}");
        check(old, Verdict::Lacking);
    }
}
