//! Encrypted store: objects are sealed before they reach the store below, and decrypted on reads.
//!
//! The store below sees only names, sizes and times. It sees neither contents nor volume names nor
//! chunk boundaries.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use sealing::{KeyId, SetKey, WrappedKey};
use storage::AlignedBuffer;

use crate::error::{Disbelief, ImageError, ImageErrorKind};
use crate::extract::check_is_sealed;
use crate::format::ALIGNMENT_BYTES;
use crate::format::sealed::{
    GROUP_BLOCKS, GroupHeader, ManifestKey, contents_bytes, manifest_header, read_manifest_header,
};
use crate::names::{ExtractName, PackName};
use crate::sealed_pack::{SealedPack, seal};
use crate::store::{ImageStore, ObjectName, PackWriter};

const BLOCK_BYTES: u64 = ALIGNMENT_BYTES as u64;

/// Number of blocks per read for long objects (manifests).
const BLOCKS_AT_ONCE: usize = 64 * GROUP_BLOCKS;

/// Number of cached group headers.
const HEADERS_MAX: usize = 64;

/// Encryption of a store according to its newest manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKey {
    /// There is no manifest.
    Empty,
    /// The store is not encrypted.
    None,
    Wrapped {
        data_key: KeyId,
        wrapped: WrappedKey,
    },
}

/// Finds the key of a store. Unreadable manifests are skipped, unless there is no other.
pub fn find_store_key(store: &dyn ImageStore) -> Result<StoreKey, ImageError> {
    let mut failure = None;
    for (number, size_bytes) in store.images()?.into_iter().rev() {
        if size_bytes < BLOCK_BYTES {
            continue;
        }
        let mut header = AlignedBuffer::zeroed(ALIGNMENT_BYTES);
        let attempt = || format!("read the manifest of image {number}");
        let found = store.read(ObjectName::Image(number), 0, &mut header).and_then(|()| {
            read_manifest_header(&header).map_err(|disbelief| match disbelief {
                Disbelief::Unfinished => ImageError::new(ImageErrorKind::NotFound, attempt()),
                other => other.error(attempt()),
            })
        });
        match found {
            Ok(ManifestKey::None) => return Ok(StoreKey::None),
            Ok(ManifestKey::Wrapped { data_key, wrapped }) => {
                return Ok(StoreKey::Wrapped { data_key, wrapped });
            }
            // It was removed after the listing, or is unfinished.
            Err(error) if error.kind == ImageErrorKind::NotFound => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(StoreKey::Empty), Err)
}

/// A store encrypted with the key of its durable set.
#[derive(Debug)]
pub struct SealedStore {
    below: Arc<dyn ImageStore>,
    key: Arc<SetKey>,
    kept: KeptHeaders,
}

impl SealedStore {
    pub fn new(below: Arc<dyn ImageStore>, key: Arc<SetKey>) -> Self {
        Self { below, key, kept: KeptHeaders::default() }
    }

    fn seal_manifest(&self, number: u32, manifest: &[u8]) -> Result<Vec<u8>, ImageError> {
        let object = ObjectName::Image(number);
        let mut sealed = manifest_header(&self.key);
        for (group, contents) in (0..).zip(manifest.chunks(GROUP_BLOCKS * ALIGNMENT_BYTES)) {
            let start = sealed.len();
            sealed.resize(start + ALIGNMENT_BYTES, 0);
            sealed.extend_from_slice(contents);
            seal(&self.key, &mut sealed[start..], object, group)?;
        }
        Ok(sealed)
    }

    /// Checks the block before a manifest's groups. Returns `false` if the manifest is unfinished.
    fn check_manifest(&self, object: ObjectName) -> Result<bool, ImageError> {
        let mut header = AlignedBuffer::zeroed(ALIGNMENT_BYTES);
        self.below.read(object, 0, &mut header)?;
        let disbelief = match read_manifest_header(&header) {
            Ok(ManifestKey::Wrapped { data_key, .. }) if data_key == self.key.id() => {
                return Ok(true);
            }
            Ok(ManifestKey::Wrapped { .. }) => Disbelief::OtherKey,
            Ok(ManifestKey::None) => Disbelief::NotSealed,
            Err(Disbelief::Unfinished) => return Ok(false),
            Err(other) => other,
        };
        Err(disbelief.error(format!("read {object}")))
    }

    /// Fills `into` from an object's groups.
    fn read_groups(
        &self,
        object: ObjectName,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ImageError> {
        let end = offset + into.len() as u64;
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let mut opened = AlignedBuffer::new();
        let (mut skipped, mut rest) = (length(offset % BLOCK_BYTES), into);
        for first in blocks.clone().step_by(BLOCKS_AT_ONCE) {
            let blocks = first..blocks.end.min(first + BLOCKS_AT_ONCE as u64);
            self.open_blocks(object, blocks, None, &mut opened)?;
            let count = rest.len().min(opened.len() - skipped);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&opened[skipped..][..count]);
            (skipped, rest) = (0, later);
        }
        Ok(())
    }

    /// Reads blocks of an object's groups and decrypts them in place. Unless it is known, the first
    /// group's header is read as well, with everything between it and the first block. Returns the
    /// last group and its header.
    fn open_blocks(
        &self,
        object: ObjectName,
        blocks: Range<u64>,
        known: Option<Arc<GroupHeader>>,
        into: &mut AlignedBuffer,
    ) -> Result<Option<(u64, Arc<GroupHeader>)>, ImageError> {
        if blocks.is_empty() {
            into.clear();
            return Ok(None);
        }
        let first = match known {
            Some(_) => sealed_place(blocks.start),
            None => sealed_place(blocks.start - blocks.start % GROUP_BLOCKS as u64) - BLOCK_BYTES,
        };
        let end = sealed_place(blocks.end - 1) + BLOCK_BYTES;
        into.resize(length(end - first), 0);
        self.below.read(object, groups_start(object) + first, into)?;
        let disbelieved = |disbelief: Disbelief| disbelief.error(format!("read {object}"));
        let mut last = known.map(|header| (blocks.start / GROUP_BLOCKS as u64, header));
        for block in blocks.clone() {
            let (group, position) = (block / GROUP_BLOCKS as u64, block % GROUP_BLOCKS as u64);
            let from = length(sealed_place(block) - first);
            let header = match last.take() {
                Some((known, header)) if known == group => header,
                _ => {
                    let at = length(sealed_place(block - position) - BLOCK_BYTES - first);
                    let header = &into[at..at + ALIGNMENT_BYTES];
                    let header = GroupHeader::read(header, &self.key, object, group);
                    Arc::new(header.map_err(disbelieved)?)
                }
            };
            let to = length((block - blocks.start) * BLOCK_BYTES);
            let bytes = &mut into[to..from + ALIGNMENT_BYTES];
            header.open_block(length(position), bytes, from - to).map_err(disbelieved)?;
            last = Some((group, header));
        }
        into.truncate(length((blocks.end - blocks.start) * BLOCK_BYTES));
        Ok(last)
    }
}

/// Returns the offset of an object's first group.
fn groups_start(object: ObjectName) -> u64 {
    match object {
        ObjectName::Pack(_) | ObjectName::Extract(_) => 0,
        ObjectName::Image(_) => BLOCK_BYTES,
    }
}

/// Returns the offset of a block relative to the first group.
fn sealed_place(block: u64) -> u64 {
    (block + block / GROUP_BLOCKS as u64 + 1) * BLOCK_BYTES
}

/// Cache of the group headers in which reads ended. The next chunk usually begins there and can be
/// read without preceding bytes.
#[derive(Debug, Default)]
struct KeptHeaders(Mutex<VecDeque<(ObjectName, u64, Arc<GroupHeader>)>>);

impl KeptHeaders {
    fn find(&self, object: ObjectName, group: u64) -> Option<Arc<GroupHeader>> {
        let kept = self.lock();
        let found = kept.iter().find(|(of, at, _)| (*of, *at) == (object, group));
        found.map(|(_, _, header)| Arc::clone(header))
    }

    fn keep(&self, object: ObjectName, group: u64, header: Arc<GroupHeader>) {
        let mut kept = self.lock();
        kept.retain(|(of, at, _)| (*of, *at) != (object, group));
        if kept.len() == HEADERS_MAX {
            kept.pop_front();
        }
        kept.push_back((object, group, header));
    }

    fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(ObjectName, u64, Arc<GroupHeader>)>> {
        self.0.lock().expect("no thread panics with the headers locked")
    }
}

fn check_extract(name: ExtractName, bytes: &[u8]) -> Result<(), ImageError> {
    let attempt = || format!("put extract {name} of the journal");
    check_is_sealed(name, bytes).map_err(|disbelief| disbelief.error(attempt()))
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("lengths in memory")
}

impl ImageStore for SealedStore {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        let below = self.below.begin_pack(name)?;
        Ok(Box::new(SealedPack::begin(below, Arc::clone(&self.key), name)?))
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.below.create_image(number, &self.seal_manifest(number, manifest)?)
    }

    fn check_exclusive(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.below.check_exclusive(number, &self.seal_manifest(number, manifest)?)
    }

    fn confirm_image(&self, number: u32) -> Result<(), ImageError> {
        self.below.confirm_image(number)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        match object {
            ObjectName::Pack(_) => self.read_groups(object, offset, into),
            // The journal has encrypted its contents.
            ObjectName::Extract(_) => self.below.read(object, offset, into),
            ObjectName::Image(_) if self.check_manifest(object)? => {
                self.read_groups(object, offset, into)
            }
            ObjectName::Image(_) => {
                into.fill(0);
                Ok(())
            }
        }
    }

    fn read_to(
        &self,
        object: ObjectName,
        offset: u64,
        length: usize,
        into: &mut AlignedBuffer,
    ) -> Result<(), ImageError> {
        let blocks = offset / BLOCK_BYTES..(offset + length as u64) / BLOCK_BYTES;
        let is_in_blocks =
            offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(ALIGNMENT_BYTES);
        if !is_in_blocks || !matches!(object, ObjectName::Pack(_)) {
            into.resize(length, 0);
            return self.read(object, offset, into);
        }
        let known = self.kept.find(object, blocks.start / GROUP_BLOCKS as u64);
        let is_known = known.is_some();
        let opened = self.open_blocks(object, blocks.clone(), known, into);
        let opened = match opened {
            // The cached header may be stale and no longer match the blocks.
            Err(error) if is_known && error.kind == ImageErrorKind::Damaged => {
                self.open_blocks(object, blocks, None, into)
            }
            opened => opened,
        };
        if let Some((group, header)) = opened? {
            self.kept.keep(object, group, header);
        }
        Ok(())
    }

    fn forget_reads(&self) {
        self.kept.forget();
    }

    fn reads_at_once(&self) -> usize {
        self.below.reads_at_once()
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        let contents = |bytes: u64| contents_bytes(bytes.saturating_sub(BLOCK_BYTES));
        let images = self.below.images()?;
        Ok(images.into_iter().map(|(number, bytes)| (number, contents(bytes))).collect())
    }

    fn has_image(&self, number: u32) -> Result<bool, ImageError> {
        self.below.has_image(number)
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        let packs = self.below.packs()?;
        Ok(packs.into_iter().map(|(name, bytes)| (name, contents_bytes(bytes))).collect())
    }

    fn put_extract(&self, name: ExtractName, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        check_extract(name, bytes)?;
        self.below.put_extract(name, bytes)
    }

    fn put_extract_and_look(
        &self,
        name: ExtractName,
        bytes: &AlignedBuffer,
        number: u32,
    ) -> Result<bool, ImageError> {
        check_extract(name, bytes)?;
        self.below.put_extract_and_look(name, bytes, number)
    }

    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        self.below.extracts()
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        self.below.remove(object)
    }

    fn remove_extracts(&self, names: &[ExtractName]) -> Result<(), ImageError> {
        self.below.remove_extracts(names)
    }
}
