//! What PostgreSQL means where the engine means something else: statements are changed before they
//! are planned, and operators and functions have their errors and types from here.

mod arithmetic;
mod bounds;
mod casts;
mod extract;
mod floats;
mod names;
mod patterns;
mod syntax;
mod to_char;

pub(super) use arithmetic::Operators;
pub(super) use bounds::check as check_bounds;
pub(super) use casts::cast_target;
pub(super) use floats::KeepFloats;
pub(super) use names::{NameCasts, shown};
pub(super) use syntax::adapt;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

/// A function of the engine whose name one of these takes; under its other names it would take that
/// back.
pub(super) const REPLACED: &str = "to_char";

/// Functions that PostgreSQL has, or that statements are changed to.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = casts::functions();
    functions.push(to_char::to_char());
    functions
}
