//! Reading of a batch's records.

use std::borrow::Cow;

use crate::compression::{Codec, Undecodable};
use crate::header::{BatchHeader, HEADER_BYTES, has_valid_checksum};
use crate::varint::{length_of, put_varint, take_bytes, take_varint};

/// Decompressed records of one batch.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    header: BatchHeader,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Records<'a> {
    /// Decodes the records of a whole batch. Fails if the checksum is wrong or the records exceed
    /// `bytes_max` bytes. Malformed records and a wrong record count are reported by the iterator.
    pub fn decode(
        header: &BatchHeader,
        batch: &'a [u8],
        bytes_max: usize,
    ) -> Result<Self, Undecodable> {
        let batch = batch.get(..header.size_bytes).ok_or(Undecodable::Records)?;
        if !has_valid_checksum(batch) {
            return Err(Undecodable::Checksum);
        }
        let codec = Codec::of(header.attributes).ok_or(Undecodable::Codec)?;
        let records = &batch[HEADER_BYTES..];
        let bytes = match codec {
            Codec::None => Cow::Borrowed(records),
            _ => Cow::Owned(codec.decompress(records, bytes_max)?),
        };
        Ok(Self { header: *header, bytes })
    }

    /// Iterates over the records in order. An error ends the iteration.
    pub fn iter(&self) -> impl Iterator<Item = Result<Record<'_>, Undecodable>> {
        Iter {
            header: self.header,
            rest: &self.bytes,
            count: self.header.record_count,
            offset_delta: -1,
        }
    }

    /// Encodes the batch again, compressed by `codec`.
    pub fn to_batch(&self, codec: Codec) -> Vec<u8> {
        self.header.with_codec(codec).with_records(&codec.compress(&self.bytes))
    }

    /// Validates all records by reading them once.
    pub fn check(&self) -> Result<(), Undecodable> {
        self.iter().try_for_each(|record| record.map(drop))
    }
}

struct Iter<'a> {
    header: BatchHeader,
    rest: &'a [u8],
    count: i32,
    /// Offset delta of the previous record; -1 at the start.
    offset_delta: i64,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<Record<'a>, Undecodable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.count <= 0 {
            let is_all = std::mem::take(&mut self.rest).is_empty();
            return (!is_all).then_some(Err(Undecodable::Records));
        }
        self.count -= 1;
        let last = i64::from(self.header.last_offset_delta);
        match Record::take(&mut self.rest, &self.header) {
            Some(record)
                if record.offset_delta > self.offset_delta && record.offset_delta <= last =>
            {
                self.offset_delta = record.offset_delta;
                Some(Ok(record))
            }
            _ => {
                (self.count, self.rest) = (0, &[]);
                Some(Err(Undecodable::Records))
            }
        }
    }
}

/// A record, borrowed from the decompressed batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset: i64,
    /// Timestamp, or append time if the batch has one: Unix milliseconds.
    pub timestamp_ms: i64,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone: it deletes the key.
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    /// The encoded record, including its length.
    bytes: &'a [u8],
    attributes: u8,
    timestamp_delta: i64,
    offset_delta: i64,
    /// Encoded fields from the offset delta on.
    after_timestamp: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the first record from `bytes`. Returns `None` if it is malformed.
    fn take(bytes: &mut &'a [u8], batch: &BatchHeader) -> Option<Self> {
        let all = *bytes;
        let length = usize::try_from(take_varint(bytes)?).ok()?;
        let (mut rest, after) = bytes.split_at_checked(length)?;
        *bytes = after;
        let (attributes, fields) = rest.split_first()?;
        rest = fields;
        let timestamp_delta = take_varint(&mut rest)?;
        let after_timestamp = rest;
        let offset_delta = take_varint(&mut rest)?;
        let key = take_bytes(&mut rest)?;
        let value = take_bytes(&mut rest)?;
        let headers = Headers::take(rest)?;
        let timestamp_ms = match batch.has_append_time() {
            true => batch.max_timestamp,
            false => batch.base_timestamp.wrapping_add(timestamp_delta),
        };
        Some(Self {
            offset: batch.base_offset.checked_add(offset_delta)?,
            timestamp_ms,
            key,
            value,
            headers,
            bytes: &all[..all.len() - after.len()],
            attributes: *attributes,
            timestamp_delta,
            offset_delta,
            after_timestamp,
        })
    }

    /// Appends the encoded record with another timestamp delta.
    pub fn put(&self, timestamp_delta: i64, into: &mut Vec<u8>) {
        if timestamp_delta == self.timestamp_delta {
            into.extend_from_slice(self.bytes);
            return;
        }
        let mut start = vec![self.attributes];
        put_varint(timestamp_delta, &mut start);
        put_varint(length_of(start.len() + self.after_timestamp.len()), into);
        into.extend_from_slice(&start);
        into.extend_from_slice(self.after_timestamp);
    }

    /// Returns the difference to the batch's base timestamp, in milliseconds.
    pub fn timestamp_delta(&self) -> i64 {
        self.timestamp_delta
    }

    /// Returns the size of the uncompressed record, including its length.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Headers of a record, in order. Several may have the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a>(&'a [u8]);

impl<'a> Headers<'a> {
    /// Parses the headers, which must extend to the end of the record. Returns `None` otherwise.
    fn take(mut rest: &'a [u8]) -> Option<Self> {
        let count = take_varint(&mut rest).filter(|count| *count >= 0)?;
        let headers = Self(rest);
        let mut iter = headers.iter();
        let is_all = (&mut iter).count() as u64 == count.cast_unsigned() && iter.0.is_empty();
        is_all.then_some(headers)
    }

    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter(self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Iterator over names and values of headers.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a>(&'a [u8]);

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.0;
        let header = (take_bytes(&mut rest)??, take_bytes(&mut rest)?);
        self.0 = rest;
        Some(header)
    }
}
