//! Shard of the index: hashes and offsets, 20 bytes each, ordered by hash.
//!
//! An ordered hash table with linear probing (Amble and Knuth, 1974). Each entry is stored at the
//! home slot of its hash or, if that is occupied, behind it, and entries are in ascending order of
//! their hashes. Therefore unsuccessful searches end early even at a load factor of 90 %, and a
//! table is built from a checkpoint in one pass.

/// Maximum load factor in tenths, and the load factor in quarters below which a table shrinks.
const FULL_TENTHS: usize = 9;
const SPARSE_QUARTERS: usize = 3;

/// A new table has room for a quarter more entries.
const GROWTH_DIVISOR: usize = 4;

/// Overflow slots behind the last home slot.
const TAIL_MAX: usize = 32;

const NO_OFFSET: [u32; 2] = [u32::MAX; 2];
const EMPTY: Entry = Entry { hash: [0; 3], offset: NO_OFFSET };

/// Size of one entry, in memory and in a checkpoint.
pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    hash: [u32; 3],
    /// High and low word.
    offset: [u32; 2],
}

impl Entry {
    fn new(hash: [u32; 3], offset: i64) -> Self {
        let bytes = offset.to_be_bytes();
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        Self { hash, offset: [word(0), word(4)] }
    }

    fn offset(&self) -> i64 {
        (u64::from(self.offset[0]) << 32 | u64::from(self.offset[1])).cast_signed()
    }

    fn is_empty(&self) -> bool {
        self.offset == NO_OFFSET
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Shard {
    places: Vec<Entry>,
    count: usize,
    /// Number of home slots. The remaining slots are overflow.
    home_count: usize,
}

/// Slot of a hash, or the slot at which it would be inserted.
enum Found {
    At(usize),
    Missing(usize),
}

impl Shard {
    /// Builds a shard from entries in ascending order of their hashes, as [`Shard::entries`]
    /// returns them. Returns `None` if they are not in order.
    pub(crate) fn from_sorted(entries: &[([u32; 3], i64)]) -> Option<Self> {
        if !entries.is_sorted_by(|one, next| one.0 < next.0) {
            return None;
        }
        Some(Self::build(entries.len(), entries.iter().map(|(hash, at)| Entry::new(*hash, *at))))
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.places.capacity() * ENTRY_BYTES
    }

    /// Iterates over entries in order of their hashes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = ([u32; 3], i64)> {
        self.taken().map(|it| (it.hash, it.offset()))
    }

    pub(crate) fn get(&self, hash: [u32; 3]) -> Option<i64> {
        match self.find(hash) {
            Found::At(place) => Some(self.places[place].offset()),
            Found::Missing(_) => None,
        }
    }

    /// Inserts a hash. Returns its previous offset.
    pub(crate) fn insert(&mut self, hash: [u32; 3], offset: i64) -> Option<i64> {
        let new = Entry::new(hash, offset);
        if let Found::At(place) = self.find(hash) {
            return Some(std::mem::replace(&mut self.places[place], new).offset());
        }
        if !self.put_new(new) {
            let is_before = move |it: &&Entry| it.hash < hash;
            let (before, behind) =
                (self.taken().take_while(is_before), self.taken().skip_while(is_before));
            let all = before.copied().chain([new]).chain(behind.copied());
            *self = Self::build(self.count + 1, all);
        }
        None
    }

    /// Removes a hash. Returns its offset.
    pub(crate) fn remove(&mut self, hash: [u32; 3]) -> Option<i64> {
        let Found::At(place) = self.find(hash) else { return None };
        let offset = self.places[place].offset();
        let is_displaced = |at: usize| {
            let entry = &self.places[at];
            !entry.is_empty() && home(entry.hash, self.home_count) < at
        };
        // Displaced entries behind the removed one move forward by one slot.
        let end = (place + 1..self.places.len()).find(|at| !is_displaced(*at));
        let end = end.unwrap_or(self.places.len());
        self.places.copy_within(place + 1..end, place);
        self.places[end - 1] = EMPTY;
        self.count -= 1;
        if 4 * self.count < SPARSE_QUARTERS * self.places.len() {
            let fitting = room_for(self.count, 0).total();
            if fitting < self.places.len() {
                *self = Self::build(self.count, self.taken().copied());
            }
        }
        Some(offset)
    }

    /// Removes the entries for whose offsets `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        let kept: Vec<Entry> = self.taken().filter(|it| keep(it.offset())).copied().collect();
        if kept.len() < self.count {
            *self = Self::build(kept.len(), kept.into_iter());
        }
    }

    fn taken(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.places.iter().filter(|it| !it.is_empty())
    }

    fn find(&self, hash: [u32; 3]) -> Found {
        let first = home(hash, self.home_count);
        for (at, entry) in self.places.iter().enumerate().skip(first) {
            if entry.is_empty() || entry.hash > hash {
                return Found::Missing(at);
            }
            if entry.hash == hash {
                return Found::At(at);
            }
        }
        Found::Missing(self.places.len())
    }

    /// Inserts an entry that is not present. Returns `false` if there is no room.
    fn put_new(&mut self, new: Entry) -> bool {
        if 10 * (self.count + 1) > FULL_TENTHS * self.places.len() {
            return false;
        }
        let Found::Missing(place) = self.find(new.hash) else { return false };
        let behind = self.places.iter().skip(place).position(Entry::is_empty);
        let Some(behind) = behind else { return false };
        self.places.copy_within(place..place + behind, place + 1);
        self.places[place] = new;
        self.count += 1;
        true
    }

    /// Builds a table from entries in order, with spare slots.
    fn build(count: usize, entries: impl Iterator<Item = Entry> + Clone) -> Self {
        let mut more = 0;
        loop {
            let room = room_for(count, more);
            if let Some(built) = Self::lay_down(room, entries.clone()) {
                return built;
            }
            more += TAIL_MAX;
        }
    }

    /// Fills a table. Returns `None` if there are too few overflow slots.
    fn lay_down(room: Room, entries: impl Iterator<Item = Entry>) -> Option<Self> {
        let mut places = vec![EMPTY; room.total()];
        let (mut next, mut count) = (0, 0);
        for entry in entries {
            let place = home(entry.hash, room.home_count).max(next);
            *places.get_mut(place)? = entry;
            (next, count) = (place + 1, count + 1);
        }
        Some(Self { places, count, home_count: room.home_count })
    }
}

#[derive(Clone, Copy)]
struct Room {
    home_count: usize,
    tail_count: usize,
}

impl Room {
    fn total(self) -> usize {
        self.home_count + self.tail_count
    }
}

/// Returns the number of slots for `count` entries: one more, plus a quarter.
fn room_for(count: usize, more_tail: usize) -> Room {
    let total = count + 1 + (count + 1).div_ceil(GROWTH_DIVISOR);
    let tail_count = (total / 8).clamp(1, TAIL_MAX);
    Room { home_count: total - tail_count, tail_count: tail_count + more_tail }
}

/// Returns the home slot of a hash. It ascends with the hash.
fn home(hash: [u32; 3], home_count: usize) -> usize {
    let high = u64::from(hash[0]) << 32 | u64::from(hash[1]);
    let scaled = (u128::from(high) * home_count as u128) >> 64;
    usize::try_from(scaled).expect("below the number of places")
}

/// Encodes an entry for a checkpoint.
pub(crate) fn put_entry((hash, offset): ([u32; 3], i64), into: &mut Vec<u8>) {
    hash.into_iter().for_each(|word| into.extend(word.to_le_bytes()));
    into.extend(offset.to_le_bytes());
}

pub(crate) fn read_entry(bytes: &[u8; ENTRY_BYTES]) -> ([u32; 3], i64) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let offset = i64::from_le_bytes(bytes[12..].try_into().expect("8 bytes"));
    ([word(0), word(4), word(8)], offset)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use random::Random;

    use super::*;

    fn check_whole(shard: &Shard, model: &BTreeMap<[u32; 3], i64>) {
        assert_eq!(shard.count(), model.len());
        let found: Vec<_> = shard.entries().collect();
        let expected: Vec<_> = model.iter().map(|(hash, offset)| (*hash, *offset)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_shard_agrees_with_a_map_whatever_comes_and_goes() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let (mut shard, mut model) = (Shard::default(), BTreeMap::new());
            // Few distinct hashes, many of which have the same home slot.
            let spread = random.pick(&[1, 1 << 8, u64::MAX]);
            let mut hashes = Vec::new();
            for number in 0..400 {
                let high = u32::try_from(random.below(spread) & 0xFFFF_FFFF).expect("masked");
                hashes.push([high, u32::try_from(random.below(1 << 32)).expect("small"), number]);
            }
            for step in 0..4_000 {
                let hash = random.pick(&hashes);
                match random.below(if step / 1_000 % 2 == 0 { 4 } else { 2 }) {
                    0 => assert_eq!(shard.remove(hash), model.remove(&hash)),
                    _ => assert_eq!(shard.insert(hash, step), model.insert(hash, step)),
                }
                let other = random.pick(&hashes);
                assert_eq!(shard.get(other), model.get(&other).copied());
            }
            check_whole(&shard, &model);
            let sorted: Vec<_> = shard.entries().collect();
            let again = Shard::from_sorted(&sorted).expect("in order");
            check_whole(&again, &model);
            shard.retain(|offset| offset % 2 == 0);
            model.retain(|_, offset| *offset % 2 == 0);
            check_whole(&shard, &model);
        }
    }

    #[test]
    fn entries_out_of_order_are_refused() {
        assert!(Shard::from_sorted(&[([1, 0, 0], 5), ([1, 0, 0], 6)]).is_none());
        assert!(Shard::from_sorted(&[([2, 0, 0], 5), ([1, 0, 0], 6)]).is_none());
    }

    #[test]
    fn an_entry_comes_back_from_its_bytes() {
        let mut bytes = Vec::new();
        put_entry(([1, 2, 3], -5), &mut bytes);
        let bytes: &[u8; ENTRY_BYTES] = bytes[..].try_into().expect("20 bytes");
        assert_eq!(read_entry(bytes), ([1, 2, 3], -5));
    }
}
