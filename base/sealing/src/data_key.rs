//! Data keys. Every encryption key of a durable set is derived from its data key.

use std::fmt;

use crate::error::KeyError;
use crate::key_id::KeyId;
use crate::sealer::Sealer;

/// Size of a data key.
pub const DATA_KEY_BYTES: usize = 32;

/// Size of a salt.
pub const SALT_BYTES: usize = 32;

/// Random bytes from which a sealer's key is derived, stored beside the sealed data.
pub type Salt = [u8; SALT_BYTES];

const SEALER_CONTEXT: &str = "Memlane 1 key of a sealer";

/// Data encryption key of one durable set.
#[derive(Clone)]
pub struct DataKey([u8; DATA_KEY_BYTES]);

impl DataKey {
    pub fn new(bytes: [u8; DATA_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Generates a new random key.
    pub fn draw() -> Result<Self, KeyError> {
        draw().map(Self)
    }

    pub fn id(&self) -> KeyId {
        KeyId::of(&self.0)
    }

    pub(crate) fn bytes(&self) -> &[u8; DATA_KEY_BYTES] {
        &self.0
    }

    pub(crate) fn sealer(&self, salt: &Salt, place: &[u8]) -> Sealer {
        let mut hasher = blake3::Hasher::new_derive_key(SEALER_CONTEXT);
        // The key and the salt have fixed lengths, so the concatenation is unambiguous.
        hasher.update(&self.0).update(salt).update(place);
        Sealer::new(hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey({})", self.id())
    }
}

pub(crate) fn draw<const COUNT: usize>() -> Result<[u8; COUNT], KeyError> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(|error| KeyError::NoRandomness(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealers_differ_by_key_salt_and_place() {
        let seal = |key: u8, salt: u8, place: &[u8]| {
            let mut bytes = [0; 32];
            DataKey([key; 32]).sealer(&[salt; 32], place).seal(0, b"", &mut bytes);
            bytes
        };
        let one = seal(1, 2, b"segment 3");
        assert_eq!(one, seal(1, 2, b"segment 3"));
        let others = [seal(9, 2, b"segment 3"), seal(1, 9, b"segment 3"), seal(1, 2, b"segment 4")];
        assert!(others.iter().all(|other| *other != one));
    }

    #[test]
    fn debug_shows_no_key() {
        let key = DataKey([0xAB; 32]);
        assert!(!format!("{key:?}").contains("abab"), "{key:?}");
        assert!(!format!("{key:?}").contains("171"), "{key:?}");
    }
}
