//! An index of filters: which of thousands of queries a record is for.
//!
//! ```text
//! all filters ─┬─ equal (symbol)        'ABC' ─▶ bucket ─┬─ plain: filters without more
//!              │                        'XYZ' ─▶ bucket  ├─ range of price: [1, 5) (7, ∞) …
//!              ├─ equal (symbol, side)  …                └─ prefix of key: 'eu-' 'us-' …
//!              └─ bucket of those without an equality
//! ```
//!
//! What a record costs grows with the expressions that filters have in common, and with the
//! filters that are found, not with their number. A filter that no index answers (`<>`, a LIKE
//! that begins with `%`, OR) stands in `plain` and is evaluated for each record.

mod bucket;
mod equal;
mod filters;
mod id;
mod prefixes;
mod ranges;

pub use filters::{FilterIndex, Found};
pub use id::FilterId;
