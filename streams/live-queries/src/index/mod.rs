//! Index of filters: finds which of thousands of queries a record matches.
//!
//! ```text
//! all filters ─┬─ equal (symbol)        'ABC' ─▶ bucket ─┬─ plain: filters without more
//!              │                        'XYZ' ─▶ bucket  ├─ range of price: [1, 5) (7, ∞) …
//!              ├─ equal (symbol, side)  …                └─ prefix of key: 'eu-' 'us-' …
//!              └─ bucket of those without an equality
//! ```
//!
//! The cost of a record depends on the number of distinct expressions in filters and on the number
//! of matches, not on the number of filters. Conditions that no index supports (`<>`, LIKE patterns
//! that begin with `%`, OR) are stored in `plain` and evaluated for each record.

mod bucket;
mod equal;
mod filters;
mod id;
mod prefixes;
mod ranges;

pub use filters::{FilterIndex, Found};
pub use id::FilterId;
