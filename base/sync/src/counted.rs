//! Words that contain a reference count and a description of the counted object.
//!
//! ```text
//!  63                     16 15            0
//! ┌─────────────────────────┬───────────────┐
//! │ description             │ count         │   count 0: free, the description means nothing
//! └─────────────────────────┴───────────────┘
//! ```
//!
//! The counted object is complete and immutable while the count is not zero. The thread that
//! decrements the count to zero owns the object again, after a grace period for readers without a
//! reference.

use crate::atomic::{AtomicU64, Ordering};

/// Maximum number of references in one word.
pub const COUNT_MAX: u64 = 0xFFFF;

/// Limit of sharing. Beyond it, contents are stored again. The remaining references are reserved
/// for maintenance.
pub const SHARED_MAX: u64 = COUNT_MAX - 15;

const COUNT_BITS: u32 = 16;

/// Reference count in a word's value.
pub const fn count_of(word: u64) -> u64 {
    word & COUNT_MAX
}

/// Description in a word's value, 48 bits.
pub const fn description_of(word: u64) -> u64 {
    word >> COUNT_BITS
}

/// Publishes the object with one reference, which the caller owns. The count must be zero, and the
/// caller must own the word.
pub fn publish(word: &AtomicU64, description: u64) {
    // PAIRS-WITH: try_share, "the contents are complete".
    word.store((description << COUNT_BITS) | 1, Ordering::Release);
}

/// Adds a reference if the count is not zero and `wanted` accepts the description. Returns the
/// description of the shared object.
pub fn try_share(word: &AtomicU64, wanted: impl Fn(u64) -> bool) -> Option<u64> {
    try_add(word, SHARED_MAX, wanted)
}

/// Adds a short-term reference for maintenance, even beyond the limit of sharing.
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

/// Changes the description, for all later loads. The caller must hold a reference. The contents
/// must not change.
pub fn redescribe(word: &AtomicU64, change: impl Fn(u64) -> u64) {
    let changed = |now: u64| Some((change(description_of(now)) << COUNT_BITS) | count_of(now));
    // Relaxed: the contents were published before and do not change.
    let _always = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
}

/// Drops a reference. If it was the last, returns the description, and the caller owns the word.
pub fn drop_one(word: &AtomicU64) -> Option<u64> {
    drop_many(word, 1)
}

/// Drops several references at once. Returns the description if they were the last. A lower count
/// is corrupt and is not changed.
pub fn drop_many(word: &AtomicU64, references: u64) -> Option<u64> {
    let lower = |now: u64| (count_of(now) >= references).then(|| now - references);
    // PAIRS-WITH: drop_many, "earlier holders are done with the contents".
    let result = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
    debug_assert!(result.is_ok(), "a reference count never falls below zero");
    result.ok().filter(|&before| count_of(before) == references).map(description_of)
}

/// Drops several references at once, but keeps one if they were the last. Returns whether one was
/// kept: it belongs to the caller, and is the only one. A lower count is corrupt and is not
/// changed.
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
