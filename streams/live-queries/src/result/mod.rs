//! Incrementally maintained results: changes of records as input, changes of rows as output.

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
