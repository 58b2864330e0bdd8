//! Several consumers of one topic, each of which reads it repeatedly from the beginning.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_client::{FetchLimits, FetchPipe, FetchTarget};
use system::Interruption;

use super::stop::Stop;
use super::wire::WireLog;

/// Parameters of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanOut {
    pub(crate) consumers: usize,
    /// Warm-up time, not measured.
    pub(crate) ramp: Duration,
    pub(crate) duration: Duration,
}

/// Throughput of the consumers, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumed {
    pub(crate) bytes: u64,
    /// Throughput of the slowest and the fastest consumer.
    pub(crate) least_bytes: u64,
    pub(crate) most_bytes: u64,
}

pub(crate) fn measure(log: &WireLog, fan_out: FanOut) -> Result<Consumed> {
    let target =
        FetchTarget { topic: log.topic().to_owned(), partition: 0, limits: FetchLimits::default() };
    let pipe = |_| log.open(FetchPipe::open(log.client(), &target));
    let pipes = (0..fan_out.consumers).map(pipe).collect::<Result<Vec<FetchPipe>>>()?;
    let begin = Instant::now() + fan_out.ramp;
    let times = begin..begin + fan_out.duration;
    let stop = Stop::default();
    let offsets = log.offsets();
    let counts = thread::scope(|scope| {
        let (stop, times, offsets) = (&stop, &times, &offsets);
        let consume = |pipe| {
            scope.spawn(move || {
                let consumed = consume(pipe, (offsets.start, offsets.end), times, stop);
                if consumed.is_err() {
                    stop.ask();
                }
                consumed
            })
        };
        let threads: Vec<_> = pipes.into_iter().map(consume).collect();
        let join = |it: thread::ScopedJoinHandle<'_, Result<u64>>| {
            it.join().expect("a thread of the load does not panic")
        };
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    let counts = counts.into_iter().collect::<Result<Vec<u64>>>()?;
    ensure!(!Interruption::is_asked_for(), "interrupted during a measurement");
    Ok(Consumed {
        bytes: counts.iter().sum(),
        least_bytes: counts.iter().copied().min().unwrap_or(0),
        most_bytes: counts.iter().copied().max().unwrap_or(0),
    })
}

/// Returns the bytes of batches received in the given time.
fn consume(
    pipe: FetchPipe,
    (start, end): (i64, i64),
    times: &std::ops::Range<Instant>,
    stop: &Stop,
) -> Result<u64> {
    let FetchPipe { mut sender, mut receiver } = pipe;
    let (mut next, mut bytes) = (start, 0);
    while Instant::now() < times.end && !stop.is_asked_for() && !Interruption::is_asked_for() {
        sender.send(next)?;
        let mut batches = receiver.receive()?.batches;
        let (came_at, length) = (Instant::now(), batches.len_bytes());
        if times.contains(&came_at) {
            bytes += u64::try_from(length).context("a response is too long")?;
        }
        while let Some(batch) = batches.next_batch()? {
            let is_next = batch.base_offset <= next && batch.last_offset >= next;
            ensure!(is_next, "received offset {} instead of {next}", batch.base_offset);
            next = batch.last_offset + 1;
        }
        if next >= end {
            next = start;
        }
    }
    Ok(bytes)
}
