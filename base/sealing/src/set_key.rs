//! Data key of a durable set together with its wrapped form.

use crate::data_key::{DataKey, Salt, draw};
use crate::error::KeyError;
use crate::key_id::KeyId;
use crate::sealer::Sealer;
use crate::wrapping_key::{WrappedKey, WrappingKey};

/// Data key of a durable set, with the wrapped form that is stored beside the sealed data.
#[derive(Clone, Debug)]
pub struct SetKey {
    key: DataKey,
    id: KeyId,
    wrapped: WrappedKey,
}

impl SetKey {
    /// Wraps a data key with a wrapping key.
    pub fn wrap(key: DataKey, wrapping: &WrappingKey) -> Result<Self, KeyError> {
        let wrapped = wrapping.wrap(&key)?;
        Ok(Self { id: key.id(), key, wrapped })
    }

    /// Unwraps a data key with the one of the `wrapping` keys that wrapped it.
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

    /// Wraps the same data key with another wrapping key (key rotation).
    pub fn wrapped_by(&self, wrapping: &WrappingKey) -> Result<Self, KeyError> {
        Self::wrap(self.key.clone(), wrapping)
    }

    /// Id of the data key. Rotation of the wrapping key does not change it.
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub fn wrapped(&self) -> &WrappedKey {
        &self.wrapped
    }

    /// Generates the salt of a new sealer.
    pub fn draw_salt(&self) -> Result<Salt, KeyError> {
        draw()
    }

    /// Returns the sealer for `place`. The salt must have been drawn for that place.
    pub fn sealer(&self, salt: &Salt, place: &[u8]) -> Sealer {
        self.key.sealer(salt, place)
    }
}
