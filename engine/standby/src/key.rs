//! The store as it can be read: with the key that its newest image is encrypted by.
//!
//! A standby draws no key and wraps none: the writer of the store does.

use std::sync::Arc;

use image::{ImageStore, SealedStore, StoreKey, find_store_key};
use sealing::{SetKey, WrappingKey};

use crate::error::{StandbyError, StandbyErrorKind};

const OPEN: &str = "open the image store";

/// A store that can be read, and the key of its journal and images, if they are encrypted.
pub(crate) type Opened = (Arc<dyn ImageStore>, Option<Arc<SetKey>>);

/// Opens the store with one of the keys. `None`: it has nothing yet, and may come to have either.
pub(crate) fn open_store(
    store: &Arc<dyn ImageStore>,
    keys: &[WrappingKey],
) -> Result<Option<Opened>, StandbyError> {
    let refused = |why| StandbyError::new(StandbyErrorKind::Key, OPEN).with_source(why);
    match find_store_key(&**store).map_err(StandbyError::image(OPEN))? {
        StoreKey::Empty => Ok(None),
        StoreKey::None if keys.is_empty() => Ok(Some((Arc::clone(store), None))),
        StoreKey::None => Err(refused("it is not encrypted, and a key is configured")),
        StoreKey::Wrapped { .. } if keys.is_empty() => {
            Err(refused("it is encrypted, and no key is configured"))
        }
        StoreKey::Wrapped { wrapped, .. } => {
            let key = SetKey::open(wrapped, keys).map_err(|error| {
                StandbyError::new(StandbyErrorKind::Key, OPEN).with_source(error)
            })?;
            let key = Arc::new(key);
            let sealed = SealedStore::new(Arc::clone(store), Arc::clone(&key));
            Ok(Some((Arc::new(sealed), Some(key))))
        }
    }
}
