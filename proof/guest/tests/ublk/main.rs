//! Volumes as devices of the kernel's ublk driver, under Debian's kernel: file systems, discards,
//! errors, kills of the daemon under load, and recovery at its start.
//!
//! `MEMLANE_GUEST_KILLS` is the number of kills, `MEMLANE_SEED` reproduces their moments.
//!
//! Takes more than two minutes, because machines boot and daemons die under emulation.

mod fixture;
#[path = "../support/kills.rs"]
mod kills;

use anyhow::{Context, Result, ensure};
use guest::GuestDaemon;
use serde_json::Value;
use system::{seed, wait_for};

use crate::fixture::{DAEMON_FLAGS, TIME_LIMIT, attached, boot, no_request_failed, refused, shown};

const FIO: &str = "fio --direct=1 --ioengine=libaio --iodepth=16 --bs=4k --size=8M \
                   --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output=/tmp/fio";

const KILLS_DEFAULT: u64 = 8;

#[test]
fn devices_live_through_kills_of_the_daemon_under_load() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p guest --test ublk devices_live");
    let guest = boot()?;
    kills::check(&guest, "ublk", KILLS_DEFAULT, seed)?;
    guest.power_off()
}

#[test]
fn a_device_carries_a_file_system_and_gives_memory_back() -> Result<()> {
    let guest = boot()?;
    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    daemon.memlane("volume create v --size 64MiB")?;
    let answer: Value = serde_json::from_str(&daemon.memlane("--json attach v")?)?;
    ensure!(answer["as"] == "ublk", "the best driver of this host is ublk, not {answer}");
    let device = answer["device"].as_str().context("it has a device")?.to_owned();
    let again = refused(&guest, "memlane attach v --as ublk")?;
    ensure!(again.contains(&device), "it is attached already, not: {again}");

    guest.check(&format!("mkfs.ext4 -q {device} && mount -o discard {device} /mnt"), TIME_LIMIT)?;
    let mounted = refused(&guest, "memlane detach v")?;
    ensure!(mounted.contains("mounted"), "a mounted device is not detached: {mounted}");
    let line = format!("{FIO} --name=f --filename=/mnt/f --rw=randwrite --numjobs=1");
    guest.check(&line, TIME_LIMIT)?;
    guest.check(&format!("umount /mnt && e2fsck -fn {device}"), TIME_LIMIT)?;

    let open = format!("exec 3<{device}; memlane detach v");
    let open = refused(&guest, &open)?;
    ensure!(
        open.contains("process ") && open.contains("has it open"),
        "an open device is not detached: {open}"
    );
    let before = shown(&daemon, "v")?.written_bytes;
    ensure!(before > 8 << 20, "a file system and a file take more than {before} bytes");
    guest.check(&format!("blkdiscard {device}"), TIME_LIMIT)?;
    wait_for("what was discarded to be given back", TIME_LIMIT, || {
        Ok(shown(&daemon, "v")?.written_bytes == 0)
    })?;
    daemon.memlane("detach v")?;
    guest.check(&format!("! [ -e {device} ]"), TIME_LIMIT)?;
    no_request_failed(&guest)?;
    daemon.stop()?;
    guest.power_off()
}

#[test]
fn a_device_is_not_detached_below_a_loop_device_or_an_open_partition() -> Result<()> {
    let guest = boot()?;
    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    let device = attached(&daemon, "v", "--size 16MiB --sector 512")?;
    // A partition table with one partition: 4 MiB from the first MiB on.
    let table = format!(
        "{{ head -c 446 /dev/zero; printf '\\0\\0\\0\\0\\203\\0\\0\\0\\0\\10\\0\\0\\0\\40\\0\\0'; \
         head -c 48 /dev/zero; printf '\\125\\252'; }} | dd of={device} conv=fsync && \
         blockdev --rereadpt {device} && [ -b {device}p1 ]"
    );
    guest.check(&table, TIME_LIMIT)?;
    for shown in [device.clone(), format!("{device}p1")] {
        guest.check(&format!("losetup /dev/loop0 {shown}"), TIME_LIMIT)?;
        let looped = refused(&guest, "memlane detach v")?;
        ensure!(looped.contains("it backs /dev/loop0"), "{shown} is in use, not: {looped}");
        guest
            .check("dd if=/dev/loop0 of=/dev/null count=1 && losetup -d /dev/loop0", TIME_LIMIT)?;
    }
    let open = refused(&guest, &format!("exec 3<{device}p1; memlane detach v"))?;
    ensure!(open.contains("has it open"), "its partition is open, not: {open}");
    daemon.memlane("detach v")?;
    no_request_failed(&guest)?;
    daemon.stop()?;
    guest.power_off()
}

#[test]
fn devices_pass_the_suite_of_all_exports() -> Result<()> {
    let guest = boot()?;
    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    for (name, sector, durability) in [("small", 512, "journal"), ("large", 4096, "ram")] {
        let flags = format!("--size 32MiB --sector {sector} --durability {durability}");
        let device = attached(&daemon, name, &flags)?;
        let queue = format!("/sys/block/{}/queue", &device["/dev/".len()..]);
        let told = format!("cat {queue}/write_cache {queue}/logical_block_size");
        let cache = if durability == "ram" { "write through" } else { "write back" };
        let told = guest.check(&told, TIME_LIMIT)?;
        ensure!(told == format!("{cache}\n{sector}\n"), "the kernel was told {told}");
    }
    let line = "guest-agent conformance /dev/ublkb0 512 1";
    let count: usize = guest.check(line, TIME_LIMIT)?.trim().parse()?;
    ensure!(count > 10, "only {count} cases were tried");
    daemon.memlane("snapshot create small s")?;
    let device = daemon.memlane("attach small@s --as ublk")?;
    let device = device.trim();
    refused(&guest, &format!("dd if=/dev/zero of={device} bs=4096 count=1 oflag=direct"))?;
    guest.check(&format!("cmp {device} /dev/ublkb0"), TIME_LIMIT)?;
    let resized = refused(&guest, "memlane volume resize small --size 64MiB")?;
    ensure!(resized.contains("6.16"), "the kernel cannot resize, and that is said: {resized}");
    daemon.stop()?;
    guest.power_off()
}

#[test]
fn a_start_takes_over_its_devices_and_touches_no_others() -> Result<()> {
    let guest = boot()?;
    let other_flags = "--pool-size 64MiB --run-dir /run/other --state-dir /var/other";
    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    let kept = attached(&daemon, "kept", "--size 16MiB")?;
    let orphan = attached(&daemon, "orphan", "--size 16MiB")?;
    let other = guest.start(&format!("exec memlaned {other_flags} >/tmp/other 2>&1"))?;
    let in_other = "memlane --socket /run/other/api.sock";
    let foreign = format!(
        "until {in_other} status >/dev/null 2>&1; do usleep 50000; done; \
         {in_other} volume create foreign --size 16MiB >/dev/null && \
         {in_other} attach foreign --as ublk"
    );
    let foreign = guest.check(&foreign, TIME_LIMIT)?.trim().to_owned();
    let fill = format!("dd if=/dev/urandom of={kept} bs=1M count=8 conv=fsync && sha256sum {kept}");
    let before = guest.check(&fill, TIME_LIMIT)?;
    other.signal(rustix::process::Signal::KILL)?;
    other.wait(TIME_LIMIT)?;
    daemon.kill()?;
    // The state after a kill of the daemon between the creation of the device and its recording.
    let forget = "sed -i 's/\"device\": 1,/\"device\": 999,/' /var/lib/memlane/ublk.json";
    guest.check(forget, TIME_LIMIT)?;
    guest.check(&format!("rm /var/lib/memlane/attachments.json && [ -b {orphan} ]"), TIME_LIMIT)?;

    let daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    let again = guest.check(&format!("sha256sum {kept}"), TIME_LIMIT)?;
    ensure!(before.ends_with(&again), "the device held {before}, and holds {again}");
    guest.check(&format!("! [ -e {orphan} ] && [ -e {foreign} ]"), TIME_LIMIT)?;
    let listed = daemon.memlane("--json volume list")?;
    ensure!(listed.contains(&kept), "the device that was taken over is listed: {listed}");
    let other = guest.start(&format!("exec memlaned {other_flags} >/tmp/other 2>&1"))?;
    guest.check(&format!("cmp -n 4096 {foreign} /dev/zero"), TIME_LIMIT)?;
    other.signal(rustix::process::Signal::TERM)?;
    other.wait(TIME_LIMIT)?;
    daemon.memlane("detach kept")?;
    daemon.stop()?;
    guest.power_off()
}
