//! Decoding of fetched record batches.

use bytes::Bytes;
use record_batch::{BatchHeader, Codec, HEADER_BYTES, Header, Records, Undecodable};

use crate::error::ClientError;

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

/// Reads the header of the batch at the start of `bytes`. Returns `None` if the batch is
/// incomplete, as the last one of a fetch response may be.
pub(crate) fn first_batch(bytes: &[u8]) -> Result<Option<BatchHeader>, ClientError> {
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    let none = || ClientError::protocol("a fetched partition contains an invalid record batch");
    let header = BatchHeader::read(bytes).ok_or_else(none)?;
    Ok((bytes.len() >= header.size_bytes).then_some(header))
}

/// Decodes the records of a whole batch, which may decompress to at most `bytes_max`.
pub(crate) fn decode_records(batch: &Bytes, bytes_max: usize) -> Result<Vec<Record>, ClientError> {
    let header = first_batch(batch)?;
    let header = header.ok_or_else(|| ClientError::protocol("truncated record batch"))?;
    let broken = |why: Undecodable| {
        let context = format!("corrupt record batch at offset {}", header.base_offset);
        ClientError::protocol(context).because(why)
    };
    let records = Records::decode(&header, batch, bytes_max).map_err(broken)?;
    // Records of an uncompressed batch are slices of it, without copies.
    let is_compressed = Codec::of(header.attributes) != Some(Codec::None);
    let part = |bytes: &[u8]| match is_compressed {
        true => Bytes::copy_from_slice(bytes),
        false => batch.slice_ref(bytes),
    };
    let mut decoded = Vec::new();
    for record in records.iter() {
        let record = record.map_err(broken)?;
        let headers = record.headers.iter().map(|(name, value)| Header {
            name: String::from_utf8_lossy(name).into_owned(),
            value: value.map(part),
        });
        decoded.push(Record {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.map(part),
            value: record.value.map(part),
            headers: headers.collect(),
        });
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use record_batch::{BatchOptions, NewRecord, encode_batch, seal};

    use super::*;

    const BYTES_MAX: usize = 1 << 20;

    fn batch(compression: Codec) -> Bytes {
        let header = Header { name: "h".to_owned(), value: Some("1".into()) };
        let record = NewRecord {
            key: Some("k".into()),
            value: Some("v".into()),
            headers: vec![header],
            timestamp_ms: 900,
        };
        let options = BatchOptions { compression, ..BatchOptions::default() };
        encode_batch(&[NewRecord::default(), record], &options).expect("two records")
    }

    #[test]
    fn records_come_back_from_their_batch() {
        for compression in Codec::ALL {
            let found = decode_records(&batch(compression), BYTES_MAX).expect("it is whole");
            let header = Header { name: "h".to_owned(), value: Some("1".into()) };
            let second = Record {
                offset: 1,
                timestamp_ms: 900,
                key: Some("k".into()),
                value: Some("v".into()),
                headers: vec![header],
            };
            assert_eq!(found[1], second);
            assert_eq!((found.len(), &found[0].key, &found[0].value), (2, &None, &None));
        }
    }

    #[test]
    fn an_error_names_the_offset_of_a_broken_batch() {
        let mut bytes = batch(Codec::None).to_vec();
        bytes[HEADER_BYTES + 5] ^= 1;
        let error = decode_records(&bytes.clone().into(), BYTES_MAX).expect_err("it was changed");
        assert!(error.to_string().contains("offset 0"), "{error}");
        bytes[57..61].copy_from_slice(&[0x7F; 4]);
        seal(&mut bytes);
        decode_records(&bytes.into(), BYTES_MAX).expect_err("its count lies");
    }

    #[test]
    fn a_cut_batch_is_told_apart_from_a_broken_one() {
        let whole = batch(Codec::None);
        for length in [0, 11, 60, whole.len() - 1] {
            assert_eq!(first_batch(&whole[..length]).expect("it is cut"), None);
        }
        let mut old = whole.to_vec();
        old[16] = 1;
        first_batch(&old).expect_err("version 1 is not read");
    }
}
