//! A transaction: a head with one checksum, then whole pages with one check each.
//!
//! ```text
//! ┌────────────┬──────────────┬─────────┬──────────────┬───────┬─────────────┬───┐
//! │ header     │ volume table │ entries │ packed pages │ zeros │ whole page  │ … │
//! │ 64 bytes   │ 96 B each    │ 32 each │              │       │ 4096 bytes  │   │
//! └────────────┴──────────────┴─────────┴──────────────┴───────┴─────────────┴───┘
//! └───────────────── head: a multiple of 4096 ─────────────────┘
//!
//! header:  0 magic   8 checksum   16 sequence   24 epoch   32 segment   36 offset in the segment
//!         40 head length   44 whole pages   48 table records (all ones: no table)   52 entries
//!         56 length of packed pages   60 form: 0 plain, 1 sealed
//! ```
//! In a sealed segment the tag of table and entries follows the header, entries have 40 bytes, and
//! everything except header, tag and zeros is encrypted: table and entries together, each page
//! separately. The checksum covers the head after the checksum field. Each page is covered by the
//! check in its entry.

use std::borrow::Cow;

use sealing::TAG_BYTES;

use crate::format::entry::{ENTRY_BYTES, Entry, Place, SEALED_ENTRY_BYTES};
use crate::format::error::{FormatError, FormatErrorKind};
use crate::format::field::{is_zero, read_u32, read_u64, size, write};
use crate::format::seal::{Form, PageCheck, Seal};
use crate::format::table::{TABLE_COUNT_MAX, TABLE_RECORD_BYTES, VolumeRecord};

/// Length of a transaction's header.
pub const TRANSACTION_HEADER_BYTES: usize = 64;

/// Maximum length of the head, and of the whole pages after it.
pub const HEAD_BYTES_MAX: usize = 8 << 20;
pub const PAGES_BYTES_MAX: usize = 8 << 20;

const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;
const MAGIC: u64 = u64::from_le_bytes(*b"MEMLJTXN");
const CHECKSUM: usize = 8;
const COVERED: usize = 16;
const NO_TABLE: u32 = u32::MAX;
const FORM: usize = 60;
const FORMS: [Form; 2] = [Form::Plain, Form::Sealed];

/// Position of a transaction in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub sequence: u64,
    pub epoch: u64,
    pub segment: u32,
    /// Byte offset in the segment.
    pub offset: u32,
}

/// Sizes of a transaction's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub form: Form,
    /// Number of records in its table, if it has one.
    pub table_count: Option<u32>,
    pub entry_count: u32,
    pub packed_bytes: u32,
    pub whole_count: u32,
}

impl Sizes {
    fn table_bytes(self) -> usize {
        size(self.table_count.unwrap_or(0)) * TABLE_RECORD_BYTES
    }

    fn entries_bytes(self) -> usize {
        size(self.entry_count) * self.entry_bytes()
    }

    /// Returns the length of one entry.
    pub fn entry_bytes(self) -> usize {
        match self.form {
            Form::Plain => ENTRY_BYTES,
            Form::Sealed => SEALED_ENTRY_BYTES,
        }
    }

    /// Returns the offset of table and entries in the transaction.
    pub fn body_start(self) -> usize {
        match self.form {
            Form::Plain => TRANSACTION_HEADER_BYTES,
            Form::Sealed => TRANSACTION_HEADER_BYTES + TAG_BYTES,
        }
    }

    /// Returns the offset of a page in the transaction, or `None` if the page is elsewhere.
    pub fn page_start(self, place: Place) -> Option<usize> {
        match place {
            Place::Packed(offset) => Some(self.packed_start() + size(offset)),
            Place::Whole(index) => Some(self.head_bytes() + size(index).checked_mul(BLOCK_BYTES)?),
            Place::Elsewhere(_) => None,
        }
    }

    /// Returns the offset of the packed pages in the transaction.
    pub fn packed_start(self) -> usize {
        self.body_start() + self.table_bytes() + self.entries_bytes()
    }

    fn used_bytes(self) -> usize {
        self.packed_start() + size(self.packed_bytes)
    }

    pub fn head_bytes(self) -> usize {
        self.used_bytes().next_multiple_of(BLOCK_BYTES)
    }

    pub fn pages_bytes(self) -> usize {
        size(self.whole_count) * BLOCK_BYTES
    }

    pub fn total_bytes(self) -> usize {
        self.head_bytes() + self.pages_bytes()
    }

    /// Returns whether the sizes are within the format's limits. Check this before adding sizes, so
    /// that sums do not overflow.
    pub fn fit(self) -> bool {
        let are_bounded = size(self.table_count.unwrap_or(0)) <= TABLE_COUNT_MAX
            && size(self.entry_count) <= HEAD_BYTES_MAX / ENTRY_BYTES
            && size(self.packed_bytes) <= HEAD_BYTES_MAX
            && size(self.whole_count) <= PAGES_BYTES_MAX / BLOCK_BYTES;
        are_bounded && self.head_bytes() <= HEAD_BYTES_MAX
    }
}

/// Completes a head, whose other parts are in place and whose length matches `sizes`, by writing
/// its header. In a sealed segment this encrypts table and entries. Packed pages must be encrypted
/// already.
pub fn seal_head(head: &mut [u8], seal: &Seal, address: Address, sizes: Sizes) {
    assert_eq!(sizes.form, seal.form(), "the parts are those of the segment's form");
    assert!(sizes.fit(), "a transaction is within the format's limits");
    assert_eq!(head.len(), sizes.head_bytes(), "the head is whole");
    let head_bytes = u32::try_from(head.len()).expect("within the limits");
    write(head, 0, MAGIC.to_le_bytes());
    write(head, 16, address.sequence.to_le_bytes());
    write(head, 24, address.epoch.to_le_bytes());
    write(head, 32, address.segment.to_le_bytes());
    write(head, 36, address.offset.to_le_bytes());
    write(head, 40, head_bytes.to_le_bytes());
    write(head, 44, sizes.whole_count.to_le_bytes());
    write(head, 48, sizes.table_count.unwrap_or(NO_TABLE).to_le_bytes());
    write(head, 52, sizes.entry_count.to_le_bytes());
    write(head, 56, sizes.packed_bytes.to_le_bytes());
    let form = FORMS.iter().position(|form| *form == sizes.form).expect("it is one of them");
    write(head, FORM, u32::try_from(form).expect("there are two").to_le_bytes());
    if let Some(sealer) = seal.sealer() {
        let (beside, rest) = head.split_at_mut(TRANSACTION_HEADER_BYTES);
        let (tag, body) = rest.split_at_mut(TAG_BYTES);
        let body = &mut body[..sizes.packed_start() - sizes.body_start()];
        tag.copy_from_slice(&sealer.seal(address.offset.into(), &beside[COVERED..], body));
    }
    let checksum = seal.checksum(&head[COVERED..]);
    write(head, CHECKSUM, checksum.to_le_bytes());
}

/// Unverified header of a transaction. Its lengths are within the format's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionHead {
    pub address: Address,
    pub sizes: Sizes,
    checksum: u64,
}

impl TransactionHead {
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "a transaction";
        let Some(bytes) = bytes.get(..TRANSACTION_HEADER_BYTES) else {
            return Err(FormatError::damaged(WHAT));
        };
        if read_u64(bytes, 0) != MAGIC {
            let is_blank = is_zero(bytes);
            let kind = if is_blank { FormatErrorKind::Blank } else { FormatErrorKind::Unknown };
            return Err(FormatError::new(kind, WHAT));
        }
        let table_count = read_u32(bytes, 48);
        let form = FORMS.get(size(read_u32(bytes, FORM)));
        let sizes = Sizes {
            form: *form.ok_or(FormatError::damaged(WHAT))?,
            table_count: (table_count != NO_TABLE).then_some(table_count),
            entry_count: read_u32(bytes, 52),
            packed_bytes: read_u32(bytes, 56),
            whole_count: read_u32(bytes, 44),
        };
        if !sizes.fit() || sizes.head_bytes() != size(read_u32(bytes, 40)) {
            return Err(FormatError::damaged(WHAT));
        }
        let address = Address {
            sequence: read_u64(bytes, 16),
            epoch: read_u64(bytes, 24),
            segment: read_u32(bytes, 32),
            offset: read_u32(bytes, 36),
        };
        Ok(Self { address, sizes, checksum: read_u64(bytes, CHECKSUM) })
    }
}

/// A transaction with an intact head. Its pages may still be damaged.
#[derive(Clone, Debug)]
pub struct Transaction<'bytes> {
    pub sizes: Sizes,
    seal: Seal,
    /// Start of the transaction in its segment.
    offset: u32,
    head: &'bytes [u8],
    pages: &'bytes [u8],
    entries: Vec<Entry>,
    table: Option<Vec<VolumeRecord>>,
}

impl<'bytes> Transaction<'bytes> {
    /// Decodes the transaction at the start of `bytes`. It must have been written for `address`.
    pub fn decode(bytes: &'bytes [u8], seal: &Seal, address: Address) -> Result<Self, FormatError> {
        let damaged = || FormatError::damaged("a transaction");
        let TransactionHead { address: found, sizes, .. } = check_head(bytes, seal)?;
        let bytes = bytes.get(..sizes.total_bytes()).ok_or_else(damaged)?;
        let (head, pages) = bytes.split_at(sizes.head_bytes());
        if found != address || sizes.form != seal.form() {
            return Err(damaged());
        }
        let body = open_body(head, seal, address, sizes).ok_or_else(damaged)?;
        let (table_bytes, entries_bytes) = body.split_at(sizes.table_bytes());
        let table = match sizes.table_count {
            Some(_) => Some(decode_table(table_bytes)?),
            None => None,
        };
        let entries = decode_entries(entries_bytes, sizes.form)?;
        let (seal, offset) = (seal.clone(), address.offset);
        let transaction = Self { sizes, seal, offset, head, pages, entries, table };
        transaction.check_entries()?;
        Ok(transaction)
    }

    /// Returns the table of all volumes of class `journal` and `image`, if this transaction has
    /// one.
    pub fn table(&self) -> Option<&[VolumeRecord]> {
        self.table.as_deref()
    }

    /// Returns the entries. The first one, if any, selects a volume.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the offset in the segment of a page of this transaction, or `None` if the page is
    /// elsewhere.
    pub fn page_offset(&self, place: Place) -> Option<u64> {
        Some(u64::from(self.offset) + self.sizes.page_start(place)? as u64)
    }

    /// Returns the stored bytes of a page of this transaction, or `None` if the page is elsewhere.
    pub fn stored_bytes(&self, place: Place, length: u16) -> Option<&'bytes [u8]> {
        let length = usize::from(length);
        match place {
            Place::Packed(offset) => {
                let start = self.sizes.packed_start();
                let packed = &self.head[start..start + size(self.sizes.packed_bytes)];
                packed.get(size(offset)..)?.get(..length)
            }
            Place::Whole(index) => {
                let start = size(index).checked_mul(BLOCK_BYTES)?;
                self.pages.get(start..)?.get(..length)
            }
            Place::Elsewhere(_) => None,
        }
    }

    /// Returns whether all pages in this transaction are intact.
    pub fn has_whole_pages(&self) -> bool {
        let mut opened = Vec::new();
        self.entries.iter().all(|entry| match *entry {
            Entry::Page { place: Place::Elsewhere(_), .. } => true,
            Entry::Page { place, length, check, .. } => {
                self.open_page(place, length, check, &mut opened).is_some()
            }
            _ => true,
        })
    }

    /// Reads a page of this transaction in the pool's stored form, if it is intact. A sealed page
    /// is decrypted into `opened`.
    pub fn open_page<'it>(
        &'it self,
        place: Place,
        length: u16,
        check: PageCheck,
        opened: &'it mut Vec<u8>,
    ) -> Option<&'it [u8]> {
        let (stored, offset) = (self.stored_bytes(place, length)?, self.page_offset(place)?);
        open_stored(&self.seal, stored, offset, check, opened)
    }

    fn check_entries(&self) -> Result<(), FormatError> {
        let begins_well = self.entries.first().is_none_or(|it| matches!(it, Entry::Volume(_)));
        let places_exist = self.entries.iter().all(|entry| match *entry {
            Entry::Page { place: Place::Elsewhere(_), .. } => true,
            Entry::Page { place, length, .. } => self.stored_bytes(place, length).is_some(),
            _ => true,
        });
        match begins_well && places_exist {
            true => Ok(()),
            false => Err(FormatError::damaged("a transaction's entries")),
        }
    }
}

/// Verifies a page stored at `offset` of its segment and returns it in the pool's stored form, or
/// `None` if it is corrupt. A sealed page is decrypted into `opened`.
pub fn open_stored<'it>(
    seal: &Seal,
    stored: &'it [u8],
    offset: u64,
    check: PageCheck,
    opened: &'it mut Vec<u8>,
) -> Option<&'it [u8]> {
    let Some(sealer) = seal.sealer() else {
        return (PageCheck::of(stored) == check).then_some(stored);
    };
    opened.clear();
    opened.extend_from_slice(stored);
    sealer.open(offset, &[], opened, check.0).then_some(opened)
}

/// Decodes a head and verifies its checksum. Needs no key.
pub fn check_head(bytes: &[u8], seal: &Seal) -> Result<TransactionHead, FormatError> {
    let damaged = || FormatError::damaged("a transaction");
    let found = TransactionHead::decode(bytes)?;
    let head = bytes.get(COVERED..found.sizes.head_bytes()).ok_or_else(damaged)?;
    match seal.checksum(head) == found.checksum {
        true => Ok(found),
        false => Err(damaged()),
    }
}

/// Returns table and entries, decrypted.
fn open_body<'bytes>(
    head: &'bytes [u8],
    seal: &Seal,
    address: Address,
    sizes: Sizes,
) -> Option<Cow<'bytes, [u8]>> {
    let body = &head[sizes.body_start()..sizes.packed_start()];
    let Some(sealer) = seal.sealer() else { return Some(Cow::Borrowed(body)) };
    let (beside, rest) = head.split_at(TRANSACTION_HEADER_BYTES);
    let tag = *rest.first_chunk()?;
    let mut body = body.to_vec();
    let is_opened = sealer.open(address.offset.into(), &beside[COVERED..], &mut body, tag);
    is_opened.then_some(Cow::Owned(body))
}

fn decode_entries(bytes: &[u8], form: Form) -> Result<Vec<Entry>, FormatError> {
    match form {
        Form::Plain => bytes.as_chunks().0.iter().map(Entry::decode).collect(),
        Form::Sealed => bytes.as_chunks().0.iter().map(Entry::decode_sealed).collect(),
    }
}

fn decode_table(bytes: &[u8]) -> Result<Vec<VolumeRecord>, FormatError> {
    bytes.as_chunks::<TABLE_RECORD_BYTES>().0.iter().map(VolumeRecord::decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::table::RecordKind;

    const ADDRESS: Address = Address { sequence: 5, epoch: 2, segment: 1, offset: 8192 };

    fn seal() -> Seal {
        Seal::new([99; 16], ADDRESS.epoch)
    }

    fn record(id: u64) -> VolumeRecord {
        let (size_bytes, kind, name) = (1 << 20, RecordKind::Volume, format!("volume-{id}"));
        VolumeRecord { id, size_bytes, kind, shape: 1, name }
    }

    /// A transaction with two volumes, a run of holes, a packed page and a whole page.
    fn example() -> Vec<u8> {
        let (packed, whole) = ([7_u8; 90], [8_u8; BLOCK_BYTES]);
        let (packed_check, whole_check) = (PageCheck::of(&packed), PageCheck::of(&whole));
        let entries = [
            Entry::Volume(3),
            Entry::Hole { block: 10, count: 4 },
            Entry::Page { block: 1, place: Place::Packed(0), length: 90, check: packed_check },
            Entry::Volume(4),
            Entry::Page { block: 2, place: Place::Whole(0), length: 4096, check: whole_check },
        ];
        let mut head = vec![0; TRANSACTION_HEADER_BYTES];
        [3, 4].iter().for_each(|&id| record(id).encode(&mut head));
        entries.iter().for_each(|entry| head.extend_from_slice(&entry.encode()));
        head.extend_from_slice(&packed);
        let sizes = Sizes {
            form: Form::Plain,
            table_count: Some(2),
            entry_count: 5,
            packed_bytes: 90,
            whole_count: 1,
        };
        head.resize(sizes.head_bytes(), 0);
        seal_head(&mut head, &seal(), ADDRESS, sizes);
        head.extend_from_slice(&whole);
        head
    }

    #[test]
    fn a_transaction_is_decoded_as_it_was_sealed() {
        let bytes = example();
        let transaction = Transaction::decode(&bytes, &seal(), ADDRESS).expect("it is whole");
        assert_eq!(transaction.table(), Some(&[record(3), record(4)][..]));
        assert_eq!(transaction.entries().len(), 5);
        assert_eq!(transaction.stored_bytes(Place::Packed(0), 90), Some(&[7; 90][..]));
        assert_eq!(transaction.stored_bytes(Place::Whole(0), 4096), Some(&[8; 4096][..]));
        assert!(transaction.has_whole_pages());
    }

    #[test]
    fn a_change_of_any_byte_is_noticed() {
        let good = example();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            let is_whole = Transaction::decode(&bytes, &seal(), ADDRESS)
                .is_ok_and(|transaction| transaction.has_whole_pages());
            assert!(!is_whole, "byte {at}");
        }
    }

    #[test]
    fn a_cut_transaction_is_damaged() {
        let good = example();
        for length in [0, 63, 64, 4095, 4096, good.len() - 1] {
            assert!(Transaction::decode(&good[..length], &seal(), ADDRESS).is_err(), "{length}");
        }
    }

    #[test]
    fn a_transaction_of_another_run_or_place_is_refused() {
        let bytes = example();
        let foreign = Seal::new([98; 16], ADDRESS.epoch);
        assert!(Transaction::decode(&bytes, &foreign, ADDRESS).is_err());
        for address in [
            Address { sequence: 6, ..ADDRESS },
            Address { epoch: 3, ..ADDRESS },
            Address { segment: 2, ..ADDRESS },
            Address { offset: 4096, ..ADDRESS },
        ] {
            assert!(Transaction::decode(&bytes, &seal(), address).is_err(), "{address:?}");
        }
    }

    #[test]
    fn sizes_beyond_the_limits_are_refused_before_they_are_used() {
        for at in [40, 44, 48, 52, 56] {
            let mut bytes = example();
            write(&mut bytes, at, 0xFFFF_FFF0_u32.to_le_bytes());
            assert!(TransactionHead::decode(&bytes).is_err(), "field at {at}");
        }
    }
}
