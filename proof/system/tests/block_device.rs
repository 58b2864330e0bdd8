//! Attached volumes under file systems and tools that trust block devices, while the daemon is
//! killed with SIGKILL and restarted.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use system::{
    Ability, Background, Daemon, DaemonOptions, FileChecker, KernelLog, Mounted, Random, Tool,
    attach, device_size_bytes, missing, seed, wait_for, written_sector_count,
};

const KILLS: usize = 8;
const TIME_LIMIT: Duration = Duration::from_secs(120);
const CHECKERS: u64 = 2;

/// Number of operations required between two kills.
const OPERATIONS_BETWEEN_KILLS: u64 = 150;
const SECTORS_BETWEEN_KILLS: u64 = 20_000;

/// Maximum number of deleted bytes that may stay in use: slabs that are not empty yet.
const KEPT_BYTES_MAX: u64 = 24 << 20;

const MIB: u64 = 1 << 20;

struct FileSystem {
    make: &'static str,
    check: &'static str,
}

const EXT4: FileSystem = FileSystem { make: "mkfs.ext4 -q", check: "e2fsck -fn" };
const XFS: FileSystem = FileSystem { make: "mkfs.xfs -q", check: "xfs_repair -n" };
const BTRFS: FileSystem = FileSystem { make: "mkfs.btrfs -q", check: "btrfs check --readonly" };

#[test]
fn ext4_sees_no_error_while_the_daemon_is_killed() -> Result<()> {
    check_file_system(&EXT4)
}

#[test]
fn xfs_sees_no_error_while_the_daemon_is_killed() -> Result<()> {
    check_file_system(&XFS)
}

#[test]
fn btrfs_sees_no_error_while_the_daemon_is_killed() -> Result<()> {
    check_file_system(&BTRFS)
}

#[test]
fn fio_verifies_what_it_wrote_while_the_daemon_was_killed() -> Result<()> {
    let Some(mut daemon) = daemon_for(&[Ability::Program("fio")])? else { return Ok(()) };
    daemon.memlane("volume create v --size 128MiB")?;
    let device = attach(&daemon, "v")?;
    let mut fio = Background::start(fio(&device))?;
    for _ in 0..KILLS {
        let before = written_sector_count(&device)?;
        wait_for("fio to write", TIME_LIMIT, || {
            if let Some(status) = fio.has_ended()? {
                ensure!(status.success(), "fio failed: {status}");
                fio = Background::start(self::fio(&device))?;
            }
            Ok(written_sector_count(&device)? > before + SECTORS_BETWEEN_KILLS)
        })?;
        daemon.kill()?;
        daemon.start_again()?;
    }
    fio.finish(TIME_LIMIT)?;
    daemon.finish()
}

#[test]
fn trimming_gives_memory_back() -> Result<()> {
    let Some(daemon) = daemon_for(&[])? else { return Ok(()) };
    daemon.memlane("volume create v --size 512MiB")?;
    let device = attach(&daemon, "v")?;
    Tool::new(EXT4.make).arg(&device).check()?;
    let mounted = Mounted::new(&device, &daemon.folder().join("mnt"), "noatime")?;
    Tool::new("fstrim").arg(mounted.folder()).check()?;
    let empty = daemon.status()?.pool.used_bytes;
    write_noise(&mounted.folder().join("noise"), 128 * MIB)?;
    let full = daemon.status()?.pool.used_bytes;
    ensure!(full > empty + 120 * MIB, "128 MiB of noise took {} bytes", full - empty);
    std::fs::remove_file(mounted.folder().join("noise"))?;
    Tool::new("sync -f").arg(mounted.folder()).check()?;
    Tool::new("fstrim").arg(mounted.folder()).check()?;
    wait_for("the memory to come back", TIME_LIMIT, || {
        Ok(daemon.status()?.pool.used_bytes < empty + KEPT_BYTES_MAX)
    })?;
    mounted.unmount()?;
    daemon.finish()
}

/// The device is much larger than the pool: its complete map alone would fill the pool.
#[test]
fn zeros_of_an_empty_device_take_no_memory() -> Result<()> {
    let Some(daemon) = daemon_for(&[])? else { return Ok(()) };
    daemon.memlane("volume create v --size 1TiB")?;
    let device = attach(&daemon, "v")?;
    let empty = daemon.status()?.pool.used_bytes;
    Tool::new("blkdiscard -z --offset 4096 --length 512GiB").arg(&device).check()?;
    let zeroed = daemon.status()?.pool.used_bytes;
    ensure!(zeroed < empty + 16 * MIB, "zeros took {} bytes", zeroed - empty);
    daemon.finish()
}

#[test]
fn a_device_has_the_sectors_and_the_size_of_its_volume() -> Result<()> {
    let Some(daemon) = daemon_for(&[])? else { return Ok(()) };
    for (name, sector) in [("small", "512"), ("large", "4096")] {
        daemon.memlane(&format!("volume create {name} --size 64MiB --sector {sector}"))?;
        let device = attach(&daemon, name)?;
        let found = Tool::new("blockdev --getss").arg(&device).check()?;
        ensure!(found.trim() == sector, "{name} has sectors of {found}");
        ensure!(device_size_bytes(&device)? == 64 * MIB, "{name} has another size");
        daemon.memlane(&format!("volume resize {name} --size 96MiB"))?;
        wait_for("the device to grow", TIME_LIMIT, || Ok(device_size_bytes(&device)? == 96 * MIB))?;
    }
    daemon.finish()
}

/// The default sector size: data created for 512-byte sectors fits, at the same offsets.
#[test]
fn disk_images_and_small_file_systems_of_512_byte_sectors_fit() -> Result<()> {
    let Some(daemon) = daemon_for(&[])? else { return Ok(()) };
    daemon.memlane("volume create v --size 64MiB")?;
    let device = attach(&daemon, "v")?;
    let found = Tool::new("blockdev --getss").arg(&device).check()?;
    ensure!(found.trim() == "512", "it has sectors of {found}");
    Tool::new("mkfs.ext4 -q -b 1024").arg(&device).check()?;
    let mounted = Mounted::new(&device, &daemon.folder().join("mnt"), "noatime")?;
    write_noise(&mounted.folder().join("noise"), 4 * MIB)?;
    mounted.unmount()?;
    Tool::new("e2fsck -fn").arg(&device).check()?;
    let table = daemon.folder().join("table");
    std::fs::write(&table, partition_table())?;
    Tool::new("dd bs=512 count=1 conv=notrunc status=none oflag=direct")
        .arg(format!("if={}", table.display()))
        .arg(format!("of={}", device.display()))
        .check()?;
    let show = "partx --show --noheadings --output START,SECTORS";
    let found = Tool::new(show).arg(&device).check()?;
    let numbers: Vec<_> = found.split_whitespace().collect();
    ensure!(numbers == ["63", "1000"], "the partition is at {found}");
    daemon.finish()
}

#[test]
fn who_opened_a_volumes_file_keeps_it_over_refusals_and_planned_restarts() -> Result<()> {
    let Some(mut daemon) = daemon_for(&[])? else { return Ok(()) };
    daemon.memlane("volume create v --size 64MiB")?;
    daemon.memlane("snapshot create v@s")?;
    let file = daemon.run_dir().join("volumes/v");
    let losetup = Tool::new("losetup --find --show").arg(&file).check()?;
    let device = Path::new(losetup.trim());
    Tool::new(EXT4.make).arg(device).check()?;
    let mounted = Mounted::new(device, &daemon.folder().join("mnt"), "noatime")?;
    check_refusals(&daemon, losetup.trim())?;
    write_noise(&mounted.folder().join("noise"), MIB)?;
    daemon.stop()?;
    daemon.start_again()?;
    check_refusals(&daemon, losetup.trim())?;
    write_noise(&mounted.folder().join("noise"), 2 * MIB)?;
    mounted.unmount()?;
    Tool::new("e2fsck -fn").arg(device).check()?;
    Tool::new("losetup --detach").arg(device).check()?;
    wait_for("nobody to use the volume", TIME_LIMIT, || {
        Ok(daemon.try_memlane("snapshot restore v@s")?.exit_code == Some(0))
    })?;
    let own = attach(&daemon, "v")?;
    let written = std::fs::OpenOptions::new().write(true).open(&file);
    let error = written.err().and_then(|error| error.raw_os_error());
    ensure!(error == Some(30), "a file of an attached volume was opened to write: {error:?}");
    ensure!(own.exists(), "{} is not there", own.display());
    daemon.finish()
}

#[test]
fn tools_see_when_a_volume_changed_and_copy_its_data_alone() -> Result<()> {
    let Some(daemon) = daemon_for(&[])? else { return Ok(()) };
    daemon.memlane("volume create v --size 256MiB")?;
    let (file, copy) = (daemon.run_dir().join("volumes/v"), daemon.folder().join("copy"));
    let device = attach(&daemon, "v")?;
    let newer = || Tool::new("find -L").arg(&file).arg("-newer").arg(&copy).check();
    for round in 1..=2 {
        let mut data = vec![0; 1 << 20];
        Random::new(round).fill(&mut data);
        std::os::unix::fs::FileExt::write_all_at(
            &std::fs::OpenOptions::new().write(true).open(&device)?,
            &data,
            round * 64 * MIB,
        )?;
        Tool::new("sync").arg(&device).check()?;
        if round > 1 {
            ensure!(!newer()?.is_empty(), "a change is not seen");
        }
        Tool::new("cp --preserve=timestamps").arg(&file).arg(&copy).check()?;
        ensure!(newer()?.is_empty(), "a change is seen where none is");
        let (of_file, of_copy) = (std::fs::metadata(&file)?, std::fs::metadata(&copy)?);
        let blocks = [of_file, of_copy].map(|it| std::os::unix::fs::MetadataExt::blocks(&it));
        ensure!(blocks.iter().all(|it| it * 512 <= 4 * MIB), "512 bytes each: {blocks:?}");
        Tool::new("cmp").arg(&file).arg(&copy).check()?;
    }
    daemon.finish()
}

/// Checks that operations that would remove the volume from its user, or give it to another, fail.
fn check_refusals(daemon: &Daemon, user: &str) -> Result<()> {
    for words in ["snapshot restore v@s", "volume delete v", "attach v", "export vhost-user v"] {
        let output = daemon.try_memlane(words)?;
        ensure!(output.exit_code == Some(1), "memlane {words}: {output:?}");
        ensure!(output.stderr.contains(user), "memlane {words}: {output:?}");
    }
    Ok(())
}

/// Returns an MBR partition table: one partition of 1000 sectors after the first 63.
fn partition_table() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[450] = 0x83;
    sector[454..458].copy_from_slice(&63_u32.to_le_bytes());
    sector[458..462].copy_from_slice(&1000_u32.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    sector
}

#[test]
fn a_volume_is_attached_and_exported_at_once_only_if_it_is_to_be_shared() -> Result<()> {
    let Some(daemon) = daemon_for(&[])? else { return Ok(()) };
    let refused = |words: &str, user: &str| {
        let answer = daemon.try_memlane(words)?;
        ensure!(answer.exit_code == Some(1), "{words}: {answer:?}");
        ensure!(answer.stderr.contains(user), "{words}: {answer:?}");
        anyhow::Ok(())
    };
    daemon.memlane("volume create v --size 64MiB")?;
    let device = attach(&daemon, "v")?;
    refused("export vhost-user v", &format!("attached as {}", device.display()))?;
    ensure!(daemon.memlane("export list")?.lines().count() <= 1, "it is exported nevertheless");
    daemon.memlane("export vhost-user v --share")?;
    daemon.memlane("detach v")?;
    refused("attach v", "exported over vhost-user")?;
    attach(&daemon, "v --share")?;
    // Read-only snapshots may have several users.
    daemon.memlane("snapshot create v monday")?;
    attach(&daemon, "v@monday")?;
    daemon.memlane("export vhost-user v@monday")?;
    for words in ["detach v", "detach v@monday", "export delete v", "export delete v@monday"] {
        daemon.memlane(words)?;
    }
    daemon.finish()
}

/// Starts a daemon for block devices, or reports a skip if this host does not support them.
fn daemon_for(needed: &[Ability]) -> Result<Option<Daemon>> {
    if let Some(reason) = missing(&[&[Ability::BlockDevices], needed].concat()) {
        eprintln!("skipped: {reason}");
        return Ok(None);
    }
    Daemon::start(DaemonOptions { pool_size: "1GiB", flags: "" }).map(Some)
}

/// Creates the file system, uses it during kills, and checks it.
fn check_file_system(file_system: &FileSystem) -> Result<()> {
    let needed = [Ability::Program("stress-ng"), Ability::KernelLog];
    let Some(mut daemon) = daemon_for(&needed)? else { return Ok(()) };
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed}");
    let mut kernel_log = KernelLog::follow()?;
    daemon.memlane("volume create v --size 512MiB")?;
    let device = attach(&daemon, "v")?;
    Tool::new(file_system.make).arg(&device).check()?;
    let mounted = Mounted::new(&device, &daemon.folder().join("mnt"), "noatime,discard")?;
    kill_under_work(&mut daemon, mounted.folder(), seed)?;
    mounted.unmount()?;
    Tool::new(file_system.check).arg(&device).check()?;
    daemon.finish()?;
    let complaints = kernel_log.complaints(&device)?;
    ensure!(complaints.is_empty(), "the kernel complained: {complaints:#?}");
    Ok(())
}

fn kill_under_work(daemon: &mut Daemon, folder: &Path, seed: u64) -> Result<()> {
    let stress = Tool::new("stress-ng --quiet --hdd 1 --hdd-bytes 16M --hdd-ops 20000 --verify")
        .arg("--temp-path")
        .arg(folder);
    let stress = Background::start(stress)?;
    let mut random = Random::new(seed);
    let mut checkers = Vec::new();
    for number in 0..CHECKERS {
        checkers.push(FileChecker::start(&folder.join(number.to_string()), random.number())?);
    }
    let operation_count = || checkers.iter().map(FileChecker::operation_count).sum::<u64>();
    let has_failed = || checkers.iter().any(FileChecker::has_failed);
    for _ in 0..KILLS {
        let before = operation_count();
        let pause = OPERATIONS_BETWEEN_KILLS + random.below(OPERATIONS_BETWEEN_KILLS);
        wait_for("work on the files", TIME_LIMIT, || {
            Ok(has_failed() || operation_count() > before + pause)
        })?;
        daemon.kill()?;
        daemon.start_again()?;
    }
    for checker in checkers {
        checker.finish()?;
    }
    stress.finish(TIME_LIMIT)
}

fn fio(device: &Path) -> Tool {
    Tool::new("fio --name=v --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=4k")
        .args(
            "--size=128M --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output=/dev/null"
                .split(' '),
        )
        .arg("--refill_buffers")
        .arg(format!("--filename={}", device.display()))
}

fn write_noise(path: &Path, length: u64) -> Result<()> {
    let mut random = Random::new(length);
    let mut noise = vec![0; 128 << 20];
    noise.truncate(usize::try_from(length)?);
    random.fill(&mut noise);
    std::fs::write(path, &noise)?;
    Tool::new("sync -f").arg(path).check()?;
    Ok(())
}
