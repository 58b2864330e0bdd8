//! End-to-end latency to a waiting consumer: single-message requests at a constant rate, from when
//! each was due until the consumer has it.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Acks, BatchOptions, FetchLimits, FetchPipe, FetchTarget, NewRecord, PreparedProduce,
    ProducePipe, ProduceReceiver, ProduceSender, ProduceTarget, encode_batch,
};

use super::due::Schedule;
use super::message::MESSAGE_BYTES;
use super::meter::{Meter, Moments, Window};
use super::stop::Stop;
use super::wire::WireLog;

/// Maximum number of outstanding requests of the producer.
const IN_FLIGHT: usize = 256;

/// Time after the end of a measurement at which missing messages count as lost.
const LATE_MAX: Duration = Duration::from_secs(30);

/// Parameters of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) messages_per_s: u32,
    /// Warm-up time, not measured.
    pub(crate) ramp: Duration,
    pub(crate) duration: Duration,
}

/// Sends messages to a separate topic and reads them. Fails unless all arrive exactly once and in
/// order.
pub(crate) fn measure(log: &WireLog, delivery: Delivery) -> Result<Meter> {
    log.with_new_topic(|topic| measure_on_topic(log, topic, delivery))
}

fn measure_on_topic(log: &WireLog, topic: &str, delivery: Delivery) -> Result<Meter> {
    let target = ProduceTarget { topic: topic.to_owned(), partition: 0, acks: Acks::All };
    let ProducePipe { sender, receiver } = log.open(ProducePipe::open(log.client(), &target))?;
    let limits = FetchLimits { wait_max: Duration::from_millis(100), ..FetchLimits::default() };
    let source = FetchTarget { topic: topic.to_owned(), partition: 0, limits };
    let consumer = log.open(FetchPipe::open(log.client(), &source))?;
    let window = Window { begin: Instant::now() + delivery.ramp, length: delivery.duration };
    let stop = Stop::default();
    let schedule = Schedule::new(f64::from(delivery.messages_per_s));
    thread::scope(|scope| {
        let (flights, landing) = mpsc::sync_channel(IN_FLIGHT);
        let (stop, schedule) = (&stop, &schedule);
        let sending = scope.spawn(move || {
            until_stopped(stop, || {
                send(&target, (sender, flights), (schedule.clone(), window), stop)
            })
        });
        let acknowledging =
            scope.spawn(move || until_stopped(stop, || acknowledge(receiver, landing)));
        let consuming = scope.spawn(move || {
            let consuming = Consuming { schedule, window, stop };
            until_stopped(stop, || consuming.run(consumer))
        });
        let join = "a thread of the load does not panic";
        let sent = sending.join().expect(join);
        let acknowledged = acknowledging.join().expect(join);
        let consumed = consuming.join().expect(join);
        sent?;
        acknowledged?;
        consumed
    })
}

/// Runs `work`, and stops the other threads if it fails.
fn until_stopped<T>(stop: &Stop, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = work();
    if result.is_err() {
        stop.ask();
    }
    result
}

fn send(
    target: &ProduceTarget,
    (mut sender, flights): (ProduceSender, SyncSender<()>),
    (mut schedule, window): (Schedule, Window),
    stop: &Stop,
) -> Result<()> {
    let value = vec![0x5A; MESSAGE_BYTES];
    let record = NewRecord { value: Some(value.into()), ..NewRecord::default() };
    let batch = encode_batch(&[record], &BatchOptions::default())?;
    let mut request = PreparedProduce::new(target, &batch)?;
    let end = window.begin + window.length;
    for number in 0.. {
        if schedule.due(number) >= end || schedule.wait_unless(|| stop.is_asked_for()).is_none() {
            break;
        }
        sender.send(&mut request)?;
        if flights.send(()).is_err() {
            break;
        }
    }
    Ok(())
}

fn acknowledge(mut receiver: ProduceReceiver, landing: Receiver<()>) -> Result<()> {
    for (expected, ()) in (0..).zip(landing) {
        let offset = receiver.receive()?;
        ensure!(offset == expected, "message {expected} got offset {offset}");
    }
    Ok(())
}

struct Consuming<'a> {
    schedule: &'a Schedule,
    window: Window,
    stop: &'a Stop,
}

impl Consuming<'_> {
    /// Reads until messages due after the window arrive.
    fn run(&self, pipe: FetchPipe) -> Result<Meter> {
        let FetchPipe { mut sender, mut receiver } = pipe;
        let mut meter = Meter::new(self.window);
        let end = self.window.begin + self.window.length;
        let mut next = 0_u64;
        while !self.stop.is_asked_for() && self.schedule.due(next) < end {
            ensure!(Instant::now() < end + LATE_MAX, "message {next} was not received");
            sender.send(i64::try_from(next).context("too many messages")?)?;
            let mut batches = receiver.receive()?.batches;
            let answered = Instant::now();
            while let Some(batch) = batches.next_batch()? {
                let first = u64::try_from(batch.base_offset).context("an offset is negative")?;
                ensure!(first == next, "received offset {first} instead of {next}");
                next = u64::try_from(batch.last_offset).context("an offset is negative")? + 1;
                for number in first..next {
                    let due = self.schedule.due(number);
                    meter.record(Moments { due: Some(due), sent: due, answered });
                }
            }
        }
        Ok(meter)
    }
}
