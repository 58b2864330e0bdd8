//! Limit of threads that decompress long batches, and recompression of batches before the append,
//! for topics whose `compression.type` is not the producer's.

use std::sync::{Condvar, Mutex};

use kafka_protocol::error::ResponseError;
use record_batch::{Codec, Records, Undecodable};
use record_log::{Batch, RECORDS_BYTES_MAX};

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum number of batches that are decompressed concurrently. Each may take as much memory as
/// its records.
const AT_ONCE_MAX: usize = 4;

/// Threads that decompress and compress.
#[derive(Debug, Default)]
pub(crate) struct Recompression {
    running_count: Mutex<usize>,
    ended: Condvar,
}

impl Recompression {
    /// Compresses the records of a batch with another codec, to at most `bytes_max` bytes. Blocks
    /// until that is complete, which includes waiting for a permit.
    pub(super) fn run(
        &self,
        batch: &Batch<'_>,
        codec: Codec,
        bytes_max: usize,
    ) -> Result<Vec<u8>, ResponseError> {
        self.take(|| recompress(batch, codec, bytes_max))
    }

    /// Runs work that takes as much memory as the records of a batch, after acquiring a permit.
    pub(super) fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        tokio::task::block_in_place(|| {
            let _permit = self.permit();
            work()
        })
    }

    fn permit(&self) -> Permit<'_> {
        let running_count = self.running_count.lock().expect(NO_PANIC);
        let is_full = |count: &mut usize| *count >= AT_ONCE_MAX;
        let mut running_count = self.ended.wait_while(running_count, is_full).expect(NO_PANIC);
        *running_count += 1;
        Permit(self)
    }
}

/// Permission for one thread, until drop.
struct Permit<'a>(&'a Recompression);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.running_count.lock().expect(NO_PANIC) -= 1;
        self.0.ended.notify_one();
    }
}

fn recompress(batch: &Batch<'_>, codec: Codec, bytes_max: usize) -> Result<Vec<u8>, ResponseError> {
    let records =
        Records::decode(batch.header(), batch.bytes(), RECORDS_BYTES_MAX).map_err(|error| {
            match error {
                Undecodable::TooLong(_) => ResponseError::MessageTooLarge,
                _ => ResponseError::CorruptMessage,
            }
        })?;
    // Consumers could not tell the producer's error from the broker's.
    records.check().map_err(|_| ResponseError::InvalidRecord)?;
    let anew = records.to_batch(codec);
    if anew.len() > bytes_max { Err(ResponseError::MessageTooLarge) } else { Ok(anew) }
}

#[cfg(test)]
mod tests {
    use record_batch::{BatchHeader, BatchOptions, BatchProducer, NewRecord, encode_batch};

    use super::*;

    const PRODUCER: BatchProducer = BatchProducer { id: 7, epoch: 2, sequence: 40 };

    fn batch(codec: Codec) -> Vec<u8> {
        let record = |value: u8| NewRecord {
            timestamp_ms: 1_000 + i64::from(value),
            value: Some(vec![value; 500].into()),
            ..NewRecord::default()
        };
        let records: Vec<_> = (0..20).map(record).collect();
        let options =
            BatchOptions { compression: codec, producer: Some(PRODUCER), is_transactional: true };
        encode_batch(&records, &options).expect("a batch").to_vec()
    }

    fn recompressed(bytes: &mut [u8], codec: Codec, most: usize) -> Result<Vec<u8>, ResponseError> {
        let (batch, _) = Batch::split_first(bytes).expect("a good batch");
        recompress(&batch, codec, most)
    }

    #[test]
    fn a_batch_in_another_codec_has_all_else_as_it_was() {
        for from in Codec::ALL {
            for to in Codec::ALL {
                let mut bytes = batch(from);
                let mut anew = recompressed(&mut bytes, to, 1 << 20).expect("a good batch");
                let (anew, rest) = Batch::split_first(&mut anew).expect("its checksum fits");
                assert!(rest.is_empty());
                let mut expected = batch(to);
                let (expected, _) = Batch::split_first(&mut expected).expect("a good batch");
                assert_eq!(anew.header(), expected.header(), "{from:?} to {to:?}");
                assert_eq!(Codec::of(anew.header().attributes), Some(to));
                let decode = |it: &Batch<'_>| {
                    Records::decode(it.header(), it.bytes(), 1 << 20).expect("records").to_batch(to)
                };
                assert_eq!(decode(&anew), decode(&expected), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_compressed_anew_is_refused() {
        let mut small = batch(Codec::Zstd);
        let error = recompressed(&mut small, Codec::None, 5_000).expect_err("10,000 bytes");
        assert_eq!(error, ResponseError::MessageTooLarge);
        // Invalid records with a valid checksum.
        let good = batch(Codec::Gzip);
        let header = BatchHeader::read(&good).expect("a batch");
        let mut broken = header.with_records(b"no gzip at all");
        let error = recompressed(&mut broken, Codec::Lz4, 1 << 20).expect_err("no records");
        assert_eq!(error, ResponseError::CorruptMessage);
        let mut fewer = BatchHeader { record_count: 21, last_offset_delta: 20, ..header }
            .with_codec(Codec::None)
            .with_records(&good[..0]);
        let error = recompressed(&mut fewer, Codec::Lz4, 1 << 20).expect_err("no records");
        assert_eq!(error, ResponseError::InvalidRecord);
    }
}
