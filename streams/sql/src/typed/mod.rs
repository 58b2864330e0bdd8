//! Tables of typed columns over a topic whose values are JSON: what `CREATE TABLE` declares, and
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
