//! Data key of journal and images, and the key that wraps it in the store.

use std::path::PathBuf;
use std::sync::Arc;

use image::{ImageStore, StoreKey, find_store_key};
use sealing::{KeyId, SetKey, WrappingKey};
use storage::Folder;

use crate::config::EncryptionConfig;

/// Data key of a durable set, and the image store without encryption.
#[derive(Debug)]
pub(super) struct Encryption {
    pub(super) key: Arc<SetKey>,
    store: Arc<dyn ImageStore>,
}

impl Encryption {
    /// Unwraps the data key of journal and images, at each start. One of the keys in the files must
    /// unwrap it.
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

    /// Id of the key that wraps the newest copy of the data key in the store. `None` if there is no
    /// copy or the store does not respond.
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
