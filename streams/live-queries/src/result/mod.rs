//! The result of a query, kept up to date: changes of records in, changes of rows out.

mod accumulate;
mod change;
mod float_sum;
mod groups;
mod top;
mod view;

pub use change::{Change, ResultChange, ResultRow};
pub use groups::GroupLimits;
pub(crate) use top::{TopRows, Topped};
pub use view::View;
