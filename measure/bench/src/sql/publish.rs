//! Producing of records in batches of about 16 KiB, like a typical producer.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_client::{
    Acks, BatchOptions, NewRecord, PreparedProduce, ProducePipe, ProduceTarget, encode_batch,
};
use system::Interruption;

use super::broker_server::BrokerServer;
use super::records::{RECORD_BYTES, Records};

/// Number of records of 300 bytes with keys that make up about 16 KiB.
pub(super) const BATCH_RECORDS: u64 = 50;

/// Maximum number of unacknowledged batches.
const IN_FLIGHT: u64 = 8;

/// Keys of the records: their numbers or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    Numbers,
}

/// Returns the size of a topic with this number of records.
pub(super) fn topic_bytes(records: u64) -> u64 {
    records * (RECORD_BYTES as u64 + 20)
}

/// Encodes a batch of the records with these numbers.
pub(super) fn batch(records: &Records, numbers: Range<u64>, keys: Keys) -> Result<Bytes> {
    let timestamp_ms = unix_ms()?;
    let record = |number: u64| NewRecord {
        key: (keys == Keys::Numbers).then(|| number.to_string().into()),
        value: Some(records.text(number).into()),
        headers: Vec::new(),
        timestamp_ms,
    };
    encode(&numbers.map(record).collect::<Vec<_>>())
}

pub(super) fn encode(records: &[NewRecord]) -> Result<Bytes> {
    encode_batch(records, &BatchOptions::default()).context("cannot make a batch")
}

pub(super) fn unix_ms() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.context("the clock is before 1970")?;
    i64::try_from(since.as_millis()).context("the clock is far beyond all times")
}

/// Returns all batches of `count` records from number 0 on.
pub(super) fn batches(
    records: Records,
    count: u64,
    keys: Keys,
) -> impl Iterator<Item = Result<Bytes>> {
    let starts = (0..count.div_ceil(BATCH_RECORDS)).map(|it| it * BATCH_RECORDS);
    starts.map(move |it| batch(&records, it..(it + BATCH_RECORDS).min(count), keys))
}

/// A producer of a topic with one partition. It waits for acknowledgements, with several batches in
/// flight.
pub(super) struct Publisher {
    target: ProduceTarget,
    pipe: ProducePipe,
    sent: u64,
    acknowledged: u64,
    /// Expected end offsets of the unacknowledged batches, oldest first.
    ends: VecDeque<i64>,
    next_offset: i64,
}

impl Publisher {
    /// Creates a producer for a topic with this number of records.
    pub(super) fn new(server: &BrokerServer, topic: &str, records: i64) -> Result<Self> {
        let target = ProduceTarget { topic: topic.to_owned(), partition: 0, acks: Acks::All };
        let pipe = server.wait(ProducePipe::open(server.client(), &target))?;
        Ok(Self {
            target,
            pipe,
            sent: 0,
            acknowledged: 0,
            ends: VecDeque::new(),
            next_offset: records,
        })
    }

    /// Prepares a batch as a request for `send`.
    pub(super) fn prepare(&self, batch: &[u8]) -> Result<PreparedProduce> {
        Ok(PreparedProduce::new(&self.target, batch)?)
    }

    /// Sends a batch of this number of records. Blocks while too many are in flight.
    pub(super) fn send(&mut self, request: &mut PreparedProduce, records: u64) -> Result<()> {
        ensure!(!Interruption::is_asked_for(), "interrupted while records were produced");
        if self.sent - self.acknowledged >= IN_FLIGHT {
            self.acknowledge()?;
        }
        self.pipe.sender.send(request)?;
        self.sent += 1;
        self.ends.push_back(self.next_offset);
        self.next_offset += i64::try_from(records).context("a batch has too many records")?;
        Ok(())
    }

    fn acknowledge(&mut self) -> Result<()> {
        let expected = self.ends.pop_front().context("no batch waits")?;
        let offset = self.pipe.receiver.receive()?;
        ensure!(offset == expected, "a batch got offset {offset} instead of {expected}");
        self.acknowledged += 1;
        Ok(())
    }

    /// Waits for all acknowledgements. Returns the end offset.
    pub(super) fn finish(&mut self) -> Result<i64> {
        while self.acknowledged < self.sent {
            self.acknowledge()?;
        }
        Ok(self.next_offset)
    }
}

/// Fills an empty topic.
pub(super) fn fill(
    server: &BrokerServer,
    topic: &str,
    (records, count, keys): (Records, u64, Keys),
) -> Result<()> {
    let mut publisher = Publisher::new(server, topic, 0)?;
    for (index, batch) in (0..).zip(batches(records, count, keys)) {
        let start: u64 = index * BATCH_RECORDS;
        let mut request = publisher.prepare(&batch?)?;
        publisher.send(&mut request, BATCH_RECORDS.min(count - start))?;
        if index % 2_000 == 0 {
            crate::run::show_part(&format!("{start} of {count} records produced"));
        }
    }
    publisher.finish().map(|_| ())
}

/// Prepared batches, which are produced repeatedly.
pub(super) struct Cycle {
    batches: Vec<(Bytes, u64)>,
    /// Number of records in one pass.
    pub(super) records: u64,
}

impl Cycle {
    pub(super) fn new(records: Records, count: u64) -> Result<Self> {
        let starts = (0..count).step_by(usize::try_from(BATCH_RECORDS)?);
        let sizes = starts.map(|it| BATCH_RECORDS.min(count - it));
        let made = batches(records, count, Keys::None).zip(sizes);
        let made = made.map(|(batch, size)| Ok((batch?, size))).collect::<Result<Vec<_>>>()?;
        Ok(Self { batches: made, records: count })
    }

    /// Prepares the requests of a publisher.
    pub(super) fn prepare(&self, publisher: &Publisher) -> Result<Vec<(PreparedProduce, u64)>> {
        let requests = self.batches.iter();
        requests.map(|(batch, size)| Ok((publisher.prepare(batch)?, *size))).collect()
    }
}

/// Produces prepared requests `times` times, as fast as they are accepted.
pub(super) fn produce(
    publisher: &mut Publisher,
    requests: &mut [(PreparedProduce, u64)],
    times: u64,
) -> Result<()> {
    for _ in 0..times {
        for (request, size) in requests.iter_mut() {
            publisher.send(request, *size)?;
        }
    }
    publisher.finish().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_some_16_kib_and_the_last_one_the_rest() {
        let made: Vec<Bytes> = batches(Records::new(1), 120, Keys::Numbers)
            .map(|batch| batch.expect("they are short"))
            .collect();
        assert_eq!(made.len(), 3);
        assert!((15_000..17_000).contains(&made[0].len()), "{}", made[0].len());
        assert!(made[2].len() < made[1].len() / 2);
    }
}
