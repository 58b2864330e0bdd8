//! Checksums, and encryption where the set has a key.
//!
//! Checksums of headers and heads are seeded with what they belong to, so that bytes that another
//! journal, or an earlier run, left in the same place are never taken for this one's. They are of
//! what lies on the disk: whether a write is torn is seen without the key.
//!
//! A sealed segment has a sealer of its own, and what is sealed stands at its offset there: the
//! entries of a transaction at the offset of its header, each page at its own.

use std::sync::Arc;

use sealing::{Sealer, Tag};
use twox_hash::XxHash3_128;

/// Identifier that region, journal and images of one set share.
pub type SetId = [u8; 16];

/// Form of a segment: encrypted or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Sealed,
}

/// Checksums of one run of one journal, and the encryption of one of its segments.
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

    /// Sets the encryption of a segment.
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

/// Check of a stored page: a checksum that depends only on the contents, or the tag of a sealed
/// page.
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
