//! The key of journal and images, and the key that wraps it in the store.

use std::path::PathBuf;
use std::sync::Arc;

use image::{ImageStore, StoreKey, find_store_key};
use sealing::{KeyId, SetKey, WrappingKey};
use storage::Folder;

use crate::config::EncryptionConfig;

/// Key of a set, and the store as it is without it.
#[derive(Debug)]
pub(super) struct Encryption {
    pub(super) key: Arc<SetKey>,
    store: Arc<dyn ImageStore>,
}

impl Encryption {
    /// Opens the key of journal and images: one of the keys in the files has to open it, at each
    /// start.
    pub(super) fn open(
        journal: &dyn Folder,
        store: &Arc<dyn ImageStore>,
        files: &EncryptionConfig,
    ) -> anyhow::Result<Self> {
        let read = |path: &PathBuf| WrappingKey::read(path);
        let keys: Vec<_> = [Some(&files.key_file), files.previous.as_ref()]
            .into_iter()
            .flatten()
            .map(read)
            .collect::<Result<_, _>>()?;
        let key = durable_set::open_key(journal, &**store, &keys)?;
        let (id, wrapping) = (key.id(), key.wrapped().wrapping_id());
        tracing::info!("journal and images are encrypted by data key {id}, wrapped by {wrapping}");
        Ok(Self { key, store: Arc::clone(store) })
    }

    /// The key that wraps the newest copy in the store; `None` without a copy, or an answer.
    pub(super) fn find_in_store(&self) -> Option<KeyId> {
        match find_store_key(&*self.store) {
            Ok(StoreKey::Wrapped { wrapped, .. }) => Some(wrapped.wrapping_id()),
            Ok(StoreKey::Empty | StoreKey::None) | Err(_) => None,
        }
    }

    pub(super) fn wrapped_by(&self) -> KeyId {
        self.key.wrapped().wrapping_id()
    }
}
