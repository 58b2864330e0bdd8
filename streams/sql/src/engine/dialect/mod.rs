//! PostgreSQL's semantics where the engine's differ: statements are rewritten before planning, and
//! operators and functions are replaced by ones with PostgreSQL's errors and types.

mod any;
mod arithmetic;
mod array_functions;
mod array_order;
mod arrays;
mod bounds;
mod by_row;
mod byte_functions;
mod calls;
mod casts;
mod chains;
mod coercion;
mod constants;
mod conversions;
mod dependent;
mod described;
mod epochs;
mod extract;
mod forms;
mod full_joins;
mod generated;
mod guards;
mod inexact;
mod integers;
mod interval_functions;
mod interval_texts;
mod intervals;
mod json_functions;
mod json_text;
mod jsonb;
mod jsonb_functions;
mod jsonb_order;
mod kinds;
mod known;
mod lenient;
mod letters;
mod lists;
mod loose;
mod merged;
mod moments;
mod names;
mod nullable;
mod nullif;
mod number_functions;
mod numbers;
mod numerics;
mod operands;
mod ordered_sets;
mod own;
mod parts;
mod patterns;
mod planned;
mod quoted_arguments;
mod quoted_times;
mod quotients;
mod real_functions;
mod recursion;
mod regex;
mod regex_functions;
mod relations;
mod rewrites;
mod rows;
mod same_json;
mod scale_functions;
mod scales;
mod series;
mod set_operations;
mod shifts;
mod short_names;
mod shown_scales;
mod sorted;
mod spellings;
mod strict;
mod syntax;
mod text_functions;
mod time_functions;
mod to_char;
mod to_char_numbers;
mod truncated;
mod type_names;
mod united;
mod units;
mod unmerged;
mod untyped;
mod unused_windows;
mod whole_rows;
mod written;
mod zones;

pub(super) use any::with_array_parameters;
pub(super) use arithmetic::Operators;
pub(super) use bounds::check as check_bounds;
pub(super) use by_row::each_row;
pub(super) use casts::{cast_target, udf as number_cast};
pub(super) use coercion::{Coercion, with_types};
pub(super) use conversions::{To, call as conversion_call, lenient, udf as conversion};
pub(super) use forms::check as check_forms;
pub(super) use guards::{Guards, guarded};
pub(super) use integers::Integers;
pub(super) use kinds::KnownOperators;
pub(super) use known::{Columns, Unknown};
pub(super) use loose::{names_of_rows, of_row};
pub(super) use names::{NameCasts, column_name, shown};
pub(super) use numerics::{Spread, Sums, result_type as numeric_result_type, spread};
pub(super) use operands::check_wild_joins;
pub(super) use planned::{CONCAT_TEXTS, joins_texts, type_of};
pub(super) use quoted_times::QuotedTimes;
pub(super) use real_functions::numerics_of;
pub(super) use relations::with_exact_relations;
pub(crate) use same_json::json_parameters;
pub(super) use scales::GIVEN;
pub(super) use short_names::unmarked;
pub(super) use shown_scales::{ShowScales, for_clients};
pub(super) use sorted::{ORDERED, with_sorted_inputs};
pub(super) use syntax::adapt;
pub(super) use untyped::{QuotedNumbers, TypedTables, with_typed_columns};

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::ScalarUDF;

/// Functions of PostgreSQL, and internal ones that rewrites use.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = casts::functions();
    functions.extend(conversions::functions());
    functions.extend(calls::functions());
    functions.push(any::function());
    functions.push(short_names::function());
    functions.push(to_char::to_char());
    functions.extend(json_functions::functions());
    functions.extend(jsonb_functions::functions());
    functions.extend(jsonb_order::functions());
    functions.push(type_names::function());
    functions.extend(text_functions::functions());
    functions.extend(time_functions::functions());
    functions.extend(byte_functions::functions());
    functions.push(described::function());
    functions.push(epochs::function());
    functions.push(extract::date_part());
    functions.extend(patterns::functions());
    functions.extend(letters::functions());
    functions.extend(number_functions::functions());
    functions.extend(truncated::functions());
    functions.extend(array_functions::functions());
    functions.extend(generated::functions());
    functions.extend(interval_functions::functions());
    functions.extend(ordered_sets::functions());
    functions.extend(regex_functions::functions());
    functions
}

/// Makes functions of the engine return PostgreSQL's results.
pub(super) fn check(state: &mut SessionState) -> Result<()> {
    lists::count(state)?;
    nullif::keep_integers(state)?;
    lenient::take_literals(state)?;
    generated::generate_integers(state);
    calls::check(state)?;
    real_functions::keep_numerics(state)
}
