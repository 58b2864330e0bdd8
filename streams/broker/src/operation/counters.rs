//! Request counters: plain numbers, without allocations, and without locks except on a full pool.
//! Relaxed throughout, because no other memory depends on them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ApiKey;

/// Number of counted request keys, from 0 on. The protocol has 93.
const KEY_COUNT: usize = 100;

/// Number of counted error codes, from -1 on. The protocol has 134.
const CODE_COUNT: usize = 150;

/// Upper bounds of the histograms, in microseconds.
const BOUNDS_US: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 5_000_000,
];

/// Upper bounds in seconds.
pub(super) const BOUNDS_SECONDS: [f64; BOUNDS_US.len()] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 5.0,
];

/// Minimum interval between log lines about a full pool.
const FULL_POOL_LOG_INTERVAL: Duration = Duration::from_secs(60);

const MILLIS_PER_SECOND: f64 = 1e3;
const MICROS_PER_SECOND: f64 = 1e6;

/// Direction of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Produce,
    Fetch,
}

/// Responses with a throttle time.
#[derive(Debug, Default)]
struct Throttles {
    count: AtomicU64,
    sum_ms: AtomicU64,
}

/// Counters since the start.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_ended: AtomicU64,
    /// Requests that waited because their principal had too many bytes in flight.
    pub(crate) throttles: AtomicU64,
    /// Requests that waited because all principals together had too many bytes in flight.
    pub(crate) memory_throttles: AtomicU64,
    /// Batches that were rejected because the pool was full.
    pub(crate) full_pool_refusals: AtomicU64,
    /// Time of the last log line about a full pool.
    full_pool_logged: Mutex<Option<Instant>>,
    produce: Latency,
    fetch: Latency,
    produce_throttles: Throttles,
    fetch_throttles: Throttles,
    /// By key.
    requests: [AtomicU64; KEY_COUNT],
    /// By key and code.
    errors: [[AtomicU64; CODE_COUNT]; KEY_COUNT],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            connections_accepted: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            connections_ended: AtomicU64::new(0),
            throttles: AtomicU64::new(0),
            memory_throttles: AtomicU64::new(0),
            full_pool_refusals: AtomicU64::new(0),
            full_pool_logged: Mutex::default(),
            produce: Latency::default(),
            fetch: Latency::default(),
            produce_throttles: Throttles::default(),
            fetch_throttles: Throttles::default(),
            requests: [const { AtomicU64::new(0) }; KEY_COUNT],
            errors: [const { [const { AtomicU64::new(0) }; CODE_COUNT] }; KEY_COUNT],
        }
    }
}

/// A request without a response yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    key: ApiKey,
    begun: Instant,
}

impl Timed {
    pub(crate) fn begin(key: ApiKey) -> Self {
        Self { key, begun: Instant::now() }
    }
}

/// Number of errors with one code, for one kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorCount {
    pub(super) key: ApiKey,
    pub(super) code: i16,
    pub(super) count: u64,
}

impl Counters {
    /// Increments a counter.
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn request(&self, key: ApiKey) {
        if let Some(counter) = self.requests.get(index_of(key)) {
            Self::count(counter);
        }
    }

    /// Counts an error code. 0 means success.
    pub(crate) fn error(&self, key: ApiKey, code: i16) {
        if code == 0 {
            return;
        }
        let index = usize::try_from(i32::from(code) + 1).unwrap_or(0);
        let counter = self.errors.get(index_of(key)).and_then(|codes| codes.get(index));
        if let Some(counter) = counter {
            Self::count(counter);
        }
    }

    /// Counts a batch that was rejected because the pool was full, and logs that at intervals.
    pub(crate) fn refused_by_full_pool(&self) {
        Self::count(&self.full_pool_refusals);
        let mut logged = self.full_pool_logged.lock().expect("no thread panics with this lock");
        if logged.is_none_or(|at| at.elapsed() >= FULL_POOL_LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::warn!(
                "the pool is full: rejecting batches with NOT_ENOUGH_REPLICAS; lower \
                 retention.bytes or retention.ms of topics, or enlarge the pool"
            );
        }
    }

    /// Counts a response with a throttle time.
    pub(crate) fn throttled(&self, flow: Flow, time: Duration) {
        let throttles = self.throttles_of(flow);
        Self::count(&throttles.count);
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        throttles.sum_ms.fetch_add(time_ms, Ordering::Relaxed);
    }

    /// Returns the number of responses with a throttle time, and the sum of these times in seconds.
    pub(super) fn throttles(&self, flow: Flow) -> (u64, f64) {
        let Throttles { count, sum_ms } = self.throttles_of(flow);
        let sum_ms = sum_ms.load(Ordering::Relaxed);
        (count.load(Ordering::Relaxed), sum_ms as f64 / MILLIS_PER_SECOND)
    }

    fn throttles_of(&self, flow: Flow) -> &Throttles {
        match flow {
            Flow::Produce => &self.produce_throttles,
            Flow::Fetch => &self.fetch_throttles,
        }
    }

    /// Records the latency of a request whose response is complete.
    pub(crate) fn answered(&self, timed: Timed) {
        match timed.key {
            ApiKey::Produce => self.produce.observe(timed.begun),
            ApiKey::Fetch => self.fetch.observe(timed.begun),
            _ => {}
        }
    }

    pub(super) fn produce(&self) -> Distribution {
        self.produce.read()
    }

    pub(super) fn fetch(&self) -> Distribution {
        self.fetch.read()
    }

    /// Returns the number of requests of each kind that occurred.
    pub(super) fn requests(&self) -> impl Iterator<Item = (ApiKey, u64)> {
        self.requests.iter().enumerate().filter_map(|(index, counter)| {
            let count = counter.load(Ordering::Relaxed);
            (count > 0).then_some((key_of(index)?, count))
        })
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = ErrorCount> {
        self.errors.iter().enumerate().flat_map(|(index, codes)| {
            codes.iter().zip(-1_i16..).filter_map(move |(counter, code)| {
                let count = counter.load(Ordering::Relaxed);
                (count > 0).then_some(ErrorCount { key: key_of(index)?, code, count })
            })
        })
    }
}

/// Returns Kafka's name of an error code.
pub(super) fn name_of(code: i16) -> String {
    let known = ResponseError::try_from_code(code);
    known.map_or_else(|| code.to_string(), |error| format!("{error:?}"))
}

fn index_of(key: ApiKey) -> usize {
    usize::try_from(key as i16).unwrap_or(usize::MAX)
}

fn key_of(index: usize) -> Option<ApiKey> {
    ApiKey::try_from(i16::try_from(index).ok()?).ok()
}

#[derive(Debug, Default)]
struct Latency {
    /// Counts by the first bound that is not below the value. The last is for values above all
    /// bounds.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

/// A histogram at the time of reading.
#[derive(Debug)]
pub(super) struct Distribution {
    pub(super) counts: [u64; BOUNDS_US.len() + 1],
    pub(super) sum_seconds: f64,
}

impl Latency {
    fn observe(&self, begun: Instant) {
        self.add(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
    }

    fn add(&self, time_us: u64) {
        let index = BOUNDS_US.partition_point(|bound| *bound < time_us);
        Counters::count(&self.counts[index]);
        self.sum_us.fetch_add(time_us, Ordering::Relaxed);
    }

    fn read(&self) -> Distribution {
        let sum_us = self.sum_us.load(Ordering::Relaxed);
        Distribution {
            counts: std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed)),
            sum_seconds: sum_us as f64 / MICROS_PER_SECOND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_at_the_first_bound_that_is_not_below_it() {
        let latency = Latency::default();
        [50, 51, 5_000_000, 5_000_001].into_iter().for_each(|time_us| latency.add(time_us));
        let read = latency.read();
        assert_eq!((read.counts[0], read.counts[1]), (1, 1));
        assert_eq!((read.counts[14], read.counts[15]), (1, 1));
        assert!((read.sum_seconds - 10.000_102).abs() < 1e-9, "{}", read.sum_seconds);
    }

    #[test]
    fn both_forms_of_the_bounds_agree() {
        for (us, seconds) in BOUNDS_US.iter().zip(BOUNDS_SECONDS) {
            assert!((*us as f64 / MICROS_PER_SECOND - seconds).abs() < 1e-12);
        }
    }

    #[test]
    fn errors_are_counted_by_request_and_code() {
        let counters = Counters::default();
        for code in [0, -1, 3, 3, 9_999] {
            counters.error(ApiKey::Produce, code);
        }
        let found: Vec<_> = counters.errors().map(|it| (it.key, it.code, it.count)).collect();
        assert_eq!(found, [(ApiKey::Produce, -1, 1), (ApiKey::Produce, 3, 2)]);
        assert_eq!(name_of(3), "UnknownTopicOrPartition");
    }
}
