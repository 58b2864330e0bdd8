//! Resource usage of this process from `/proc`, for metrics.

use std::fs;

/// Clock ticks per second in `/proc` (`USER_HZ`), the same on all current architectures of Linux.
const TICKS_PER_S: f64 = 100.0;

/// Unit of resident memory in `/proc`.
const PAGE_BYTES: u64 = 4096;

/// Resource usage of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProcessUsage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) open_files: u64,
    pub(crate) open_files_max: u64,
    pub(crate) threads: u64,
    pub(crate) started_unix_seconds: f64,
}

impl ProcessUsage {
    /// Reads the current usage. `None` if `/proc` is not mounted.
    pub(crate) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Self::of_texts(&stat, &boot, &limits, open_files)
    }

    /// Field numbers are those of proc(5). Parsing starts behind the program's name, at field 3.
    fn of_texts(stat: &str, boot: &str, limits: &str, open_files: u64) -> Option<Self> {
        let (_, behind_name) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = behind_name.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |number| Some(field(number)? as f64 / TICKS_PER_S);
        let booted = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let limit = limit.split_whitespace().next()?;
        Some(Self {
            cpu_seconds: seconds(14)? + seconds(15)?,
            threads: field(20)?,
            started_unix_seconds: booted.trim().parse::<f64>().ok()? + seconds(22)?,
            resident_bytes: field(24)? * PAGE_BYTES,
            open_files,
            open_files_max: limit.parse().unwrap_or(u64::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_this_process() {
        let usage = ProcessUsage::now().expect("there is /proc");
        assert!(usage.threads >= 1 && usage.open_files >= 3, "{usage:?}");
        assert!(usage.resident_bytes > 0 && usage.open_files_max >= usage.open_files, "{usage:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.expect("it is later than 1970").as_secs_f64() - usage.started_unix_seconds;
        assert!(age > -5.0, "started in the future: {usage:?}");
    }

    #[test]
    fn a_name_may_hold_what_separates_fields() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 9 0 1000 0 3 0";
        let limits = "Limit x\nMax open files            1024                 4096       files\n";
        let usage = ProcessUsage::of_texts(stat, "cpu 1\nbtime 500\n", limits, 4);
        let expected = ProcessUsage {
            cpu_seconds: 2.0,
            resident_bytes: 3 * PAGE_BYTES,
            open_files: 4,
            open_files_max: 1024,
            threads: 9,
            started_unix_seconds: 510.0,
        };
        assert_eq!(usage, Some(expected));
        assert_eq!(ProcessUsage::of_texts("7 (a) S", "btime 5", limits, 4), None);
    }
}
