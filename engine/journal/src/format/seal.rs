//! Checksums, and encryption if the set has a key.
//!
//! Checksums of headers and heads are seeded with set id and epoch. Bytes that another journal or
//! an earlier run left in the same place therefore never verify. They cover the bytes on disk, so
//! torn writes are detected without the key.
//!
//! Each sealed segment has its own sealer. Sealed data is bound to its offset in the segment: table
//! and entries to the offset of their transaction, each page to its own.

use std::sync::Arc;

use sealing::{Sealer, Tag};
use twox_hash::XxHash3_128;

/// Identifier shared by the region, journal and images of a durable set.
pub type SetId = [u8; 16];

/// Encryption state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Sealed,
}

/// Checksums for one run of a journal, and the encryption of one of its segments.
#[derive(Clone, Debug)]
pub struct Seal {
    seed: u64,
    sealer: Option<Arc<Sealer>>,
}

impl Seal {
    pub fn new(set_id: SetId, epoch: u64) -> Self {
        let mut identity = [0; 24];
        identity[..16].copy_from_slice(&set_id);
        identity[16..].copy_from_slice(&epoch.to_le_bytes());
        Self { seed: low_word(XxHash3_128::oneshot(&identity)), sealer: None }
    }

    /// Adds the encryption of a segment.
    pub fn with_sealer(self, sealer: Sealer) -> Self {
        Self { sealer: Some(Arc::new(sealer)), ..self }
    }

    pub fn form(&self) -> Form {
        if self.sealer.is_some() { Form::Sealed } else { Form::Plain }
    }

    pub(crate) fn sealer(&self) -> Option<&Sealer> {
        self.sealer.as_deref()
    }

    pub fn checksum(&self, bytes: &[u8]) -> u64 {
        low_word(XxHash3_128::oneshot_with_seed(self.seed, bytes))
    }
}

/// Check value of a stored page: a checksum of its contents alone, or the tag of a sealed page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageCheck(pub [u8; 16]);

impl PageCheck {
    pub const NONE: Self = Self([0; 16]);

    pub fn of(stored: &[u8]) -> Self {
        Self::of_word(low_word(XxHash3_128::oneshot(stored)))
    }

    pub(crate) fn of_tag(tag: Tag) -> Self {
        Self(tag)
    }

    pub(crate) fn of_word(word: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        Self(bytes)
    }
}

fn low_word(hash: u128) -> u64 {
    u64::try_from(hash & u128::from(u64::MAX)).expect("64 bits were kept")
}
