//! Idle share of the host's processors.

use std::fs;
use std::time::{Duration, Instant};

/// Minimum interval between two measurements: the kernel counts in ticks of ten milliseconds.
const WINDOW: Duration = Duration::from_millis(200);

/// Processor time counted by the kernel so far, in ticks summed over all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
    processors: u32,
}

/// Measures the idle processors of the host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    before: Option<(Instant, Ticks)>,
    idle_cores: f64,
}

impl Host {
    /// Number of processors that were idle recently, including fractions. Zero while unknown.
    pub(crate) fn idle_cores(&mut self, now: Instant) -> f64 {
        let is_recent =
            self.before.is_some_and(|(at, _)| now.saturating_duration_since(at) < WINDOW);
        if !is_recent {
            let read = fs::read_to_string("/proc/stat").ok();
            self.observe(now, read.and_then(|text| parse(&text)));
        }
        self.idle_cores
    }

    fn observe(&mut self, now: Instant, ticks: Option<Ticks>) {
        let before = self.before.take();
        self.before = ticks.map(|ticks| (now, ticks));
        // After a pause, the time since the last measurement says little about the present.
        let recent = before.filter(|&(at, _)| now.saturating_duration_since(at) < 10 * WINDOW);
        self.idle_cores = match (recent, ticks) {
            (Some((_, before)), Some(ticks)) => idle_between(before, ticks),
            _ => 0.0,
        };
    }
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a second are a small number")]
fn idle_between(before: Ticks, after: Ticks) -> f64 {
    let idle = after.idle.saturating_sub(before.idle);
    let all = after.all.saturating_sub(before.all);
    idle as f64 / all.max(1) as f64 * f64::from(after.processors)
}

/// Parses `/proc/stat`. The first line is the sum of the lines `cpu0`, `cpu1` and so on.
fn parse(text: &str) -> Option<Ticks> {
    let sum = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = sum.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    // User, nice, system, idle, iowait, hardware and software interrupts, steal. The fields after
    // them are included in the first two.
    let fields = fields.get(..8)?;
    let is_processor = |line: &&str| line.starts_with("cpu");
    let processors = text.lines().skip(1).take_while(is_processor).count();
    Some(Ticks {
        idle: fields[3] + fields[4],
        all: fields.iter().sum(),
        processors: u32::try_from(processors).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(idle: u64, busy: u64) -> Option<Ticks> {
        parse(&format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5 cpu\n"))
    }

    #[test]
    fn idleness_is_the_idle_share_of_all_processors() {
        let begin = Instant::now();
        let mut host = Host::default();
        host.observe(begin, stat(100, 500));
        assert!(host.idle_cores.abs() < 1e-9, "nothing is known yet");
        host.observe(begin + WINDOW, stat(130, 510));
        assert!((host.idle_cores - 1.5).abs() < 1e-9, "{host:?}");
    }

    #[test]
    fn what_was_long_ago_says_nothing() {
        let begin = Instant::now();
        let mut host = Host::default();
        host.observe(begin, stat(100, 500));
        host.observe(begin + 20 * WINDOW, stat(900, 510));
        assert!(host.idle_cores.abs() < 1e-9, "{host:?}");
    }

    #[test]
    fn a_host_that_tells_nothing_counts_as_busy() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("cpu  1 2 3\n"), None);
        assert_eq!(parse("cpu  a b c d e f g h\n"), None);
    }

    #[test]
    fn this_host_tells_how_idle_it_is() {
        let text = fs::read_to_string("/proc/stat").expect("Linux has it");
        let ticks = parse(&text).expect("the first lines are those of processors");
        assert!(ticks.processors > 0 && ticks.all >= ticks.idle, "{ticks:?}");
    }
}
