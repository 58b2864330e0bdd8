//! Requests and arbitrary bytes from an NBD client, with every answer compared with a model.
#![no_main]

#[path = "../../../exports/nbd/tests/support/storm.rs"]
mod storm;
#[path = "../../../exports/nbd/tests/support/mod.rs"]
mod support;
#[path = "../../../exports/nbd/tests/support/talk.rs"]
mod talk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| storm::requests(bytes));
