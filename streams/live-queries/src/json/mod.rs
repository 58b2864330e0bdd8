//! JSON of records, read in one pass: checked as a whole, and only the wanted parts are looked at.
//!
//! A scanner of our own rather than a library: it takes nested input without recursion (libraries
//! that skip values fast do so by recursion without a bound), checks the whole record, so that half
//! a record counts as none, and of a repeated key takes the last, as PostgreSQL does.

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

/// Returns whether `text` is one JSON value with nothing after it.
pub(crate) fn is_json(text: &str) -> bool {
    let mut scanner = scanner::Scanner::new(text.as_bytes());
    scanner.skip_value(0).is_some() && scanner.is_at_end()
}
