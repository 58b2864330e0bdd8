//! Durations of one kind of operation, in total and per time slice.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use results::{Latency, LatencyKind, Slice};

use crate::latency::{Latencies, nanoseconds_in};

/// Slice length: enough for hundreds of operations, short enough to show hiccups.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Number of pieces in which steadiness is judged.
const PIECES: usize = 5;

/// Maximum latency in nanoseconds. Longer ones are clamped.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Time window in which operations count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) begin: Instant,
    pub(crate) length: Duration,
}

impl Window {
    fn slice_count(self) -> usize {
        let count = self.length.as_nanos().div_ceil(SLICE.as_nanos());
        usize::try_from(count).expect("a measurement is no eternity")
    }

    /// Returns the slice that contains `instant`, if within the window.
    fn slice(self, instant: Instant) -> Option<usize> {
        let since = instant.checked_duration_since(self.begin)?;
        let index = usize::try_from(since.as_nanos() / SLICE.as_nanos()).ok()?;
        (since < self.length).then_some(index)
    }
}

/// Times of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    /// When it was due, if the load is paced.
    pub(crate) due: Option<Instant>,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
}

/// Activity of a thread outside its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spent {
    /// Creating and verifying messages.
    Generating,
    /// Waiting for other threads to keep to the mix, or for the next due time.
    Waiting,
}

/// Measurements of one kind of operation. Allocates its memory at creation, so that it never
/// stalls.
#[derive(Clone)]
pub(crate) struct Meter {
    window: Window,
    service: Latencies,
    intended: Latencies,
    slices: Vec<Histogram<u32>>,
    service_ns: u64,
    generating_ns: u64,
    waiting_ns: u64,
}

impl Meter {
    pub(crate) fn new(window: Window) -> Self {
        let slice = Histogram::new_with_max(LATENCY_NS_MAX, 2).expect("a good range");
        Self {
            window,
            service: Latencies::new(),
            intended: Latencies::new(),
            slices: vec![slice; window.slice_count()],
            service_ns: 0,
            generating_ns: 0,
            waiting_ns: 0,
        }
    }

    /// Counts an operation if it was sent and answered within the window.
    pub(crate) fn record(&mut self, moments: Moments) {
        let Moments { due, sent, answered } = moments;
        let Some(slice) = self.window.slice(answered) else { return };
        if sent < self.window.begin {
            return;
        }
        let service_ns = nanoseconds_in(answered - sent);
        self.service.record(service_ns);
        self.service_ns += service_ns;
        let mut shown_ns = service_ns;
        if let Some(due) = due {
            shown_ns = nanoseconds_in(answered.saturating_duration_since(due));
            self.intended.record(shown_ns);
        }
        self.slices[slice].saturating_record(shown_ns);
    }

    /// Counts another activity from `begun` until `ended`.
    pub(crate) fn spend(&mut self, spent: Spent, begun: Instant, ended: Instant) {
        if begun < self.window.begin || self.window.slice(ended).is_none() {
            return;
        }
        let total = match spent {
            Spent::Generating => &mut self.generating_ns,
            Spent::Waiting => &mut self.waiting_ns,
        };
        *total += nanoseconds_in(ended - begun);
    }

    /// Adds another thread's measurements of the same window.
    pub(crate) fn add(&mut self, other: &Self) {
        self.service.add(&other.service);
        self.intended.add(&other.intended);
        for (slice, other) in self.slices.iter_mut().zip(&other.slices) {
            slice.add(other).expect("histograms of one kind add up");
        }
        self.service_ns += other.service_ns;
        self.generating_ns += other.generating_ns;
        self.waiting_ns += other.waiting_ns;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.service.count()
    }

    pub(crate) fn operations_per_s(&self) -> f64 {
        self.operations() as f64 / self.window.length.as_secs_f64()
    }

    /// Returns the rates in equal pieces of the window, in order, or nothing if it is too short.
    pub(crate) fn operations_per_s_in_pieces(&self) -> Vec<f64> {
        let length = self.slices.len() / PIECES;
        if length == 0 {
            return Vec::new();
        }
        let seconds = SLICE.as_secs_f64() * length as f64;
        let count = |piece: &[Histogram<u32>]| piece.iter().map(Histogram::len).sum::<u64>();
        self.slices.chunks(length).take(PIECES).map(|it| count(it) as f64 / seconds).collect()
    }

    /// Returns durations from when operations were sent, or `None` without operations.
    pub(crate) fn service(&self) -> Option<Latency> {
        self.service.recorded(LatencyKind::Service).ok()
    }

    /// Returns durations from when operations were due, or `None` if the load is not paced.
    pub(crate) fn intended(&self) -> Option<Latency> {
        self.intended.recorded(LatencyKind::Intended).ok()
    }

    /// Returns the load generator's share of its threads' busy time, 0 to 1.
    pub(crate) fn generator_share(&self) -> f64 {
        share(self.generating_ns, self.service_ns)
    }

    /// Returns the same for overlapping operations, whose times do not add up: relative to the
    /// total time of `threads`.
    pub(crate) fn generator_share_of(&self, threads: usize) -> f64 {
        let had_ns = nanoseconds_in(self.window.length).saturating_mul(threads as u64);
        self.generating_ns as f64 / (had_ns as f64).max(1.0)
    }

    /// Returns the share of waiting in the threads' time, 0 to 1.
    pub(crate) fn waiting_share(&self) -> f64 {
        share(self.waiting_ns, self.service_ns + self.generating_ns)
    }

    /// Returns latencies per slice, from when operations were due if the load is paced, otherwise
    /// from when they were sent.
    pub(crate) fn slices(&self) -> Vec<Slice> {
        let slice = |it: &Histogram<u32>| Slice {
            ops: it.len(),
            min: if it.is_empty() { 0 } else { it.min() },
            p50: it.value_at_quantile(0.5),
            max: it.max(),
        };
        self.slices.iter().map(slice).collect()
    }
}

fn share(part: u64, rest: u64) -> f64 {
    part as f64 / ((part + rest) as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window { begin: Instant::now(), length: Duration::from_millis(250) }
    }

    fn moments(window: Window, [due, sent, answered]: [u64; 3]) -> Moments {
        let at = |us| window.begin + Duration::from_micros(us);
        Moments { due: Some(at(due)), sent: at(sent), answered: at(answered) }
    }

    #[test]
    fn an_operation_that_began_late_is_long_only_from_when_it_was_due() {
        let mut meter = Meter::new(window());
        meter.record(moments(meter.window, [1000, 51_000, 51_010]));
        let [service, intended] = [meter.service(), meter.intended()].map(|it| it.expect("one"));
        assert!(service.max.abs_diff(10_000) <= 10, "{}", service.max);
        assert!(intended.max.abs_diff(50_010_000) <= 50_010, "{}", intended.max);
        assert_eq!(meter.slices()[0].ops, 1);
        assert!(meter.slices()[0].max > 49_000_000);
    }

    #[test]
    fn what_ends_outside_the_window_does_not_count() {
        let mut meter = Meter::new(window());
        meter.record(moments(meter.window, [0, 1, 250_000]));
        assert_eq!(meter.operations(), 0);
        assert!(meter.service().is_none());
        meter.record(moments(meter.window, [0, 1, 249_999]));
        assert_eq!(meter.operations(), 1);
        assert_eq!(meter.slices().len(), 3);
        assert_eq!(meter.slices()[2].ops, 1);
    }

    #[test]
    fn what_threads_measured_adds_up() {
        let window = window();
        let [mut one, mut two] = [Meter::new(window), Meter::new(window)];
        one.record(moments(window, [0, 0, 10]));
        two.record(moments(window, [0, 0, 30]));
        let [begun, ended] = [0, 40].map(|us| window.begin + Duration::from_micros(us));
        two.spend(Spent::Generating, begun, ended);
        one.add(&two);
        assert_eq!(one.operations(), 2);
        assert!((one.generator_share() - 0.5).abs() < 1e-9);
        let counted: u64 =
            one.service().expect("there are two").histogram.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 2);
    }
}
