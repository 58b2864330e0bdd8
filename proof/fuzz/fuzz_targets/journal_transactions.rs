//! Arbitrary bytes in place of a journal segment's header or a transaction.
#![no_main]

#[path = "../../../engine/journal/tests/support/storm.rs"]
mod storm;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| storm::decode(bytes));
