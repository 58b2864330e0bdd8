//! A Kafka consumer of a topic with one partition, which examines each record.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_client::{FetchLimits, FetchPipe, FetchTarget};
use record_batch::{BatchHeader, Records};
use system::Interruption;

use super::broker_server::BrokerServer;

/// Maximum size of a decompressed batch.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Maximum time that the broker waits for a record. Consumers check for the end in between.
const WAIT_MAX: Duration = Duration::from_millis(100);

pub(super) struct Consumer {
    pipe: FetchPipe,
    next: i64,
}

impl Consumer {
    /// Creates a consumer that starts at the beginning of a topic.
    pub(super) fn new(server: &BrokerServer, topic: &str) -> Result<Self> {
        let limits = FetchLimits { wait_max: WAIT_MAX, ..FetchLimits::default() };
        let target = FetchTarget { topic: topic.to_owned(), partition: 0, limits };
        let pipe = server.wait(FetchPipe::open(server.client(), &target))?;
        Ok(Self { pipe, next: 0 })
    }

    /// Fetches once and passes each record's offset and value. Fails unless records arrive in order
    /// and exactly once.
    pub(super) fn fetch(&mut self, mut each: impl FnMut(i64, &[u8])) -> Result<()> {
        ensure!(!Interruption::is_asked_for(), "interrupted while records were consumed");
        self.pipe.sender.send(self.next)?;
        let mut batches = self.pipe.receiver.receive()?.batches;
        while let Some(batch) = batches.next_batch()? {
            let header = BatchHeader::read(batch.bytes).context("a record batch has no header")?;
            let records = Records::decode(&header, batch.bytes, BATCH_BYTES_MAX);
            for record in records.context("a record batch is corrupt")?.iter() {
                let record = record.context("a record is corrupt")?;
                if record.offset < self.next {
                    continue;
                }
                ensure!(
                    record.offset == self.next,
                    "received offset {} instead of {}",
                    record.offset,
                    self.next
                );
                self.next += 1;
                each(record.offset, record.value.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Reads up to an offset. Returns the number of value bytes.
    pub(super) fn read_to(&mut self, end: i64) -> Result<u64> {
        let mut bytes = 0;
        while self.next < end {
            self.fetch(|_, value| bytes += value.len() as u64)?;
        }
        Ok(bytes)
    }
}
