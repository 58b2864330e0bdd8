//! Synthetic prose: sentences and paragraphs of plausible word sequences that stay with a subject.

use crate::clock::Random;

use super::page::{Mark, Page};
use super::words::{Vocabulary, happens, index_below};

const PAGE_BYTES: usize = 4096;

/// Number of recurring words of a page.
const SUBJECT_WORDS: usize = 24;

/// Percentage of sentences that end in a phrase used before on the page.
const PHRASE_PERCENT: u64 = 34;

/// Offset of a page's mark, which replaces some words.
const MARK_AT: usize = 1801;

pub(super) fn page(words: &Vocabulary, random: &mut Random) -> Page {
    let subject: Vec<usize> = (0..SUBJECT_WORDS).map(|_| words.draw_noun(random)).collect();
    let mut text = String::with_capacity(PAGE_BYTES + 200);
    while text.len() < PAGE_BYTES {
        write_sentence(&mut text, (words, &subject), random);
        if text.len() > 400 && happens(random, PHRASE_PERCENT) {
            repeat_phrase(&mut text, random);
        }
        text.push(if happens(random, 12) { '\n' } else { ' ' });
    }
    Page::new(text.as_bytes(), Mark::Letters(MARK_AT))
}

/// Repeats several words, as recurring terms do.
fn repeat_phrase(text: &mut String, random: &mut Random) {
    let from = index_below(random, text.len() - 100);
    let begin = text[from..].find(' ').map_or(from, |space| from + space);
    let end = (begin + 30 + index_below(random, 50)).min(text.len());
    let end = text[..end].rfind(' ').filter(|&end| end > begin).unwrap_or(begin);
    let phrase = text[begin..end].to_owned();
    text.push_str(&phrase);
}

fn write_sentence(text: &mut String, (words, subject): (&Vocabulary, &[usize]), r: &mut Random) {
    let begin = text.len();
    let mut word = words.draw(r);
    for index in 0..6 + r.below(18) {
        if index > 0 {
            text.push_str(if happens(r, 7) { ", " } else { " " });
        }
        text.push_str(words.word(word));
        word = match r.below(100) {
            0..45 => words.successor(word, r),
            45..72 => subject[index_below(r, subject.len()).min(index_below(r, subject.len()))],
            _ => words.draw(r),
        };
    }
    text.push('.');
    let first = text[begin..=begin].to_ascii_uppercase();
    text.replace_range(begin..=begin, &first);
}
