//! Key management of a set: reads its wrapped copies, generates a key for a new set, and rewraps it
//! when the wrapping key is rotated.
//!
//! ```text
//!  journal folder: data-key ── two copies of the wrapped data key, replaced atomically
//!  image store:    each manifest ── a copy, as wrapped at the time of the save
//! ```
//!
//! The copy in the journal folder takes precedence. If it is missing, the newest one in the store
//! is used, so that a set can be restored from the store alone. If neither exists, the set is new
//! and gets a key before anything is written.

use std::io::IoSlice;
use std::sync::Arc;

use image::{ImageStore, StoreKey, find_store_key};
use journal::JournalKey;
use sealing::{DataKey, KeyError, SetKey, WrappedKey, WrappingKey};
use storage::{AlignedBuffer, BLOCK_BYTES, Folder, StorageError, StorageErrorKind};

use crate::error::{DurableError, DurableErrorKind};

/// File with the wrapped key in the journal folder.
const KEY_FILE: &str = "data-key";

/// Temporary name of that file.
const NEW_KEY_FILE: &str = "data-key-new";

const COPIES: usize = 2;

const OPEN: &str = "open the key of the durable set";
const OPEN_SET: &str = "open the durable set";
const STORE: &str = "store the key of the durable set";

/// Opens the data key of a set with one of the wrapping keys, and rewraps it with the first of them
/// if necessary. A set without journal and images gets a new key. Fails without changes if no key
/// opens the data key, or if the journal or images are not encrypted.
pub fn open_key(
    journal: &dyn Folder,
    images: &dyn ImageStore,
    wrapping: &[WrappingKey],
) -> Result<Arc<SetKey>, DurableError> {
    let Some(newest) = wrapping.first() else {
        return Err(DurableError::new(DurableErrorKind::Key, OPEN).with_source("there is no key"));
    };
    let kept = read_key(journal).map_err(DurableError::key(OPEN))?;
    let key = match &kept {
        Some(copies) => open_copies(copies, wrapping).map_err(DurableError::key(OPEN))?,
        None => open_elsewhere(journal, images, wrapping)?,
    };
    journal::check_key(journal, Some(&key)).map_err(DurableError::key(OPEN))?;
    let is_newest = key.wrapped().wrapping_id() == newest.id();
    let is_whole =
        kept.is_some_and(|copies| copies.iter().all(|copy| *copy == Some(*key.wrapped())));
    if is_whole && is_newest {
        return Ok(Arc::new(key));
    }
    let key = match is_newest {
        true => key,
        false => key.wrapped_by(newest).map_err(DurableError::key(OPEN))?,
    };
    write_key(journal, &key).map_err(DurableError::key(STORE))?;
    Ok(Arc::new(key))
}

/// Fails if the journal's encryption does not match the key, as `check_store_key` does.
pub(crate) fn check_journal_key(
    journal: &dyn Folder,
    key: Option<&SetKey>,
) -> Result<(), DurableError> {
    let of_journal = journal::find_key(journal).map_err(DurableError::key(OPEN_SET))?;
    match (of_journal, key) {
        (JournalKey::None, Some(_)) => return Err(refused(OPEN_SET, plain("journal"))),
        (JournalKey::Sealed(_), None) => {
            let copies = read_key(journal).map_err(DurableError::key(OPEN_SET))?;
            let mut whole = copies.iter().flatten().flatten();
            let why = match whole.next() {
                Some(wrapped) => sealed("journal", wrapped),
                None => "the journal is encrypted, and encryption-key-file is not set".to_owned(),
            };
            return Err(refused(OPEN_SET, why));
        }
        _ => {}
    }
    journal::check_key(journal, key).map_err(DurableError::key(OPEN_SET))
}

/// Fails if the store's encryption does not match the key: it uses another key, is unencrypted
/// although a key is given, or is encrypted and no key is given. A store that does not answer is
/// accepted.
pub(crate) fn check_store_key(
    store: &dyn ImageStore,
    key: Option<&SetKey>,
) -> Result<(), DurableError> {
    let why = match (find_store_key(store), key) {
        (Ok(StoreKey::None), Some(_)) => plain("image store"),
        (Ok(StoreKey::Wrapped { wrapped, .. }), None) => sealed("image store", &wrapped),
        (Ok(StoreKey::Wrapped { data_key, .. }), Some(key)) if data_key != key.id() => {
            "the image store is encrypted by another data key".to_owned()
        }
        _ => return Ok(()),
    };
    Err(refused(OPEN_SET, why))
}

fn refused(attempt: &'static str, why: String) -> DurableError {
    DurableError::new(DurableErrorKind::Key, attempt).with_source(why)
}

/// Error message for an unencrypted journal or store with a configured key.
fn plain(what: &str) -> String {
    format!(
        "the {what} is not encrypted, and a key is configured; to encrypt existing data, configure \
         another dir in [journal] and another store in [images]"
    )
}

/// Error message for an encrypted journal or store without a configured key.
fn sealed(what: &str, wrapped: &WrappedKey) -> String {
    let id = wrapped.wrapping_id();
    format!("the {what} is encrypted with the key {id}, and encryption-key-file is not set")
}

/// Determines the key of a set without a key file.
fn open_elsewhere(
    journal: &dyn Folder,
    images: &dyn ImageStore,
    wrapping: &[WrappingKey],
) -> Result<SetKey, DurableError> {
    let of_journal = journal::find_key(journal).map_err(DurableError::key(OPEN))?;
    let of_store = find_store_key(images).map_err(DurableError::key(OPEN))?;
    match (of_journal, of_store) {
        (JournalKey::None, _) => Err(refused(OPEN, plain("journal"))),
        (_, StoreKey::None) => Err(refused(OPEN, plain("image store"))),
        (_, StoreKey::Wrapped { wrapped, .. }) => {
            SetKey::open(wrapped, wrapping).map_err(DurableError::key(OPEN))
        }
        (JournalKey::Sealed(_), StoreKey::Empty) => {
            let why = "the file data-key is missing in the journal's directory; restore it";
            Err(refused(OPEN, why.to_owned()))
        }
        (JournalKey::Empty, StoreKey::Empty) => {
            let drawn = DataKey::draw().and_then(|key| SetKey::wrap(key, &wrapping[0]));
            drawn.map_err(DurableError::key(OPEN))
        }
    }
}

fn open_copies(
    copies: &[Option<WrappedKey>],
    wrapping: &[WrappingKey],
) -> Result<SetKey, KeyError> {
    let opened = copies.iter().flatten().map(|wrapped| SetKey::open(*wrapped, wrapping));
    let mut failure = KeyError::Damaged;
    for opened in opened {
        match opened {
            Ok(key) => return Ok(key),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Reads the copies in the key file, if it exists.
fn read_key(folder: &dyn Folder) -> Result<Option<Vec<Option<WrappedKey>>>, StorageError> {
    let file = match folder.open(KEY_FILE) {
        Ok(file) => file,
        Err(error) if error.kind == StorageErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.size_bytes().min((COPIES * BLOCK_BYTES) as u64);
    let mut bytes = AlignedBuffer::zeroed(usize::try_from(length).expect("two blocks at most"));
    file.read(0, &mut bytes)?;
    Ok(Some(bytes.chunks(BLOCK_BYTES).map(WrappedKey::read).collect()))
}

/// Replaces the file atomically: a kill or power loss leaves the old or the new one.
fn write_key(folder: &dyn Folder, key: &SetKey) -> Result<(), StorageError> {
    match folder.remove(NEW_KEY_FILE) {
        Err(error) if error.kind != StorageErrorKind::NotFound => return Err(error),
        _ => folder.sync_names()?,
    }
    let mut bytes = AlignedBuffer::with_capacity(COPIES * BLOCK_BYTES);
    for _ in 0..COPIES {
        bytes.extend_from_slice(key.wrapped().bytes());
        bytes.pad_to_block();
    }
    let file = folder.create(NEW_KEY_FILE, bytes.len() as u64)?;
    file.write_durably(0, &[IoSlice::new(&bytes)])?;
    folder.rename(NEW_KEY_FILE, KEY_FILE)?;
    folder.sync_names()
}
