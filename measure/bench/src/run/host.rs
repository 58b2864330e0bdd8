//! Description of the machine, from its kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use results::Host;
use system::Tool;

use crate::targets::Machine;

/// Describes the machine of a run. Takes several milliseconds.
pub(crate) fn describe() -> Host {
    let cpuinfo = read("/proc/cpuinfo");
    let meminfo = read("/proc/meminfo");
    let load = read("/proc/loadavg");
    Host {
        cpu: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from) as u64,
        tsc_hz: crate::clock::tsc_hz(),
        last_level_cache_bytes: last_level_cache_bytes(),
        memory_bytes: meminfo_bytes(&meminfo, "MemTotal").unwrap_or(0),
        numa_nodes: numa_node_count(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        virtualisation: virtualisation(&cpuinfo),
        mitigations: mitigations(),
        frequency_governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        idle_driver: line("/sys/devices/system/cpu/cpuidle/current_driver"),
        transparent_huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled")
            .map(|text| chosen(&text)),
        load_average: load.split_whitespace().take(3).filter_map(|it| it.parse().ok()).collect(),
        steal_share: Machine::read().ok().map(|since_boot| since_boot.steal_share()),
    }
}

/// Returns the size of the largest cache.
pub(crate) fn last_level_cache_bytes() -> Option<u64> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let size = |path: &Path| kib_text(&fs::read_to_string(path.join("size")).ok()?);
    caches.flatten().filter_map(|cache| size(&cache.path())).max()
}

/// Returns the memory available without swapping, as estimated by the kernel, or 0 if unknown.
pub(crate) fn memory_available_bytes() -> u64 {
    meminfo_bytes(&read("/proc/meminfo"), "MemAvailable").unwrap_or(0)
}

/// Returns a line of `/proc/meminfo` in bytes.
fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let value = field(text, name)?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Parses `32768K`, the kernel's format of cache sizes.
fn kib_text(text: &str) -> Option<u64> {
    let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
    Some(kib << 10)
}

/// Returns the value after the first `name:`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Returns the selected value in brackets, as in `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, after)| after.split_once(']'));
    inside.map_or(text, |(inside, _)| inside).to_owned()
}

fn numa_node_count() -> u64 {
    let Ok(entries) = fs::read_dir("/sys/devices/system/node") else { return 1 };
    let is_node =
        |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let nodes = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_node));
    (nodes.count() as u64).max(1)
}

fn virtualisation(cpuinfo: &str) -> Option<String> {
    // On bare metal it prints `none` and fails.
    if let Ok(output) = Tool::new("systemd-detect-virt --vm").run() {
        let said = output.stdout.trim();
        if !said.is_empty() && said != "none" {
            return Some(said.to_owned());
        }
    }
    let flags = field(cpuinfo, "flags")?;
    let is_guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
    Some(if is_guest { "unnamed hypervisor" } else { "none" }.to_owned())
}

fn mitigations() -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    let entry = |entry: fs::DirEntry| {
        let state = fs::read_to_string(entry.path()).ok()?;
        Some((entry.file_name().into_string().ok()?, state.trim().to_owned()))
    };
    entries.flatten().filter_map(entry).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_line_of_its_name() {
        let text = "MemFree:  1 kB\nMemAvailable:   20 kB\n";
        assert_eq!(meminfo_bytes(text, "MemAvailable"), Some(20 << 10));
        assert_eq!(meminfo_bytes(text, "Swap"), None);
    }

    #[test]
    fn the_choice_among_several_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("performance"), "performance");
    }

    #[test]
    fn every_linux_tells_its_kernel_and_memory() {
        let host = describe();
        assert!(!host.kernel.is_empty());
        assert!(host.memory_bytes > 0);
        assert_eq!(host.load_average.len(), 3);
    }
}
