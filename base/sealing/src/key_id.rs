//! Key ids.

use std::fmt;

const ID_CONTEXT: &str = "Memlane 1 id of a key";

/// Public identifier of a key, from which the key cannot be derived.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 16]);

impl KeyId {
    pub(crate) fn of(key: &[u8; 32]) -> Self {
        let name = blake3::derive_key(ID_CONTEXT, key);
        Self(name[..16].try_into().expect("16 of 32 bytes"))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}
