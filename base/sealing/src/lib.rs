//! Keys, and bytes that nobody reads or changes without them: the ground of encrypted journals and
//! images.
//!
//! ```text
//!  wrapping key ── opens ──▶ data key ── salt and place ──▶ sealer ── position ──▶ sealed bytes
//!  a file of the owner       one for a set, never           one for a segment,
//!                            stored unwrapped               a part of a pack
//! ```
//!
//! Bytes are sealed by AES-256-GCM, as `ring` has it; keys are derived by BLAKE3 in its mode for
//! that. **Nonces** are positions. A position is used once with a sealer, because each sealer is
//! derived from a salt of 32 random bytes that is drawn for it alone, and whoever has one writes
//! each position once. A copy of a disk that is taken up again therefore repeats no nonce either;
//! a process of which two copies go on does.
//!
//! It reads files of keys and draws random bytes; it writes nothing and keeps no state.
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
