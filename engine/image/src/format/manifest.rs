//! Manifest: the contents of one image.
//!
//! ```text
//! 0          4096
//! ┌──────────┬───────────────┬─────────────┬──────────────┬─────────────┬───────┐
//! │ header   │ volumes       │ packs       │ chunks       │ map parts   │ zeros │
//! │ digests  │ 192 B each    │ 32 B each   │ 64 B each    │ 16 B each   │       │
//! └──────────┴───────────────┴─────────────┴──────────────┴─────────────┴───────┘
//! ```

use std::ops::Range;

use block_device::SectorSize;
use volumes::{CapacityClass, Durability, Reduction, SetId, VolumeMirror, place_of};

use crate::error::Disbelief;
use crate::format::chunk::{CHUNK_BYTES_MAX, ChunkKind, ChunkPlace, Digest, HEADER_BYTES};
use crate::format::fields::{Fields, PutFields};
use crate::format::part::PART_LEAVES;
use crate::format::{ALIGNMENT_BYTES, SEALED_VERSION, VERSION};
use crate::names::{CHUNK_PAGES_MAX, ChunkNumber, ImageId, PackName, PackPlace, PageNumber};
use crate::store_writer::{Mirroring, StoreWriter};
use crate::volume_record::{IMAGE_NAME_BYTES_MAX, ImageVolume, ImageVolumeKind};

/// Maximum length of an image's label, in bytes.
pub const LABEL_BYTES_MAX: usize = 63;

/// Maximum length of a pack.
pub(crate) const PACK_BYTES_MAX: u64 = 64 << 20;

/// Maximum length of a manifest that is read, enough for about 16 million chunks.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 30;

const MAGIC: &[u8; 8] = b"MEMIMAGE";
const LOST_BLOCKS_OFFSET: usize = 176;
const BODY_DIGEST_OFFSET: usize = 192;
const HEADER_DIGEST_OFFSET: usize = 224;

const VOLUME_BYTES: usize = 192;
/// Room for a name in the record of a volume, between the other fields and the last byte.
const VOLUME_NAME_ROOM_BYTES: usize = VOLUME_BYTES - 40 - 1;
const PACK_BYTES: usize = 32;
const CHUNK_BYTES: usize = 64;
const PART_BYTES: usize = 16;

/// Sector sizes by code.
const SECTORS: [SectorSize; 2] = [SectorSize::Bytes512, SectorSize::Bytes4096];

/// Kind of a manifest: an image, or a fence, which only takes a number so that no other writer gets
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManifestKind {
    Image,
    Fence,
}

/// Position in the journal up to which an image covers everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalPosition {
    pub epoch: u64,
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackRecord {
    pub(crate) name: PackName,
    pub(crate) length_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRecord {
    pub(crate) number: ChunkNumber,
    pub(crate) kind: ChunkKind,
    pub(crate) digest: Digest,
    /// Index in the manifest's pack table.
    pub(crate) pack: u32,
    pub(crate) offset_bytes: u32,
    pub(crate) length_bytes: u32,
    pub(crate) page_count: u16,
    /// Number of the image's blocks that refer to the chunk, at most 2³² − 1.
    pub(crate) use_count: u32,
}

/// Chunk that contains a part of a volume's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartRecord {
    /// Index in the manifest's volume table.
    pub(crate) volume: u32,
    pub(crate) part: u32,
    pub(crate) chunk: ChunkNumber,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) kind: ManifestKind,
    pub(crate) id: ImageId,
    /// Durable set of region, journal and image. In a fence, the id of its writer.
    pub(crate) set_id: SetId,
    /// In a fence, the code of its [`Mirroring`].
    pub(crate) created_seconds: u64,
    /// In a fence, the id of the daemon, low half first.
    pub(crate) journal: JournalPosition,
    /// First chunk number not yet used by any image.
    pub(crate) next_chunk: u64,
    /// In a fence, the host of the writer.
    pub(crate) label: String,
    /// Number of blocks whose contents were lost before the image was saved. 0 in manifests of
    /// earlier releases.
    pub(crate) lost_blocks: u64,
    pub(crate) volumes: Vec<ImageVolume>,
    pub(crate) packs: Vec<PackRecord>,
    /// In ascending order of number.
    pub(crate) chunks: Vec<ChunkRecord>,
    /// In ascending order of volume and part.
    pub(crate) parts: Vec<PartRecord>,
}

impl Manifest {
    /// Creates a fence, which only takes its number. Fences of two writers always differ.
    pub(crate) fn fence(id: ImageId, next_chunk: u64, writer: &StoreWriter) -> Self {
        let fits = |bytes: &usize| writer.host.is_char_boundary(*bytes);
        let label_bytes = (0..=LABEL_BYTES_MAX.min(writer.host.len())).rev().find(fits);
        let label_bytes = label_bytes.expect("0 is a boundary");
        let half = |shift: u32| {
            let bits = writer.daemon_id >> shift & u128::from(u64::MAX);
            u64::try_from(bits).expect("64 bits were kept")
        };
        Self {
            kind: ManifestKind::Fence,
            id,
            set_id: writer.id.to_le_bytes(),
            created_seconds: u64::from(place_of(&Mirroring::ALL, writer.mirroring)),
            journal: JournalPosition { epoch: half(0), sequence: half(64) },
            next_chunk,
            label: writer.host[..label_bytes].to_owned(),
            lost_blocks: 0,
            volumes: Vec::new(),
            packs: Vec::new(),
            chunks: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Returns the writer that a fence names.
    pub(crate) fn writer(&self) -> StoreWriter {
        let JournalPosition { epoch, sequence } = self.journal;
        StoreWriter {
            id: u128::from_le_bytes(self.set_id),
            daemon_id: u128::from(sequence) << 64 | u128::from(epoch),
            mirroring: usize::try_from(self.created_seconds)
                .ok()
                .and_then(|code| Mirroring::ALL.get(code).copied())
                .unwrap_or_default(),
            host: self.label.clone(),
        }
    }

    pub(crate) fn chunk(&self, number: ChunkNumber) -> Option<&ChunkRecord> {
        let found = self.chunks.binary_search_by_key(&number, |chunk| chunk.number).ok()?;
        Some(&self.chunks[found])
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        self.volumes.iter().for_each(|volume| put_volume(&mut body, volume));
        self.packs.iter().for_each(|pack| put_pack(&mut body, pack));
        self.chunks.iter().for_each(|chunk| put_chunk(&mut body, chunk));
        self.parts.iter().for_each(|part| put_part(&mut body, part));
        let padded = body.len().next_multiple_of(ALIGNMENT_BYTES);
        let mut bytes = self.encode_header(&body);
        bytes.extend_from_slice(&body);
        bytes.resize(HEADER_BYTES + padded, 0);
        bytes
    }

    fn encode_header(&self, body: &[u8]) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.put(MAGIC);
        header.put_u32(VERSION);
        header.put_u32(match self.kind {
            ManifestKind::Image => 1,
            ManifestKind::Fence => 2,
        });
        header.put_u64(self.id.word());
        header.put(&self.set_id);
        header.put_u64(self.created_seconds);
        header.put_u64(self.journal.epoch);
        header.put_u64(self.journal.sequence);
        header.put_u64(self.next_chunk);
        let counts =
            [self.volumes.len(), self.packs.len(), self.chunks.len(), self.parts.len(), body.len()];
        counts.iter().for_each(|&count| header.put_u64(count as u64));
        header.put_u8(u8::try_from(self.label.len()).expect("labels are short"));
        header.put(self.label.as_bytes());
        header.resize(LOST_BLOCKS_OFFSET, 0);
        header.put_u64(self.lost_blocks);
        header.resize(BODY_DIGEST_OFFSET, 0);
        header.put(blake3::hash(body).as_bytes());
        header.resize(HEADER_BYTES, 0);
        let (digest, at) = digest_of_header(&header);
        header[at].copy_from_slice(&digest);
        header
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Disbelief> {
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            // The header is written last.
            return Err(match bytes.iter().all(|&byte| byte == 0) {
                true => Disbelief::Unfinished,
                false => Disbelief::Damaged("it is shorter than a manifest's header"),
            });
        };
        check_header(header)?;
        let malformed = Disbelief::Damaged("inconsistent manifest header");
        let (mut manifest, counts) = read_header(header).ok_or(malformed)?;
        let body_bytes = usize::try_from(counts[4]).ok().filter(|&length| length <= body.len());
        let body = &body[..body_bytes.ok_or(malformed)?];
        if blake3::hash(body).as_bytes()[..] != header[BODY_DIGEST_OFFSET..BODY_DIGEST_OFFSET + 32]
        {
            return Err(Disbelief::Damaged("the manifest's tables are damaged"));
        }
        let mut fields = Fields::new(body);
        read_body(&mut manifest, &mut fields, counts).ok_or(malformed)?;
        manifest.check().ok_or(malformed)?;
        Ok(manifest)
    }

    pub(crate) fn place_of(&self, chunk: &ChunkRecord) -> ChunkPlace {
        let pack = self.packs[chunk.pack as usize].name;
        ChunkPlace {
            number: chunk.number,
            at: PackPlace { pack, offset_bytes: chunk.offset_bytes },
            length_bytes: chunk.length_bytes,
            kind: chunk.kind,
            digest: chunk.digest,
        }
    }

    pub(crate) fn has_page(&self, page: PageNumber) -> bool {
        let chunk = self.chunk(page.chunk());
        chunk.is_some_and(|chunk| page.index() < usize::from(chunk.page_count))
    }

    /// Checks that all references within the manifest are valid.
    fn check(&self) -> Option<()> {
        let numbers_rise = self.chunks.is_sorted_by(|one, next| one.number < next.number);
        let parts_rise =
            self.parts.is_sorted_by(|one, next| (one.volume, one.part) < (next.volume, next.part));
        let all_are_in_order = self.volumes.iter().all(ImageVolume::is_sound)
            && self.chunks.iter().all(|chunk| self.is_chunk_in_order(chunk))
            && self.parts.iter().all(|part| self.is_part_in_order(*part));
        (numbers_rise && parts_rise && all_are_in_order).then_some(())
    }

    fn is_chunk_in_order(&self, chunk: &ChunkRecord) -> bool {
        let Some(pack) = usize::try_from(chunk.pack).ok().and_then(|pack| self.packs.get(pack))
        else {
            return false;
        };
        let length = chunk.length_bytes as usize;
        let end = u64::from(chunk.offset_bytes) + u64::from(chunk.length_bytes);
        let page_count = usize::from(chunk.page_count);
        chunk.number.0 < self.next_chunk
            && (HEADER_BYTES..=CHUNK_BYTES_MAX).contains(&length)
            && length.is_multiple_of(ALIGNMENT_BYTES)
            && (chunk.offset_bytes as usize).is_multiple_of(ALIGNMENT_BYTES)
            && end <= pack.length_bytes
            && (chunk.kind == ChunkKind::Map) == (page_count == 0)
            && page_count <= CHUNK_PAGES_MAX
    }

    fn is_part_in_order(&self, part: PartRecord) -> bool {
        let volume = usize::try_from(part.volume).ok().and_then(|index| self.volumes.get(index));
        let has_leaf =
            volume.is_some_and(|volume| u64::from(part.part) * PART_LEAVES < volume.leaf_count());
        has_leaf && self.chunk(part.chunk).is_some_and(|chunk| chunk.kind == ChunkKind::Map)
    }
}

fn check_header(header: &[u8]) -> Result<(), Disbelief> {
    if header.iter().all(|&byte| byte == 0) {
        return Err(Disbelief::Unfinished);
    }
    let mut fields = Fields::new(header);
    if fields.array() != Some(*MAGIC) {
        return Err(Disbelief::Damaged("it is not a manifest: wrong magic number"));
    }
    let is_whole = is_header_whole(header);
    // These two fields and the header's digest have the same offsets in all versions.
    match fields.u32() {
        _ if !is_whole => Err(Disbelief::Damaged("the manifest's header is damaged")),
        Some(VERSION) => Ok(()),
        Some(SEALED_VERSION) => Err(Disbelief::Sealed),
        Some(version) if version > SEALED_VERSION => Err(Disbelief::Newer(version)),
        _ => Err(Disbelief::Damaged("unknown manifest version")),
    }
}

/// Computes the digest of a manifest's first block. Returns it with its position, which is the same
/// in all versions.
pub(crate) fn digest_of_header(header: &[u8]) -> (Digest, Range<usize>) {
    let at = HEADER_DIGEST_OFFSET..HEADER_DIGEST_OFFSET + 32;
    let mut cleared = header.to_vec();
    cleared[at.clone()].fill(0);
    (*blake3::hash(&cleared).as_bytes(), at)
}

pub(crate) fn is_header_whole(header: &[u8]) -> bool {
    let (digest, at) = digest_of_header(header);
    header[at] == digest
}

/// Decodes all fields except the tables. Returns them with the table sizes.
fn read_header(header: &[u8]) -> Option<(Manifest, [u64; 5])> {
    let mut fields = Fields::new(header);
    fields.bytes(12)?;
    let kind = match fields.u32()? {
        1 => ManifestKind::Image,
        2 => ManifestKind::Fence,
        _ => return None,
    };
    let id = ImageId::from_word(fields.u64()?).filter(|id| id.number() > 0)?;
    let mut manifest = Manifest::fence(id, 0, &0.into());
    manifest.kind = kind;
    manifest.set_id = fields.array()?;
    manifest.created_seconds = fields.u64()?;
    manifest.journal.epoch = fields.u64()?;
    manifest.journal.sequence = fields.u64()?;
    manifest.next_chunk = fields.u64().filter(|&next| next <= ChunkNumber::END)?;
    let mut counts = [0; 5];
    for count in &mut counts {
        *count = fields.u64()?;
    }
    let label_bytes = usize::from(fields.u8()?);
    let label = fields.bytes(label_bytes).filter(|_| label_bytes <= LABEL_BYTES_MAX)?;
    manifest.label = std::str::from_utf8(label).ok()?.to_owned();
    fields.bytes(LABEL_BYTES_MAX - label_bytes)?;
    manifest.lost_blocks = fields.u64()?;
    Some((manifest, counts))
}

fn read_body(manifest: &mut Manifest, fields: &mut Fields<'_>, counts: [u64; 5]) -> Option<()> {
    manifest.volumes = table::<_, VOLUME_BYTES>(fields, counts[0], read_volume)?;
    manifest.packs = table::<_, PACK_BYTES>(fields, counts[1], read_pack)?;
    manifest.chunks = table::<_, CHUNK_BYTES>(fields, counts[2], read_chunk)?;
    manifest.parts = table::<_, PART_BYTES>(fields, counts[3], read_part)?;
    fields.is_empty().then_some(())
}

/// Reads `count` records. Allocates nothing before their presence was checked.
fn table<Record, const RECORD_BYTES: usize>(
    fields: &mut Fields<'_>,
    count: u64,
    read: fn(&mut Fields<'_>) -> Option<Record>,
) -> Option<Vec<Record>> {
    let bytes = fields.bytes(usize::try_from(count).ok()?.checked_mul(RECORD_BYTES)?)?;
    bytes.chunks_exact(RECORD_BYTES).map(|record| read(&mut Fields::new(record))).collect()
}

fn put_volume(into: &mut Vec<u8>, volume: &ImageVolume) {
    let end = into.len() + VOLUME_BYTES;
    for word in [volume.id, volume.origin, volume.created_seconds, volume.size_bytes] {
        into.put_u64(word);
    }
    into.put_u8(place_of(&SECTORS, volume.sector));
    into.put_u8(place_of(&Reduction::ALL, volume.reduction));
    into.put_u8(place_of(&Durability::ALL, volume.durability));
    into.put_u8(place_of(&CapacityClass::ALL, volume.capacity));
    into.put_u8(place_of(&ImageVolumeKind::ALL, volume.kind));
    into.put_u8(u8::try_from(volume.name.len()).expect("names are short"));
    into.put_zeros(2);
    into.put(volume.name.as_bytes());
    into.resize(end - 1, 0);
    into.put_u8(place_of(&VolumeMirror::ALL, volume.mirror));
}

fn read_volume(fields: &mut Fields<'_>) -> Option<ImageVolume> {
    let (id, origin) = (fields.u64()?, fields.u64()?);
    let (created_seconds, size_bytes) = (fields.u64()?, fields.u64()?);
    let sector = one_of(&SECTORS, fields)?;
    let reduction = one_of(&Reduction::ALL, fields)?;
    let durability = one_of(&Durability::ALL, fields)?;
    let capacity = one_of(&CapacityClass::ALL, fields)?;
    let kind = one_of(&ImageVolumeKind::ALL, fields)?;
    let name_bytes = usize::from(fields.u8()?);
    fields.zeros(2)?;
    let name = fields.bytes(name_bytes).filter(|_| name_bytes <= IMAGE_NAME_BYTES_MAX)?;
    let name = std::str::from_utf8(name).ok()?.to_owned();
    fields.bytes(VOLUME_NAME_ROOM_BYTES - name_bytes)?;
    let mirror = one_of(&VolumeMirror::ALL, fields)?;
    Some(ImageVolume {
        name,
        id,
        origin,
        created_seconds,
        size_bytes,
        sector,
        reduction,
        durability,
        capacity,
        kind,
        mirror,
    })
}

/// Reads a value encoded as its index in `all`.
fn one_of<Value: Copy>(all: &[Value], fields: &mut Fields<'_>) -> Option<Value> {
    all.get(usize::from(fields.u8()?)).copied()
}

fn put_pack(into: &mut Vec<u8>, pack: &PackRecord) {
    into.put_u128(pack.name.writer);
    into.put_u32(pack.name.index);
    into.put_u32(0);
    into.put_u64(pack.length_bytes);
}

fn read_pack(fields: &mut Fields<'_>) -> Option<PackRecord> {
    let name = PackName { writer: fields.u128()?, index: fields.u32()? };
    fields.zeros(4)?;
    let length_bytes = fields.u64().filter(|&length| length <= PACK_BYTES_MAX)?;
    Some(PackRecord { name, length_bytes })
}

fn put_chunk(into: &mut Vec<u8>, chunk: &ChunkRecord) {
    into.put_u64(chunk.number.0);
    into.put_u32(chunk.pack);
    into.put_u32(chunk.offset_bytes);
    into.put_u32(chunk.length_bytes);
    into.put_u32(chunk.use_count);
    into.put_u16(chunk.page_count);
    into.put_u16(u16::try_from(chunk.kind.code()).expect("codes are small"));
    into.put_zeros(4);
    into.put(&chunk.digest);
}

fn read_chunk(fields: &mut Fields<'_>) -> Option<ChunkRecord> {
    let number = ChunkNumber(fields.u64()?);
    let pack = fields.u32()?;
    let (offset_bytes, length_bytes) = (fields.u32()?, fields.u32()?);
    let use_count = fields.u32()?;
    let page_count = fields.u16()?;
    let kind = ChunkKind::from_code(u32::from(fields.u16()?))?;
    fields.zeros(4)?;
    let digest = fields.array()?;
    Some(ChunkRecord {
        number,
        kind,
        digest,
        pack,
        offset_bytes,
        length_bytes,
        page_count,
        use_count,
    })
}

fn put_part(into: &mut Vec<u8>, part: &PartRecord) {
    into.put_u32(part.volume);
    into.put_u32(part.part);
    into.put_u64(part.chunk.0);
}

fn read_part(fields: &mut Fields<'_>) -> Option<PartRecord> {
    let (volume, part) = (fields.u32()?, fields.u32()?);
    Some(PartRecord { volume, part, chunk: ChunkNumber(fields.u64()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(number: u64, kind: ChunkKind) -> ChunkRecord {
        ChunkRecord {
            number: ChunkNumber(number),
            kind,
            digest: [7; 32],
            pack: 0,
            offset_bytes: 8192,
            length_bytes: 8192,
            page_count: u16::from(kind == ChunkKind::Pages),
            use_count: 1,
        }
    }

    fn example() -> Manifest {
        let volume = ImageVolume {
            name: "data@monday".into(),
            id: 3,
            origin: 2,
            created_seconds: 1_700_000_000,
            size_bytes: 600 << 20,
            sector: SectorSize::Bytes4096,
            reduction: Reduction::Dedup,
            durability: Durability::Journal,
            capacity: CapacityClass::Guaranteed,
            kind: ImageVolumeKind::Snapshot,
            mirror: VolumeMirror::No,
        };
        Manifest {
            kind: ManifestKind::Image,
            set_id: [8; 16],
            created_seconds: 1_700_000_001,
            journal: JournalPosition { epoch: 4, sequence: 5 },
            label: "before the upgrade".into(),
            lost_blocks: 77,
            volumes: vec![volume],
            packs: vec![PackRecord { name: PackName { writer: 8, index: 9 }, length_bytes: 16384 }],
            chunks: vec![chunk(10, ChunkKind::Pages), chunk(12, ChunkKind::Map)],
            parts: vec![PartRecord { volume: 0, part: 1, chunk: ChunkNumber(12) }],
            ..Manifest::fence(ImageId::new(1, 2), 13, &0.into())
        }
    }

    #[test]
    fn a_manifest_comes_back_as_it_was() {
        assert_eq!(Manifest::decode(&example().encode()), Ok(example()));
        let host = "é".repeat(40);
        let writer =
            StoreWriter { id: 5, daemon_id: u128::MAX / 7, mirroring: Mirroring::Always, host };
        let fence = Manifest::fence(ImageId::new(1, 1), 0, &writer);
        assert_eq!(fence.label, "é".repeat(31));
        assert_eq!(fence.writer(), StoreWriter { host: fence.label.clone(), ..writer });
        assert_eq!(Manifest::decode(&fence.encode()), Ok(fence));
    }

    #[test]
    fn a_flip_of_any_byte_is_noticed() {
        let bytes = example().encode();
        let body_bytes = VOLUME_BYTES + PACK_BYTES + 2 * CHUNK_BYTES + PART_BYTES;
        for position in 0..HEADER_BYTES + body_bytes {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1;
            assert!(Manifest::decode(&flipped).is_err(), "byte {position}");
        }
    }

    #[test]
    fn what_was_never_finished_is_told_from_damage() {
        let mut bytes = example().encode();
        let cut = Manifest::decode(&bytes[..100]);
        assert!(matches!(cut, Err(Disbelief::Damaged(_))), "{cut:?}");
        assert_eq!(Manifest::decode(&[]), Err(Disbelief::Unfinished));
        bytes[..HEADER_BYTES].fill(0);
        assert_eq!(Manifest::decode(&bytes[..100]), Err(Disbelief::Unfinished));
        assert_eq!(Manifest::decode(&bytes), Err(Disbelief::Unfinished));
    }

    #[test]
    fn a_manifest_cut_short_is_damaged() {
        let bytes = example().encode();
        let cut = &bytes[..HEADER_BYTES + 100];
        assert!(matches!(Manifest::decode(cut), Err(Disbelief::Damaged(_))));
    }

    #[test]
    fn a_later_version_is_refused_as_newer() {
        let mut header = example().encode();
        header[8] = 3;
        header[HEADER_DIGEST_OFFSET..HEADER_DIGEST_OFFSET + 32].fill(0);
        let digest = *blake3::hash(&header[..HEADER_BYTES]).as_bytes();
        header[HEADER_DIGEST_OFFSET..HEADER_DIGEST_OFFSET + 32].copy_from_slice(&digest);
        assert_eq!(Manifest::decode(&header), Err(Disbelief::Newer(3)));
    }

    /// Checks that a manifest made inconsistent by `change` is rejected.
    #[track_caller]
    fn check_refused(change: impl FnOnce(&mut Manifest)) {
        let mut manifest = example();
        change(&mut manifest);
        let result = Manifest::decode(&manifest.encode());
        assert!(matches!(result, Err(Disbelief::Damaged(_))), "{manifest:?}");
    }

    #[test]
    fn manifests_that_contradict_themselves_are_refused() {
        check_refused(|it| it.id = ImageId::new(7, 0));
        check_refused(|it| it.next_chunk = 12);
        check_refused(|it| it.next_chunk = ChunkNumber::END + 1);
        check_refused(|it| it.volumes[0].size_bytes = 0);
        check_refused(|it| it.volumes[0].size_bytes = 100 << 20);
        check_refused(|it| it.volumes[0].name = "../etc".into());
        check_refused(|it| it.volumes[0].id = 0);
        check_refused(|it| it.packs[0].length_bytes = PACK_BYTES_MAX + 1);
        check_refused(|it| it.packs[0].length_bytes = 8192);
        check_refused(|it| it.chunks.swap(0, 1));
        check_refused(|it| it.chunks[0].pack = 1);
        check_refused(|it| it.chunks[0].offset_bytes = u32::MAX);
        check_refused(|it| it.chunks[0].offset_bytes = 100);
        check_refused(|it| it.chunks[0].length_bytes = 0);
        check_refused(|it| it.chunks[0].page_count = 513);
        check_refused(|it| it.chunks[0].page_count = 0);
        check_refused(|it| it.parts[0].volume = 1);
        check_refused(|it| it.parts[0].chunk = ChunkNumber(10));
        check_refused(|it| it.parts[0].chunk = ChunkNumber(11));
    }
}
