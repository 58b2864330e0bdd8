//! Writing of a transaction to a sealed segment.
//!
//! In a long transaction, pages are written while later ones are still being encrypted. The head
//! contains the tags of all pages and goes last. Until then the disk has a torn transaction.

use std::io::IoSlice;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, Builder};

use codec::BLOCK_BYTES;
use sealing::Sealer;
use storage::{AlignedBuffer, StableFile, StorageError};

use crate::format::{Address, PageCheck, Seal};
use crate::transaction_builder::{TRANSACTION_BLOCKS_MAX, TransactionBuilder};

/// Number of pages per write that overlaps with encryption. A transaction of fewer than twice as
/// many is written at once, because a thread would cost more than it saves.
const PIECE_PAGES: usize = 256;

const PIECE_BYTES: usize = PIECE_PAGES * BLOCK_BYTES;

/// Destination of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) file: &'a dyn StableFile,
    pub(crate) seal: &'a Seal,
    pub(crate) address: Address,
}

/// Reusable buffers for encrypted bytes.
#[derive(Debug)]
pub(crate) struct SealedWrite {
    head: AlignedBuffer,
    /// Never shrinks, to avoid zeroing it each time.
    pages: AlignedBuffer,
}

/// File offset and bytes.
type Piece<'pages> = (u64, &'pages [u8]);

impl SealedWrite {
    pub(crate) fn new() -> Self {
        Self { head: AlignedBuffer::new(), pages: AlignedBuffer::new() }
    }

    /// Encrypts a transaction and writes it. It is durable when this returns.
    pub(crate) fn write(
        &mut self,
        transaction: &mut TransactionBuilder<'_>,
        target: Target<'_>,
    ) -> Result<(), StorageError> {
        let Target { file, seal, address } = target;
        let sealer = seal.sealer().expect("the segment is sealed");
        let start = u64::from(address.offset);
        let pages_start = start + transaction.sizes().head_bytes() as u64;
        let packed = transaction.seal_packed(sealer, start);
        let whole = transaction.whole_pages().to_vec();
        let mut tags = vec![PageCheck::NONE; whole.len()];
        let length = whole.len() * BLOCK_BYTES;
        if self.pages.len() < length {
            self.pages.resize(length, 0);
        }
        let is_long = whole.len() >= 2 * PIECE_PAGES;
        let first_count = if is_long { PIECE_PAGES } else { whole.len() };
        let (first, later) = self.pages[..length].split_at_mut(first_count * BLOCK_BYTES);
        thread::scope(|scope| {
            let (sealed, pieces) = sync_channel(TRANSACTION_BLOCKS_MAX / PIECE_PAGES);
            let writer = is_long
                .then(|| Builder::new().spawn_scoped(scope, move || write_pieces(file, &pieces)));
            // If no thread can be started, this thread writes the pieces.
            let writer = writer.and_then(Result::ok);
            let mut at = first_count;
            for piece in later.chunks_mut(PIECE_BYTES) {
                let these = at..at + piece.len() / BLOCK_BYTES;
                let piece_start = pages_start + (at * BLOCK_BYTES) as u64;
                seal_pages(sealer, piece_start, &whole[these.clone()], piece, &mut tags[these]);
                at += piece.len() / BLOCK_BYTES;
                match &writer {
                    // The writer exits early only on failure, which is returned below.
                    Some(_) => drop(sealed.send((piece_start, &*piece))),
                    None => file.write(piece_start, &[IoSlice::new(piece)])?,
                }
            }
            drop(sealed);
            seal_pages(sealer, pages_start, &whole[..first_count], first, &mut tags[..first_count]);
            transaction.set_tags(&packed, &tags);
            transaction.write_head(&mut self.head, seal, address);
            let parts = [IoSlice::new(&self.head), IoSlice::new(first)];
            let parts = if first.is_empty() { &parts[..1] } else { &parts };
            if !is_long {
                return file.write_durably(start, parts);
            }
            let written = file.write(start, parts);
            let ahead = writer.map(|writer| writer.join().expect("the writer does not panic"));
            ahead.unwrap_or(Ok(()))?;
            written?;
            file.sync()
        })
    }
}

/// Encrypts pages into `into`, which will be written at offset `start`.
fn seal_pages(
    sealer: &Sealer,
    start: u64,
    pages: &[&[u8]],
    into: &mut [u8],
    tags: &mut [PageCheck],
) {
    let blocks = into.chunks_exact_mut(BLOCK_BYTES);
    for (((page, block), tag), position) in
        pages.iter().zip(blocks).zip(tags).zip((start..).step_by(BLOCK_BYTES))
    {
        block.copy_from_slice(page);
        *tag = PageCheck::of_tag(sealer.seal(position, &[], block));
    }
}

fn write_pieces(file: &dyn StableFile, pieces: &Receiver<Piece<'_>>) -> Result<(), StorageError> {
    while let Ok((at, bytes)) = pieces.recv() {
        file.write(at, &[IoSlice::new(bytes)])?;
    }
    Ok(())
}
