//! Encryption keys and authenticated encryption for journals and images at rest.
//!
//! ```text
//!  wrapping key ── opens ──▶ data key ── salt and place ──▶ sealer ── position ──▶ sealed bytes
//!  a file of the owner       one for a set, never           one for a segment,
//!                            stored unwrapped               a part of a pack
//! ```
//!
//! Data is encrypted with AES-256-GCM from `ring`. Keys are derived with BLAKE3 in its
//! key-derivation mode. **Nonces** are positions. Each sealer is derived from its own random salt
//! of 32 bytes, and its owner writes each position once, so no pair of key and nonce repeats. This
//! also holds when a copy of a disk is put into service: new sealers draw new salts. It does not
//! hold when a running process is duplicated and both copies continue.
//!
//! The crate reads key files and draws random bytes. It writes nothing and keeps no state.
#![forbid(unsafe_code)]

mod data_key;
mod error;
mod key_id;
mod sealer;
mod set_key;
mod wrapping_key;

pub use data_key::{DATA_KEY_BYTES, DataKey, SALT_BYTES, Salt};
pub use error::KeyError;
pub use key_id::KeyId;
pub use sealer::{Sealer, TAG_BYTES, Tag};
pub use set_key::SetKey;
pub use wrapping_key::{WRAPPED_KEY_BYTES, WrappedKey, WrappingKey};
