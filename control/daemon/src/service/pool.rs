//! The limits of the pool, and where it is heading.

use api::{Pool, PoolPatch, Problem};

use crate::service::Service;
use crate::service::snapshots::not_available;

impl Service {
    pub(crate) fn show_pool(&self) -> Pool {
        let usage = self.engine.usage();
        let name_of = |id| self.catalog.by_id(id).map(|volume| volume.name());
        Pool {
            max_memory_bytes: usage.size_bytes,
            size_bytes: usage.size_bytes,
            used_bytes: usage.used_bytes,
            guaranteed_bytes: 0,
            reserve_bytes: 0,
            daemon_bytes: daemon_bytes().unwrap_or(0),
            thresholds_percent: self.watch.thresholds_percent().to_vec(),
            passed_percent: self.watch.passed_percent(),
            forecast: self.filling.forecast(usage.size_bytes, name_of),
        }
    }

    pub(crate) fn change_pool(&self, request: &PoolPatch) -> Result<Pool, Problem> {
        if request.max_memory.is_some() {
            let problem = not_available("changes of max_memory are");
            return Err(problem.in_field("max_memory"));
        }
        Ok(self.show_pool())
    }
}

/// Memory of this process that is not the pool: what the kernel counts as its own.
fn daemon_bytes() -> Option<u64> {
    anonymous_bytes(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn anonymous_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_process_is_what_the_kernel_counts_as_its_own() {
        let status = "VmRSS:\t 9999 kB\nRssAnon:\t    2048 kB\nRssFile:\t 1 kB\n";
        assert_eq!(anonymous_bytes(status), Some(2 << 20));
        assert_eq!(anonymous_bytes("Name:\tmemlaned\n"), None);
        assert!(daemon_bytes().expect("this process has memory") > 0);
    }
}
