//! Metrics of a journal's own work.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::error::{JournalError, JournalErrorKind};
use crate::replay::Position;

/// Number of transactions whose write times are kept.
const TIMES_MAX: usize = 1024;

/// Minimum write size for measuring disk throughput. Shorter writes measure latency.
const STREAM_BYTES_MIN: u64 = 256 << 10;

/// Status and metrics of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStatus {
    pub state: JournalState,
    /// Position after the last durable transaction.
    pub position: Position,
    /// Size of the files that make up the journal, and of all its files, including spare and
    /// obsolete ones.
    pub length_bytes: u64,
    pub file_bytes: u64,
    pub length_bytes_max: u64,
    pub checkpoint_begun: Option<Position>,
    /// Blocks of volumes of class `journal` that are not in the journal yet. A power failure now
    /// would lose them.
    pub unjournaled_blocks: u64,
    /// Number of flushes requested, and of transactions that served them.
    pub flushes: u64,
    pub transactions: u64,
    /// Number of blocks in these transactions, and of those that referred to a page already in the
    /// journal.
    pub blocks: u64,
    pub references: u64,
    pub written_bytes: u64,
    /// Elapsed time of the transaction in progress.
    pub writing_for: Option<Duration>,
    /// Mean over the last 1024 transactions, from the call until the data is on stable storage.
    pub write_time_mean: Duration,
    pub write_time_p99: Duration,
    /// Disk throughput of long writes, or `None` before the first.
    pub stream_bytes_per_second: Option<u64>,
    /// The last failure, kept after the journal has recovered.
    pub last_failure: Option<Failure>,
}

/// Health of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalState {
    #[default]
    Working,
    /// Nothing has become durable since `since`. Flushes wait or fail according to the policy.
    Failing { since: Duration, failure: Failure },
}

/// A failure to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: JournalErrorKind,
    /// Description of the failure: operation, file, reason.
    pub cause: String,
    /// Time of the failure by the journal's clock.
    pub at: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Meter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counters and remembered values. The other fields are computed on request.
    so_far: JournalStatus,
    writing_since: Option<Duration>,
    /// Ring buffer of recent write times.
    times: Vec<Duration>,
    time_next: usize,
    stream_bytes: u64,
    stream_time: Duration,
    failing_since: Option<Duration>,
}

/// A transaction that has become durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) blocks: usize,
    pub(crate) references: usize,
    pub(crate) bytes: usize,
    pub(crate) position: Position,
}

impl Meter {
    pub(crate) fn note_position(&self, position: Position) {
        self.lock().so_far.position = position;
    }

    pub(crate) fn position(&self) -> Position {
        self.lock().so_far.position
    }

    pub(crate) fn note_flush(&self) {
        self.lock().so_far.flushes += 1;
    }

    pub(crate) fn note_writing(&self, now: Duration) {
        self.lock().writing_since = Some(now);
    }

    /// Records that a write has become durable.
    pub(crate) fn note_written(&self, written: Written, now: Duration) {
        let mut state = self.lock();
        let time = now.saturating_sub(state.writing_since.take().unwrap_or(now));
        let bytes = written.bytes as u64;
        state.so_far.position = written.position;
        state.so_far.transactions += 1;
        state.so_far.blocks += written.blocks as u64;
        state.so_far.references += written.references as u64;
        state.so_far.written_bytes += bytes;
        if bytes >= STREAM_BYTES_MIN {
            state.stream_bytes += bytes;
            state.stream_time += time;
        }
        if state.times.len() < TIMES_MAX {
            state.times.push(time);
        } else {
            let next = state.time_next;
            state.times[next] = time;
        }
        state.time_next = (state.time_next + 1) % TIMES_MAX;
        state.failing_since = None;
    }

    /// Records that the disk accepts writes again.
    pub(crate) fn note_resumed(&self) {
        self.lock().failing_since = None;
    }

    pub(crate) fn note_failure(&self, error: &JournalError, now: Duration) {
        let mut state = self.lock();
        state.writing_since = None;
        state.failing_since.get_or_insert(now);
        let failure = Failure { kind: error.kind, cause: error.chain(), at: now };
        state.so_far.last_failure = Some(failure);
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.lock().failing_since.is_some()
    }

    /// Returns the failure that currently prevents transactions from becoming durable.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let state = self.lock();
        state.failing_since.and_then(|_| state.so_far.last_failure.clone())
    }

    /// Returns the status without file sizes, checkpoint and unjournaled blocks.
    pub(crate) fn status(&self, now: Duration) -> JournalStatus {
        let state = self.lock();
        let failing = state.failing_since.zip(state.so_far.last_failure.clone());
        let mut times = state.times.clone();
        times.sort_unstable();
        let count = u32::try_from(times.len()).expect("as many as are kept");
        let total: Duration = times.iter().sum();
        JournalStatus {
            state: failing.map_or(JournalState::Working, |(since, failure)| {
                JournalState::Failing { since, failure }
            }),
            writing_for: state.writing_since.map(|since| now.saturating_sub(since)),
            write_time_mean: total.checked_div(count).unwrap_or_default(),
            write_time_p99: times.get(times.len() * 99 / 100).copied().unwrap_or_default(),
            stream_bytes_per_second: speed(state.stream_bytes, state.stream_time),
            ..state.so_far.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the meter locked")
    }
}

fn speed(bytes: u64, time: Duration) -> Option<u64> {
    let nanoseconds = Some(time.as_nanos()).filter(|&it| it > 0)?;
    let speed = u128::from(bytes) * 1_000_000_000 / nanoseconds;
    (bytes > 0).then(|| u64::try_from(speed).unwrap_or(u64::MAX))
}

/// Result shared by all threads of a commit.
pub(crate) type Outcome = Result<(), Arc<JournalError>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(meter: &Meter, start_us: u64, end_us: u64, bytes: usize) {
        meter.note_writing(Duration::from_micros(start_us));
        let written = Written { blocks: 3, references: 1, bytes, position: Position(7) };
        meter.note_written(written, Duration::from_micros(end_us));
    }

    #[test]
    fn times_of_writes_are_summed_up() {
        let meter = Meter::default();
        (0..98).for_each(|_| write(&meter, 100, 200, 4096));
        (0..2).for_each(|_| write(&meter, 1000, 6100, 4096));
        let status = meter.status(Duration::from_millis(7));
        assert_eq!(status.write_time_mean, Duration::from_micros(200));
        assert_eq!(status.write_time_p99, Duration::from_micros(5100));
        assert_eq!((status.transactions, status.blocks, status.references), (100, 300, 100));
        assert_eq!(status.stream_bytes_per_second, None, "short writes tell no speed");
    }

    #[test]
    fn long_writes_tell_the_speed_of_the_disk() {
        let meter = Meter::default();
        write(&meter, 0, 1000, 1 << 20);
        let status = meter.status(Duration::ZERO);
        assert_eq!(status.stream_bytes_per_second, Some(1_048_576_000));
    }

    #[test]
    fn a_failure_is_told_from_its_beginning_and_remembered_when_it_is_over() {
        let meter = Meter::default();
        let error = JournalError::new(JournalErrorKind::NoSpace, "cannot write");
        meter.note_failure(&error, Duration::from_secs(5));
        meter.note_failure(&error, Duration::from_secs(6));
        let status = meter.status(Duration::from_secs(7));
        let JournalState::Failing { since, failure } = status.state else { panic!("{status:?}") };
        assert_eq!(meter.failure().as_ref(), Some(&failure));
        assert_eq!((since, failure.at), (Duration::from_secs(5), Duration::from_secs(6)));
        assert!(failure.cause.contains("cannot write") && failure.cause.contains("free space"));
        meter.note_writing(Duration::from_secs(8));
        write(&meter, 1, 2, 4096);
        let status = meter.status(Duration::from_secs(9));
        assert_eq!((status.state, status.last_failure), (JournalState::Working, Some(failure)));
        assert_eq!(meter.failure(), None);
    }

    #[test]
    fn a_write_that_hangs_shows() {
        let meter = Meter::default();
        meter.note_writing(Duration::from_secs(1));
        let status = meter.status(Duration::from_secs(31));
        assert_eq!(status.writing_for, Some(Duration::from_secs(30)));
    }
}
