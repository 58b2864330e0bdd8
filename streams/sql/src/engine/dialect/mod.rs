//! Translation of PostgreSQL's meaning where the engine means something else: statements are
//! changed before they are planned, and operators and functions have their errors and types from
//! here.

mod any;
mod arithmetic;
mod arrays;
mod bounds;
mod by_row;
mod calls;
mod casts;
mod conversions;
mod dependent;
mod extract;
mod floats;
mod guards;
mod inexact;
mod intervals;
mod json_functions;
mod json_text;
mod names;
mod parts;
mod patterns;
mod quotients;
mod regex;
mod relations;
mod rewrites;
mod rows;
mod series;
mod set_operations;
mod syntax;
mod text_functions;
mod time_functions;
mod to_char;
mod written;

pub(super) use any::with_array_parameters;
pub(super) use arithmetic::Operators;
pub(super) use bounds::check as check_bounds;
pub(super) use calls::check;
pub(super) use casts::{cast_target, udf as number_cast};
pub(super) use conversions::{To, lenient, udf as conversion};
pub(super) use floats::KeepFloats;
pub(super) use guards::{Guards, guarded};
pub(super) use intervals::Intervals;
pub(super) use names::{NameCasts, shown};
pub(super) use relations::with_exact_relations;
pub(super) use syntax::adapt;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

/// A function of the engine whose name one of these takes; under its other names it would take that
/// back.
pub(super) const REPLACED: &str = "to_char";

/// Functions that PostgreSQL has, or that statements are changed to.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = casts::functions();
    functions.extend(conversions::functions());
    functions.extend(calls::functions());
    functions.push(any::function());
    functions.push(to_char::to_char());
    functions.extend(json_functions::functions());
    functions.extend(text_functions::functions());
    functions.extend(time_functions::functions());
    functions
}
