//! Processor load of the host.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Time for which the host is observed before the demonstration.
const WATCHED: Duration = Duration::from_secs(1);

/// Resolution of the kernel's processor time: hundredths of a second.
const TICKS_PER_S: f64 = 100.0;

/// Processor time that the host has used since its start, in seconds.
pub(crate) fn busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    busy_in(&text).context("/proc/stat does not begin as it should")
}

/// Number of cores that are busy with other work.
pub(crate) fn busy_cores() -> Result<f64> {
    let (start, before) = (Instant::now(), busy_seconds()?);
    thread::sleep(WATCHED);
    Ok((busy_seconds()? - before) / start.elapsed().as_secs_f64())
}

/// Parses the first line, which has ticks of user, nice, system, idle, iowait, irq, softirq and
/// steal.
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
