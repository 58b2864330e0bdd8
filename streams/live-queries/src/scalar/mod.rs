//! Values of the supported PostgreSQL types: ordering, text format and casts.

mod cast;
mod number;
mod text;
mod time;
mod value;

pub(crate) use cast::{can_cast, cast};
pub(crate) use number::divide_numeric;
pub(crate) use text::parse;
pub(crate) use time::{date_part, truncate_time};
pub use value::Value;
