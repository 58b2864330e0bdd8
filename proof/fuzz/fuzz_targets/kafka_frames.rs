//! Arbitrary bytes from a Kafka client, parsed into frames, headers and bodies.
#![no_main]

#[path = "../../../streams/kafka/tests/support/decoders.rs"]
mod decoders;
#[path = "../../../streams/kafka/tests/support/own_parsers.rs"]
mod own_parsers;
#[path = "../../../streams/kafka/tests/support/storm.rs"]
mod storm;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| storm::frames(bytes));
