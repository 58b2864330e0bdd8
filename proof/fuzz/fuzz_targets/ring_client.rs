//! A ring client that writes arbitrary bytes to the memory shared with the server.
#![no_main]

#[path = "../../../exports/ring-server/tests/support/storm.rs"]
mod storm;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| storm::play(bytes));
