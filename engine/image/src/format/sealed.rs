//! Sealed objects (format version 2), whose contents are unreadable without the key.
//!
//! ```text
//!  pack:                 group                               group
//!  ┌─────────────────────┬────────┬────────┬─────┬────────┐ ┌─────────────────────┬───
//!  │ key id, salt        │ sealed │ sealed │  …  │ 64th   │ │ key id, salt        │
//!  │ 64 tags             │ block  │ block  │     │ block  │ │ 64 tags             │
//!  └─────────────────────┴────────┴────────┴─────┴────────┘ └─────────────────────┴───
//!  manifest: a block with the wrapped data key, then groups
//! ```
//!
//! The encrypted contents have the format of version 1. A block is sealed for its position in its
//! group. Each group has its own key, derived from its salt, the object's name and its position in
//! the object.

use sealing::{
    KeyId, SALT_BYTES, Salt, Sealer, SetKey, TAG_BYTES, Tag, WRAPPED_KEY_BYTES, WrappedKey,
};

use crate::error::Disbelief;
use crate::format::manifest::{digest_of_header, is_header_whole};
use crate::format::{ALIGNMENT_BYTES, SEALED_VERSION};
use crate::store::ObjectName;

/// Number of blocks per group header.
pub(crate) const GROUP_BLOCKS: usize = 64;

/// Length of a group's contents.
pub(crate) const GROUP_BYTES: usize = GROUP_BLOCKS * ALIGNMENT_BYTES;

/// Length of a sealed group with its header.
pub(crate) const SEALED_GROUP_BYTES: usize = GROUP_BYTES + ALIGNMENT_BYTES;

const MAGIC: &[u8; 8] = b"MEMSEALD";
const MANIFEST_MAGIC: &[u8; 8] = b"MEMIMAGE";
const KEY_ID: usize = 16;
const SALT: usize = 32;
const TAGS: usize = SALT + SALT_BYTES;
const TAGS_END: usize = TAGS + GROUP_BLOCKS * TAG_BYTES;
const WRAPPED_KEY: usize = 32;

/// Returns the length of the contents in `sealed_bytes` of groups.
pub(crate) fn contents_bytes(sealed_bytes: u64) -> u64 {
    let whole = SEALED_GROUP_BYTES as u64;
    let rest = (sealed_bytes % whole).saturating_sub(ALIGNMENT_BYTES as u64);
    sealed_bytes / whole * GROUP_BYTES as u64 + rest
}

/// Encrypts a group in place: space for its header, then its contents.
pub(crate) fn seal_group(
    bytes: &mut [u8],
    key: &SetKey,
    salt: &Salt,
    object: ObjectName,
    group: u64,
) {
    let (header, contents) = bytes.split_at_mut(ALIGNMENT_BYTES);
    assert!(contents.len() <= GROUP_BYTES, "a group is short");
    let sealer = key.sealer(salt, &place(object, group));
    header.fill(0);
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&SEALED_VERSION.to_le_bytes());
    header[KEY_ID..SALT].copy_from_slice(&key.id().0);
    header[SALT..TAGS].copy_from_slice(salt);
    let tags = header[TAGS..TAGS_END].chunks_exact_mut(TAG_BYTES);
    for ((position, block), tag) in (0..).zip(contents.chunks_exact_mut(ALIGNMENT_BYTES)).zip(tags)
    {
        tag.copy_from_slice(&sealer.seal(position, &[], block));
    }
}

/// Decoded header of a group, with which its blocks are decrypted.
#[derive(Debug)]
pub(crate) struct GroupHeader {
    sealer: Sealer,
    tags: [Tag; GROUP_BLOCKS],
}

impl GroupHeader {
    /// Decodes the header of a group of this object.
    pub(crate) fn read(
        header: &[u8],
        key: &SetKey,
        object: ObjectName,
        group: u64,
    ) -> Result<Self, Disbelief> {
        if header[..8] != *MAGIC || header[TAGS_END..].iter().any(|&byte| byte != 0) {
            return Err(Disbelief::Damaged("its encrypted blocks are not where they should be"));
        }
        check_version(header)?;
        check_key(header, key)?;
        let salt: Salt = header[SALT..TAGS].try_into().expect("it was cut so");
        let mut tags = [[0; TAG_BYTES]; GROUP_BLOCKS];
        for (tag, bytes) in tags.iter_mut().zip(header[TAGS..TAGS_END].chunks_exact(TAG_BYTES)) {
            tag.copy_from_slice(bytes);
        }
        Ok(Self { sealer: key.sealer(&salt, &place(object, group)), tags })
    }

    /// Decrypts the block that begins at `from` to the start of `bytes`.
    pub(crate) fn open_block(
        &self,
        position: usize,
        bytes: &mut [u8],
        from: usize,
    ) -> Result<(), Disbelief> {
        match self.sealer.open_to_front(position as u64, bytes, from, self.tags[position]) {
            true => Ok(()),
            false => Err(Disbelief::Damaged("its encrypted bytes fail authentication")),
        }
    }
}

/// Encodes the first block of a sealed manifest.
pub(crate) fn manifest_header(key: &SetKey) -> Vec<u8> {
    let mut header = vec![0; ALIGNMENT_BYTES];
    header[..8].copy_from_slice(MANIFEST_MAGIC);
    header[8..12].copy_from_slice(&SEALED_VERSION.to_le_bytes());
    header[KEY_ID..SALT].copy_from_slice(&key.id().0);
    header[WRAPPED_KEY..WRAPPED_KEY + WRAPPED_KEY_BYTES].copy_from_slice(key.wrapped().bytes());
    let (digest, at) = digest_of_header(&header);
    header[at].copy_from_slice(&digest);
    header
}

/// Encryption of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManifestKey {
    /// Not encrypted.
    None,
    Wrapped {
        data_key: KeyId,
        wrapped: WrappedKey,
    },
}

/// Decodes the first block of a manifest of any version.
pub(crate) fn read_manifest_header(header: &[u8]) -> Result<ManifestKey, Disbelief> {
    if header.iter().all(|&byte| byte == 0) {
        return Err(Disbelief::Unfinished);
    }
    if !header.starts_with(MANIFEST_MAGIC) || !is_header_whole(header) {
        return Err(Disbelief::Damaged("the manifest's header is damaged"));
    }
    if version(header) < SEALED_VERSION {
        return Ok(ManifestKey::None);
    }
    check_version(header)?;
    let data_key = KeyId(header[KEY_ID..SALT].try_into().expect("it was cut so"));
    let wrapped = WrappedKey::read(&header[WRAPPED_KEY..]);
    let wrapped = wrapped.ok_or(Disbelief::Damaged("the manifest has no wrapped key"))?;
    Ok(ManifestKey::Wrapped { data_key, wrapped })
}

fn version(header: &[u8]) -> u32 {
    u32::from_le_bytes(header[8..12].try_into().expect("4 bytes"))
}

fn check_version(header: &[u8]) -> Result<(), Disbelief> {
    match version(header) {
        SEALED_VERSION => Ok(()),
        version if version > SEALED_VERSION => Err(Disbelief::Newer(version)),
        _ => Err(Disbelief::Damaged("its version is unknown")),
    }
}

fn check_key(header: &[u8], key: &SetKey) -> Result<(), Disbelief> {
    match header[KEY_ID..SALT] == key.id().0 {
        true => Ok(()),
        false => Err(Disbelief::OtherKey),
    }
}

/// Returns the context of a group's key derivation. Its length is fixed per kind of object.
fn place(object: ObjectName, group: u64) -> Vec<u8> {
    let mut place = Vec::with_capacity(32);
    match object {
        ObjectName::Image(number) => {
            place.extend_from_slice(b"image");
            place.extend_from_slice(&number.to_le_bytes());
        }
        ObjectName::Pack(name) => {
            place.extend_from_slice(b"pack");
            place.extend_from_slice(&name.writer.to_le_bytes());
            place.extend_from_slice(&name.index.to_le_bytes());
        }
        ObjectName::Extract(_) => unreachable!("the journal encrypts what is in extracts"),
    }
    place.extend_from_slice(&group.to_le_bytes());
    place
}
