//! Open loop: requests are due at fixed times, regardless of whether earlier ones have completed.
//!
//! A closed loop sends the next request when the previous one has completed. A stall then delays
//! later requests without affecting their latency (coordinated omission). In an open loop a late
//! request is sent as soon as possible, and two latencies are recorded: from the intended start,
//! which is a client's waiting time, and from when it was sent, which a closed loop would report.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::latency::Latencies;

/// Remaining wait below which the thread spins, because a sleep may take longer.
const SPIN_NS: u64 = 200_000;

/// Multiple of the planned time for which overdue requests are still sent before the target counts
/// as too slow.
const OVERTIME: u64 = 1;

/// A fixed request rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    pub(crate) rate_per_s: f64,
    pub(crate) time: Duration,
}

/// Results of an open loop.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    /// Latencies from when each request was due.
    pub(crate) intended: Latencies,
    /// Latencies from when each request was sent.
    pub(crate) service: Latencies,
    /// True if every due request was sent. Otherwise the target is too slow for the rate, and
    /// unsent requests count with the time they waited.
    pub(crate) kept_up: bool,
}

/// Clock in nanoseconds since a fixed instant. Tests simulate it.
trait Clock {
    fn now_ns(&self) -> u64;
    fn wait_until(&self, ns: u64);
}

struct RealClock(Instant);

impl Clock for RealClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[inline]
    fn wait_until(&self, ns: u64) {
        loop {
            let left = ns.saturating_sub(self.now_ns());
            match left {
                0 => return,
                1..=SPIN_NS => std::hint::spin_loop(),
                _ => std::thread::sleep(Duration::from_nanos(left - SPIN_NS)),
            }
        }
    }
}

/// Sends the due requests. A failed request ends the loop.
pub(crate) fn run(pace: Pace, request: impl FnMut() -> Result<()>) -> Result<Paced> {
    run_by(&RealClock(Instant::now()), pace, request)
}

fn run_by(
    clock: &impl Clock,
    pace: Pace,
    mut request: impl FnMut() -> Result<()>,
) -> Result<Paced> {
    ensure!(
        pace.rate_per_s.is_finite() && pace.rate_per_s > 0.0,
        "invalid rate of {} requests/s",
        pace.rate_per_s
    );
    let interval_ns = 1e9 / pace.rate_per_s;
    let time_ns = u64::try_from(pace.time.as_nanos()).context("the duration is too long")?;
    let begun = clock.now_ns();
    let due_of = |number: u64| begun + whole_ns(number as f64 * interval_ns);
    let last_call = begun + time_ns * (1 + OVERTIME);
    let mut paced = Paced { intended: Latencies::new(), service: Latencies::new(), kept_up: true };
    for number in 0.. {
        let due = due_of(number);
        if due >= begun + time_ns {
            break;
        }
        clock.wait_until(due);
        let sent = clock.now_ns();
        if sent >= last_call {
            paced.give_up((number..).map(due_of).take_while(|&due| due < begun + time_ns), sent);
            break;
        }
        request()?;
        let done = clock.now_ns();
        paced.service.record(done.saturating_sub(sent));
        paced.intended.record(done.saturating_sub(due));
    }
    Ok(paced)
}

impl Paced {
    pub(crate) fn new() -> Self {
        Self { intended: Latencies::new(), service: Latencies::new(), kept_up: true }
    }

    /// Adds another thread's results of the same load.
    pub(crate) fn add(&mut self, other: &Self) {
        self.intended.add(&other.intended);
        self.service.add(&other.service);
        self.kept_up &= other.kept_up;
    }

    fn give_up(&mut self, dues: impl Iterator<Item = u64>, now: u64) {
        self.kept_up = false;
        dues.for_each(|due| self.intended.record(now.saturating_sub(due)));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive")]
fn whole_ns(ns: f64) -> u64 {
    ns as u64
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Simulated time.
    #[derive(Default)]
    struct FakeClock(Cell<u64>);

    impl FakeClock {
        fn pass(&self, ns: u64) {
            self.0.set(self.0.get() + ns);
        }
    }

    impl Clock for FakeClock {
        fn now_ns(&self) -> u64 {
            self.0.get()
        }

        fn wait_until(&self, ns: u64) {
            self.0.set(self.0.get().max(ns));
        }
    }

    /// A target that takes 10 µs per request, with one stall of a second.
    fn with_one_stall() -> Paced {
        let clock = FakeClock::default();
        let mut number = 0;
        let pace = Pace { rate_per_s: 1_000.0, time: Duration::from_secs(10) };
        let request = || {
            number += 1;
            clock.pass(if number == 5_000 { 1_000 * MS } else { 10_000 });
            Ok(())
        };
        run_by(&clock, pace, request).expect("the target does not fail")
    }

    #[test]
    fn a_stall_shows_in_the_latency_from_the_intended_start() {
        let paced = with_one_stall();
        assert!(paced.intended.quantile(0.99) >= 300 * MS, "{}", paced.intended.quantile(0.99));
        assert_eq!(paced.intended.count(), 10_000);
    }

    #[test]
    fn a_stall_hides_in_the_latency_of_service() {
        let paced = with_one_stall();
        assert!(paced.service.quantile(0.99) < MS, "{}", paced.service.quantile(0.99));
        assert!(paced.service.max() >= 1_000 * MS * 999 / 1_000);
        assert!(paced.kept_up);
    }

    #[test]
    fn a_target_that_is_too_slow_is_given_up_and_what_waited_in_vain_counts() {
        let clock = FakeClock::default();
        let pace = Pace { rate_per_s: 1_000.0, time: Duration::from_secs(1) };
        let request = || {
            clock.pass(10 * MS);
            Ok(())
        };
        let paced = run_by(&clock, pace, request).expect("the target does not fail");
        assert!(!paced.kept_up);
        assert_eq!(paced.service.count(), 200);
        assert_eq!(paced.intended.count(), 1_000);
    }

    #[test]
    fn requests_are_due_at_the_rate_without_drift() {
        let clock = FakeClock::default();
        let pace = Pace { rate_per_s: 3.0, time: Duration::from_secs(1_000) };
        let paced = run_by(&clock, pace, || Ok(())).expect("the target does not fail");
        assert!((2_999..=3_001).contains(&paced.intended.count()), "{}", paced.intended.count());
    }

    #[test]
    fn no_pace_is_refused() {
        let pace = Pace { rate_per_s: 0.0, time: Duration::from_secs(1) };
        run(pace, || Ok(())).expect_err("nothing would ever be due");
    }
}
