//! Wrapping keys, which the administrator keeps in files that only the owner can read.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::data_key::{DATA_KEY_BYTES, DataKey, draw};
use crate::error::KeyError;
use crate::key_id::KeyId;
use crate::sealer::{Sealer, TAG_BYTES};

/// Size of a wrapped data key.
pub const WRAPPED_KEY_BYTES: usize = SALT_END + DATA_KEY_BYTES + TAG_BYTES;

/// Length of a key in hexadecimal digits.
const DIGITS: usize = 64;

/// Size limit of a key file, which allows for the digits and line ends.
const FILE_BYTES_MAX: u64 = 256;

/// Permission bits that a key file must not have: write for the group, any for others. Group read
/// is allowed because systemd makes a service's credentials readable through its group.
const FORBIDDEN_MODE: u32 = 0o027;

const MAGIC: &[u8; 8] = b"MEMLKEY1";
const ID_OFFSET: usize = 8;
const SALT_OFFSET: usize = 24;
const SALT_END: usize = 56;

const WRAP_CONTEXT: &str = "Memlane 1 key that wraps";

/// Data key encrypted by a wrapping key.
///
/// `MEMLKEY1`, the wrapping key's id (16 bytes), a salt (32), the data key sealed (32), a tag (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrappedKey([u8; WRAPPED_KEY_BYTES]);

impl WrappedKey {
    /// Returns `None` when `bytes` do not begin with a wrapped key.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; WRAPPED_KEY_BYTES] = bytes.first_chunk()?;
        bytes.starts_with(MAGIC).then_some(Self(*bytes))
    }

    pub fn bytes(&self) -> &[u8; WRAPPED_KEY_BYTES] {
        &self.0
    }

    /// Id of the wrapping key that opens it.
    pub fn wrapping_id(&self) -> KeyId {
        KeyId(self.0[ID_OFFSET..SALT_OFFSET].try_into().expect("16 bytes"))
    }
}

/// Key encryption key (KEK).
#[derive(Clone)]
pub struct WrappingKey {
    bytes: [u8; 32],
    id: KeyId,
}

impl WrappingKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { bytes, id: KeyId::of(&bytes) }
    }

    /// Reads a key of 64 hexadecimal digits or 32 raw bytes. Rejects a file that others can read or
    /// change.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
        let refused = |why: String| KeyError::Refused { path: path.to_owned(), why };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(refused("it is not a file".to_owned()));
        }
        if ![0, geteuid().as_raw()].contains(&metadata.uid()) {
            return Err(refused("its owner is neither root nor this user; run chown".to_owned()));
        }
        let mode = metadata.mode() & 0o777;
        if mode & FORBIDDEN_MODE != 0 {
            let why = format!("other users have access to it (mode {mode:o}); run chmod 600");
            return Err(refused(why));
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
        let key = parse(&bytes).ok_or_else(|| {
            refused(format!("invalid contents; use {DIGITS} hexadecimal digits or 32 bytes"))
        });
        key.map(Self::new)
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn wrap(&self, key: &DataKey) -> Result<WrappedKey, KeyError> {
        let salt = draw::<32>()?;
        let mut bytes = [0; WRAPPED_KEY_BYTES];
        bytes[..ID_OFFSET].copy_from_slice(MAGIC);
        bytes[ID_OFFSET..SALT_OFFSET].copy_from_slice(&self.id.0);
        bytes[SALT_OFFSET..SALT_END].copy_from_slice(&salt);
        let (beside, sealed) = bytes.split_at_mut(SALT_END);
        let (contents, tag) = sealed.split_at_mut(DATA_KEY_BYTES);
        contents.copy_from_slice(key.bytes());
        tag.copy_from_slice(&self.sealer(&salt).seal(0, beside, contents));
        Ok(WrappedKey(bytes))
    }

    pub(crate) fn open(&self, wrapped: &WrappedKey) -> Result<DataKey, KeyError> {
        let (beside, sealed) = wrapped.0.split_at(SALT_END);
        let (contents, tag) = sealed.split_at(DATA_KEY_BYTES);
        let salt = beside[SALT_OFFSET..].try_into().expect("32 bytes");
        let mut key: [u8; DATA_KEY_BYTES] = contents.try_into().expect("it was cut so");
        let tag = tag.try_into().expect("it was cut so");
        match self.sealer(&salt).open(0, beside, &mut key, tag) {
            true => Ok(DataKey::new(key)),
            false => Err(KeyError::Damaged),
        }
    }

    fn sealer(&self, salt: &[u8; 32]) -> Sealer {
        let mut hasher = blake3::Hasher::new_derive_key(WRAP_CONTEXT);
        hasher.update(&self.bytes).update(salt);
        Sealer::new(hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappingKey({})", self.id)
    }
}

/// Text and raw keys differ in length: a raw key has 32 bytes, a text key 64 digits.
fn parse(bytes: &[u8]) -> Option<[u8; 32]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let text = std::str::from_utf8(bytes).ok()?.trim();
    if text.len() != DIGITS || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 32];
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::set_key::SetKey;

    fn read(contents: &[u8], mode: u32) -> Result<WrappingKey, KeyError> {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("key");
        fs::write(&path, contents).expect("a file can be written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        WrappingKey::read(&path)
    }

    #[track_caller]
    fn check_refused(contents: &[u8], mode: u32, why: &str) {
        let error = read(contents, mode).expect_err("it is no key");
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn a_key_is_read_as_digits_or_bytes() {
        let digits = format!("{}\n", "0a".repeat(32));
        let key = read(digits.as_bytes(), 0o600).expect("it is a key");
        assert_eq!(key.id(), read(&[10; 32], 0o400).expect("it is a key").id());
    }

    #[test]
    fn files_that_others_can_read_and_other_contents_are_refused() {
        let digits = "0a".repeat(32);
        check_refused(digits.as_bytes(), 0o644, "run chmod 600");
        check_refused(digits.as_bytes(), 0o620, "run chmod 600");
        check_refused(b"", 0o600, "use 64 hexadecimal digits");
        check_refused(&[10; 33], 0o600, "use 64 hexadecimal digits");
        check_refused("0g".repeat(32).as_bytes(), 0o600, "use 64 hexadecimal digits");
        let error = WrappingKey::read(Path::new("/nowhere/key")).expect_err("there is none");
        assert!(error.to_string().contains("/nowhere/key"), "{error}");
    }

    #[test]
    fn a_data_key_is_opened_by_the_key_that_wrapped_it_alone() {
        let (one, other) = (WrappingKey::new([1; 32]), WrappingKey::new([2; 32]));
        let set = SetKey::wrap(DataKey::new([3; 32]), &one).expect("it is wrapped");
        let error = SetKey::open(*set.wrapped(), std::slice::from_ref(&other));
        assert!(matches!(error, Err(KeyError::OtherKey { .. })), "{error:?}");
        let again = set.wrapped_by(&other).expect("it is wrapped");
        let opened = SetKey::open(*again.wrapped(), &[one, other]).expect("one opens it");
        assert_eq!(opened.id(), set.id());
    }

    #[test]
    fn a_wrapped_key_with_any_bit_changed_is_refused() {
        let key = WrappingKey::new([1; 32]);
        let set = SetKey::wrap(DataKey::new([3; 32]), &key).expect("it is wrapped");
        for place in 0..WRAPPED_KEY_BYTES {
            let mut bytes = *set.wrapped().bytes();
            bytes[place] ^= 0x10;
            let opened = WrappedKey::read(&bytes)
                .map(|wrapped| SetKey::open(wrapped, std::slice::from_ref(&key)).is_ok());
            assert_ne!(opened, Some(true), "byte {place}");
        }
    }
}
