//! One page of the stock, and where it can be made to differ from all others.

pub(super) use block_device::BLOCK_BYTES;

/// Where a page takes a number that makes it differ from all others.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// Eight bytes, little endian.
    Binary(usize),
    /// Twelve letters.
    Letters(usize),
}

/// A page of the stock.
pub(super) struct Page {
    pub(super) bytes: [u8; BLOCK_BYTES],
    pub(super) mark: Mark,
}

impl Page {
    /// The first 4 KiB of `bytes`, which has no less.
    pub(super) fn new(bytes: &[u8], mark: Mark) -> Self {
        let bytes = bytes[..BLOCK_BYTES].try_into().expect("a block was cut out");
        Self { bytes, mark }
    }
}
