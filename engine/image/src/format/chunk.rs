//! Chunks: the new pages of one leaf, or a part of a map, identified by the digest of their bytes.
//!
//! ```text
//! 0                    4096                                     multiple of 4096
//! ┌────────────────────┬──────────────────────┬────────────────────┬─────────┐
//! │ header with digest │ uncompressed pages   │ encoded pages      │ zeros   │
//! │ and lengths        │ 4096 bytes each      │ concatenated       │         │
//! └────────────────────┴──────────────────────┴────────────────────┴─────────┘
//! ```
//!
//! Pages are numbered in the order of their blocks. Uncompressed pages come first, for alignment.

use std::ops::Deref;

use codec::BLOCK_BYTES;
use storage::AlignedBuffer;
use volumes::StoredBytes;

use crate::error::Disbelief;
use crate::format::fields::{Fields, PutFields};
use crate::format::{ALIGNMENT_BYTES, VERSION};
use crate::names::{CHUNK_PAGES_MAX, ChunkNumber, PackPlace};

pub(crate) const HEADER_BYTES: usize = ALIGNMENT_BYTES;

/// Maximum length of a chunk: 512 uncompressed pages.
pub(crate) const CHUNK_BYTES_MAX: usize = HEADER_BYTES + CHUNK_PAGES_MAX * BLOCK_BYTES;

const MAGIC: &[u8; 8] = b"MEMCHUNK";
const DIGEST_OFFSET: usize = 32;

/// Hashing granularity: large enough for SIMD, small enough that copied bytes are still in the
/// cache.
const HASHED_BYTES: usize = 128 << 10;

/// BLAKE3-256 of a chunk's bytes with the digest field zeroed. It identifies the chunk.
pub(crate) type Digest = [u8; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Pages,
    Map,
}

impl ChunkKind {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Pages => 1,
            Self::Map => 2,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        [Self::Pages, Self::Map].into_iter().find(|kind| kind.code() == code)
    }
}

/// Location of a chunk, with its expected digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) number: ChunkNumber,
    pub(crate) at: PackPlace,
    pub(crate) length_bytes: u32,
    pub(crate) kind: ChunkKind,
    pub(crate) digest: Digest,
}

impl ChunkPlace {
    pub(crate) fn attempt(&self) -> String {
        let Self { number, at: PackPlace { pack, offset_bytes }, .. } = self;
        format!("read {number} at {offset_bytes} of pack {pack}")
    }
}

/// Identity of a finished chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) kind: ChunkKind,
    pub(crate) digest: Digest,
    pub(crate) length_bytes: usize,
    pub(crate) page_count: u16,
}

/// Builds chunks at the end of a buffer, one at a time.
#[derive(Debug)]
pub(crate) struct ChunkBuilder {
    lengths: Vec<u16>,
    encoded: Vec<u8>,
    hasher: blake3::Hasher,
    start: usize,
    hashed: usize,
}

impl ChunkBuilder {
    pub(crate) fn new() -> Self {
        Self {
            lengths: Vec::with_capacity(CHUNK_PAGES_MAX),
            encoded: Vec::new(),
            hasher: blake3::Hasher::new(),
            start: 0,
            hashed: 0,
        }
    }

    /// Begins a chunk. `into` must not be modified otherwise until it is finished.
    pub(crate) fn begin(&mut self, into: &mut AlignedBuffer) {
        self.lengths.clear();
        self.encoded.clear();
        self.hasher.reset();
        self.start = into.len();
        into.resize(self.start + HEADER_BYTES, 0);
        self.hashed = into.len();
    }

    pub(crate) fn page_count(&self) -> u16 {
        u16::try_from(self.lengths.len()).expect("a chunk has few pages")
    }

    /// Adds a page. Returns its index in the chunk.
    pub(crate) fn add(&mut self, into: &mut AlignedBuffer, page: StoredBytes<'_>) -> u16 {
        assert!(self.lengths.len() < CHUNK_PAGES_MAX, "a chunk holds the pages of one leaf");
        let index = self.page_count();
        match page {
            StoredBytes::Raw(bytes) => {
                self.lengths.push(0);
                into.extend_from_slice(bytes);
                if into.len() - self.hashed >= HASHED_BYTES {
                    self.hash(into);
                }
            }
            StoredBytes::Encoded(bytes) => {
                assert!((1..BLOCK_BYTES).contains(&bytes.len()), "encodings are short");
                self.lengths.push(u16::try_from(bytes.len()).expect("shorter than a page"));
                self.encoded.extend_from_slice(bytes);
            }
        }
        index
    }

    /// Finishes a chunk of pages.
    pub(crate) fn finish(&mut self, into: &mut AlignedBuffer) -> Built {
        into.extend_from_slice(&self.encoded);
        self.seal(into, ChunkKind::Pages)
    }

    /// Builds a complete chunk with a part of a map.
    pub(crate) fn build_map(&mut self, into: &mut AlignedBuffer, part: &[u8]) -> Built {
        assert!(part.len() <= CHUNK_BYTES_MAX - HEADER_BYTES, "a part of a map fits a chunk");
        self.begin(into);
        into.extend_from_slice(part);
        self.seal(into, ChunkKind::Map)
    }

    fn seal(&mut self, into: &mut AlignedBuffer, kind: ChunkKind) -> Built {
        let content_bytes = into.len() - self.start - HEADER_BYTES;
        into.pad_to_block();
        let payload_bytes = into.len() - self.start - HEADER_BYTES;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.put(MAGIC);
        header.put_u32(VERSION);
        header.put_u32(kind.code());
        for number in [self.lengths.len(), payload_bytes, content_bytes, 0] {
            header.put_u32(u32::try_from(number).expect("chunks are short"));
        }
        header.put(&[0; 32]);
        self.lengths.iter().for_each(|&length| header.put_u16(length));
        header.resize(HEADER_BYTES, 0);
        self.hash(into);
        let digest = *self.hasher.update(&header).finalize().as_bytes();
        header[DIGEST_OFFSET..DIGEST_OFFSET + 32].copy_from_slice(&digest);
        into[self.start..self.start + HEADER_BYTES].copy_from_slice(&header);
        let length_bytes = HEADER_BYTES + payload_bytes;
        Built { kind, digest, length_bytes, page_count: self.page_count() }
    }

    fn hash(&mut self, from: &AlignedBuffer) {
        self.hasher.update(&from[self.hashed..]);
        self.hashed = from.len();
    }
}

/// Location of a page in its chunk.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: usize,
    /// 0 for an uncompressed page.
    length: usize,
}

/// A chunk whose bytes match its digest.
#[derive(Debug)]
pub(crate) struct VerifiedChunk<Bytes = AlignedBuffer> {
    bytes: Bytes,
    contents: Contents,
}

/// Decoded header of a chunk.
#[derive(Debug)]
struct Contents {
    places: Vec<Place>,
    content_bytes: usize,
}

impl<Bytes: Deref<Target = [u8]>> VerifiedChunk<Bytes> {
    /// Accepts `bytes` if they match `digest`.
    pub(crate) fn verify(
        bytes: Bytes,
        kind: ChunkKind,
        digest: &Digest,
    ) -> Result<Self, Disbelief> {
        let Some((header, payload)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(Disbelief::Damaged("the chunk is shorter than its header"));
        };
        if digest_of(header, payload) != *digest {
            return Err(Disbelief::Damaged("its checksum does not match"));
        }
        let mut fields = Fields::new(header);
        if fields.array() != Some(*MAGIC) {
            return Err(Disbelief::Damaged("it is not a chunk: wrong magic number"));
        }
        match fields.u32() {
            Some(VERSION) => {}
            Some(version) if version > VERSION => return Err(Disbelief::Newer(version)),
            _ => return Err(Disbelief::Damaged("unknown chunk version")),
        }
        let malformed = Disbelief::Damaged("inconsistent chunk header");
        let contents = Contents::read(&mut fields, kind, payload.len()).ok_or(malformed)?;
        Ok(Self { bytes, contents })
    }

    pub(crate) fn length_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn page_count(&self) -> usize {
        self.contents.places.len()
    }

    pub(crate) fn page(&self, index: usize) -> Option<StoredBytes<'_>> {
        let place = self.contents.places.get(index)?;
        let from = HEADER_BYTES + place.offset;
        let bytes = self.bytes.get(from..from + stored_bytes(place.length))?;
        Some(bytes.try_into().map_or(StoredBytes::Encoded(bytes), StoredBytes::Raw))
    }

    /// Returns the part of a map in the chunk.
    pub(crate) fn map_part(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + self.contents.content_bytes]
    }
}

impl Contents {
    fn read(fields: &mut Fields<'_>, kind: ChunkKind, payload: usize) -> Option<Self> {
        let is_kind = fields.u32()? == kind.code();
        let page_count = usize::try_from(fields.u32()?).ok()?;
        let payload_bytes = usize::try_from(fields.u32()?).ok()?;
        let content_bytes = usize::try_from(fields.u32()?).ok()?;
        fields.zeros(4)?;
        fields.bytes(32)?;
        let is_whole = payload_bytes == payload
            && content_bytes <= payload
            && payload - content_bytes < ALIGNMENT_BYTES;
        let count_is_right = match kind {
            ChunkKind::Pages => (1..=CHUNK_PAGES_MAX).contains(&page_count),
            ChunkKind::Map => page_count == 0,
        };
        if !is_kind || !is_whole || !count_is_right {
            return None;
        }
        let lengths: Vec<u16> = (0..page_count).map(|_| fields.u16()).collect::<Option<_>>()?;
        let places = places(&lengths, content_bytes)?;
        let contents = Self { places, content_bytes };
        (kind == ChunkKind::Map || contents.end() == content_bytes).then_some(contents)
    }

    fn end(&self) -> usize {
        self.places.iter().map(|place| place.offset + stored_bytes(place.length)).max().unwrap_or(0)
    }
}

fn stored_bytes(length: usize) -> usize {
    if length == 0 { BLOCK_BYTES } else { length }
}

/// Returns the locations of pages after the header: first uncompressed pages, then encoded ones.
fn places(lengths: &[u16], content_bytes: usize) -> Option<Vec<Place>> {
    let raw_bytes = lengths.iter().filter(|&&length| length == 0).count() * BLOCK_BYTES;
    let (mut raw_next, mut encoded_next) = (0, raw_bytes);
    let mut places = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let length = usize::from(length);
        let next = if length == 0 { &mut raw_next } else { &mut encoded_next };
        places.push(Place { offset: *next, length });
        *next += stored_bytes(length);
        if length >= BLOCK_BYTES || *next > content_bytes {
            return None;
        }
    }
    Some(places)
}

fn digest_of(header: &[u8], payload: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(payload);
    let mut cleared = header.to_vec();
    cleared[DIGEST_OFFSET..DIGEST_OFFSET + 32].fill(0);
    *hasher.update(&cleared).finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(letter: u8) -> [u8; BLOCK_BYTES] {
        [letter; BLOCK_BYTES]
    }

    /// A chunk of two uncompressed and two encoded pages.
    fn example() -> (Vec<u8>, Built) {
        let mut buffer = AlignedBuffer::new();
        let mut builder = ChunkBuilder::new();
        builder.begin(&mut buffer);
        builder.add(&mut buffer, StoredBytes::Raw(&raw(1)));
        builder.add(&mut buffer, StoredBytes::Encoded(&[2; 17]));
        builder.add(&mut buffer, StoredBytes::Encoded(&[3; 4095]));
        builder.add(&mut buffer, StoredBytes::Raw(&raw(4)));
        let built = builder.finish(&mut buffer);
        (buffer.to_vec(), built)
    }

    #[test]
    fn pages_come_back_in_their_order() {
        let (chunk, built) = example();
        assert_eq!(chunk.len(), built.length_bytes);
        let found = VerifiedChunk::verify(&chunk[..], ChunkKind::Pages, &built.digest);
        let found = found.expect("whole");
        assert_eq!(found.page_count(), 4);
        assert_eq!(found.page(0), Some(StoredBytes::Raw(&raw(1))));
        assert_eq!(found.page(1), Some(StoredBytes::Encoded(&[2; 17])));
        assert_eq!(found.page(2), Some(StoredBytes::Encoded(&[3; 4095])));
        assert_eq!(found.page(3), Some(StoredBytes::Raw(&raw(4))));
        assert_eq!(found.page(4), None);
    }

    #[test]
    fn the_longest_chunk_has_512_pages_as_they_are() {
        let mut buffer = AlignedBuffer::new();
        let mut builder = ChunkBuilder::new();
        builder.begin(&mut buffer);
        for _ in 0..CHUNK_PAGES_MAX {
            builder.add(&mut buffer, StoredBytes::Raw(&raw(9)));
        }
        let built = builder.finish(&mut buffer);
        assert_eq!(built.length_bytes, CHUNK_BYTES_MAX);
        VerifiedChunk::verify(buffer, ChunkKind::Pages, &built.digest).expect("whole");
    }

    #[test]
    fn equal_contents_have_equal_digests_wherever_they_are_built() {
        let mut buffer = AlignedBuffer::new();
        let mut builder = ChunkBuilder::new();
        let first = builder.build_map(&mut buffer, b"map");
        let second = builder.build_map(&mut buffer, b"map");
        assert_eq!(first, second);
        assert_eq!(buffer[..8192], buffer[8192..]);
    }

    #[test]
    fn a_flip_of_any_byte_is_noticed() {
        let (chunk, built) = example();
        for position in (0..chunk.len()).filter(|at| at % 61 == 0 || *at < 1100) {
            let mut flipped = chunk.clone();
            flipped[position] ^= 0x10;
            let result = VerifiedChunk::verify(flipped, ChunkKind::Pages, &built.digest);
            // The digest in the header is informational. The expected one is decisive.
            let is_digest = (DIGEST_OFFSET..DIGEST_OFFSET + 32).contains(&position);
            assert_eq!(result.is_ok(), is_digest, "byte {position}");
        }
    }

    #[test]
    fn a_chunk_cut_short_is_noticed() {
        let (chunk, built) = example();
        for length in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, chunk.len() - 1] {
            let result = VerifiedChunk::verify(&chunk[..length], ChunkKind::Pages, &built.digest);
            assert!(matches!(result, Err(Disbelief::Damaged(_))), "{length} bytes");
        }
    }

    /// Modifies a header and recomputes the digest.
    #[track_caller]
    fn check_header(change: impl FnOnce(&mut [u8]), expected: Disbelief) {
        let (mut chunk, _) = example();
        change(&mut chunk[..HEADER_BYTES]);
        let digest = digest_of(&chunk[..HEADER_BYTES], &chunk[HEADER_BYTES..]);
        let result = VerifiedChunk::verify(chunk, ChunkKind::Pages, &digest);
        assert_eq!(result.expect_err("a bad header"), expected);
    }

    #[test]
    fn headers_that_no_writer_wrote_are_refused() {
        let malformed = Disbelief::Damaged("inconsistent chunk header");
        check_header(|header| header[8] = 2, Disbelief::Newer(2));
        check_header(|header| header[12] = 2, malformed);
        check_header(|header| header[12] = 3, malformed);
        check_header(|header| header[16..20].fill(0), malformed);
        check_header(|header| header[16..20].fill(0xFF), malformed);
        check_header(|header| header[20..24].fill(0xFF), malformed);
        check_header(|header| header[24..28].fill(0xFF), malformed);
        check_header(|header| header[24] = header[24].wrapping_sub(1), malformed);
        check_header(|header| header[64..66].fill(0xFF), malformed);
    }
}
