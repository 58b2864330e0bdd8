//! Processor time by user during a measurement.
//!
//! The total is that of the whole machine (`/proc/stat`). The load generator's part is the time of
//! ended children of this process, and the server's that of its processes. Kernel threads are in
//! the rest.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use results::Cpu;
use system::{Interruption, processor_seconds, processor_seconds_of_children};

const TICKS_PER_S: f64 = 100.0;
const PATH: &str = "/proc/stat";

/// Window, and number of busy cores, at which a machine counts as idle: a tick or two.
const IDLE_WINDOW: Duration = Duration::from_millis(100);
const IDLE_CORES_MAX: f64 = 0.21;

/// Processor time since the start.
pub struct CpuMeter {
    server_ids: Vec<u32>,
    machine: Machine,
    generator_s: f64,
    server_s: f64,
    begun: Instant,
}

impl CpuMeter {
    pub fn start(server_ids: &[u32]) -> Result<Self> {
        Ok(Self {
            server_ids: server_ids.to_vec(),
            machine: Machine::read()?,
            generator_s: processor_seconds_of_children()?,
            server_s: seconds_of(server_ids)?,
            begun: Instant::now(),
        })
    }

    /// Returns the processor time since the start over all cores, and the duration.
    pub fn finish(&self) -> Result<(Cpu, Duration)> {
        let elapsed = self.begun.elapsed();
        let since = Machine::read()?.since(&self.machine);
        let cpu = Cpu {
            user_s: since.user_s,
            system_s: since.system_s,
            interrupts_s: since.interrupts_s,
            steal_s: since.steal_s,
            idle_s: since.idle_s + since.io_wait_s,
            generator_s: processor_seconds_of_children()? - self.generator_s,
            server_s: seconds_of(&self.server_ids)? - self.server_s,
        };
        Ok((cpu, elapsed))
    }
}

/// Waits without doing work, for what is idle to be watched.
pub(crate) fn stay_idle(time: Duration) -> Result<()> {
    let deadline = Instant::now() + time;
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        ensure!(!Interruption::is_asked_for(), "interrupted while watching an idle machine");
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    Ok(())
}

/// Returns the mean number of busy cores during `window`.
fn busy_cores(window: Duration) -> Result<f64> {
    let meter = CpuMeter::start(&[])?;
    stay_idle(window)?;
    let (cpu, elapsed) = meter.finish()?;
    Ok(cpu.busy_s() / elapsed.as_secs_f64())
}

/// Waits at most `limit` until the machine is almost idle, because earlier requests may still cause
/// background work. Returns whether that was reached.
pub fn wait_until_idle(limit: Duration) -> Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        if busy_cores(IDLE_WINDOW)? <= IDLE_CORES_MAX {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
    }
}

/// A line of `/proc/stat`, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
    pub(crate) interrupts_s: f64,
    pub(crate) steal_s: f64,
    pub(crate) idle_s: f64,
    /// Idle with outstanding disk I/O.
    pub(crate) io_wait_s: f64,
}

impl Machine {
    /// Reads the line of all cores.
    pub(crate) fn read() -> Result<Self> {
        Self::parse(&Self::text()?, "cpu").with_context(|| format!("{PATH} has another form"))
    }

    /// Reads the line of one core.
    pub(crate) fn read_core(core: usize) -> Result<Self> {
        let name = format!("cpu{core}");
        Self::parse(&Self::text()?, &name).with_context(|| format!("{PATH} has no line {name}"))
    }

    fn text() -> Result<String> {
        fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))
    }

    pub(crate) fn busy_s(&self) -> f64 {
        self.user_s + self.system_s + self.interrupts_s
    }

    pub(crate) fn all_s(&self) -> f64 {
        self.busy_s() + self.io_wait_s + self.idle_s + self.steal_s
    }

    /// Returns the share of all time that other guests of the host took, 0 to 1.
    pub(crate) fn steal_share(&self) -> f64 {
        if self.steal_s > 0.0 { self.steal_s / self.all_s() } else { 0.0 }
    }

    /// Parses a line. Guest time is already included in `user`.
    fn parse(text: &str, name: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        let ticks = line.split_whitespace().skip(1).map(str::parse::<f64>);
        let seconds: Vec<f64> =
            ticks.map(|it| it.map(|it| it / TICKS_PER_S)).collect::<Result<_, _>>().ok()?;
        let [user, nice, system, idle, io_wait, interrupts, soft_interrupts, steal, ..] =
            seconds[..]
        else {
            return None;
        };
        Some(Self {
            user_s: user + nice,
            system_s: system,
            interrupts_s: interrupts + soft_interrupts,
            steal_s: steal,
            idle_s: idle,
            io_wait_s: io_wait,
        })
    }

    /// Returns the difference. Idle time sometimes decreases in the kernel, so differences are
    /// never negative.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let difference = |now: f64, then: f64| (now - then).max(0.0);
        Self {
            user_s: difference(self.user_s, before.user_s),
            system_s: difference(self.system_s, before.system_s),
            interrupts_s: difference(self.interrupts_s, before.interrupts_s),
            steal_s: difference(self.steal_s, before.steal_s),
            idle_s: difference(self.idle_s, before.idle_s),
            io_wait_s: difference(self.io_wait_s, before.io_wait_s),
        }
    }
}

/// Returns the processor time of server processes.
pub(crate) fn seconds_of(ids: &[u32]) -> Result<f64> {
    ids.iter().map(|id| processor_seconds(*id).context("the server has exited")).sum()
}

#[cfg(test)]
mod tests {
    use system::Tool;

    use super::*;

    #[test]
    fn the_kernels_line_is_read_in_its_order() {
        let text = "cpu  100 10 200 1000 50 3 4 20 0 0\ncpu0 1 2 3\n";
        let expected = Machine {
            user_s: 1.1,
            system_s: 2.0,
            interrupts_s: 0.07,
            steal_s: 0.2,
            idle_s: 10.0,
            io_wait_s: 0.5,
        };
        assert_eq!(Machine::parse(text, "cpu"), Some(expected));
        assert_eq!(Machine::parse(text, "cpu0"), None);
        assert_eq!(Machine::parse(text, "cpu1"), None);
    }

    #[test]
    fn steal_is_a_share_and_guests_are_not_counted_twice() {
        let machine = |text| Machine::parse(text, "cpu").expect("a good line");
        let before = machine("cpu  1000 0 0 8000 0 0 0 1000 500 500\n");
        let after = machine("cpu  2000 0 0 16000 0 0 0 2000 900 900\n");
        assert_eq!(before.steal_share(), 0.1);
        assert_eq!(after.since(&before).steal_share(), 0.1);
        assert_eq!(Machine::default().steal_share(), 0.0);
    }

    #[test]
    fn what_children_spin_is_the_generators() {
        let meter = CpuMeter::start(&[]).expect("the kernel tells");
        // The process ends after this much processor time.
        let spin = "import time\nwhile time.process_time() < 0.5: pass";
        Tool::new("python3 -c").arg(spin).check().expect("it runs");
        let (cpu, _) = meter.finish().expect("the kernel tells");
        assert!(cpu.generator_s >= 0.48, "{cpu:?}");
    }

    #[test]
    fn a_server_that_is_gone_is_an_error() {
        let error = CpuMeter::start(&[u32::MAX]).err().expect("there is no such process");
        assert!(error.to_string().contains("has exited"), "{error:#}");
    }
}
