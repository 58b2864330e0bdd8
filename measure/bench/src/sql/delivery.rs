//! End-to-end latency of single messages to a live query's client, compared with a Kafka consumer
//! that waits for the same messages in this process.
//!
//! Both are measured from when a message was due, with the same clock. Fails unless all messages
//! arrive at both, exactly once and in order.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use kafka_client::{Acks, NewRecord, PreparedProduce, ProducePipe, ProduceTarget};
use results::{Io, LatencyKind, Row};
use serde_json::json;
use system::Interruption;

use super::broker_server::{BrokerServer, pool_bytes};
use super::consumer::Consumer;
use super::cores::{Cores, Used};
use super::extent::Extent;
use super::publish::{encode, unix_ms};
use super::record::{self, CONSUMER, LIVE_QUERY};
use super::records::{RECORD_BYTES, Records};
use crate::latency::Latencies;
use crate::run::Cost;
use crate::tpcc::Connection;

/// Rate of single-message requests.
const MESSAGES_PER_S: u32 = 5_000;
pub(super) const CASE: &str = "delivery of 5000 messages/s";

const TOPIC: &str = "delivered";
const RAMP: Duration = Duration::from_secs(1);

/// Time after the last due time at which missing messages count as lost.
const LATE_MAX: Duration = Duration::from_secs(30);

/// Timer slack of the sending thread. The default would wake it about 50 µs late.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// Minimum share of the rate for the broker to keep up.
const RATE_SHARE_MIN: f64 = 0.95;

pub(super) struct Deliver {
    pub(super) cores: Cores,
    pub(super) extent: Extent,
    pub(super) records: Records,
}

/// Due times of messages.
#[derive(Clone, Copy)]
struct Times {
    begun: Instant,
    count: u64,
    /// First counted message.
    first: u64,
}

impl Times {
    fn due(&self, number: u64) -> Instant {
        self.begun + Duration::from_secs_f64(number as f64 / f64::from(MESSAGES_PER_S))
    }

    fn is_late(&self) -> bool {
        Instant::now() > self.due(self.count) + LATE_MAX
    }
}

impl Deliver {
    pub(super) fn cost(&self) -> Cost {
        let seconds = (self.extent.delivery_time + RAMP).as_secs_f64();
        Cost {
            seconds: seconds + 1.5,
            written_bytes: self.count() * RECORD_BYTES as u64,
            memory_bytes: pool_bytes(self.count() * RECORD_BYTES as u64),
        }
    }

    fn count(&self) -> u64 {
        let seconds = (self.extent.delivery_time + RAMP).as_secs();
        seconds * u64::from(MESSAGES_PER_S)
    }

    pub(super) fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let _kept = self.cores.keep_clients()?;
        let bytes = self.count() * RECORD_BYTES as u64;
        let server = BrokerServer::start(&self.cores, pool_bytes(bytes), "")?;
        let started = crate::run::unix_ms(std::time::SystemTime::now());
        let watch = self.cores.watch()?;
        let (consumed, lived, elapsed) = server.with_topic(TOPIC, &[], || self.deliver(&server))?;
        let used = watch.used()?;
        let row = |(target, latencies)| self.row(target, latencies, repeat, (used, elapsed));
        let mut rows = vec![row((CONSUMER, &consumed))?, row((LIVE_QUERY, &lived))?];
        rows.iter_mut().for_each(|row| row.time.started_unix_ms = started);
        Ok(rows)
    }

    fn row(
        &self,
        target: &str,
        latencies: &Latencies,
        repeat: u32,
        (used, elapsed): (Used, Duration),
    ) -> Result<Row> {
        let params = [
            ("op", json!("delivery")),
            ("messages_per_s", json!(MESSAGES_PER_S)),
            ("message_bytes", json!(RECORD_BYTES)),
        ];
        let mut row = record::row((CASE, target), repeat, &params, &self.cores);
        record::add_used(&mut row, used);
        row.time.ramp_s = RAMP.as_secs_f64();
        row.time.duration_s = elapsed.as_secs_f64();
        row.latency = Some(latencies.recorded(LatencyKind::Intended)?);
        let per_s = latencies.count() as f64 / elapsed.as_secs_f64();
        row.app = Some(Io {
            ops: latencies.count(),
            bytes: latencies.count() * RECORD_BYTES as u64,
            iops: per_s,
            bytes_per_s: per_s * RECORD_BYTES as f64,
        });
        if per_s < f64::from(MESSAGES_PER_S) * RATE_SHARE_MIN {
            row.flag("the broker did not keep up with the rate");
        }
        Ok(row)
    }

    /// Returns latencies of the consumer and the live query, and the measured time.
    fn deliver(&self, server: &BrokerServer) -> Result<(Latencies, Latencies, Duration)> {
        let target = ProduceTarget { topic: TOPIC.to_owned(), partition: 0, acks: Acks::All };
        let pipe = server.wait(ProducePipe::open(server.client(), &target))?;
        let consumer = Consumer::new(server, TOPIC)?;
        let connection = server.connect()?;
        let request = self.request(&target)?;
        let count = self.count();
        let first = RAMP.as_secs() * u64::from(MESSAGES_PER_S);
        let stop = AtomicBool::new(false);
        // Delays the first message until all receivers wait.
        let begun = Instant::now() + Duration::from_millis(300);
        let times = Times { begun, count, first };
        let (consumed, lived, sent) = thread::scope(|scope| {
            let stop = &stop;
            let ProducePipe { sender, mut receiver } = pipe;
            let consuming =
                scope.spawn(move || until_stopped(stop, || consume(consumer, times, stop)));
            let living = scope.spawn(move || {
                until_stopped(stop, || connection.wait(live(&connection, times, stop)))
            });
            let acknowledging = scope.spawn(move || {
                until_stopped(stop, || {
                    for expected in 0..count {
                        let offset = receiver.receive()?;
                        let is_next = u64::try_from(offset) == Ok(expected);
                        ensure!(is_next, "message {expected} got offset {offset}");
                    }
                    Ok(())
                })
            });
            let sent = until_stopped(stop, || send(sender, request, times, stop));
            let panics = "a thread of the load does not panic";
            let consumed = consuming.join().expect(panics);
            let lived = living.join().expect(panics);
            let acknowledged = acknowledging.join().expect(panics);
            (consumed, lived, sent.and(acknowledged))
        });
        sent?;
        let elapsed = times.due(count) - times.due(first);
        Ok((consumed?, lived?, elapsed))
    }

    fn request(&self, target: &ProduceTarget) -> Result<PreparedProduce> {
        let value = Some(self.records.text(0).into());
        let record = NewRecord { value, timestamp_ms: unix_ms()?, ..NewRecord::default() };
        Ok(PreparedProduce::new(target, &encode(&[record])?)?)
    }
}

/// Runs `work`, and stops the other threads if it fails.
fn until_stopped<T>(stop: &AtomicBool, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = work();
    if result.is_err() {
        // Relaxed: the flag carries no data.
        stop.store(true, Ordering::Relaxed);
    }
    result
}

fn check_goes_on(times: Times, stop: &AtomicBool, next: u64) -> Result<()> {
    ensure!(!Interruption::is_asked_for(), "interrupted while messages were delivered");
    // Relaxed: the flag carries no data.
    ensure!(!stop.load(Ordering::Relaxed), "another thread of the load has failed");
    ensure!(!times.is_late(), "message {next} was not received");
    Ok(())
}

/// Sends messages at their due times. Sleeps in between, because the clients share the core.
fn send(
    mut sender: kafka_client::ProduceSender,
    mut request: PreparedProduce,
    times: Times,
    stop: &AtomicBool,
) -> Result<()> {
    rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS))
        .context("cannot set the timer slack of this thread (PR_SET_TIMERSLACK)")?;
    let sent = (0..times.count).try_for_each(|number| {
        thread::sleep(times.due(number).saturating_duration_since(Instant::now()));
        check_goes_on(times, stop, number)?;
        Ok(sender.send(&mut request)?)
    });
    let restored = rustix::thread::set_current_timer_slack(None);
    sent.and(restored.context("cannot reset the timer slack of this thread (PR_SET_TIMERSLACK)"))
}

fn consume(mut consumer: Consumer, times: Times, stop: &AtomicBool) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut next = 0;
    while next < times.count {
        check_goes_on(times, stop, next)?;
        consumer.fetch(|offset, _| {
            next = offset.unsigned_abs() + 1;
            record(&mut latencies, times, next - 1);
        })?;
    }
    Ok(latencies)
}

async fn live(connection: &Connection, times: Times, stop: &AtomicBool) -> Result<Latencies> {
    let (count, failed) = (times.count, || "cannot start a live query");
    let copy = format!(
        "COPY (SUBSCRIBE TO (SELECT \"offset\", value FROM {TOPIC}) UP TO OFFSET {count}) TO STDOUT"
    );
    let rows = connection.client().copy_out(&copy).await.with_context(failed)?;
    let mut rows = Box::pin(rows);
    let mut latencies = Latencies::new();
    let mut next = 0;
    while next < count {
        let row = tokio::time::timeout(LATE_MAX + RAMP, rows.next()).await;
        let row = row.with_context(|| format!("message {next} was not received"))?;
        let row = row.with_context(|| format!("the live query ended before message {next}"))?;
        let row = row.with_context(failed)?;
        let offset = offset_in(&row).context("a row without an offset")?;
        ensure!(offset == next, "received message {offset} instead of {next}");
        record(&mut latencies, times, offset);
        next += 1;
        if next.is_multiple_of(1_000) {
            check_goes_on(times, stop, next)?;
        }
    }
    Ok(latencies)
}

/// Returns the offset, which follows the time and the difference.
fn offset_in(row: &[u8]) -> Option<u64> {
    let column = row.split(|&byte| byte == b'\t').nth(2)?;
    std::str::from_utf8(column).ok()?.trim_end().parse().ok()
}

fn record(latencies: &mut Latencies, times: Times, number: u64) {
    if number >= times.first {
        latencies.record_time(Instant::now().saturating_duration_since(times.due(number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_stands_behind_time_and_difference() {
        assert_eq!(offset_in(b"1764000000000\t1\t4711\t{\"a\": 1}\n"), Some(4711));
        assert_eq!(offset_in(b"1764000000000\t1\t4711\n"), Some(4711));
        assert_eq!(offset_in(b"1764000000000\t1\n"), None);
    }
}
