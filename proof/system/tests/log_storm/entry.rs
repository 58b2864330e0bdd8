//! What stands in a record: enough to know it again.

use std::fmt::Write;

use anyhow::{Context, Result};
use kafka_client::{NewRecord, Record};
use system::Random;

const PADDING_BYTES_MAX: u64 = 400;

/// A record of one of the producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) producer: u32,
    /// 0 where there is none.
    pub(crate) transaction: u64,
    /// From 0 on, among the producer's records of the partition, or of the transaction.
    pub(crate) number: u64,
}

impl Entry {
    /// The record, with contents that can partly be made smaller.
    pub(crate) fn record(self, random: &mut Random) -> NewRecord {
        let Self { producer, transaction, number } = self;
        let mut text = format!("{producer} {transaction} {number} ");
        let length = random.below(PADDING_BYTES_MAX);
        for _ in 0..length / 8 {
            write!(text, "{:08x}", random.below(1 << 16)).expect("memory takes text");
        }
        NewRecord { value: Some(text.into()), ..NewRecord::default() }
    }

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
        read().with_context(|| format!("nothing has sent the record {record:?}"))
    }
}
