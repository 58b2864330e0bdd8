//! The list of cases, and their execution on a subject.

use std::panic::{self, AssertUnwindSafe};

use crate::subject::{Abilities, CaseContext, Subject};
use crate::{ordering, ranges, refusals, zeroing};

/// A case: one property of a device.
struct Case {
    name: &'static str,
    /// Returns whether a subject has the abilities that the case needs.
    fits: fn(Abilities) -> bool,
    run: fn(&CaseContext<'_>),
}

const fn always(_: Abilities) -> bool {
    true
}

const fn zeroes(abilities: Abilities) -> bool {
    abilities.zeroes
}

const fn discards(abilities: Abilities) -> bool {
    abilities.discards
}

const CASES: &[Case] = &[
    Case { name: "what is written is read back", fits: always, run: ranges::written_is_read },
    Case { name: "neighbours of a write stay", fits: always, run: ranges::neighbours_stay },
    Case { name: "the ends are reached", fits: always, run: ranges::ends_are_reached },
    Case { name: "long requests are whole", fits: always, run: ranges::long_requests_are_whole },
    Case { name: "past the end is refused", fits: always, run: refusals::past_the_end },
    Case { name: "a crossing write is refused whole", fits: refuses, run: refusals::crossing },
    Case { name: "zeroes read as zeros", fits: zeroes, run: zeroing::zeroes_read_as_zeros },
    Case { name: "discarded blocks read as zeros", fits: discards, run: zeroing::discarded },
    Case { name: "zeroed blocks take new bytes", fits: zeroes, run: zeroing::written_again },
    Case { name: "a flush changes nothing", fits: always, run: ordering::flush_changes_nothing },
    Case { name: "an acknowledged write is seen", fits: always, run: ordering::writes_are_seen },
    Case { name: "blocks are never torn", fits: always, run: ordering::blocks_are_never_torn },
    Case { name: "overlapping writes mix blocks only", fits: always, run: ordering::overlaps },
    Case { name: "neighbours write at once", fits: always, run: ordering::neighbours_at_once },
    Case { name: "random requests follow a model", fits: always, run: ordering::random_requests },
];

const fn refuses(abilities: Abilities) -> bool {
    abilities.refuses_whole
}

/// Runs every case that the subject supports, and returns their number. `seed` determines bytes and
/// offsets. Panics with the names of the failed cases, whose failures are printed before.
#[track_caller]
pub fn check(subject: &dyn Subject, seed: u64) -> usize {
    let (ran, failed) = run(subject, seed);
    assert!(failed.is_empty(), "of {ran} cases these do not hold (seed {seed}): {failed:?}");
    ran
}

/// Runs every case that the subject supports. Returns their number, and the names of the failed
/// ones.
pub fn run(subject: &dyn Subject, seed: u64) -> (usize, Vec<&'static str>) {
    assert!(!subject.is_read_only(), "a read-only device has a check of its own");
    let context = CaseContext::new(subject, seed);
    let abilities = subject.abilities();
    let cases = CASES.iter().filter(|case| (case.fits)(abilities));
    let failed = cases.clone().filter(|case| {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| (case.run)(&context)));
        outcome.is_err()
    });
    let failed = failed.map(|case| case.name).collect();
    (cases.count(), failed)
}

/// Checks that a read-only device rejects all changes, and that its contents stay the same.
pub fn check_read_only(subject: &dyn Subject) {
    assert!(subject.is_read_only(), "the device says that it takes no changes");
    refusals::read_only(&CaseContext::new(subject, 0));
}

/// Number of cases for a subject with all abilities.
pub fn case_count() -> usize {
    CASES.len()
}
