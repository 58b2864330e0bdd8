//! Contents of a record: enough to identify it, with all other bytes determined by that, so that a
//! reader can verify each byte.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use kafka_client::{Header, NewRecord, Record};
use system::Random;

const PADDING_BYTES_MAX: u64 = 400;
const HEADER_COUNT_MAX: u64 = 3;

/// Number of keys, of which some recur often, and others rarely.
const KEY_COUNT: u64 = 400;
const HOT_KEY_COUNT: u64 = 8;

/// One in this many records in a compacted topic deletes its key.
const TOMBSTONE_ONE_IN: u64 = 8;

const FIRST_RECORD_MS: i64 = 1_700_000_000_000;

/// A record of one of the producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) producer: u32,
    /// 0 if there is none.
    pub(crate) transaction: u64,
    /// Index from 0 among the producer's records in the partition, or in the transaction.
    pub(crate) number: u64,
}

impl Entry {
    fn random(self) -> Random {
        let Self { producer, transaction, number } = self;
        Random::new((u64::from(producer) << 48) ^ (transaction << 24) ^ number)
    }

    /// Returns the record's key, which is missing in some transactions.
    pub(crate) fn key(self) -> Option<String> {
        let mut random = self.random();
        let key_count = random.pick(&[HOT_KEY_COUNT, KEY_COUNT]);
        (self.transaction % 3 != 1).then(|| format!("key-{}", random.below(key_count)))
    }

    /// Returns the record, with partly compressible contents.
    pub(crate) fn record(self) -> NewRecord {
        let Self { producer, transaction, number } = self;
        let mut random = self.random();
        let mut text = format!("{producer} {transaction} {number} ");
        for _ in 0..random.below(PADDING_BYTES_MAX) / 8 {
            write!(text, "{:08x}", random.below(1 << 16)).expect("memory takes text");
        }
        let headers = (0..random.below(HEADER_COUNT_MAX + 1)).map(|at| Header {
            name: format!("header-{at}"),
            value: (!random.one_in(4)).then(|| random.number().to_be_bytes().to_vec().into()),
        });
        NewRecord {
            headers: headers.collect(),
            key: self.key().map(Into::into),
            value: Some(text.into()),
            timestamp_ms: FIRST_RECORD_MS + i64::try_from(number).unwrap_or_default(),
        }
    }

    /// Same, in a compacted topic.
    pub(crate) fn record_or_tombstone(self) -> NewRecord {
        let record = self.record();
        let is_tombstone = self.random().number() % (2 * TOMBSTONE_ONE_IN) < 2;
        NewRecord { value: record.value.filter(|_| !is_tombstone), ..record }
    }

    /// Reads the identification in a record, which the rest of it must match.
    pub(crate) fn read(record: &Record) -> Result<Self> {
        let read = || {
            let text = std::str::from_utf8(record.value.as_deref()?).ok()?;
            let mut words = text.split(' ');
            Some(Self {
                producer: words.next()?.parse().ok()?,
                transaction: words.next()?.parse().ok()?,
                number: words.next()?.parse().ok()?,
            })
        };
        let entry = read().with_context(|| format!("nothing has sent the record {record:?}"))?;
        check(record, &entry.record())?;
        Ok(entry)
    }
}

/// Checks that a record equals the sent one, in all parts.
pub(crate) fn check(found: &Record, sent: &NewRecord) -> Result<()> {
    let Record { offset: _, timestamp_ms, key, value, headers } = found.clone();
    let found = NewRecord { key, value, headers, timestamp_ms };
    ensure!(found == *sent, "{found:?} was sent as {sent:?}");
    Ok(())
}
