//! Tests of real targets: set up, filled, measured briefly and removed, if available on this host.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bench::targets::fio::{Amount, Contents, FileEngine, Job, Pattern, Starts};
use bench::targets::{Access, Kind, Layout, LazyTarget, Place, Spec, check_is_free, fill, measure};
use rustix::fs::{Mode, OFlags};
use system::Tool;

const SIZE_BYTES: u64 = 64 << 20;

const JOB: Job = Job {
    pattern: Pattern::RandomRead,
    block_bytes: 4096,
    queue_depth: 4,
    jobs: 2,
    engine: FileEngine::Libaio,
    contents: Contents::Refilled,
    starts: Starts::Apart,
    niceness: None,
    amount: Amount::Seconds(0.2),
};

/// Sets up a target, measures a read and a write, and removes it.
fn check(spec: Spec) -> Result<()> {
    let place = Place::new(SIZE_BYTES, None);
    if let Some(reason) = spec.missing(&place) {
        eprintln!("skipped: {spec}: {reason}");
        return Ok(());
    }
    let lazy = LazyTarget::new(spec, place);
    let target = lazy.get()?;
    measure(&JOB, target).err().context("blocks that were never written were read")?;
    fill(target, 4096)?;
    for pattern in [Pattern::RandomRead, Pattern::SequentialWrite] {
        let job = match target.loses_concurrent_writes() {
            true => Job { queue_depth: 1, jobs: 1, ..JOB },
            false => JOB,
        };
        let measured = measure(&Job { pattern, ..job }, target)?;
        ensure!(measured.outcome.io.ops > 0, "nothing was done");
        ensure!(measured.command.contains(&format!("--rw={pattern}")), "{}", measured.command);
        if let (Some(true), Some(device)) = (target.counts_exactly(), measured.device) {
            let sectors = device.read_sectors + device.write_sectors;
            ensure!(sectors * 512 >= measured.outcome.io.bytes, "the device saw less: {device:?}");
        }
    }
    if let Some(used_bytes) = target.used_bytes()? {
        ensure!(used_bytes >= target.size_bytes() / 10 * 9, "noise took {used_bytes} bytes");
    }
    let access = target.access().clone();
    let own = own_path(&access);
    drop(lazy);
    if let Some(path) = own.filter(|path| !path.starts_with("/dev")) {
        ensure!(!path.exists(), "{} is left", path.display());
    }
    Ok(())
}

fn own_path(access: &Access) -> Option<PathBuf> {
    match access {
        Access::File { path, .. } => Some(path.clone()),
        Access::Nbd { uri } => uri.split_once("socket=").map(|(_, socket)| PathBuf::from(socket)),
        Access::VhostUser { socket } => Some(socket.clone()),
        Access::Nothing => None,
    }
}

#[test]
fn a_file_on_tmpfs_is_measured_and_removed() -> Result<()> {
    check(Kind::Tmpfs.into())
}

#[test]
fn a_file_in_a_folder_is_measured_and_removed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    check(Kind::Path(folder.path().to_owned()).into())?;
    ensure!(folder.path().exists(), "the folder was not ours");
    ensure!(std::fs::read_dir(folder.path())?.next().is_none(), "something is left in it");
    Ok(())
}

#[test]
fn zram_is_measured_and_removed() -> Result<()> {
    check(Kind::Zram.into())
}

#[test]
fn ext4_on_zram_is_measured_and_removed() -> Result<()> {
    check(Spec { kind: Kind::Zram, layout: Layout::Ext4 })
}

#[test]
fn a_loop_device_is_measured_and_detached() -> Result<()> {
    check(Kind::Loop.into())
}

#[test]
fn a_loop_device_over_the_disk_is_measured_and_detached() -> Result<()> {
    check(Kind::LoopDisk.into())
}

#[test]
fn an_attached_journal_volume_is_measured_and_detached() -> Result<()> {
    check(Kind::VolumeJournal.into())
}

#[test]
fn nbdkit_is_measured_and_ended() -> Result<()> {
    check(Kind::Nbdkit.into())
}

#[test]
fn qemu_nbd_is_measured_and_ended() -> Result<()> {
    check(Kind::QemuNbd.into())
}

#[test]
fn the_nbd_export_of_qemu_is_measured_and_ended() -> Result<()> {
    check(Kind::QemuExportNbd.into())
}

#[test]
fn the_fuse_export_of_qemu_is_measured_and_unmounted() -> Result<()> {
    check(Kind::QemuExportFuse.into())
}

#[test]
fn an_attached_volume_is_measured_and_detached() -> Result<()> {
    check(Kind::Volume.into())
}

#[test]
fn the_file_of_a_volume_is_measured_and_goes() -> Result<()> {
    check(Kind::VolumeFile.into())
}

#[test]
fn a_volume_past_the_kernel_is_measured_and_detached() -> Result<()> {
    check(Kind::VolumeRun.into())
}

/// Checks that smaller sectors permit smaller requests.
#[track_caller]
fn check_requests_of_2_kib(kind: Kind) -> Result<()> {
    let place = Place { sector_bytes: 512, ..Place::new(SIZE_BYTES, None) };
    let spec = Spec::from(kind);
    if let Some(reason) = spec.missing(&place) {
        eprintln!("skipped: {spec}: {reason}");
        return Ok(());
    }
    let job = Job { block_bytes: 2048, pattern: Pattern::RandomWrite, ..JOB };
    let small = LazyTarget::new(spec.clone(), place);
    fill(small.get()?, 4096)?;
    ensure!(measure(&job, small.get()?)?.outcome.io.ops > 0, "nothing was done");
    let large = LazyTarget::new(spec, Place::new(SIZE_BYTES, None));
    fill(large.get()?, 4096)?;
    let error = measure(&job, large.get()?).err().context("half a sector was written")?;
    ensure!(error.to_string().contains("sectors of 4096 bytes"), "{error:#}");
    Ok(())
}

#[test]
fn half_a_block_is_written_to_a_volume_with_small_sectors() -> Result<()> {
    check_requests_of_2_kib(Kind::Volume)
}

#[test]
fn half_a_block_is_written_to_a_loop_device_with_small_sectors() -> Result<()> {
    check_requests_of_2_kib(Kind::Loop)
}

#[test]
fn a_volume_over_nbd_is_measured_and_goes() -> Result<()> {
    check(Kind::VolumeNbd.into())
}

#[test]
fn the_generator_alone_needs_no_fill() -> Result<()> {
    let place = Place::new(SIZE_BYTES, None);
    let spec = Spec::from(Kind::Null);
    if let Some(reason) = spec.missing(&place) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let lazy = LazyTarget::new(spec, place);
    let measured = measure(&JOB, lazy.get()?)?;
    ensure!(measured.device.is_none() && measured.store.is_none(), "there is neither");
    Ok(())
}

#[test]
fn what_cannot_be_had_is_told_with_its_reason() {
    let reason = Spec::from(Kind::Path(PathBuf::from("/dev/null"))).missing(&Place::new(1, None));
    let reason = reason.expect("it is no block device");
    assert!(reason.contains("neither a directory nor a block device"), "{reason}");
}

/// A loop device over a file, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Result<Self> {
        let printed = Tool::new("losetup --find --show").arg(file).check()?;
        Ok(Self(PathBuf::from(printed.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let ended = Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(ended.is_ok_and(|status| status.success()), "{} stays", self.0.display());
    }
}

#[test]
fn only_an_empty_device_that_was_named_is_destroyed() -> Result<()> {
    if let Some(reason) = system::missing(&[system::Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(SIZE_BYTES)?;
    let device = Loop::over(file.path())?;
    let spec = Spec::from(Kind::Path(device.0.clone()));
    let unnamed = spec.missing(&Place::new(SIZE_BYTES, None));
    ensure!(unnamed.is_some_and(|reason| reason.contains("--destroy")), "it was not named");
    let named = Place::new(SIZE_BYTES, Some(device.0.clone()));
    ensure!(spec.missing(&named).is_none(), "it is empty: {:?}", spec.missing(&named));
    let opened = spec.open(&named)?;
    ensure!(opened.size_bytes() == SIZE_BYTES, "it has {} bytes", opened.size_bytes());
    drop(opened);

    let exclusively = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let used = rustix::fs::open(&device.0, exclusively, Mode::empty())?;
    check_is_refused(&spec, &named, "exclusively")?;
    drop(used);
    let signatures: [Signature; 4] = [
        ("dos", &[(446, &[0, 0, 2, 0, 0x83, 0, 9, 0, 8]), (510, &[0x55, 0xAA])]),
        ("swap", &[(0x400, &[1, 0, 0, 0, 9]), (4086, b"SWAPSPACE2")]),
        ("LVM2_member", &[(512, b"LABELONE\x01"), (536, b"LVM2 001")]),
        ("crypto_LUKS", &[(0, b"LUKS\xBA\xBE\x00\x01")]),
    ];
    for (name, bytes) in signatures {
        let written = File::options().write(true).open(&device.0)?;
        bytes.iter().try_for_each(|(at, bytes)| written.write_all_at(bytes, *at))?;
        check_is_refused(&spec, &named, name)?;
        written.write_all_at(&[0; 8192], 0)?;
    }
    check_is_free(&device.0)?;

    Tool::new("mkfs.ext4 -q").arg(&device.0).check()?;
    check_is_refused(&spec, &named, "ext4")?;
    let mount_point = tempfile::tempdir()?;
    let mounted = system::Mounted::new(&device.0, mount_point.path(), "noatime")?;
    let error = check_is_free(&device.0).err().context("it is mounted")?;
    ensure!(error.to_string().contains("mounted on"), "{error:#}");
    mounted.unmount()
}

/// Name of a signature in `blkid`, and its bytes with their offsets.
type Signature = (&'static str, &'static [(u64, &'static [u8])]);

/// Checks that a given device is rejected for this reason and is unchanged.
fn check_is_refused(spec: &Spec, place: &Place, reason: &str) -> Result<()> {
    let device = place.destroy.as_deref().context("it was named")?;
    let before = std::fs::read(device)?;
    for refused in [check_is_free(device).err(), spec.open(place).err()] {
        let refused = refused.with_context(|| format!("{reason} was not found"))?;
        let said = format!("{refused:#}");
        ensure!(said.contains("in use") && said.contains(reason), "{reason}: {said}");
    }
    ensure!(std::fs::read(device)? == before, "{reason}: the device was written");
    Ok(())
}
