//! Tables with typed columns over a topic with JSON values: those declared by `CREATE TABLE`, and
//! materialized views.

mod assigned;
mod kept;
mod materialized;
mod object;
mod parse;
mod path;
mod table;

pub(crate) use assigned::Assigned;
pub(crate) use materialized::MaterializedView;
pub(crate) use object::Object;
pub(crate) use table::{OnError, TypedTable};
