//! Tables of typed columns over a topic whose values are JSON: what `CREATE TABLE` declares.

mod kept;
mod object;
mod parse;
mod path;
mod table;

pub(crate) use object::Object;
pub(crate) use table::{OnError, TypedColumn, TypedTable};
