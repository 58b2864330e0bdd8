//! A store whose objects are sealed before they reach the store below, and opened when they are
//! read.
//!
//! The store below sees names, sizes and times, and no more: no contents, no names of volumes, and
//! not where one chunk ends and the next begins.

use std::sync::Arc;

use sealing::{KeyId, SetKey, WrappedKey};
use storage::AlignedBuffer;

use crate::error::{Disbelief, ImageError, ImageErrorKind};
use crate::format::ALIGNMENT_BYTES;
use crate::format::sealed::{
    GROUP_BLOCKS, ManifestKey, SEALED_GROUP_BYTES, contents_bytes, manifest_header, open_group,
    read_manifest_header, seal_group,
};
use crate::names::PackName;
use crate::store::{ImageStore, ObjectName, PackWriter};

const BLOCK_BYTES: u64 = ALIGNMENT_BYTES as u64;

/// Groups that are read at once: a chunk of any length, and its neighbours.
const GROUPS_AT_ONCE: u64 = 64;

/// Encryption of a store, as its newest manifest has it.
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

/// Looks for the key of a store. A manifest that cannot be read is passed over, unless there is no
/// other.
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
            // It was removed since it was listed, or its writer is still at it.
            Err(error) if error.kind == ImageErrorKind::NotFound => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(StoreKey::Empty), Err)
}

/// A store that is encrypted by the key of its set.
#[derive(Debug)]
pub struct SealedStore {
    below: Arc<dyn ImageStore>,
    key: Arc<SetKey>,
}

impl SealedStore {
    pub fn new(below: Arc<dyn ImageStore>, key: Arc<SetKey>) -> Self {
        Self { below, key }
    }

    fn seal_manifest(&self, number: u32, manifest: &[u8]) -> Result<Vec<u8>, ImageError> {
        let object = ObjectName::Image(number);
        let mut sealed = manifest_header(&self.key);
        for (group, contents) in (0..).zip(manifest.chunks(GROUP_BLOCKS * ALIGNMENT_BYTES)) {
            let start = sealed.len();
            sealed.resize(start + ALIGNMENT_BYTES, 0);
            sealed.extend_from_slice(contents);
            self.seal(&mut sealed[start..], object, group)?;
        }
        Ok(sealed)
    }

    fn seal(&self, bytes: &mut [u8], object: ObjectName, group: u64) -> Result<(), ImageError> {
        seal(&self.key, bytes, object, group)
    }

    /// Reads what stands before the groups of a manifest. `false` when it was never finished.
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

    /// Reads groups, which begin at `start` of the object.
    fn read_groups(
        &self,
        object: ObjectName,
        start: u64,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ImageError> {
        let group_blocks = GROUP_BLOCKS as u64;
        let end = offset + into.len() as u64;
        let (mut block, blocks_end) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let mut sealed = AlignedBuffer::new();
        while block < blocks_end {
            let group = block / group_blocks;
            let until = blocks_end.min((group + GROUPS_AT_ONCE) * group_blocks);
            // The header of each group that is touched is read too.
            let sealed_blocks = until - group * group_blocks + until.div_ceil(group_blocks) - group;
            sealed.resize(length(sealed_blocks * BLOCK_BYTES), 0);
            let from = start + group * SEALED_GROUP_BYTES as u64;
            self.below.read(object, from, &mut sealed)?;
            for (group, bytes) in (group..).zip(sealed.chunks_mut(SEALED_GROUP_BYTES)) {
                let group_start = group * group_blocks;
                let first = block.saturating_sub(group_start);
                open_group(bytes, length(first), &self.key, object, group)
                    .map_err(|disbelief| disbelief.error(format!("read {object}")))?;
                copy_wanted(&bytes[ALIGNMENT_BYTES..], group_start * BLOCK_BYTES, offset, into);
            }
            block = until;
        }
        Ok(())
    }
}

/// Copies what was asked for out of contents that begin at `at`.
fn copy_wanted(contents: &[u8], at: u64, offset: u64, into: &mut [u8]) {
    let from = offset.max(at);
    let until = (offset + into.len() as u64).min(at + contents.len() as u64);
    if from < until {
        let wanted = &contents[length(from - at)..length(until - at)];
        into[length(from - offset)..length(until - offset)].copy_from_slice(wanted);
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("lengths in memory")
}

fn seal(key: &SetKey, bytes: &mut [u8], object: ObjectName, group: u64) -> Result<(), ImageError> {
    let salt = key.draw_salt().map_err(|error| {
        let attempt = format!("seal {object}");
        ImageError::new(ImageErrorKind::Unavailable, attempt).with_source(error)
    })?;
    seal_group(bytes, key, &salt, object, group);
    Ok(())
}

impl ImageStore for SealedStore {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        Ok(Box::new(SealedPack {
            below: self.below.begin_pack(name)?,
            key: Arc::clone(&self.key),
            name,
            group: 0,
            sealed: AlignedBuffer::new(),
            open: AlignedBuffer::new(),
        }))
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
            ObjectName::Pack(_) => self.read_groups(object, 0, offset, into),
            ObjectName::Image(_) if self.check_manifest(object)? => {
                self.read_groups(object, BLOCK_BYTES, offset, into)
            }
            ObjectName::Image(_) => {
                into.fill(0);
                Ok(())
            }
        }
    }

    fn reads_at_once(&self) -> usize {
        self.below.reads_at_once()
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        let contents = |bytes: u64| contents_bytes(bytes.saturating_sub(BLOCK_BYTES));
        let images = self.below.images()?;
        Ok(images.into_iter().map(|(number, bytes)| (number, contents(bytes))).collect())
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        let packs = self.below.packs()?;
        Ok(packs.into_iter().map(|(name, bytes)| (name, contents_bytes(bytes))).collect())
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        self.below.remove(object)
    }
}

/// A pack whose groups are sealed as they fill.
#[derive(Debug)]
struct SealedPack {
    below: Box<dyn PackWriter>,
    key: Arc<SetKey>,
    name: PackName,
    /// The group that is filled.
    group: u64,
    /// Sealed groups on their way, and between calls nothing.
    sealed: AlignedBuffer,
    /// The group that is not full yet, from its header on.
    open: AlignedBuffer,
}

impl SealedPack {
    /// Seals the group that ends the buffer.
    fn seal_last(&mut self, start: usize) -> Result<(), ImageError> {
        seal(&self.key, &mut self.sealed[start..], ObjectName::Pack(self.name), self.group)?;
        self.group += 1;
        Ok(())
    }

    fn pass_on(&mut self) -> Result<(), ImageError> {
        if !self.sealed.is_empty() {
            self.below.append(&self.sealed)?;
            self.sealed.clear();
        }
        Ok(())
    }
}

impl PackWriter for SealedPack {
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        std::mem::swap(&mut self.sealed, &mut self.open);
        self.open.clear();
        let (mut start, mut rest) = (0, &bytes[..]);
        while !rest.is_empty() {
            if self.sealed.len() == start {
                self.sealed.resize(start + ALIGNMENT_BYTES, 0);
            }
            let room = start + SEALED_GROUP_BYTES - self.sealed.len();
            let (taken, left) = rest.split_at(room.min(rest.len()));
            self.sealed.extend_from_slice(taken);
            rest = left;
            if taken.len() == room {
                self.seal_last(start)?;
                start = self.sealed.len();
            }
        }
        self.open.extend_from_slice(&self.sealed[start..]);
        self.sealed.truncate(start);
        self.pass_on()
    }

    fn finish(mut self: Box<Self>) -> Result<(), ImageError> {
        if !self.open.is_empty() {
            std::mem::swap(&mut self.sealed, &mut self.open);
            self.seal_last(0)?;
            self.pass_on()?;
        }
        self.below.finish()
    }
}
