//! Compiled queries: `SELECT … FROM table [WHERE …] [GROUP BY …] [ORDER BY … LIMIT n]`.

pub(crate) mod bounds;
mod compile;
mod contained;
mod filter;
mod join;
mod select;

pub(crate) use bounds::Interval;
pub(crate) use filter::Access;
pub use filter::Filter;
pub use join::{Join, QuerySources};
pub(crate) use select::{OrderKey, Shape, evaluate_all};
pub use select::{OutputColumn, Query};
