//! Processor time stolen by other guests of the host.

use std::fs;

/// Processor time of all cores since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    total: u64,
    steal: u64,
}

impl ProcessorTime {
    /// Reads the current values, or returns `None` if the kernel does not provide them.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|it| it.parse().ok()).collect();
        // User, nice, system, idle, I/O wait, interrupts, soft interrupts, steal. Guest times
        // follow, and are already included in user and nice.
        let own = ticks.get(..8)?;
        Some(Self { total: own.iter().sum(), steal: own[7] })
    }

    pub(crate) fn steal_share_since_boot(self) -> f64 {
        Self::default().steal_share_until(self)
    }

    pub(crate) fn steal_share_until(self, later: Self) -> f64 {
        let total = later.total.saturating_sub(self.total).max(1);
        later.steal.saturating_sub(self.steal) as f64 / total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_figure_and_guests_are_not_counted_twice() {
        let before = ProcessorTime::parse("cpu  10 0 0 80 0 0 0 10 5 5\n").expect("a good line");
        let after = ProcessorTime::parse("cpu  20 0 0 160 0 0 0 20 9 9\n").expect("a good line");
        assert_eq!(before.steal_share_since_boot(), 0.1);
        assert_eq!(before.steal_share_until(after), 0.1);
    }
}
