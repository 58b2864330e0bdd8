//! Byte patterns of values that satisfy a filter. Searching for them is much faster than parsing
//! values.

mod field;
mod filter;
mod number;
mod text;

pub(crate) use filter::Contained;
