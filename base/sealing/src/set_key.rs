//! The key of one set, as those who seal have it.

use crate::data_key::{DataKey, Salt, draw};
use crate::error::KeyError;
use crate::key_id::KeyId;
use crate::sealer::Sealer;
use crate::wrapping_key::{WrappedKey, WrappingKey};

/// The data key of a set, with its wrapped form, which stands beside what is sealed.
#[derive(Clone, Debug)]
pub struct SetKey {
    key: DataKey,
    id: KeyId,
    wrapped: WrappedKey,
}

impl SetKey {
    /// Wraps a data key.
    pub fn wrap(key: DataKey, wrapping: &WrappingKey) -> Result<Self, KeyError> {
        let wrapped = wrapping.wrap(&key)?;
        Ok(Self { id: key.id(), key, wrapped })
    }

    /// Opens a wrapped data key with that of `wrapping` that wrapped it.
    pub fn open(wrapped: WrappedKey, wrapping: &[WrappingKey]) -> Result<Self, KeyError> {
        let found = wrapping.iter().find(|key| key.id() == wrapped.wrapping_id());
        let Some(found) = found else {
            let names: Vec<String> = wrapping.iter().map(|key| key.id().to_string()).collect();
            let (wanted, configured) = (wrapped.wrapping_id(), names.join(", "));
            return Err(KeyError::OtherKey { wanted, configured });
        };
        let key = found.open(&wrapped)?;
        Ok(Self { id: key.id(), key, wrapped })
    }

    /// The same data key, wrapped by another key.
    pub fn wrapped_by(&self, wrapping: &WrappingKey) -> Result<Self, KeyError> {
        Self::wrap(self.key.clone(), wrapping)
    }

    /// The name of the data key, which no rotation changes.
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub fn wrapped(&self) -> &WrappedKey {
        &self.wrapped
    }

    /// Draws the salt of a new sealer.
    pub fn draw_salt(&self) -> Result<Salt, KeyError> {
        draw()
    }

    /// The sealer of a place. Whoever seals has drawn the salt for it.
    pub fn sealer(&self, salt: &Salt, place: &[u8]) -> Sealer {
        self.key.sealer(salt, place)
    }
}
