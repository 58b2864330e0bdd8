//! Synthetic database pages in PostgreSQL's layout: 8 KiB, two blocks.
//!
//! ```text
//! header 24 B │ line pointers, 4 B each ─▶ │ free space │ ◀─ tuples, in reverse order │ special
//! ```

use crate::clock::Random;

use super::page::{Mark, Page};
use super::words::{Vocabulary, happens, low_byte, pick, put};

const PAGE_BYTES: usize = 8192;
const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;
const HEADER_BYTES: usize = 24;

/// Special space at the end of a B-tree page: neighbours and level.
const SPECIAL_BYTES: usize = 16;

const STATES: [&str; 5] = ["shipped", "shipped", "open", "paid", "returned"];

/// Fields of a tuple's header that depend on its table and on how it was written.
struct Table {
    column_count: u8,
    has_nulls: bool,
    first_key: u64,
    transaction: u64,
}

/// Creates two blocks of one page: a heap page in three of four cases, otherwise a B-tree leaf.
pub(super) fn pages(number: usize, words: &Vocabulary, random: &mut Random) -> [Page; 2] {
    let page = match number % 4 {
        0 if happens(random, 50) => heap(random, |row, random| customer(row, words, random)),
        0 => heap(random, |row, random| order(row, words, random)),
        1 => heap(random, account),
        2 => heap(random, measurement),
        _ => leaf(random),
    };
    let (first, second) = page.split_at(BLOCK_BYTES);
    // Marks are the log position at the front, and the key of the first tuple at the end.
    let key = BLOCK_BYTES - SPECIAL_BYTES - 8;
    [Page::new(first, Mark::Binary(0)), Page::new(second, Mark::Binary(key))]
}

/// Callback that appends the columns of the row with a key.
type Columns<'columns> = &'columns mut dyn FnMut((u64, &mut Vec<u8>), &mut Random);

fn heap(random: &mut Random, mut row: impl FnMut((u64, &mut Vec<u8>), &mut Random)) -> Vec<u8> {
    let table = Table {
        column_count: 5 + low_byte(random.below(4)),
        has_nulls: happens(random, 30),
        first_key: random.below(90_000_000),
        transaction: 700_000 + random.below(1 << 20),
    };
    let mut tuples = Vec::new();
    let mut room = PAGE_BYTES - HEADER_BYTES;
    // Pages of updated tables keep some free space.
    let kept = usize::try_from(random.below(500)).expect("a small number");
    let block = random.below(40_000);
    loop {
        let tuple = heap_tuple((&table, block, tuples.len() as u64 + 1), &mut row, random);
        if tuple.len() + 4 + kept > room {
            return lay_out(&tuples, 0, random);
        }
        room -= tuple.len() + 4;
        tuples.push(tuple);
    }
}

/// Creates a tuple with its header, padded to eight bytes.
fn heap_tuple(
    (table, block, position): (&Table, u64, u64),
    columns: Columns<'_>,
    random: &mut Random,
) -> Vec<u8> {
    let mut tuple = Vec::with_capacity(200);
    // Rows loaded together have the same transaction.
    let later = if happens(random, 25) { random.below(4000) } else { 0 };
    put(&mut tuple, table.transaction + later, 4);
    let deleted = if happens(random, 6) { table.transaction + random.below(9000) } else { 0 };
    put(&mut tuple, deleted, 4);
    put(&mut tuple, 0, 4);
    put(&mut tuple, block >> 16, 2);
    put(&mut tuple, block, 2);
    put(&mut tuple, position, 2);
    tuple.extend([table.column_count, 0]);
    tuple.extend([2 + u8::from(table.has_nulls), if deleted == 0 { 9 } else { 1 }, 24, 0]);
    columns((table.first_key + position, &mut tuple), random);
    tuple.resize(tuple.len().next_multiple_of(8), 0);
    tuple
}

/// Appends key, customer, time, state, amount and note.
fn order((key, tuple): (u64, &mut Vec<u8>), words: &Vocabulary, random: &mut Random) {
    put(tuple, key, 8);
    put(tuple, random.below(200_000), 4);
    put(tuple, 1 + random.below(60), 4);
    put(tuple, 820_000_000_000_000 + key * 1_000_000 + random.below(1_000_000), 8);
    put_text(tuple, pick(random, &STATES));
    put(tuple, 0x8100_000B, 4);
    put(tuple, random.below(10_000), 2);
    let note = format!("{} {} for {}", words.noun(random), words.noun(random), words.noun(random));
    put_text(tuple, &note);
}

/// Appends key, name, street, city, telephone and mail address.
fn customer((key, tuple): (u64, &mut Vec<u8>), words: &Vocabulary, random: &mut Random) {
    put(tuple, key, 8);
    let (first, last) = (words.noun(random).to_owned(), words.noun(random).to_owned());
    put_text(tuple, &format!("{first} {last}"));
    put_text(tuple, &format!("{} {} Street", 1 + random.below(400), words.noun(random)));
    put_text(tuple, words.noun(random));
    put_text(tuple, &format!("+44 20 7946 {:04}", random.below(10_000)));
    put_text(tuple, &format!("{first}.{last}@example.com"));
    put_text(tuple, "active");
}

/// Appends key, branch, balance, and a fixed-width text that is mostly blanks.
fn account((key, tuple): (u64, &mut Vec<u8>), random: &mut Random) {
    put(tuple, key, 4);
    put(tuple, 1 + key / 100_000, 4);
    put(tuple, random.below(10_000), 4);
    put_text(tuple, &format!("{:<64}", random.below(1 << 40)));
}

/// Appends key, sensor, time, and three readings as floating-point numbers of few digits.
fn measurement((key, tuple): (u64, &mut Vec<u8>), random: &mut Random) {
    put(tuple, key, 8);
    put(tuple, 1 + random.below(40), 4);
    put(tuple, 0, 4);
    put(tuple, 820_000_000_000_000 + key * 500_000, 8);
    for centre in [20_u32, 50, 1013] {
        let steps = u32::try_from(random.below(32)).expect("below 32");
        let reading = f64::from(centre) + f64::from(steps) / 4.0;
        tuple.extend(reading.to_le_bytes());
    }
    put_text(tuple, pick(random, &["ok", "ok", "ok", "late", "estimated"]));
}

/// Creates a leaf of an index on an eight-byte key, 90 % full.
fn leaf(random: &mut Random) -> Vec<u8> {
    let mut key = random.below(1 << 40);
    let mut block = random.below(30_000);
    let mut position = 1;
    let mut tuples = Vec::new();
    let count = (PAGE_BYTES - HEADER_BYTES - SPECIAL_BYTES) * 9 / 10 / 20;
    for _ in 0..count {
        let mut tuple = Vec::with_capacity(16);
        put(&mut tuple, block >> 16, 2);
        put(&mut tuple, block, 2);
        put(&mut tuple, position, 2);
        put(&mut tuple, 16, 2);
        put(&mut tuple, key, 8);
        tuples.push(tuple);
        key += 1 + random.below(3);
        // Mostly in table order, with some moved rows.
        (block, position) = match happens(random, 70) {
            true => (block, position % 120 + 1),
            false => (block + random.below(3), 1 + random.below(120)),
        };
    }
    lay_out(&tuples, SPECIAL_BYTES, random)
}

/// Assembles a page from header, line pointers and tuples.
fn lay_out(tuples: &[Vec<u8>], special_bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let special = PAGE_BYTES - special_bytes;
    let mut upper = special;
    let mut pointers = Vec::with_capacity(tuples.len() * 4);
    for tuple in tuples {
        upper -= tuple.len();
        page[upper..upper + tuple.len()].copy_from_slice(tuple);
        // 15 bits of offset, 2 of state (in use), 15 of length.
        put(&mut pointers, upper as u64 | 1 << 15 | (tuple.len() as u64) << 17, 4);
    }
    let lower = HEADER_BYTES + pointers.len();
    page[HEADER_BYTES..lower].copy_from_slice(&pointers);
    let mut header = Vec::with_capacity(HEADER_BYTES);
    put(&mut header, random.below(1 << 36), 8);
    put(&mut header, random.next(), 2);
    put(&mut header, 4, 2);
    put(&mut header, lower as u64, 2);
    put(&mut header, upper as u64, 2);
    put(&mut header, special as u64, 2);
    put(&mut header, PAGE_BYTES as u64 | 4, 2);
    put(&mut header, 0, 4);
    page[..HEADER_BYTES].copy_from_slice(&header);
    if special_bytes > 0 {
        let mut neighbours = Vec::with_capacity(SPECIAL_BYTES);
        let own = random.below(20_000);
        put(&mut neighbours, own, 4);
        put(&mut neighbours, own + 2, 4);
        put(&mut neighbours, 0, 4);
        put(&mut neighbours, 1, 2);
        put(&mut neighbours, 0, 2);
        page[special..].copy_from_slice(&neighbours);
    }
    page
}

/// Appends a short text: one length byte, including itself, then the characters.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(low_byte(text.len() as u64 * 2 + 3));
    bytes.extend(text.as_bytes());
}
