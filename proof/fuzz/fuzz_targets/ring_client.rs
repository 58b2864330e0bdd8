//! A client of the ring that stores arbitrary bytes in the memory that it shares with the server.
#![no_main]

#[path = "../../../exports/ring-server/tests/support/storm.rs"]
mod storm;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| storm::play(bytes));
