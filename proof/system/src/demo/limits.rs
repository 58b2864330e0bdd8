//! A host on which memory is scarce: PostgreSQL in a control group with a limit, which also counts
//! the kernel's cache of its files; and how busy the processors are.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use system::Interruption;

/// Where control groups of memory are: of version 2, then of version 1, each with the file of the
/// limit.
const HIERARCHIES: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory/tasks", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];

/// How long the host is watched before anything runs.
const WATCHED: Duration = Duration::from_secs(1);

/// The kernel counts processor time in hundredths of a second.
const TICKS_PER_S: f64 = 100.0;

/// A control group of our own. Dropped, it is removed.
pub(crate) struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    pub(crate) fn of(bytes: u64) -> Result<Self> {
        let is_there = |it: &&(&str, &str, &str)| Path::new(it.0).exists();
        let hierarchy = HIERARCHIES.iter().find(is_there);
        let (_, folder, file) = hierarchy.context("the host has no control groups of memory")?;
        let group = Path::new(folder).join(format!("memlane-demo-{}", std::process::id()));
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let limit = Self { group };
        let path = limit.group.join(file);
        fs::write(&path, bytes.to_string())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(limit)
    }

    /// Words before a command line that put its process into the group.
    pub(crate) fn starter(&self) -> Vec<String> {
        let join = format!("echo $$ > {}/cgroup.procs; exec \"$0\" \"$@\"", self.group.display());
        ["sh", "-c", &join].map(str::to_owned).into()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        // Its processes have ended; the kernel may take a moment to see it.
        let deadline = Instant::now() + WATCHED;
        while fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processor time that the host has spent on anything since it started, in seconds.
pub(crate) fn busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    busy_in(&text).context("/proc/stat does not begin as it should")
}

/// Cores that are busy with other things.
pub(crate) fn busy_cores() -> Result<f64> {
    let (start, before) = (Instant::now(), busy_seconds()?);
    thread::sleep(WATCHED);
    Ok((busy_seconds()? - before) / start.elapsed().as_secs_f64())
}

/// The first line has ticks of user, nice, system, idle, iowait, irq, softirq and steal.
fn busy_in(text: &str) -> Option<f64> {
    let ticks = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<f64> = ticks.map_while(|number| number.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6].iter().map(|index| ticks.get(*index)).sum::<Option<f64>>()?;
    Some(busy / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_no_work() {
        let busy = busy_in("cpu  100 20 30 9000 800 4 6 50 0 0\ncpu0 1 1 1 1\n");
        assert_eq!(busy, Some(1.6));
        assert_eq!(busy_in("intr 5"), None);
    }
}
