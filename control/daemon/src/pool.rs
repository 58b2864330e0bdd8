//! The pool's file in memory, which outlives the daemon: created or found, and opened.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use api::ByteSize;
use region::{HostMemory, Region, RegionSpec};
use rustix::mount::MountFlags;
use volumes::{Engine, EngineOptions};

use crate::config::{Config, PoolConfig, PoolPlace};
use crate::pool_medium::{self, Medium};
use crate::run_dir::make_dir;
use crate::start_resources::StartResources;

/// Unit of the region's size.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Maximum number of lanes per core. More have no benefit.
const LANES_A_CORE_MAX: usize = 4;

/// Minimum memory to start the daemon, in addition to the pool.
const START_BYTES_MIN: u64 = 32 << 20;

/// Mount option of tmpfs that excludes it from swap.
const NO_SWAP: &str = "noswap";

/// Opens the pool, or creates it. A file system that is mounted for it belongs to `resources`.
pub(crate) fn open(config: &Config, resources: &StartResources) -> anyhow::Result<Arc<Engine>> {
    let begun = Instant::now();
    check_group(&HostMemory::now())?;
    let spec = place(&config.pool, resources)?;
    let medium = pool_medium::of(&spec.path)?;
    if medium.loses_writes() && !config.pool.may_lie_on_disk {
        bail!("{}", pool_medium::refusal(&spec.path));
    }
    let region = Region::open_growable(&spec, capacity_bytes(&config.pool, &spec)?)?;
    let mut fresh_secret = [0; 32];
    getrandom::fill(&mut fresh_secret)
        .context("cannot get random bytes for the pool's hash key")?;
    let options = EngineOptions { lane_count: config.lane_count, fresh_secret };
    let engine = Engine::open(region, options)
        .with_context(|| format!("cannot open the pool {}", spec.path.display()))?;
    tell_of_what_is_ignored(config, &engine);
    tracing::info!(
        path = %spec.path.display(),
        size = %ByteSize(engine.size_bytes()),
        capacity = %ByteSize(engine.capacity_bytes()),
        volumes = engine.volumes().len(),
        recovery = ?engine.recovery(),
        milliseconds = begun.elapsed().as_millis(),
        "pool opened"
    );
    Ok(Arc::new(engine))
}

/// Warns of settings that are ignored for an existing pool, and of those that slow down writers.
fn tell_of_what_is_ignored(config: &Config, engine: &Engine) {
    let has = ByteSize(engine.size_bytes());
    if let Some(asked) = config.pool.size.filter(|&asked| asked != has) {
        tracing::warn!(
            %asked,
            %has,
            "ignoring pool-size: the pool exists and keeps its size; resize it with memlane \
             pool set max-memory={asked}"
        );
    }
    let can_have = ByteSize(engine.capacity_bytes());
    if let Some(asked) = config.pool.size_max.filter(|&asked| asked != can_have) {
        tracing::warn!(
            %asked,
            %can_have,
            "ignoring pool-size-max: an existing pool keeps the capacity it was created with"
        );
    }
    let core_count = std::thread::available_parallelism().map_or(1, usize::from);
    let lane_count = config.lane_count;
    if lane_count < core_count {
        tracing::warn!(
            lane_count,
            core_count,
            "the pool has fewer lanes than the host has cores: writers wait for each other; \
             raise lanes"
        );
    } else if lane_count > core_count * LANES_A_CORE_MAX {
        tracing::warn!(
            lane_count,
            core_count,
            "the pool has many more lanes than the host has cores: each reserves memory; lower \
             lanes"
        );
    }
}

/// Ensures that a memory file system is mounted for the pool, and determines its size.
fn place(pool: &PoolConfig, resources: &StartResources) -> anyhow::Result<RegionSpec> {
    let path = pool.path.clone();
    let dir = path.parent().context("the pool's path has no directory")?;
    if pool.place == PoolPlace::AsGiven {
        return Ok(RegionSpec { size_bytes: size_bytes(pool)?, path });
    }
    make_dir(dir, 0o700)?;
    match pool.place {
        PoolPlace::AsGiven => {}
        PoolPlace::SharedTmpfs => check_own_dir(dir)?,
        PoolPlace::OwnTmpfs => {
            let size_bytes = size_bytes(pool)?;
            if !is_mount_point(dir)? {
                resources.mount(dir, || mount_tmpfs(dir, size_bytes))?;
            } else if region::existing_size_bytes(&path).ok().flatten().is_none() {
                // An earlier start was killed after it had mounted a tmpfs for another size.
                give_room(&path, size_bytes);
            }
        }
        PoolPlace::OwnHugetlbfs => {
            if !is_mount_point(dir)? {
                resources.mount(dir, || mount(dir, "hugetlbfs", "pagesize=2M,mode=0700"))?;
            }
        }
    }
    Ok(RegionSpec { size_bytes: size_bytes(pool)?, path })
}

/// Maximum size of a new pool. On tmpfs the unused part takes no memory.
fn capacity_bytes(pool: &PoolConfig, spec: &RegionSpec) -> anyhow::Result<u64> {
    let dir = spec.path.parent().context("the pool's path has no directory")?;
    if let Some(size) = pool.size_max {
        return Ok(size.0);
    }
    if pool_medium::of(dir)? != Medium::Tmpfs {
        return Ok(spec.size_bytes);
    }
    // The limit of the control group may be raised later.
    let all_bytes = Some(HostMemory::now().total_bytes).filter(|&bytes| bytes < u64::MAX);
    Ok(all_bytes.unwrap_or(0).max(spec.size_bytes).next_multiple_of(HUGE_PAGE_BYTES))
}

/// Raises the size limit of the pool's file system, if the daemon mounted it and the host has
/// enough memory.
pub(crate) fn make_room(path: &Path, size_bytes: u64, wanted_bytes: u64) -> anyhow::Result<()> {
    let memory = HostMemory::now();
    let more_bytes = wanted_bytes - size_bytes;
    if more_bytes > memory.available_bytes {
        bail!(
            "not enough memory: {} more are needed, and {} left",
            ByteSize(more_bytes).rounded(),
            what_is_left(&memory)
        );
    }
    remount(path, wanted_bytes)
}

/// Sets the size limit of the pool's file system to this pool size.
pub(crate) fn give_room(path: &Path, size_bytes: u64) {
    if let Err(error) = remount(path, size_bytes) {
        tracing::warn!(error = %format!("{error:#}"), "cannot resize the pool's tmpfs");
    }
}

/// Changes the size limit of a tmpfs that the daemon mounted for the pool; others are left
/// unchanged.
fn remount(path: &Path, pool_bytes: u64) -> anyhow::Result<()> {
    let dir = path.parent().context("the pool's path has no directory")?;
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    let Some(present) = own_tmpfs_options(&mounts, dir) else { return Ok(()) };
    let mut options = format!("size={}", pool_bytes.saturating_add(HUGE_PAGE_BYTES));
    // A remount must repeat this option, because the kernel refuses to change it.
    if present.split(',').any(|option| option == NO_SWAP) {
        options = format!("{options},{NO_SWAP}");
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount_remount(dir, flags, &*options)
        .with_context(|| format!("cannot change the size of the tmpfs on {}", dir.display()))
}

/// Mount options of the tmpfs at `dir`, if the daemon mounted it. Its source is `memlane`.
fn own_tmpfs_options<'mounts>(mounts: &'mounts str, dir: &Path) -> Option<&'mounts str> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [source, place, kind, options, ..] = fields[..] else { return None };
        let is_own = (source, kind) == ("memlane", "tmpfs") && Path::new(place) == dir;
        is_own.then_some(options)
    })
}

/// Configured size, or the size of the existing pool, or half of the free memory.
fn size_bytes(pool: &PoolConfig) -> anyhow::Result<u64> {
    if let Some(size) = pool.size {
        return Ok(size.0);
    }
    let existing = region::existing_size_bytes(&pool.path)
        .with_context(|| format!("cannot stat the pool {}", pool.path.display()))?;
    if let Some(bytes) = existing {
        return Ok(bytes);
    }
    let memory = HostMemory::now();
    if memory.available_bytes == u64::MAX {
        bail!("cannot read MemAvailable from /proc/meminfo; set pool-size");
    }
    Ok(default_size_bytes(memory.available_bytes))
}

fn default_size_bytes(available_bytes: u64) -> u64 {
    (available_bytes / 2 / HUGE_PAGE_BYTES).max(2) * HUGE_PAGE_BYTES
}

/// Refuses to start if the control group has so little memory that the out-of-memory killer would
/// end the daemon. The memory of a pool stays charged to the group.
fn check_group(memory: &HostMemory) -> anyhow::Result<()> {
    if memory.limited_by.is_some() && memory.available_bytes < START_BYTES_MIN {
        bail!(
            "not enough memory to start: {} needed, {} left; raise the limit (MemoryMax= of a \
             service), or end other processes of the group",
            ByteSize(START_BYTES_MIN).rounded(),
            what_is_left(memory)
        );
    }
    Ok(())
}

fn what_is_left(memory: &HostMemory) -> String {
    let left = ByteSize(memory.available_bytes).rounded();
    match &memory.limited_by {
        None => format!("the host has {left}"),
        Some(limit) => format!(
            "the control group {} with its limit of {} has {left}",
            limit.group.display(),
            ByteSize(limit.limit_bytes).rounded()
        ),
    }
}

/// Returns whether `dir` is a mount point.
fn is_mount_point(dir: &Path) -> anyhow::Result<bool> {
    let device_of = |path: &Path| {
        let found = std::fs::metadata(path);
        found.map(|it| it.dev()).with_context(|| format!("cannot stat {}", path.display()))
    };
    Ok(device_of(dir)? != device_of(&dir.join(".."))?)
}

/// Mounts a tmpfs for the pool, with huge pages if the kernel supports them.
fn mount_tmpfs(dir: &Path, pool_bytes: u64) -> anyhow::Result<()> {
    // The size limit includes pages of the file system itself.
    let size_bytes = pool_bytes.saturating_add(HUGE_PAGE_BYTES);
    let plain = format!("size={size_bytes},mode=0700");
    let huge = format!("{plain},huge=always");
    // Older kernels do not support `noswap`.
    if mount(dir, "tmpfs", &format!("{huge},{NO_SWAP}")).is_ok() {
        return Ok(());
    }
    if let Err(error) = mount(dir, "tmpfs", &huge) {
        tracing::warn!(error = %format!("{error:#}"),
            "cannot use huge pages for the pool's tmpfs; mounting it without");
        mount(dir, "tmpfs", &plain)?;
    }
    Ok(())
}

fn mount(dir: &Path, kind: &str, options: &str) -> anyhow::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options_text =
        std::ffi::CString::new(options).context("mount options hold no zero byte")?;
    rustix::mount::mount("memlane", dir, kind, flags, Some(options_text.as_c_str()))
        .with_context(|| format!("cannot mount {kind} ({options}) on {}", dir.display()))
}

/// Checks that the directory belongs to this user. All users may create directories in a shared
/// tmpfs, so another user's directory is not trusted.
fn check_own_dir(dir: &Path) -> anyhow::Result<()> {
    let found =
        std::fs::symlink_metadata(dir).with_context(|| format!("cannot stat {}", dir.display()))?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} belongs to another user; set pool-path to a place of your own", dir.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use region::GroupLimit;

    use super::*;

    #[test]
    fn a_new_pool_gets_half_of_the_free_memory_in_huge_pages() {
        assert_eq!(default_size_bytes(4 << 30), 2 << 30);
        assert_eq!(default_size_bytes((4 << 30) + (3 << 20)), 2 << 30);
        assert_eq!(default_size_bytes(0), 4 << 20);
    }

    #[test]
    fn a_group_without_memory_is_named_with_its_figures() {
        let limited = |available_bytes| HostMemory {
            total_bytes: 8 << 30,
            available_bytes,
            limited_by: Some(GroupLimit {
                group: "/sys/fs/cgroup/small".into(),
                limit_bytes: 400 << 20,
                available_bytes,
            }),
        };
        check_group(&limited(64 << 20)).expect("there is room");
        let refused = check_group(&limited(8 << 20)).expect_err("there is none").to_string();
        assert!(refused.contains("/sys/fs/cgroup/small"), "{refused}");
        assert!(refused.contains("400 MiB") && refused.contains("8.00 MiB"), "{refused}");
    }

    #[test]
    fn only_a_tmpfs_of_our_own_is_given_another_size() {
        let mounts = "memlane /run/x/pool tmpfs rw,noswap 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n\
                      memlane /run/y/pool hugetlbfs rw 0 0\n";
        assert_eq!(own_tmpfs_options(mounts, Path::new("/run/x/pool")), Some("rw,noswap"));
        for other in ["/dev/shm", "/run/y/pool", "/run/x"] {
            assert_eq!(own_tmpfs_options(mounts, Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_mount_point_is_where_another_file_system_begins() {
        assert!(is_mount_point(Path::new("/proc")).expect("/proc is there"));
        assert!(!is_mount_point(Path::new("/proc/self")).expect("/proc/self is there"));
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        check_own_dir(dir.path()).expect("it is ours");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).expect("a link");
        let error = check_own_dir(&link).expect_err("a link may lead anywhere");
        assert!(error.to_string().contains("pool-path"), "{error}");
    }
}
