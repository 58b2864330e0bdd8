//! Bytes that values contain where a filter holds: found much faster than a value is read.

mod field;
mod filter;
mod number;
mod text;

pub(crate) use filter::Contained;
