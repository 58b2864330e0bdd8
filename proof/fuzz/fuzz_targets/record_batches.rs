//! Record batches with arbitrary headers, appended to a log that is killed during the append.
#![no_main]

#[path = "../../../streams/record-log/tests/support/storm.rs"]
mod storm;
#[path = "../../../streams/record-log/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    storm::split(bytes);
    storm::append(bytes);
});
