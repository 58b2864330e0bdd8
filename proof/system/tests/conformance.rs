//! The conformance suite for block devices on every access path to the real daemon, through a real
//! client.

use anyhow::{Result, ensure};
use conformance::{FileSubject, Subject};
use system::{Ability, Daemon, DaemonOptions, NbdShell, attach, missing};

const OPTIONS: DaemonOptions = DaemonOptions { pool_size: "512MiB", flags: "" };
const SIZE: &str = "24MiB";

#[track_caller]
fn check(way: &str, subject: &dyn Subject, least_cases: usize) {
    let ran = conformance::check(subject, 11);
    eprintln!("measured: {way}: {ran} cases");
    assert!(ran >= least_cases, "{way} ran {ran} cases");
}

#[test]
fn nbd_does_what_a_device_must() -> Result<()> {
    if !NbdShell::is_here() {
        eprintln!("skipped: this machine's Python has no libnbd");
        return Ok(());
    }
    let daemon = Daemon::start(OPTIONS)?;
    daemon.memlane(&format!("volume create v --size {SIZE}"))?;
    let subject = NbdShell::connect(&daemon.nbd_uri("v"))?;
    check("NBD through libnbd", &subject, conformance::case_count());
    drop(subject);
    daemon.finish()
}

#[test]
fn attached_devices_and_files_do_what_a_device_must() -> Result<()> {
    if let Some(why) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let daemon = Daemon::start(OPTIONS)?;
    for sector in [512, 4096] {
        let name = format!("v{sector}");
        daemon.memlane(&format!("volume create {name} --size {SIZE} --sector {sector}"))?;
        let device = attach(&daemon, &name)?;
        check(&format!("a device of {sector}"), &FileSubject::open(&device, sector)?, 13);
    }
    // The file of an attached volume is read-only.
    daemon.memlane("detach v512")?;
    let file = daemon.run_dir().join("volumes").join("v512");
    ensure!(file.exists(), "a volume is a file, too");
    check("a volume's file", &FileSubject::open(&file, 512)?, 13);
    daemon.finish()
}

#[test]
fn snapshots_refuse_every_change() -> Result<()> {
    if let Some(why) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let daemon = Daemon::start(OPTIONS)?;
    daemon.memlane(&format!("volume create v --size {SIZE} --sector 512"))?;
    daemon.memlane("snapshot create v s")?;
    let device = attach(&daemon, "v@s")?;
    conformance::check_read_only(&FileSubject::open_read_only(&device, 512)?);
    let file = daemon.run_dir().join("volumes").join("v@s");
    conformance::check_read_only(&FileSubject::open_read_only(&file, 512)?);
    daemon.memlane("detach v@s")?;
    daemon.finish()
}
