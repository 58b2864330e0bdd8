//! Bytes of PostgreSQL clients: messages, the statements in them, and values of parameters.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sql::fuzzing::messages(bytes));
