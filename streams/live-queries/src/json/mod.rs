//! Single-pass JSON parser for records: validates the whole text and extracts only requested parts.
//!
//! This scanner is used instead of a library for three reasons: it handles nesting without
//! recursion (libraries that skip values fast recurse without a bound), validates the whole record,
//! so that truncated records are rejected, and uses the last of duplicate keys, as PostgreSQL does.

mod contained;
mod find;
mod paths;
mod plain;
mod scanner;
mod strings;

pub use contained::{Contained, ContainedNumber, ContainedText, NumberType};
pub use find::{JsonStep, find_json};
pub use paths::{Fields, PathId, Paths, Step};
pub(crate) use scanner::is_space_char as is_space;
pub use strings::{InvalidEscape, scalar_text};
pub(crate) use strings::{quote, whole_number};

/// Returns whether `text` is exactly one JSON value.
pub(crate) fn is_json(text: &str) -> bool {
    let mut scanner = scanner::Scanner::new(text.as_bytes());
    scanner.skip_value(0).is_some() && scanner.is_at_end()
}
