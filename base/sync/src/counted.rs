//! Words that count references to something and say what it is.
//!
//! ```text
//!  63                     16 15            0
//! ┌─────────────────────────┬───────────────┐
//! │ description             │ count         │   count 0: free, the description means nothing
//! └─────────────────────────┴───────────────┘
//! ```
//!
//! What a word counts is complete and immutable while the count is not zero. The thread that brings
//! the count to zero owns it again, once a grace period has passed for those that only look.

use crate::atomic::{AtomicU64, Ordering};

/// References that one word counts at most.
pub const COUNT_MAX: u64 = 0xFFFF;

/// Sharing stops here, and the contents are stored again: the last references are for those that
/// look after what is shared.
pub const SHARED_MAX: u64 = COUNT_MAX - 15;

const COUNT_BITS: u32 = 16;

/// The references that a word's value counts.
pub const fn count_of(word: u64) -> u64 {
    word & COUNT_MAX
}

/// The 48 bits of description in a word's value.
pub const fn description_of(word: u64) -> u64 {
    word >> COUNT_BITS
}

/// Publishes what the word counts, with one reference, which the caller owns. The caller owned the
/// word until now: its count was zero.
pub fn publish(word: &AtomicU64, description: u64) {
    // PAIRS-WITH: try_share, "the contents are complete".
    word.store((description << COUNT_BITS) | 1, Ordering::Release);
}

/// Adds a reference if there is one already and `wanted` accepts the description. Returns the
/// description of what is now shared.
pub fn try_share(word: &AtomicU64, wanted: impl Fn(u64) -> bool) -> Option<u64> {
    try_add(word, SHARED_MAX, wanted)
}

/// The same for one that looks after what is counted and gives the reference back soon: also where
/// sharing has stopped.
pub fn try_hold(word: &AtomicU64) -> Option<u64> {
    try_add(word, COUNT_MAX, |_| true)
}

fn try_add(word: &AtomicU64, count_max: u64, wanted: impl Fn(u64) -> bool) -> Option<u64> {
    let mut now = word.load(Ordering::Relaxed);
    loop {
        let count = count_of(now);
        if count == 0 || count >= count_max || !wanted(description_of(now)) {
            return None;
        }
        // PAIRS-WITH: publish, "the contents are complete".
        match word.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(description_of(now)),
            Err(changed) => now = changed,
        }
    }
}

/// Changes the description of what is counted, for all that look at it from now on. The caller
/// holds a reference. What the contents are must not change by it.
pub fn redescribe(word: &AtomicU64, change: impl Fn(u64) -> u64) {
    let changed = |now: u64| Some((change(description_of(now)) << COUNT_BITS) | count_of(now));
    // Relaxed: the contents were published before, and stay as they are.
    let _always = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
}

/// Gives a reference back. Returns the description if it was the last, so that the caller owns the
/// word.
pub fn drop_one(word: &AtomicU64) -> Option<u64> {
    drop_many(word, 1)
}

/// Gives `references` back at once. Returns the description if they were the last. A count that is
/// lower than that was damaged: it stays as it is.
pub fn drop_many(word: &AtomicU64, references: u64) -> Option<u64> {
    let lower = |now: u64| (count_of(now) >= references).then(|| now - references);
    // PAIRS-WITH: drop_many, "earlier holders are done with the contents".
    let result = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
    debug_assert!(result.is_ok(), "a reference count never falls below zero");
    result.ok().filter(|&before| count_of(before) == references).map(description_of)
}

/// Gives `references` back at once, but keeps one if they were the last. Returns whether one was
/// kept: it is the caller's, and the only one. A count that is lower was damaged: it stays.
pub fn drop_but_last(word: &AtomicU64, references: u64) -> bool {
    let lower = |now: u64| {
        let left = count_of(now).checked_sub(references)?;
        Some(now - references + u64::from(left == 0))
    };
    // PAIRS-WITH: drop_many, "earlier holders are done with the contents".
    let result = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
    debug_assert!(result.is_ok(), "a reference count never falls below zero");
    result.is_ok_and(|before| count_of(before) == references)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_free_word_cannot_be_shared() {
        assert_eq!(try_share(&AtomicU64::new(7 << 16), |_| true), None);
    }

    #[test]
    fn a_published_word_is_shared_and_given_back() {
        let word = AtomicU64::new(0);
        publish(&word, 7);
        assert_eq!(try_share(&word, |description| description == 7), Some(7));
        assert_eq!(drop_one(&word), None);
        assert_eq!(drop_one(&word), Some(7));
        assert_eq!(try_share(&word, |_| true), None);
    }

    #[test]
    fn another_description_leaves_the_count_alone() {
        let word = AtomicU64::new(0);
        publish(&word, 7);
        assert_eq!(try_share(&word, |_| true), Some(7));
        redescribe(&word, |description| description + 1);
        assert_eq!(drop_one(&word), None);
        assert_eq!(drop_one(&word), Some(8));
    }

    #[test]
    fn a_word_that_is_not_wanted_is_left_alone() {
        let word = AtomicU64::new(0);
        publish(&word, 7);
        assert_eq!(try_share(&word, |description| description == 8), None);
        assert_eq!(drop_one(&word), Some(7));
    }

    #[test]
    fn the_last_reference_may_be_kept() {
        let word = AtomicU64::new((7 << 16) | 3);
        assert!(!drop_but_last(&word, 1));
        assert!(drop_but_last(&word, 2));
        assert_eq!(drop_one(&word), Some(7));
    }

    #[test]
    fn a_full_count_is_not_shared_further() {
        let word = AtomicU64::new(SHARED_MAX);
        assert_eq!(try_share(&word, |_| true), None);
        let held = (0..100).filter(|_| try_hold(&word).is_some()).count() as u64;
        assert_eq!((held, count_of(word.into_inner())), (COUNT_MAX - SHARED_MAX, COUNT_MAX));
    }
}
