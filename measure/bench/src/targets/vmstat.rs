//! Activity of the machine per second during a measurement: the columns of vmstat.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::cpu::Machine;

pub const INTERVAL: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of seconds. Later ones are omitted.
const SECONDS_MAX: usize = 86_400;

/// A second, identified by its end. Shares are of all cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    pub end: Instant,
    pub user: f64,
    /// Including interrupts.
    pub system: f64,
    pub io_wait: f64,
    pub idle: f64,
    pub steal: f64,
    /// Reads from block devices of the whole machine.
    pub in_bytes_per_s: f64,
    pub out_bytes_per_s: f64,
    /// Runnable threads.
    pub running: f64,
    /// Threads waiting for a device.
    pub blocked: f64,
}

/// A thread that samples once a second. It is stopped when dropped.
pub struct Vmstat {
    must_stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Second>>>>,
}

impl Vmstat {
    pub fn start() -> Result<Self> {
        let must_stop = Arc::new(AtomicBool::new(false));
        let first = Look::take()?;
        let flag = Arc::clone(&must_stop);
        let thread = std::thread::Builder::new()
            .name("vmstat".to_owned())
            .spawn(move || watch(first, &flag))
            .context("cannot start a thread")?;
        Ok(Self { must_stop, thread: Some(thread) })
    }

    /// Returns all complete seconds since the start.
    pub fn finish(mut self) -> Result<Vec<Second>> {
        self.must_stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is taken once");
        thread.join().map_err(|_| anyhow!("the thread that looks at the machine panicked"))?
    }
}

impl Drop for Vmstat {
    fn drop(&mut self) {
        self.must_stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its result is no longer needed.
            let _ = thread.join();
        }
    }
}

fn watch(first: Look, must_stop: &AtomicBool) -> Result<Vec<Second>> {
    let (mut seconds, mut before) = (Vec::new(), first);
    while seconds.len() < SECONDS_MAX {
        let due = before.at + INTERVAL;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if must_stop.load(Ordering::Relaxed) {
                return Ok(seconds);
            }
            std::thread::sleep(left.min(LOOK_INTERVAL));
        }
        let now = Look::take()?;
        seconds.push(now.since(&before));
        before = now;
    }
    Ok(seconds)
}

/// Counters at one moment.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    machine: Machine,
    in_kib: f64,
    out_kib: f64,
    running: f64,
    blocked: f64,
}

impl Look {
    fn take() -> Result<Self> {
        let paging = read("/proc/vmstat")?;
        let state = read("/proc/stat")?;
        let of = |text: &str, name: &str| {
            named(text, name).with_context(|| format!("the kernel does not report {name}"))
        };
        Ok(Self {
            machine: Machine::read()?,
            in_kib: of(&paging, "pgpgin")?,
            out_kib: of(&paging, "pgpgout")?,
            running: of(&state, "procs_running")?,
            blocked: of(&state, "procs_blocked")?,
            at: Instant::now(),
        })
    }

    fn since(&self, before: &Self) -> Second {
        let spent = self.machine.since(&before.machine);
        let all_s = spent.all_s();
        let share = |part_s: f64| if all_s > 0.0 { part_s / all_s } else { 0.0 };
        let elapsed_s = (self.at - before.at).as_secs_f64();
        Second {
            end: self.at,
            user: share(spent.user_s),
            system: share(spent.system_s + spent.interrupts_s),
            io_wait: share(spent.io_wait_s),
            idle: share(spent.idle_s),
            steal: spent.steal_share(),
            in_bytes_per_s: (self.in_kib - before.in_kib) * 1024.0 / elapsed_s,
            out_bytes_per_s: (self.out_kib - before.out_kib) * 1024.0 / elapsed_s,
            running: self.running,
            blocked: self.blocked,
        }
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Returns the number after a name, with one pair per line.
fn named(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use system::wait_for;

    use super::*;

    #[test]
    fn names_are_whole_words() {
        let text = "pgpgin 7\npgpgout 9\npgpgin_more 1\n";
        assert_eq!(named(text, "pgpgout"), Some(9.0));
        assert_eq!(named(text, "pgpg"), None);
    }

    #[test]
    fn shares_and_rates_follow_from_two_looks() {
        let before = Look {
            at: Instant::now(),
            machine: Machine::default(),
            in_kib: 10.0,
            out_kib: 0.0,
            running: 1.0,
            blocked: 0.0,
        };
        let machine = Machine {
            user_s: 1.0,
            system_s: 0.25,
            interrupts_s: 0.25,
            steal_s: 0.0,
            idle_s: 2.0,
            io_wait_s: 0.5,
        };
        let at = before.at + Duration::from_secs(2);
        let now = Look { at, machine, in_kib: 14.0, out_kib: 2.0, running: 3.0, blocked: 2.0 };
        let second = now.since(&before);
        assert_eq!((second.user, second.system), (0.25, 0.125));
        assert_eq!((second.io_wait, second.idle), (0.125, 0.5));
        assert_eq!((second.in_bytes_per_s, second.out_bytes_per_s), (2048.0, 1024.0));
        assert_eq!((second.running, second.blocked), (3.0, 2.0));
    }

    #[test]
    fn it_looks_until_it_is_told_to_stop() {
        let vmstat = Vmstat::start().expect("the kernel tells");
        let begun = Instant::now();
        let enough = INTERVAL + INTERVAL / 4;
        wait_for("a second to go by", 10 * INTERVAL, || Ok(begun.elapsed() > enough))
            .expect("time goes by");
        let seconds = vmstat.finish().expect("the kernel tells");
        assert!(!seconds.is_empty());
        for second in seconds {
            let sum = second.user + second.system + second.io_wait + second.idle + second.steal;
            assert!((sum - 1.0).abs() < 1e-6 || sum == 0.0, "{second:?}");
        }
    }
}
