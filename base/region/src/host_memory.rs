//! Memory available to this process: that of the host, limited by the control groups of the
//! process.
//!
//! A pool in memory is charged to the group whose process touched it first. The kernel kills a
//! process whose group exceeds its limit, while other shortages are errors.

use std::path::{Path, PathBuf};

/// Memory available without swapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Memory of the host, or the maximum if the kernel does not report it.
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// Control group with the smallest limit, if it is smaller than the host's memory.
    pub limited_by: Option<GroupLimit>,
}

/// Memory limit of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Path of the group.
    pub group: PathBuf,
    pub limit_bytes: u64,
    pub available_bytes: u64,
}

/// Files of one version of control groups.
struct Version {
    /// Name of the controller in `/proc/self/cgroup`.
    controller: &'static str,
    limits: &'static [&'static str],
    usage: &'static str,
    /// Prefixes of lines in `memory.stat` that count reclaimable file pages.
    files: [&'static str; 2],
}

const V1: Version = Version {
    controller: "memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    files: ["total_active_file ", "total_inactive_file "],
};

const V2: Version = Version {
    controller: "",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    files: ["active_file ", "inactive_file "],
};

impl HostMemory {
    pub fn now() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let text = read(&root.join("proc/meminfo"));
        let total_bytes = meminfo_bytes(&text, "MemTotal:").unwrap_or(u64::MAX);
        let host_bytes = meminfo_bytes(&text, "MemAvailable:").unwrap_or(u64::MAX);
        let least = groups(root).into_iter().min_by_key(|limit| limit.available_bytes);
        let limited_by = least.filter(|limit| limit.available_bytes < host_bytes);
        let available_bytes = limited_by.as_ref().map_or(host_bytes, |it| it.available_bytes);
        Self { total_bytes, available_bytes, limited_by }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Limits of the process's control groups and their ancestors.
fn groups(root: &Path) -> Vec<GroupLimit> {
    let own = read(&root.join("proc/self/cgroup"));
    let mounts = read(&root.join("proc/self/mountinfo"));
    let mut limits = Vec::new();
    for mount in mounts.lines() {
        let Some((version, mount_root, place)) = hierarchy(mount) else { continue };
        let Some(path) = own.lines().find_map(|line| group_of(line, version)) else { continue };
        let top = root.join(place.trim_start_matches('/'));
        // In a container, the hierarchy is mounted from the container's group on.
        let below = path.strip_prefix(mount_root).unwrap_or("").trim_matches('/');
        let inside = Path::new(below).components().all(|it| it.as_os_str() != "..");
        let group = if inside { top.join(below) } else { top.clone() };
        let all = group.ancestors().take_while(|group| group.starts_with(&top));
        limits.extend(all.filter_map(|group| version.limit(group)));
    }
    limits
}

/// Version, root group and mount point of a mounted hierarchy with a memory controller.
fn hierarchy(mount: &str) -> Option<(&'static Version, &str, &str)> {
    let (place, kind) = mount.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (mount_root, place) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    match (kind.next()?, kind.nth(1)?) {
        ("cgroup2", _) => Some((&V2, mount_root, place)),
        ("cgroup", options) if options.split(',').any(|it| it == V1.controller) => {
            Some((&V1, mount_root, place))
        }
        _ => None,
    }
}

/// Group of the process, if a line of `/proc/self/cgroup` belongs to this version's memory
/// controller.
fn group_of<'line>(line: &'line str, version: &Version) -> Option<&'line str> {
    let (_, line) = line.split_once(':')?;
    let (controllers, path) = line.split_once(':')?;
    controllers.split(',').any(|it| it == version.controller).then_some(path)
}

impl Version {
    /// Limit of a group. `None` if it has none.
    fn limit(&self, group: &Path) -> Option<GroupLimit> {
        let number = |name: &str| read(&group.join(name)).trim().parse::<u64>().ok();
        let limit_bytes = self.limits.iter().filter_map(|name| number(name)).min()?;
        let usage_bytes = number(self.usage)?;
        let stat = read(&group.join("memory.stat"));
        let files = self.files.iter().filter_map(|name| {
            stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        });
        let files_bytes: u64 = files.sum();
        let kept_bytes = usage_bytes.saturating_sub(files_bytes);
        let available_bytes = limit_bytes.saturating_sub(kept_bytes);
        Some(GroupLimit { group: group.to_owned(), limit_bytes, available_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Checks a host with 8 GiB, 6 GiB of them available, and these files.
    fn check(files: &[(&str, &str)], available_mib: u64, group: Option<&str>) {
        let root = tempfile::tempdir().expect("a directory");
        let meminfo = "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n";
        for (path, contents) in files.iter().chain(&[("proc/meminfo", meminfo)]) {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
            std::fs::write(path, contents).expect("there is room");
        }
        let memory = HostMemory::below(root.path());
        assert_eq!(memory.total_bytes, 8192 * MIB);
        assert_eq!(memory.available_bytes, available_mib * MIB, "{memory:?}");
        let found = memory.limited_by.map(|limit| limit.group);
        assert_eq!(found, group.map(|group| root.path().join(group)));
    }

    #[test]
    fn without_a_limit_it_is_what_the_kernel_calls_available() {
        check(&[], 6144, None);
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let files = [
            ("proc/self/cgroup", "0::/memlaned.service"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memlaned.service/memory.max", "max\n"),
            ("sys/fs/cgroup/memlaned.service/memory.current", "4096\n"),
        ];
        check(&files, 6144, None);
    }

    #[test]
    fn the_least_of_the_groups_counts_and_pages_of_files_do_not() {
        let mounts = "23 1 0:20 / /proc rw - proc proc rw\n\
                      30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw";
        let (limit, usage) = (&(400 * MIB).to_string(), &(300 * MIB).to_string());
        let stat = format!("anon 1\nactive_file {}\ninactive_file {}\n", 20 * MIB, 30 * MIB);
        let files = [
            ("proc/self/cgroup", "0::/system.slice/memlaned.service\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/system.slice/memory.max", limit),
            ("sys/fs/cgroup/system.slice/memory.current", usage),
            ("sys/fs/cgroup/system.slice/memory.stat", &stat),
            ("sys/fs/cgroup/system.slice/memlaned.service/memory.max", "8589934592"),
            ("sys/fs/cgroup/system.slice/memlaned.service/memory.high", "1073741824"),
            ("sys/fs/cgroup/system.slice/memlaned.service/memory.current", usage),
        ];
        check(&files, 150, Some("sys/fs/cgroup/system.slice"));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_top_of_either_version() {
        let mounts = "34 31 0:31 /docker/7 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let (limit, usage) = (&(400 * MIB).to_string(), &(100 * MIB).to_string());
        let stat = format!("inactive_file 1\ntotal_inactive_file {}\n", 10 * MIB);
        for own in ["5:cpu:/docker/7\n4:memory:/docker/7\n", "4:memory:/docker/7/8", "4:memory:/.."]
        {
            let files = [
                ("proc/self/cgroup", own),
                ("proc/self/mountinfo", mounts),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", limit),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", usage),
                ("sys/fs/cgroup/memory/memory.stat", &stat),
            ];
            check(&files, 310, Some("sys/fs/cgroup/memory/"));
        }
    }
}
