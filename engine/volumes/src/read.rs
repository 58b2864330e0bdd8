//! Reads: no lock, no store to shared memory but the pin.

use std::io::IoSlice;

use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind, Extent, ExtentKind};
use codec::{BLOCK_BYTES, Block, DecodeError};
use page_store::{NodeRef, PageBytes, PageRef, PageRefKind};
use sync::Pinned;

use crate::map::{LEAF_BLOCKS, index_in_leaf, leaf_of};
use crate::runs::Runs;
use crate::volume::{Piece, Volume, data_range, pieces};

/// Bytes read under one pin: what is dropped meanwhile cannot be freed.
const PINNED_BYTES_MAX: usize = 256 << 10;

/// The longest range that [`Volume::show_bytes`] takes.
const SHOWN_BYTES_MAX: u64 = 1 << 20;
const SLICES_MAX: usize = 258;

/// Ranges as long as this lie in so many blocks at most.
const SHORT_BYTES_MAX: u64 = 16 << 10;
const SHORT_SLICES_MAX: usize = 5;

static ZEROS: Block = [0; BLOCK_BYTES];

impl Volume {
    pub(crate) fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if let Ok(block) = <&mut Block>::try_from(&mut *into)
            && offset.is_multiple_of(BLOCK_BYTES as u64)
        {
            return self.read_block(offset, block);
        }
        let range = data_range(Action::Read, offset, into.len())?;
        let mut at = offset;
        // A first chunk that ends on a boundary keeps blocks whole.
        let first = PINNED_BYTES_MAX - usize::try_from(at % BLOCK_BYTES as u64).expect("small");
        let (head, rest) = into.split_at_mut(first.min(into.len()));
        for chunk in std::iter::once(head).chain(rest.chunks_mut(PINNED_BYTES_MAX)) {
            let pinned = self.shared.store.pin();
            self.admit(&pinned, Action::Read, range)?;
            let length = chunk.len() as u64;
            if self.read_chunk(&pinned, at, chunk).is_err() {
                // Damaged, or absent: not to be waited for while pinned.
                drop(pinned);
                self.read_slowly(ByteRange::new(at, length), chunk)?;
            }
            at += length;
        }
        Ok(())
    }

    /// One whole block: what most requests are, without what only longer ones need.
    fn read_block(&self, offset: u64, into: &mut Block) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset, BLOCK_BYTES as u64);
        let block = offset / BLOCK_BYTES as u64;
        let store = &self.shared.store;
        let pinned = store.pin();
        // Before it is known to be inside the volume, or that there is one: any block may be looked
        // up, and what is found is not followed before.
        let leaf = self.find_leaf(&pinned, leaf_of(block));
        let entry =
            leaf.map_or(PageRef::HOLE, |leaf| store.entry(&pinned, leaf, index_in_leaf(block)));
        self.admit(&pinned, Action::Read, range)?;
        match self.shared.read_page(&pinned, entry, into) {
            Ok(()) => Ok(()),
            Err(_) => {
                drop(pinned);
                self.read_slowly(range, into)
            }
        }
    }

    fn read_chunk(
        &self,
        pinned: &Pinned<'_>,
        offset: u64,
        mut into: &mut [u8],
    ) -> Result<(), DecodeError> {
        let mut cursor = EntryCursor::new(self);
        for piece in pieces(ByteRange::new(offset, into.len() as u64)) {
            let entry = cursor.entry(pinned, piece.block);
            let (part, rest) = into.split_at_mut(piece.length);
            into = rest;
            if !into.is_empty() {
                cursor.prefetch_page(pinned, piece.block + 1);
            }
            self.read_piece(pinned, entry, piece, part)?;
        }
        Ok(())
    }

    fn read_piece(
        &self,
        pinned: &Pinned<'_>,
        entry: PageRef,
        piece: Piece,
        into: &mut [u8],
    ) -> Result<(), DecodeError> {
        if let Ok(block) = <&mut Block>::try_from(&mut *into) {
            return self.shared.read_page(pinned, entry, block);
        }
        let mut block = [0; BLOCK_BYTES];
        self.shared.read_page(pinned, entry, &mut block)?;
        into.copy_from_slice(&block[piece.start..piece.start + piece.length]);
        Ok(())
    }

    pub(crate) fn show_bytes(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        if range.length > SHOWN_BYTES_MAX {
            return Err(DeviceError::new(DeviceErrorKind::TooLong, Action::Read, range));
        }
        let pinned = self.shared.store.pin();
        self.admit(&pinned, Action::Read, range)?;
        // Making a long list takes longer than looking a block up.
        let is_short = range.length <= SHORT_BYTES_MAX;
        let shown = match is_short {
            true => self.show_pages::<SHORT_SLICES_MAX>(&pinned, range, scratch, visit),
            false => self.show_pages::<SLICES_MAX>(&pinned, range, scratch, visit),
        };
        if shown.is_ok() {
            return Ok(());
        }
        // Damaged, or absent: not to be waited for while pinned.
        drop(pinned);
        let length = usize::try_from(range.length).expect("it is not too long");
        self.read_slowly(range, &mut scratch[..length])?;
        visit(&[IoSlice::new(&scratch[..length])]);
        Ok(())
    }

    /// Nothing is visited when a page cannot be had. The range lies in `SLICES` blocks at most.
    fn show_pages<const SLICES: usize>(
        &self,
        pinned: &Pinned<'_>,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DecodeError> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        let mut cursor = EntryCursor::new(self);
        let mut blocks = scratch.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut();
        for piece in pieces(range) {
            let entry = cursor.entry(pinned, piece.block);
            self.shared.store.prefetch_page(entry);
            let spare = blocks.next().expect("the scratch is as long as the range");
            let bytes = self.show_page(pinned, entry, spare)?;
            slices[count] = IoSlice::new(&bytes[piece.start..piece.start + piece.length]);
            count += 1;
        }
        visit(&slices[..count]);
        Ok(())
    }

    /// A page where it is stored, or decoded into `spare`.
    fn show_page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        entry: PageRef,
        spare: &'seen mut Block,
    ) -> Result<&'seen Block, DecodeError> {
        match self.shared.store.page(pinned, entry)? {
            PageBytes::Fill(0) => Ok(&ZEROS),
            PageBytes::Fill(pattern) => {
                codec::write_fill(pattern, spare);
                Ok(spare)
            }
            PageBytes::Raw(bytes) => self.shared.verified(entry, bytes),
            PageBytes::Encoded(bytes) => {
                codec::decode(bytes, spare)?;
                self.shared.verified(entry, spare)
            }
        }
    }

    pub(crate) fn list_extents(
        &self,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<Extent>, DeviceError> {
        let mut extents = Runs::new(count_max);
        let mut at = range.start;
        let end = range.start.saturating_add(range.length);
        // Once at least: an empty range has to fit the volume too.
        loop {
            let pinned = self.shared.store.pin();
            self.admit(&pinned, Action::ListExtents, range)?;
            if at >= end || extents.is_full() {
                break;
            }
            at = self.list_leaf(&pinned, at, end, &mut extents);
        }
        Ok(extents.into_list(|range, kind| Extent { range, kind }))
    }

    /// Adds what is known up to the end of the next leaf. Returns where that is.
    fn list_leaf(
        &self,
        pinned: &Pinned<'_>,
        at: u64,
        end: u64,
        extents: &mut Runs<ExtentKind>,
    ) -> u64 {
        let block_bytes = BLOCK_BYTES as u64;
        let leaf_bytes = LEAF_BLOCKS * block_bytes;
        let next = self.map.next_leaf(&self.shared.store, pinned, at / leaf_bytes);
        let Some((leaf, node)) = next else {
            extents.add(at, end, ExtentKind::Hole);
            return end;
        };
        let first = (leaf * leaf_bytes).clamp(at, end);
        let last = ((leaf + 1) * leaf_bytes).clamp(at, end);
        extents.add(at, first, ExtentKind::Hole);
        let mut from = first;
        while from < last {
            let block = from / block_bytes;
            let until = ((block + 1) * block_bytes).min(last);
            let entry = self.shared.store.entry(pinned, node, index_in_leaf(block));
            extents.add(from, until, extent_kind(entry));
            from = until;
        }
        last
    }
}

fn extent_kind(entry: PageRef) -> ExtentKind {
    match entry.kind() {
        PageRefKind::Hole => ExtentKind::Hole,
        PageRefKind::Fill(0) => ExtentKind::Zero,
        PageRefKind::Fill(_)
        | PageRefKind::Page
        | PageRefKind::Absent(_)
        | PageRefKind::Damaged => ExtentKind::Data,
    }
}

/// Looks entries up, remembering the leaf from block to block.
pub(crate) struct EntryCursor<'volume> {
    volume: &'volume Volume,
    leaf: Option<(u64, Option<NodeRef>)>,
}

impl<'volume> EntryCursor<'volume> {
    /// For use under one pin.
    pub(crate) fn new(volume: &'volume Volume) -> Self {
        Self { volume, leaf: None }
    }

    #[inline]
    pub(crate) fn entry(&mut self, pinned: &Pinned<'_>, block: u64) -> PageRef {
        let store = &self.volume.shared.store;
        let node = self.leaf(pinned, leaf_of(block));
        node.map_or(PageRef::HOLE, |node| store.entry(pinned, node, index_in_leaf(block)))
    }

    /// Brings the entry of a block near that will be looked at soon.
    #[inline]
    pub(crate) fn prefetch_entry(&mut self, pinned: &Pinned<'_>, block: u64) {
        if let Some(node) = self.leaf(pinned, leaf_of(block)) {
            self.volume.shared.store.prefetch_entry(node, index_in_leaf(block));
        }
    }

    /// Brings the page of a block near that will be read next.
    #[inline]
    fn prefetch_page(&mut self, pinned: &Pinned<'_>, block: u64) {
        let entry = self.entry(pinned, block);
        self.volume.shared.store.prefetch_page(entry);
    }

    #[inline]
    fn leaf(&mut self, pinned: &Pinned<'_>, number: u64) -> Option<NodeRef> {
        match self.leaf {
            Some((known, node)) if known == number => node,
            _ => {
                let node = self.volume.find_leaf(pinned, number);
                self.leaf = Some((number, node));
                node
            }
        }
    }
}
