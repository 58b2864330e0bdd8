//! Compiled queries: `SELECT … FROM table [WHERE …] [GROUP BY …] [ORDER BY … LIMIT n]`.

mod access;
pub(crate) mod bounds;
mod compile;
mod filter;
mod join;
mod select;

pub(crate) use access::Access;
pub(crate) use bounds::Interval;
pub use filter::Filter;
pub use join::{Join, QuerySources};
pub(crate) use select::{OrderKey, Shape, evaluate_all};
pub use select::{OutputColumn, Query};
