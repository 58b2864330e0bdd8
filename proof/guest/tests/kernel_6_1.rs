//! Debian 12's own kernel, 6.1: it has no ublk, and its FUSE does not resend requests after a kill
//! of the daemon.
//!
//! `MEMLANE_GUEST_KILLS` is the number of kills, `MEMLANE_SEED` reproduces their moments.
//!
//! Takes more than a minute and a half, because machines boot and daemons die under emulation.

#[path = "support/kills.rs"]
mod kills;

use std::time::Duration;

use anyhow::{Result, ensure};
use guest::{Guest, GuestDaemon, GuestOptions, Image, ImageContents, Release};
use system::seed;

const TIME_LIMIT: Duration = Duration::from_secs(240);
const DAEMON_FLAGS: &str = "--pool-size 256MiB --journal-max-bytes 64MiB";
const KILLS_DEFAULT: u64 = 5;

fn boot() -> Result<Guest> {
    let contents = ImageContents {
        products: &["memlaned", "memlane"],
        programs: &["fio", "mkfs.ext4", "e2fsck"],
        modules: &[],
    };
    let image = Image::build_for(Release::V6_1, contents)?;
    // Journal and images are in memory, too.
    let options = GuestOptions { memory_mib: 2048, ..GuestOptions::small(Vec::new()) };
    let guest = Guest::boot(&image, &options)?;
    let version = guest.check("uname -r", TIME_LIMIT)?;
    ensure!(version.starts_with("6.1."), "the guest's kernel is {version}");
    Ok(guest)
}

#[test]
fn loop_devices_live_through_kills_of_the_daemon_under_load() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p guest --test kernel_6_1 loop_devices");
    let guest = boot()?;
    kills::check(&guest, "loop", KILLS_DEFAULT, seed)?;
    let count = "sed -n 's/.*requests of the previous daemon.*count=\\([0-9]*\\).*/\\1/p' \
                 /run/memlaned.log";
    let counts = guest.check(count, TIME_LIMIT)?;
    let counts: Vec<u64> = counts.lines().map(str::parse).collect::<Result<_, _>>()?;
    eprintln!("measured: requests that killed daemons had taken: {counts:?}");
    ensure!(counts.iter().sum::<u64>() > 0, "no request was taken from a killed daemon");
    guest.power_off()
}

#[test]
fn a_file_system_lives_through_a_kill_and_a_planned_stop() -> Result<()> {
    let guest = boot()?;
    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    daemon.memlane("volume create v --size 64MiB")?;
    let device = daemon.memlane("attach v")?;
    let device = device.trim().to_owned();
    ensure!(device.starts_with("/dev/loop"), "this kernel has no ublk: {device}");
    guest.check(&format!("mkfs.ext4 -q {device} && mount -o discard {device} /mnt"), TIME_LIMIT)?;
    let mut copy = guest.start("while cp /usr/local/bin/memlane /mnt/copy; do sync; done 2>&1")?;
    guest.check("until [ -s /mnt/copy ]; do usleep 10000; done", TIME_LIMIT)?;
    daemon.kill()?;
    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    daemon.stop()?;
    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    ensure!(copy.has_ended().is_none(), "a copy failed");
    let doctor = guest.run("memlane doctor", TIME_LIMIT)?.stdout;
    let kernel = doctor.lines().find(|line| line.starts_with("kernel"));
    ensure!(kernel.is_some_and(|line| line.contains("good")), "{doctor}");
    copy.signal(rustix::process::Signal::KILL)?;
    copy.wait(TIME_LIMIT)?;
    let compared = "cp /usr/local/bin/memlane /mnt/copy && sync && \
                    echo 3 >/proc/sys/vm/drop_caches && cmp /usr/local/bin/memlane /mnt/copy";
    guest.check(compared, TIME_LIMIT)?;
    guest.check(&format!("umount /mnt && e2fsck -fn {device}"), TIME_LIMIT)?;
    let failed = guest.run("dmesg | grep -E 'I/O error|WARNING|BUG'", TIME_LIMIT)?.stdout;
    ensure!(failed.is_empty(), "the guest's kernel said: {failed}");
    daemon.memlane("detach v")?;
    daemon.stop()?;
    guest.power_off()
}
