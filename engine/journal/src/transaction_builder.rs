//! Builds one transaction of the journal.
//!
//! Whole pages are written from where they are. Packed pages are copied into the head. A page that
//! is already in the journal or in this transaction becomes a reference.

use std::collections::HashMap;

use codec::BLOCK_BYTES;
use sealing::Sealer;
use storage::AlignedBuffer;
use volumes::{CapturedContents, CapturedPage};

use crate::format::{
    Address, Entry, Form, Location, PageCheck, Place, Seal, Sizes, TABLE_RECORD_BYTES, seal_head,
};
use crate::known::{Known, KnownPages};

/// Maximum number of blocks in a transaction. With the head they fit into one vectored write.
pub(crate) const TRANSACTION_BLOCKS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug)]
struct Added {
    place: Place,
    length: u16,
    check: PageCheck,
}

/// The transaction being built.
#[derive(Debug)]
pub(crate) struct TransactionBuilder<'bytes> {
    form: Form,
    table: Option<&'bytes [u8]>,
    entries: Vec<Entry>,
    packed: Vec<u8>,
    /// Lengths of the packed pages, in order.
    packed_lengths: Vec<u16>,
    whole: Vec<&'bytes [u8]>,
    /// Pages that this transaction adds to the journal, by page number.
    added: HashMap<u64, Added>,
    volume: Option<u64>,
    block_count: usize,
    reference_count: usize,
}

impl<'bytes> TransactionBuilder<'bytes> {
    /// Creates an empty transaction for segments of this form.
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            table: None,
            entries: Vec::new(),
            packed: Vec::new(),
            packed_lengths: Vec::new(),
            whole: Vec::new(),
            added: HashMap::new(),
            volume: None,
            block_count: 0,
            reference_count: 0,
        }
    }

    /// Adds the encoded volume table.
    pub(crate) fn set_table(&mut self, table: &'bytes [u8]) {
        self.table = Some(table);
    }

    pub(crate) fn has_table(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_none() && self.entries.is_empty()
    }

    pub(crate) fn block_count(&self) -> usize {
        self.block_count
    }

    /// Returns the number of blocks whose page is elsewhere in the journal.
    pub(crate) fn reference_count(&self) -> usize {
        self.reference_count
    }

    pub(crate) fn add(
        &mut self,
        known: &KnownPages,
        volume_id: u64,
        block: u64,
        contents: CapturedContents<'bytes>,
    ) {
        if self.volume != Some(volume_id) {
            self.entries.push(Entry::Volume(volume_id));
            self.volume = Some(volume_id);
        }
        self.block_count += 1;
        let page = match contents {
            CapturedContents::Hole => return self.add_run(Entry::Hole { block, count: 1 }),
            CapturedContents::Lost => return self.add_run(Entry::Lost { block, count: 1 }),
            CapturedContents::Fill(pattern) => {
                return self.add_run(Entry::Fill { block, count: 1, pattern });
            }
            CapturedContents::Page(page) => page,
        };
        let Added { place, length, check } = self.place(known, &page);
        self.entries.push(Entry::Page { block, place, length, check });
    }

    /// Adds a run of one block, merging it with the previous run if contiguous.
    fn add_run(&mut self, run: Entry) {
        let is_added = match (self.entries.last_mut(), run) {
            (Some(Entry::Hole { block, count }), Entry::Hole { block: next, .. })
            | (Some(Entry::Lost { block, count }), Entry::Lost { block: next, .. }) => {
                extend(*block, count, next)
            }
            (
                Some(Entry::Fill { block, count, pattern }),
                Entry::Fill { block: next, pattern: other, .. },
            ) if *pattern == other => extend(*block, count, next),
            _ => false,
        };
        if !is_added {
            self.entries.push(run);
        }
    }

    fn place(&mut self, known: &KnownPages, page: &CapturedPage<'bytes>) -> Added {
        let find = |number| self.find(known, number, page.is_journaled);
        if let Some(added) = page.number.and_then(find) {
            self.reference_count += 1;
            return added;
        }
        let stored = page.bytes.as_stored();
        let place = self.store(stored);
        let length = u16::try_from(stored.len()).expect("a page has 4096 bytes at most");
        let check = match self.form {
            Form::Plain => PageCheck::of(stored),
            // Tags are computed once the location is known.
            Form::Sealed => PageCheck::NONE,
        };
        let added = Added { place, length, check };
        if let Some(number) = page.number {
            self.added.insert(number, added);
        }
        added
    }

    /// Returns the location of a page that the journal has, or will have with this transaction.
    fn find(&self, known: &KnownPages, number: u64, is_journaled: bool) -> Option<Added> {
        if let Some(&added) = self.added.get(&number) {
            return Some(added);
        }
        let Known { at, length, check } = known.find(number).filter(|_| is_journaled)?;
        Some(Added { place: Place::Elsewhere(at), length, check })
    }

    fn store(&mut self, stored: &'bytes [u8]) -> Place {
        assert!((1..=BLOCK_BYTES).contains(&stored.len()), "a page has 1 to 4096 bytes");
        if stored.len() == BLOCK_BYTES {
            self.whole.push(stored);
            return Place::Whole(count(self.whole.len() - 1));
        }
        let offset = count(self.packed.len());
        self.packed.extend_from_slice(stored);
        self.packed_lengths.push(u16::try_from(stored.len()).expect("shorter than a page"));
        Place::Packed(offset)
    }

    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            form: self.form,
            table_count: self.table.map(|table| count(table.len() / TABLE_RECORD_BYTES)),
            entry_count: count(self.entries.len()),
            packed_bytes: count(self.packed.len()),
            whole_count: count(self.whole.len()),
        }
    }

    /// Encrypts the packed pages in place. `start` is the offset of the transaction in the segment.
    pub(crate) fn seal_packed(&mut self, sealer: &Sealer, start: u64) -> Vec<(u32, PageCheck)> {
        let (packed_start, mut offset) = (start + self.sizes().packed_start() as u64, 0);
        let mut tags = Vec::with_capacity(self.packed_lengths.len());
        for &length in &self.packed_lengths {
            let page = &mut self.packed[offset..offset + usize::from(length)];
            let place = count(offset);
            let position = packed_start + u64::from(place);
            tags.push((place, PageCheck::of_tag(sealer.seal(position, &[], page))));
            offset += usize::from(length);
        }
        tags
    }

    /// Sets the tags of all pages: packed ones by offset, whole ones by index.
    pub(crate) fn set_tags(&mut self, packed: &[(u32, PageCheck)], whole: &[PageCheck]) {
        let tag = |place| match place {
            Place::Packed(offset) => {
                let found = packed.binary_search_by_key(&offset, |(offset, _)| *offset);
                Some(packed[found.expect("each packed page has a tag")].1)
            }
            Place::Whole(index) => Some(whole[index as usize]),
            Place::Elsewhere(_) => None,
        };
        for entry in &mut self.entries {
            if let Entry::Page { place, check, .. } = entry
                && let Some(tag) = tag(*place)
            {
                *check = tag;
            }
        }
        for Added { place, check, .. } in self.added.values_mut() {
            *check = tag(*place).expect("it is in this transaction");
        }
    }

    /// Builds the head in `head`, sealed for its address.
    pub(crate) fn write_head(&self, head: &mut AlignedBuffer, seal: &Seal, address: Address) {
        head.clear();
        head.resize(self.sizes().body_start(), 0);
        head.extend_from_slice(self.table.unwrap_or_default());
        for entry in &self.entries {
            match self.form {
                Form::Plain => head.extend_from_slice(&entry.encode()),
                Form::Sealed => head.extend_from_slice(&entry.encode_sealed()),
            }
        }
        head.extend_from_slice(&self.packed);
        head.pad_to_block();
        seal_head(head, seal, address, self.sizes());
    }

    /// Returns the pages to be written after the head, without copying them.
    pub(crate) fn whole_pages(&self) -> &[&'bytes [u8]] {
        &self.whole
    }

    /// Records the locations of the transaction's pages, once it is durable at `address`.
    pub(crate) fn note_pages(&self, known: &mut KnownPages, address: Address) {
        let sizes = self.sizes();
        for (&number, &Added { place, length, check }) in &self.added {
            let Some(start) = sizes.page_start(place) else { continue };
            let at = Location { segment: address.segment, offset: address.offset + count(start) };
            known.note(number, Known { at, length, check });
        }
    }
}

/// Extends a run by block `next`, if that is contiguous.
fn extend(block: u64, count: &mut u32, next: u64) -> bool {
    let continues = next == block + u64::from(*count) && *count < u32::MAX;
    *count += u32::from(continues);
    continues
}

fn count(value: usize) -> u32 {
    u32::try_from(value).expect("a transaction is within the format's limits")
}

#[cfg(test)]
mod tests {
    use volumes::StoredBytes;

    use super::*;
    use crate::format::Transaction;

    const ADDRESS: Address = Address { sequence: 1, epoch: 1, segment: 3, offset: 4096 };

    fn page(number: u64, stored: &[u8]) -> CapturedContents<'_> {
        let bytes = stored.try_into().map_or(StoredBytes::Encoded(stored), StoredBytes::Raw);
        CapturedContents::Page(CapturedPage { number: Some(number), is_journaled: true, bytes })
    }

    fn sealed(transaction: &TransactionBuilder<'_>) -> Vec<u8> {
        let mut head = AlignedBuffer::new();
        transaction.write_head(&mut head, &Seal::new([1; 16], 1), ADDRESS);
        let mut bytes = head.to_vec();
        transaction.whole_pages().iter().for_each(|page| bytes.extend_from_slice(page));
        bytes
    }

    #[track_caller]
    fn check(blocks: &[(u64, u64, CapturedContents<'_>)], expected: &[Entry]) {
        let mut transaction = TransactionBuilder::new(Form::Plain);
        let known = KnownPages::new(16);
        for &(volume, block, contents) in blocks {
            transaction.add(&known, volume, block, contents);
        }
        let bytes = sealed(&transaction);
        let seal = Seal::new([1; 16], 1);
        let transaction = Transaction::decode(&bytes, &seal, ADDRESS).expect("it is whole");
        assert!(transaction.has_whole_pages());
        assert_eq!(transaction.entries(), expected);
    }

    #[test]
    fn neighbours_of_equal_contents_are_one_run() {
        use CapturedContents::{Fill, Hole};
        check(
            &[(1, 5, Hole), (1, 6, Hole), (1, 8, Hole), (1, 9, Fill(3)), (1, 10, Fill(3))],
            &[
                Entry::Volume(1),
                Entry::Hole { block: 5, count: 2 },
                Entry::Hole { block: 8, count: 1 },
                Entry::Fill { block: 9, count: 2, pattern: 3 },
            ],
        );
        check(
            &[(1, 5, Fill(1)), (1, 6, Fill(2)), (2, 7, Fill(2))],
            &[
                Entry::Volume(1),
                Entry::Fill { block: 5, count: 1, pattern: 1 },
                Entry::Fill { block: 6, count: 1, pattern: 2 },
                Entry::Volume(2),
                Entry::Fill { block: 7, count: 1, pattern: 2 },
            ],
        );
    }

    #[test]
    fn a_page_of_several_blocks_is_written_once() {
        let (packed, whole) = ([1; 90], [2; BLOCK_BYTES]);
        let entry = |block, stored: &[u8], place| {
            let length = u16::try_from(stored.len()).expect("a page");
            Entry::Page { block, place, length, check: PageCheck::of(stored) }
        };
        check(
            &[
                (1, 5, page(70, &packed)),
                (1, 6, page(71, &whole)),
                (1, 7, page(70, &packed)),
                (1, 8, page(71, &whole)),
            ],
            &[
                Entry::Volume(1),
                entry(5, &packed, Place::Packed(0)),
                entry(6, &whole, Place::Whole(0)),
                entry(7, &packed, Place::Packed(0)),
                entry(8, &whole, Place::Whole(0)),
            ],
        );
    }

    #[test]
    fn a_page_that_the_journal_has_is_referred_to() {
        let (packed, whole) = ([1; 90], [2; BLOCK_BYTES]);
        let mut known = KnownPages::new(16);
        let mut first = TransactionBuilder::new(Form::Plain);
        first.add(&known, 1, 5, page(70, &packed));
        first.add(&known, 1, 6, page(71, &whole));
        let bytes = sealed(&first);
        first.note_pages(&mut known, ADDRESS);

        let mut second = TransactionBuilder::new(Form::Plain);
        second.add(&known, 1, 7, page(70, &packed));
        second.add(&known, 1, 8, page(71, &whole));
        assert_eq!((second.reference_count(), second.sizes().total_bytes()), (2, 4096));
        let (found, locations): (Vec<_>, Vec<_>) = [70, 71]
            .map(|number| known.find(number).expect("it was noted"))
            .iter()
            .map(|known| (known.length, known.at.offset - ADDRESS.offset))
            .unzip();
        assert_eq!(found, [90, 4096]);
        let start = usize::try_from(locations[0]).expect("small");
        assert_eq!(bytes[start..start + 90], packed);
        let start = usize::try_from(locations[1]).expect("small");
        assert_eq!(bytes[start..start + BLOCK_BYTES], whole);
    }

    #[test]
    fn a_page_that_replaced_a_journaled_one_is_written() {
        let stored = [1; 90];
        let mut known = KnownPages::new(16);
        let at = Location { segment: 3, offset: 8192 };
        known.note(70, Known { at, length: 500, check: PageCheck([1; 16]) });
        let mut transaction = TransactionBuilder::new(Form::Plain);
        let bytes = StoredBytes::Encoded(&stored);
        let page = CapturedPage { number: Some(70), is_journaled: false, bytes };
        transaction.add(&known, 1, 5, CapturedContents::Page(page));
        assert_eq!((transaction.reference_count(), transaction.sizes().packed_bytes), (0, 90));
    }
}
