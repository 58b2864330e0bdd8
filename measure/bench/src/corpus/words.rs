//! Word frequencies as in texts: few words are very frequent, most are rare, and some follow each
//! other.

use crate::clock::Random;

/// Words that make up half of English prose, most frequent first.
const FREQUENT: &str = "the of and to in a is that for it was on are as with be at by this from \
    have or not had but which one were all their when there can an your they has its more would \
    been if who will so no out up into do any about some other than then them these may only over \
    such our most first after also between through where must under each same new time being \
    those both during because before while should every does against without within however";

/// Number of synthetic words. With [`FREQUENT`] they approximate the vocabulary of a page of prose.
const MADE_UP: usize = 4000;

const ONSETS: [&str; 20] = [
    "s", "r", "t", "c", "p", "d", "m", "l", "n", "f", "b", "st", "pr", "tr", "v", "g", "con", "re",
    "h", "w",
];
const CORES: [&str; 12] = ["e", "a", "i", "o", "u", "ea", "io", "ou", "e", "a", "ie", "ai"];
const ENDS: [&str; 16] =
    ["n", "r", "t", "s", "l", "d", "", "", "nt", "st", "m", "ck", "ng", "", "c", "p"];
const SUFFIXES: [&str; 12] =
    ["", "", "", "s", "ed", "ing", "er", "tion", "ly", "al", "ment", "ity"];

/// Words with their frequencies.
pub(crate) struct Vocabulary {
    words: Vec<String>,
    /// Cumulative frequencies.
    sums: Vec<u64>,
}

impl Vocabulary {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut words: Vec<String> = FREQUENT.split_whitespace().map(str::to_owned).collect();
        words.extend((0..MADE_UP).map(|_| made_up(random)));
        let mut sum = 0;
        let sums = (0..words.len() as u64).map(|rank| {
            // Zipf's law, flattened at the top as by Mandelbrot.
            sum += 10_000_000 / (rank + 3);
            sum
        });
        Self { sums: sums.collect(), words }
    }

    /// Draws a word's index by its frequency in prose.
    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        let total = *self.sums.last().expect("there are words");
        let place = random.below(total);
        self.sums.partition_point(|&sum| sum <= place)
    }

    /// Draws the index of a content word, excluding the frequent ones.
    pub(super) fn draw_noun(&self, random: &mut Random) -> usize {
        let frequent = self.words.len() - MADE_UP;
        let below = |random: &mut Random| index_below(random, MADE_UP);
        // The minimum of two draws prefers earlier words.
        frequent + below(random).min(below(random))
    }

    /// Draws one of the few likely successors of `word`.
    pub(super) fn successor(&self, word: usize, random: &mut Random) -> usize {
        let choice = random.below(4).min(random.below(4));
        self.draw(&mut Random::new((word as u64 + 1) << 8 | choice))
    }

    pub(crate) fn word(&self, number: usize) -> &str {
        &self.words[number]
    }

    pub(super) fn noun(&self, random: &mut Random) -> &str {
        self.word(self.draw_noun(random))
    }
}

fn made_up(random: &mut Random) -> String {
    let mut word = String::new();
    for _ in 0..1 + random.below(3) {
        word.push_str(pick(random, &ONSETS));
        word.push_str(pick(random, &CORES));
        word.push_str(pick(random, &ENDS));
    }
    word.push_str(pick(random, &SUFFIXES));
    word
}

pub(super) fn index_below(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).expect("below a length")
}

/// Draws one of `all` uniformly.
pub(super) fn pick<'all, T: ?Sized>(random: &mut Random, all: &[&'all T]) -> &'all T {
    all[index_below(random, all.len())]
}

/// Returns true with this probability in percent.
pub(super) fn happens(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

/// Returns the lowest byte of a number.
pub(super) fn low_byte(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// Appends the low bytes of a number, little-endian.
pub(super) fn put(bytes: &mut Vec<u8>, number: u64, count: usize) {
    bytes.extend(&number.to_le_bytes()[..count]);
}
