//! Lexing and parsing of SQL statements.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| sql::fuzzing::texts(text));
