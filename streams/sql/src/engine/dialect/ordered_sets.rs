//! Ordered-set aggregates, and aggregates that build a JSON object: rewritten to functions of the
//! array of their values.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::ast::{
    Array as SqlArray, BinaryOperator, DataType as SqlType, DuplicateTreatment, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, OrderByExpr,
};

use super::by_row::{Body, Returns, Row, function};
use super::conversions::To;
use super::json_functions::{JSON_OBJECT, JSON_PAIR, JSONB_OBJECT, JSONB_PAIR};
use super::own::of_arrow;
use super::refusal::refused;
use super::written::{binary, call, nested, text_of};
use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, output_texts};

/// Functions for `percentile_disc` and `mode` over sorted values.
const AT_PART: &str = "value_at_part";
const MOST: &str = "most_of_values";
/// Identity function that rejects JSON, which would be sorted as text.
const SORTED: &str = "value_to_sort";
/// Function for `percentile_cont` over sorted values.
const BETWEEN_PARTS: &str = "value_between_parts";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        (AT_PART, of_list_and_part, |row| at_parts(row, at_part)),
        (BETWEEN_PARTS, of_numbers_and_parts, |row| at_parts(row, between_parts)),
        (MOST, of_list, most),
        (SORTED, of_sortable, |row| Ok(row.values[0].clone())),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

/// Rewrites such an aggregate to a function of an array.
pub(super) fn of_values(function: &Function) -> Result<Option<Expr>, SqlError> {
    let name = function.name.to_string().to_ascii_lowercase();
    let pair = match name.as_str() {
        "percentile_disc" | "mode" => return of_sorted(&name, function),
        // The engine handles a single fraction.
        "percentile_cont" if has_array(&function.args) => return of_sorted(&name, function),
        "json_object_agg" => (JSON_PAIR, JSON_OBJECT),
        "jsonb_object_agg" => (JSONB_PAIR, JSONB_OBJECT),
        _ => return Ok(None),
    };
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    if function.over.is_some() || !function.within_group.is_empty() {
        return Err(refused(&format!("{name} over a window")));
    }
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Err(refused(&format!("{name} with DISTINCT")));
    }
    let given = exprs(&list.args);
    let Some([_, _]) = given.as_deref() else { return Ok(None) };
    let pairs = call(pair.0, given.unwrap_or_default());
    let args = FunctionArgumentList { args: vec![unnamed(pairs)], ..list.clone() };
    let args = FunctionArguments::List(args);
    Ok(Some(call(pair.1, vec![array_agg(Function { args, ..function.clone() })])))
}

fn of_sorted(name: &str, function: &Function) -> Result<Option<Expr>, SqlError> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let other = || refused(&format!("{name} of this form"));
    let (Some(given), [key]) = (exprs(&list.args), function.within_group.as_slice()) else {
        return Err(other());
    };
    if function.over.is_some() {
        return Err(refused(&format!("{name} over a window")));
    }
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) || !list.clauses.is_empty() {
        return Err(other());
    }
    let (of, part) = match (name, given.as_slice()) {
        ("percentile_disc", [part]) => (AT_PART, Some(as_floats(part))),
        ("percentile_cont", [part]) => (BETWEEN_PARTS, Some(as_floats(part))),
        ("mode", []) => (MOST, None),
        _ => return Err(other()),
    };
    let there = Expr::IsNotNull(Box::new(nested(key.expr.clone())));
    let filter = match &function.filter {
        Some(filter) => binary(nested(filter.as_ref().clone()), BinaryOperator::And, there),
        None => there,
    };
    let sorted = FunctionArgumentClause::OrderBy(vec![OrderByExpr::clone(key)]);
    let args = FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![unnamed(call(SORTED, vec![key.expr.clone()]))],
        clauses: vec![sorted],
    };
    let values = array_agg(Function {
        args: FunctionArguments::List(args),
        filter: Some(Box::new(filter)),
        within_group: Vec::new(),
        ..function.clone()
    });
    Ok(Some(call(of, [values].into_iter().chain(part).collect())))
}

/// Converts a fraction, or those in an array constructor, to double precision.
fn as_floats(parts: &Expr) -> Expr {
    let Expr::Array(array) = parts else {
        return match text_of(parts) {
            Some(_) => call(To::Float8.name(), vec![parts.clone()]),
            None => parts.clone(),
        };
    };
    let elem = array.elem.iter().map(|it| match text_of(it) {
        Some(_) => it.clone(),
        None => call(To::Float8.name(), vec![it.clone()]),
    });
    Expr::Array(SqlArray { elem: elem.collect(), named: true })
}

fn has_array(arguments: &FunctionArguments) -> bool {
    let FunctionArguments::List(list) = arguments else { return false };
    let is_array =
        |it: &Expr| matches!(it, Expr::Array(_) | Expr::Cast { data_type: SqlType::Array(_), .. });
    exprs(&list.args).is_some_and(|it| it.iter().any(is_array))
}

fn array_agg(function: Function) -> Expr {
    Expr::Function(Function { name: ObjectName::from(vec![Ident::new("array_agg")]), ..function })
}

fn unnamed(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

fn exprs(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let exprs = args.iter().map(|it| match it {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    exprs.collect()
}

/// Returns the type of an array's elements, which must be sortable by comparison.
fn element(field: &FieldRef) -> Result<Field, String> {
    match field.data_type() {
        DataType::List(element) => match element.data_type() {
            DataType::Interval(_) | DataType::List(_) => {
                Err("sorting intervals or arrays in an aggregate".to_owned())
            }
            _ => Ok(element.as_ref().clone().with_nullable(true)),
        },
        _ => Err(String::new()),
    }
}

fn of_sortable(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one] if PgType::of(one).is_json() => Err("sorting JSON in an aggregate".to_owned()),
        [one] => Ok(one.as_ref().clone().with_nullable(true)),
        _ => Err(String::new()),
    }
}

fn of_list(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [list] => element(list),
        _ => Err(String::new()),
    }
}

fn of_list_and_part(fields: &[FieldRef]) -> Result<Field, String> {
    let [list, part] = fields else { return Err(String::new()) };
    let of = element(list)?;
    match part.data_type() {
        DataType::List(inner) if inner.data_type().is_numeric() => {
            let inner = of.with_name(Field::LIST_FIELD_DEFAULT_NAME);
            Ok(Field::new("", DataType::List(Arc::new(inner)), true))
        }
        it if it.is_numeric() => Ok(of),
        it if it.is_null() => Err("percentile_disc(NULL)".to_owned()),
        _ => Err(String::new()),
    }
}

fn of_numbers_and_parts(fields: &[FieldRef]) -> Result<Field, String> {
    let [list, part] = fields else { return Err(String::new()) };
    let (of, part) = (element(list)?, part.data_type());
    let is_list = matches!(part, DataType::List(it) if it.data_type().is_numeric());
    if !of.data_type().is_numeric() || !is_list {
        return Err(String::new());
    }
    let inner = Field::new_list_field(DataType::Float64, true);
    Ok(Field::new("", DataType::List(Arc::new(inner)), true))
}

fn values(row: &Row<'_>) -> Option<ArrayRef> {
    match &row.values[0] {
        ScalarValue::List(list) if !list.is_null(0) && !list.value(0).is_empty() => {
            Some(list.value(0))
        }
        _ => None,
    }
}

fn null_of(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let DataType::List(element) = row.fields[0].data_type() else { return Ok(ScalarValue::Null) };
    Ok(ScalarValue::try_from(element.data_type())?)
}

fn most(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some(values) = values(row) else { return null_of(row) };
    let (mut found, mut found_count) = (0, 0);
    let mut first = 0;
    let mut before = ScalarValue::try_from_array(&values, 0)?;
    for index in 1..=values.len() {
        let value = match index < values.len() {
            true => Some(ScalarValue::try_from_array(&values, index)?),
            false => None,
        };
        if value.as_ref().is_some_and(|it| is_same(it, &before)) {
            continue;
        }
        if index - first > found_count {
            (found, found_count) = (first, index - first);
        }
        first = index;
        if let Some(value) = value {
            before = value;
        }
    }
    Ok(ScalarValue::try_from_array(&values, found)?)
}

/// Zeros of both signs are equal.
fn is_same(one: &ScalarValue, other: &ScalarValue) -> bool {
    let is_zero = |it: &ScalarValue| match it {
        ScalarValue::Float64(Some(it)) => *it == 0.0,
        ScalarValue::Float32(Some(it)) => *it == 0.0,
        _ => false,
    };
    one == other || is_zero(one) && is_zero(other)
}

/// Returns the value at a fraction of the sorted values.
type At = fn(f64, &ArrayRef) -> Result<ScalarValue, SqlError>;

/// Returns the value at a fraction, or an array of values for several fractions.
fn at_parts(row: &Row<'_>, at: At) -> Result<ScalarValue, SqlError> {
    let values = values(row);
    let none = match &values {
        Some(values) => ScalarValue::try_from(at(0.0, values)?.data_type())?,
        None => null_of(row)?,
    };
    let found = |part: &ScalarValue| match part.cast_to(&DataType::Float64)? {
        ScalarValue::Float64(Some(part)) => {
            check(part)?;
            values.as_ref().map_or_else(|| Ok(none.clone()), |it| at(part, it))
        }
        _ => Ok(none.clone()),
    };
    let ScalarValue::List(parts) = &row.values[1] else { return found(&row.values[1]) };
    let of = none.data_type();
    if values.is_none() || parts.is_null(0) {
        return Ok(ScalarValue::new_null_list(of, true, 1));
    }
    let parts = parts.value(0);
    let each = (0..parts.len()).map(|index| found(&ScalarValue::try_from_array(&parts, index)?));
    let each = each.collect::<Result<Vec<_>, SqlError>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&each, &of)))
}

fn at_part(part: f64, values: &ArrayRef) -> Result<ScalarValue, SqlError> {
    Ok(ScalarValue::try_from_array(values, place(part, values))?)
}

/// Interpolates linearly between the values around a fraction.
fn between_parts(part: f64, values: &ArrayRef) -> Result<ScalarValue, SqlError> {
    let last = u32::try_from(values.len() - 1).map_or(f64::INFINITY, f64::from);
    let place = part * last;
    let at = |index: usize| -> Result<f64, SqlError> {
        let text = output_texts(&values.slice(index, 1)).map_err(of_arrow)?;
        let text = ScalarValue::try_from_array(&text, 0)?;
        Ok(text.try_as_str().flatten().and_then(|it| it.parse().ok()).unwrap_or(f64::NAN))
    };
    let before = (0..values.len()).rev().find(|it| count_of(*it) <= place).unwrap_or(0);
    let value = at(before)?;
    let rest = place - count_of(before);
    let found = if rest > 0.0 { value + rest * (at(before + 1)? - value) } else { value };
    Ok(ScalarValue::Float64(Some(found)))
}

fn count_of(place: usize) -> f64 {
    u32::try_from(place).map_or(f64::INFINITY, f64::from)
}

fn check(part: f64) -> Result<(), SqlError> {
    match (0.0..=1.0).contains(&part) {
        true => Ok(()),
        false => {
            let what = format!("percentile value {part} is not between 0 and 1");
            Err(SqlError::new(SqlState::OUT_OF_RANGE, what))
        }
    }
}

/// Returns the index of the first value whose cumulative distribution reaches a fraction.
fn place(part: f64, values: &ArrayRef) -> usize {
    let count = values.len();
    let of_all = |place: usize| count_of(place) >= part * count_of(count);
    let (mut low, mut high) = (1, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if of_all(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low - 1
}
