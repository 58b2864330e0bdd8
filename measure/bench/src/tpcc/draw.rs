//! Random values as specified by TPC-C, clauses 2.1.6 and 4.3.2.
//!
//! Everything is determined by a seed. Loads and runs share the constants that make some customers
//! and items more popular.

use system::Random;

pub(super) const ITEMS: u32 = 100_000;
pub(super) const DISTRICTS: u32 = 10;
pub(super) const CUSTOMERS: u32 = 3_000;
/// Number of last names, numbered from 0.
pub(super) const LAST_NAMES: u32 = 1_000;

pub(super) const CUSTOMER_SPREAD: u32 = 1_023;
pub(super) const ITEM_SPREAD: u32 = 8_191;
pub(super) const LAST_NAME_SPREAD: u32 = 255;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const DIGITS: &[u8] = b"0123456789";

/// Salt that separates seeds of constants from seeds of values.
const CONSTANTS_SALT: u64 = 0x7C_C0;

/// The constants C of the function NURand, one per field, clause 2.1.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constants {
    pub(crate) last_name_at_load: u32,
    pub(crate) last_name_at_run: u32,
    pub(crate) customer: u32,
    pub(crate) item: u32,
}

impl Constants {
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed ^ CONSTANTS_SALT);
        let last_name_at_load = draw.between(0, LAST_NAME_SPREAD);
        let fitting: Vec<u32> =
            (0..=LAST_NAME_SPREAD).filter(|run| is_fit_for_run(last_name_at_load, *run)).collect();
        Self {
            last_name_at_load,
            last_name_at_run: draw.pick(&fitting),
            customer: draw.between(0, CUSTOMER_SPREAD),
            item: draw.between(0, ITEM_SPREAD),
        }
    }
}

/// Returns whether a run's constant has the required distance from the load's, so that the popular
/// names are not those stored together.
fn is_fit_for_run(at_load: u32, at_run: u32) -> bool {
    let distance = at_load.abs_diff(at_run);
    (65..=119).contains(&distance) && distance != 96 && distance != 112
}

/// Returns the last name with this number: three syllables, clause 4.3.2.3.
pub(super) fn last_name(number: u32) -> String {
    let syllable = |digit: u32| SYLLABLES[(digit % 10) as usize];
    [number / 100, number / 10, number].map(syllable).concat()
}

/// A generator of values.
#[derive(Clone, Debug)]
pub(super) struct Draw(Random);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// Creates one of many sequences of a seed.
    pub(super) fn of_part(seed: u64, part: u64) -> Self {
        let own = Random::new(seed).number() ^ Random::new(part).number().rotate_left(17);
        Self(Random::new(own))
    }

    /// Returns a uniform number from `low` to `high`.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        let number = self.0.below(u64::from(high - low) + 1);
        low + u32::try_from(number).expect("it is not above the highest")
    }

    /// Returns the specification's NURand(A, x, y), with A as `spread`.
    pub(super) fn uneven(&mut self, spread: u32, (low, high): (u32, u32), constant: u32) -> u32 {
        let mixed = self.between(0, spread) | self.between(low, high);
        (mixed + constant) % (high - low + 1) + low
    }

    pub(super) fn customer(&mut self, constants: &Constants) -> u32 {
        self.uneven(CUSTOMER_SPREAD, (1, CUSTOMERS), constants.customer)
    }

    pub(super) fn item(&mut self, constants: &Constants) -> u32 {
        self.uneven(ITEM_SPREAD, (1, ITEMS), constants.item)
    }

    pub(super) fn last_name_number(&mut self, constant: u32) -> u32 {
        self.uneven(LAST_NAME_SPREAD, (0, LAST_NAMES - 1), constant)
    }

    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.between(1, 100) <= percent
    }

    pub(super) fn pick(&mut self, choices: &[u32]) -> u32 {
        self.0.pick(choices)
    }

    /// Returns a number above 0 and up to 1.
    pub(super) fn share(&mut self) -> f64 {
        const STEPS: u64 = 1 << 53;
        (self.0.below(STEPS) + 1) as f64 / STEPS as f64
    }

    /// Returns letters and digits: the specification's a-string.
    pub(super) fn letters(&mut self, (shortest, longest): (u32, u32)) -> String {
        self.characters(LETTERS, (shortest, longest))
    }

    /// Returns the specification's n-string.
    pub(super) fn digits(&mut self, length: u32) -> String {
        self.characters(DIGITS, (length, length))
    }

    fn characters(&mut self, from: &[u8], (shortest, longest): (u32, u32)) -> String {
        let length = self.between(shortest, longest);
        (0..length).map(|_| char::from(self.0.pick(from))).collect()
    }

    /// Returns the data of an item or its stock. One in ten is marked as original, clause 4.3.3.1.
    pub(super) fn data_of_item(&mut self) -> String {
        const MARK: &str = "ORIGINAL";
        let mut text = self.letters((26, 50));
        if self.percent(10) {
            let room = text.len() - MARK.len();
            let start = self.0.index(room + 1);
            text.replace_range(start..start + MARK.len(), MARK);
        }
        text
    }

    pub(super) fn zip(&mut self) -> String {
        self.digits(4) + "11111"
    }

    /// Returns the numbers from 1 to `count` in random order.
    pub(super) fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=count).collect();
        for end in (1..numbers.len()).rev() {
            let other = self.0.index(end + 1);
            numbers.swap(end, other);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_those_of_the_specification() {
        // The example of clause 4.3.2.3, and the first and last names.
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
        let all: std::collections::BTreeSet<String> = (0..LAST_NAMES).map(last_name).collect();
        assert_eq!(all.len(), 1_000);
        assert!(all.iter().all(|name| name.len() <= 16), "c_last has 16 characters");
    }

    #[test]
    fn uneven_numbers_stay_in_their_range() {
        for (spread, low, high) in [(255, 0, 999), (1_023, 1, 3_000), (8_191, 1, 100_000)] {
            let mut draw = Draw::new(7);
            let mut seen = vec![0_u32; high as usize + 1];
            for _ in 0..200_000 {
                seen[draw.uneven(spread, (low, high), 123) as usize] += 1;
            }
            assert_eq!(seen.iter().sum::<u32>(), 200_000);
            assert!(seen[..low as usize].iter().all(|count| *count == 0));
        }
    }

    /// The "or" makes large numbers more likely: each bit of `random(0, A)` is set in three of four
    /// results if the other operand is uniform in that bit.
    #[test]
    fn uneven_numbers_are_uneven_as_their_definition_says() {
        let mut draw = Draw::new(11);
        let count = 400_000;
        let mut low_bits = 0_u32;
        for _ in 0..count {
            // Without a constant, and with a power-of-two range, nothing wraps.
            low_bits += draw.uneven(255, (0, 1_023), 0) & 1;
        }
        let share = f64::from(low_bits) / f64::from(count);
        assert!((share - 0.75).abs() < 0.005, "{share}");
    }

    #[test]
    fn constants_of_load_and_run_are_as_far_apart_as_they_must() {
        for seed in 0..2_000 {
            let constants = Constants::new(seed);
            let distance = constants.last_name_at_load.abs_diff(constants.last_name_at_run);
            assert!((65..=119).contains(&distance) && distance != 96 && distance != 112);
            assert!(constants.last_name_at_load <= 255 && constants.last_name_at_run <= 255);
            assert!(constants.customer <= 1_023 && constants.item <= 8_191);
        }
        assert_eq!(Constants::new(5), Constants::new(5));
        assert!(!is_fit_for_run(0, 64) && is_fit_for_run(0, 65) && !is_fit_for_run(100, 4));
    }

    #[test]
    fn strings_have_their_lengths_and_one_item_in_ten_is_original() {
        let mut draw = Draw::new(3);
        let mut originals = 0;
        for _ in 0..20_000 {
            let data = draw.data_of_item();
            assert!((26..=50).contains(&data.len()) && data.is_ascii());
            originals += u32::from(data.contains("ORIGINAL"));
            let zip = draw.zip();
            assert!(zip.len() == 9 && zip.ends_with("11111"));
        }
        assert!((1_800..2_200).contains(&originals), "{originals} of 20000");
    }

    #[test]
    fn a_permutation_has_each_number_once() {
        let mut numbers = Draw::new(9).permutation(CUSTOMERS);
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=CUSTOMERS).collect::<Vec<_>>());
    }
}
