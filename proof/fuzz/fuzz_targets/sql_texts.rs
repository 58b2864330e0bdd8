//! Texts of SQL statements, cut into words and read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| sql::fuzzing::texts(text));
