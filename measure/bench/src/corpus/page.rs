//! A generated page, with a mark that makes it unique.

pub(super) use block_device::BLOCK_BYTES;

/// Location for a number that makes a page unique.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// Eight bytes, little-endian.
    Binary(usize),
    /// Twelve letters.
    Letters(usize),
}

/// A generated page.
pub(super) struct Page {
    pub(super) bytes: [u8; BLOCK_BYTES],
    pub(super) mark: Mark,
}

impl Page {
    /// Creates a page from the first 4 KiB of `bytes`, which must have at least that length.
    pub(super) fn new(bytes: &[u8], mark: Mark) -> Self {
        let bytes = bytes[..BLOCK_BYTES].try_into().expect("a block was cut out");
        Self { bytes, mark }
    }
}
