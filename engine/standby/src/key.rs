//! Opening of the store with the key of its newest image.
//!
//! A standby neither generates nor wraps keys. Only the store's writer does.

use std::sync::Arc;

use image::{ImageStore, SealedStore, StoreKey, find_store_key};
use sealing::{SetKey, WrappingKey};

use crate::error::{StandbyError, StandbyErrorKind};

const OPEN: &str = "open the image store";

/// A readable store, and the key of its journal and images, if encrypted.
pub(crate) type Opened = (Arc<dyn ImageStore>, Option<Arc<SetKey>>);

/// Opens the store with one of the keys. Returns `None` if it is still empty and may become
/// encrypted or not.
pub(crate) fn open_store(
    store: &Arc<dyn ImageStore>,
    keys: &[WrappingKey],
) -> Result<Option<Opened>, StandbyError> {
    let refused = |why: String| StandbyError::new(StandbyErrorKind::Key, OPEN).with_source(why);
    match find_store_key(&**store).map_err(StandbyError::image(OPEN))? {
        StoreKey::Empty => Ok(None),
        StoreKey::None if keys.is_empty() => Ok(Some((Arc::clone(store), None))),
        StoreKey::None => Err(refused("it is not encrypted, and a key is configured".to_owned())),
        StoreKey::Wrapped { wrapped, .. } if keys.is_empty() => {
            let id = wrapped.wrapping_id();
            Err(refused(format!("it is encrypted with the key {id}, and no key is configured")))
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
