//! Arbitrary methods, paths and parameters for the console's permission check.
#![no_main]

#[path = "../../../control/api/tests/support/storm.rs"]
mod storm;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| storm::request(bytes));
