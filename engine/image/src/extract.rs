//! Journal extracts, stored beside the images that they continue.
//!
//! An extract contains part of one segment as it is on the writer's disk, encrypted if the journal
//! is. Only the journal interprets it. A header of 4096 bytes states its origin and has a digest of
//! everything, so corrupt extracts are never returned.

use storage::AlignedBuffer;

use crate::error::{Disbelief, ImageError};
use crate::format::ALIGNMENT_BYTES;
use crate::format::fields::{Fields, PutFields};
use crate::names::ExtractName;
use crate::store::{ImageStore, ObjectName};

/// Maximum number of journal bytes in one extract.
pub const EXTRACT_BYTES_MAX: u32 = 4 << 20;

const MAGIC: &[u8; 8] = b"MEMLEXTR";
const VERSION: u32 = 1;
/// Format version of the segments of an encrypted journal.
const SEALED_SEGMENT: u32 = 2;
/// Offset of the header's digest, which ends at 256.
const DIGEST: usize = 224;
const PAYLOAD_DIGEST: usize = 80;
const ZERO_SECTORS: usize = 112;

/// Least part of a write that a power loss keeps or not.
pub(crate) const SECTOR_BYTES: usize = 512;

/// Origin of an extract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtractHeader {
    /// Id of the durable set.
    pub set_id: [u8; 16],
    pub name: ExtractName,
    /// Length of the journal's bytes.
    pub payload_bytes: u32,
    /// Every flush before this time is in this extract or an earlier one. In microseconds since
    /// 1970 by the clock of the writing host.
    pub taken_unix_micros: u64,
}

/// Encodes an extract: a header, then the journal's bytes.
pub fn encode_extract(
    set_id: [u8; 16],
    name: ExtractName,
    taken_unix_micros: u64,
    payload: &[u8],
) -> AlignedBuffer {
    let payload_bytes = u32::try_from(payload.len()).expect("an extract is short");
    let mut header = Vec::with_capacity(ALIGNMENT_BYTES);
    header.put(MAGIC);
    header.put_u32(VERSION);
    header.put_u32(payload_bytes);
    header.put(&set_id);
    header.put_u128(name.writer);
    header.put_u32(name.segment);
    header.put_u32(name.offset);
    header.put_u64(taken_unix_micros);
    header.put_zeros(PAYLOAD_DIGEST - header.len());
    header.put(blake3::hash(payload).as_bytes());
    header.put_u32(zero_sectors(payload));
    header.put_zeros(ALIGNMENT_BYTES - header.len());
    let digest = blake3::hash(&header);
    header[DIGEST..DIGEST + 32].copy_from_slice(digest.as_bytes());
    let mut bytes = AlignedBuffer::with_capacity(header.len() + payload.len());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads an extract of a store and verifies its digests. Returns its header and the journal's
/// bytes.
pub fn read_extract(
    store: &dyn ImageStore,
    name: ExtractName,
    size_bytes: u64,
) -> Result<(ExtractHeader, AlignedBuffer), ImageError> {
    let object = ObjectName::Extract(name);
    let attempt = || format!("read {object}");
    let payload_max = u64::from(EXTRACT_BYTES_MAX);
    let header_bytes = ALIGNMENT_BYTES as u64;
    let is_right = (header_bytes..=header_bytes + payload_max).contains(&size_bytes);
    if !is_right {
        return Err(Disbelief::Damaged("its length is invalid").error(attempt()));
    }
    let length = usize::try_from(size_bytes).expect("it was compared with a limit");
    let mut header = AlignedBuffer::zeroed(ALIGNMENT_BYTES);
    store.read(object, 0, &mut header)?;
    let mut payload = AlignedBuffer::zeroed(length - ALIGNMENT_BYTES);
    store.read(object, header_bytes, &mut payload)?;
    let decoded = decode(&mut header, name, &payload);
    Ok((decoded.map_err(|disbelief| disbelief.error(attempt()))?, payload))
}

/// Rejects an extract that begins an unencrypted segment.
pub(crate) fn check_is_sealed(name: ExtractName, bytes: &[u8]) -> Result<(), Disbelief> {
    let segment = bytes.get(ALIGNMENT_BYTES..).unwrap_or_default();
    let is_sealed = segment.get(..8) == Some(b"MEMLJSEG")
        && segment.get(16..20) == Some(&SEALED_SEGMENT.to_le_bytes());
    match name.offset == 0 && !is_sealed {
        true => Err(Disbelief::NotSealed),
        false => Ok(()),
    }
}

/// Contents of an extract's header, in a file that may have more after the extract.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredExtract {
    pub(crate) header: ExtractHeader,
    /// Length with the header.
    pub(crate) bytes: usize,
    /// Number of the payload's sectors that are zeros.
    pub(crate) zero_sectors: u32,
    payload_digest: [u8; 32],
}

impl StoredExtract {
    /// Returns whether this is the payload.
    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        *blake3::hash(payload).as_bytes() == self.payload_digest
    }

    /// Returns whether the payload is a whole number of blocks, and not none.
    pub(crate) fn has_whole_blocks(&self) -> bool {
        self.bytes > ALIGNMENT_BYTES && self.bytes.is_multiple_of(ALIGNMENT_BYTES)
    }
}

/// Returns the number of sectors that are zeros.
pub(crate) fn zero_sectors(payload: &[u8]) -> u32 {
    let is_zero = |sector: &&[u8]| sector.iter().all(|&byte| byte == 0);
    let count = payload.chunks(SECTOR_BYTES).filter(is_zero).count();
    u32::try_from(count).expect("an extract is short")
}

/// Decodes an intact header at the beginning of `bytes`.
pub(crate) fn decode_stored(bytes: &[u8]) -> Option<StoredExtract> {
    let header = bytes.get(..ALIGNMENT_BYTES).filter(|header| header[..8] == *MAGIC)?;
    let mut header = header.to_vec();
    let (decoded, payload_digest) = decode_header(&mut header).ok()?;
    let mut zeros = Fields::new(&header[ZERO_SECTORS..]);
    Some(StoredExtract {
        header: decoded,
        bytes: ALIGNMENT_BYTES + decoded.payload_bytes as usize,
        zero_sectors: zeros.u32()?,
        payload_digest,
    })
}

fn decode(
    header: &mut [u8],
    name: ExtractName,
    payload: &[u8],
) -> Result<ExtractHeader, Disbelief> {
    let damaged = Disbelief::Damaged;
    let (decoded, payload_digest) = decode_header(header)?;
    if decoded.name != name {
        return Err(damaged("it is a different extract"));
    }
    let is_whole = payload.len() == decoded.payload_bytes as usize;
    if !is_whole || *blake3::hash(payload).as_bytes() != payload_digest {
        return Err(damaged("its checksum does not match"));
    }
    Ok(decoded)
}

/// Decodes a header, and returns the digest of its payload. Overwrites the header's own digest.
fn decode_header(header: &mut [u8]) -> Result<(ExtractHeader, [u8; 32]), Disbelief> {
    let damaged = Disbelief::Damaged;
    let mut digest = [0; 32];
    digest.copy_from_slice(&header[DIGEST..DIGEST + 32]);
    header[DIGEST..DIGEST + 32].fill(0);
    if header[..8] != *MAGIC || *blake3::hash(header).as_bytes() != digest {
        return Err(damaged("its header is corrupt"));
    }
    let mut fields = Fields::new(&header[8..]);
    let short = damaged("its header is short");
    let version = fields.u32().ok_or(short)?;
    if version > VERSION {
        return Err(Disbelief::Newer(version));
    }
    let payload_bytes = fields.u32().ok_or(short)?;
    let set_id = fields.array().ok_or(short)?;
    let writer = fields.u128().ok_or(short)?;
    let (segment, offset) = (fields.u32().ok_or(short)?, fields.u32().ok_or(short)?);
    let taken_unix_micros = fields.u64().ok_or(short)?;
    let payload_digest = Fields::new(&header[PAYLOAD_DIGEST..]).array().ok_or(short)?;
    let name = ExtractName { writer, segment, offset };
    Ok((ExtractHeader { set_id, name, payload_bytes, taken_unix_micros }, payload_digest))
}
