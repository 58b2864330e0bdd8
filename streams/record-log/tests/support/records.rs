//! Batches with keys and values, and a decoder of them.

use model::Random;
use record_batch::HEADER_BYTES;

use super::{From, batch, change_attributes};

/// A record as a reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) offset: i64,
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
}

/// Contents of a batch, decoded independently of the log's code.
pub(crate) struct Decoded {
    pub(crate) codec: i16,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) entries: Vec<Entry>,
}

/// Builds a batch of keys and values with one timestamp. `codec` is its number.
pub(crate) fn keyed_batch(
    from: From,
    codec: i16,
    unix_ms: i64,
    records: &[(&str, Option<&str>)],
) -> Vec<u8> {
    compressed_batch(from, codec, unix_ms, records.len(), &compress(codec, &plain(records)))
}

/// Builds a batch of records that repeat after `period` bytes, at a distance that Snappy encoders
/// do not detect.
pub(crate) fn repeating_batch(records: &[(&str, Option<&str>)], period: usize) -> Vec<u8> {
    let plain = plain(records);
    let mut snappy = Vec::new();
    let mut length = plain.len();
    while length >= 0x80 {
        snappy.push(u8::try_from(length & 0x7F).expect("seven bits") | 0x80);
        length >>= 7;
    }
    snappy.push(u8::try_from(length).expect("seven bits"));
    let (mut at, mut literal_from) = (0, 0);
    while at < plain.len() {
        let before = at.saturating_sub(period);
        let same = plain[at..].iter().zip(&plain[before..at]).take_while(|(a, b)| a == b);
        let length = same.take(64).count();
        if length < 64 && at + length < plain.len() {
            at += 1;
            continue;
        }
        put_literal(&plain[literal_from..at], &mut snappy);
        snappy.push(u8::try_from((length - 1) << 2 | 3).expect("six bits, and the kind"));
        snappy.extend(u32::try_from(at - before).expect("short").to_le_bytes());
        at += length;
        literal_from = at;
    }
    put_literal(&plain[literal_from..], &mut snappy);
    compressed_batch(super::NO_PRODUCER, 2, 0, records.len(), &snappy)
}

/// Appends a Snappy literal.
fn put_literal(bytes: &[u8], into: &mut Vec<u8>) {
    if !bytes.is_empty() {
        into.push(63 << 2);
        into.extend(u32::try_from(bytes.len() - 1).expect("short").to_le_bytes());
        into.extend(bytes);
    }
}

fn compressed_batch(
    from: From,
    codec: i16,
    unix_ms: i64,
    count: usize,
    compressed: &[u8],
) -> Vec<u8> {
    let count = i32::try_from(count).expect("short");
    let mut bytes = batch(from, count, unix_ms, compressed);
    let attributes = i16::from_be_bytes([bytes[21], bytes[22]]);
    change_attributes(&mut bytes, attributes | codec);
    bytes
}

/// Encodes the records of a batch, all with its base timestamp.
fn plain(records: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (delta, (key, value)) in (0..).zip(records) {
        let mut record = vec![0];
        put_number(0, &mut record);
        put_number(delta, &mut record);
        for field in [Some(*key), *value] {
            put_number(field.map_or(-1, |it| i64::try_from(it.len()).expect("short")), &mut record);
            record.extend(field.unwrap_or_default().as_bytes());
        }
        put_number(0, &mut record);
        put_number(i64::try_from(record.len()).expect("short"), &mut bytes);
        bytes.extend(record);
    }
    bytes
}

pub(crate) fn value(random: &mut Random, length_max: usize) -> String {
    let length = random.index(length_max);
    (0..length).map(|_| random.pick(&['a', 'b', 'c', 'd'])).collect()
}

/// Returns the records of a batch; none of control batches and undecodable ones.
pub(crate) fn entries(batch: &[u8]) -> Vec<Entry> {
    decode(batch).map_or(Vec::new(), |it| it.entries)
}

/// Decodes a batch as consumers do; `None` for markers and unknown codecs.
pub(crate) fn decode(batch: &[u8]) -> Option<Decoded> {
    let header = record_batch::headers(batch).next().expect("a batch");
    assert_eq!(
        u32::from_be_bytes(batch[17..21].try_into().expect("four bytes")),
        u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &batch[21..]))
            .expect("32 bits"),
        "the checksum fits"
    );
    let codec = header.attributes & 7;
    if header.is_control() {
        return None;
    }
    let bytes = decompress(codec, &batch[HEADER_BYTES..])?;
    let mut rest = &bytes[..];
    let (mut timestamps, mut entries) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let length = usize::try_from(take_number(&mut rest)).expect("positive");
        let (mut record, after) = rest.split_at(length);
        rest = after;
        record = &record[1..];
        timestamps.push(header.base_timestamp + take_number(&mut record));
        let offset = header.base_offset + take_number(&mut record);
        let mut take_field = || {
            let length = usize::try_from(take_number(&mut record)).ok()?;
            let (field, after) = record.split_at(length);
            record = after;
            Some(String::from_utf8(field.to_vec()).expect("tests write text"))
        };
        let (key, value) = (take_field(), take_field());
        entries.push(Entry { offset, key, value });
    }
    assert_eq!(entries.len(), usize::try_from(header.record_count).expect("positive"));
    assert!(entries.iter().all(|it| it.offset <= header.last_offset()));
    if let Some(newest) = timestamps.iter().max() {
        assert_eq!(*newest, header.max_timestamp);
    }
    Some(Decoded { codec, timestamps, entries })
}

/// Compresses as clients do, with other variants of Snappy, frames and levels than the log's.
pub(crate) fn compress(codec: i16, bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match codec {
        0 => bytes.to_vec(),
        1 => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            gzip.write_all(bytes).expect("memory");
            gzip.finish().expect("memory")
        }
        2 => snap::raw::Encoder::new().compress_vec(bytes).expect("short"),
        3 => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(bytes).expect("memory");
            lz4.finish().expect("memory")
        }
        _ => ruzstd::encoding::compress_to_vec(
            bytes,
            ruzstd::encoding::CompressionLevel::Uncompressed,
        ),
    }
}

fn decompress(codec: i16, bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut found = Vec::new();
    match codec {
        0 => found.extend_from_slice(bytes),
        1 => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut found).expect("gzip");
        }
        2 => {
            // The framing of Java clients, which the log writes.
            let is_framed = bytes.starts_with(b"\x82SNAPPY\0");
            let mut rest = if is_framed { &bytes[16..] } else { bytes };
            while !rest.is_empty() {
                let (length, from) = match is_framed {
                    true => (u32::from_be_bytes(rest[..4].try_into().expect("four")), 4),
                    false => (u32::try_from(rest.len()).expect("short"), 0),
                };
                let until = from + usize::try_from(length).expect("short");
                let block = &rest[from..until];
                found.extend(snap::raw::Decoder::new().decompress_vec(block).expect("snappy"));
                rest = &rest[until..];
            }
        }
        3 => {
            lz4_flex::frame::FrameDecoder::new(bytes).read_to_end(&mut found).expect("lz4");
        }
        4 => {
            let mut zstd = ruzstd::decoding::StreamingDecoder::new(bytes).expect("zstd");
            zstd.read_to_end(&mut found).expect("zstd");
        }
        _ => return None,
    }
    Some(found)
}

fn put_number(number: i64, into: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        into.push(u8::try_from(rest & 0x7F).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    into.push(u8::try_from(rest).expect("seven bits"));
}

fn take_number(rest: &mut &[u8]) -> i64 {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = rest[0];
        *rest = &rest[1..];
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
