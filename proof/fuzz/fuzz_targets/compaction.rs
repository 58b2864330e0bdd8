//! Compaction of record batches whose records are arbitrary bytes, in every codec.
#![no_main]

#[path = "../../../streams/record-log/tests/support/compaction_storm.rs"]
mod compaction_storm;
#[path = "../../../streams/record-log/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    compaction_storm::compact(bytes);
});
