//! Array functions and operators that the engine lacks, or that handle NULL differently.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::by_row::{
    Body, RESULT_BYTES_MAX, Returns, Row, function, is_text, text_field, text_value, too_much,
};
use super::own::{Own, of_arrow};
use crate::error::{SqlError, SqlState};
use crate::wire::output_texts;

/// Functions that implement `&&` and `@>` of arrays.
pub(super) const OVERLAP: &str = "arrays_overlap";
pub(super) const CONTAIN: &str = "arrays_contain";

/// Function for unnesting: flattens a multidimensional array.
pub(super) const FLAT: &str = "elements_of";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = by_row();
    functions.push(Own::udf(FLAT, 1, |types| Some(flat_type(&types[0])), flat));
    functions
}

/// Returns the type of a flattened array. Other types are returned as they are.
fn flat_type(of: &DataType) -> DataType {
    match of {
        DataType::List(element) if matches!(element.data_type(), DataType::List(_)) => {
            flat_type(element.data_type())
        }
        other => other.clone(),
    }
}

fn flat(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let mut lists = Arc::clone(&arrays[0]);
    while let Some(outer) = lists.as_list_opt::<i32>() {
        let Some(inner) = outer.values().as_list_opt::<i32>() else { break };
        // PostgreSQL has no NULL among nested arrays.
        if inner.null_count() > 0 {
            let what = "multidimensional arrays with NULL subarrays are not supported";
            return Err(SqlError::unsupported(what));
        }
        let ends =
            outer.offsets().iter().map(|it| inner.offsets()[usize::try_from(*it).unwrap_or(0)]);
        let ends = OffsetBuffer::new(ends.collect());
        let DataType::List(field) = inner.data_type() else { break };
        let found = ListArray::try_new(
            Arc::clone(field),
            ends,
            Arc::clone(inner.values()),
            outer.nulls().cloned(),
        );
        lists = Arc::new(found.map_err(of_arrow)?);
    }
    Ok(lists)
}

fn by_row() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        (OVERLAP, of_two, overlap),
        (CONTAIN, of_two, contain),
        ("array_remove", of_element, remove),
        ("array_replace", of_two_elements, replace),
        ("array_positions", of_places, positions),
        ("array_lower", of_dimension, lower),
        ("array_dims", of_list, dims),
        ("array_fill", of_fill, fill),
        ("array_to_string", of_texts, to_string),
        ("trim_array", of_trim, trim),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

fn element(field: &FieldRef) -> Option<&DataType> {
    match field.data_type() {
        DataType::List(element) | DataType::LargeList(element) => Some(element.data_type()),
        _ => None,
    }
}

/// Returns whether values of both types are compared without conversion.
fn is_one(one: &DataType, other: &DataType) -> bool {
    one == other || one.is_string() && other.is_string() || one.is_null() || other.is_null()
}

/// Returns whether PostgreSQL can compare values of both types after a conversion.
fn may_become_one(one: &DataType, other: &DataType) -> bool {
    is_one(one, other) || one.is_numeric() && other.is_numeric() || other.is_string()
}

/// Rejects values whose type differs from the array's element type.
fn check_types(row: &Row<'_>) -> Result<(), SqlError> {
    let mut fields = row.fields.iter().map(|it| element(it).unwrap_or(it.data_type()));
    let first = fields.next();
    match fields.all(|it| first.is_none_or(|first| is_one(first, it))) {
        true => Ok(()),
        false => {
            let what =
                "values must have the element type of the array; other types are not supported";
            Err(SqlError::unsupported(what)
                .with_hint("Cast the values to the element type of the array."))
        }
    }
}

fn of_two(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one, other] => match (element(one), element(other)) {
            (Some(one), Some(other))
                if is_one(one, other) || one.is_decimal() && other.is_decimal() =>
            {
                Ok(Field::new("", DataType::Boolean, true))
            }
            _ => Err(String::new()),
        },
        _ => Err(String::new()),
    }
}

fn of_elements(fields: &[FieldRef], count: usize) -> Result<Field, String> {
    let [list, elements @ ..] = fields else { return Err(String::new()) };
    let Some(of) = element(list) else { return Err(String::new()) };
    match elements.len() == count && elements.iter().all(|it| may_become_one(of, it.data_type())) {
        true => Ok(list.as_ref().clone()),
        false => Err(String::new()),
    }
}

fn of_element(fields: &[FieldRef]) -> Result<Field, String> {
    of_elements(fields, 1)
}

fn of_two_elements(fields: &[FieldRef]) -> Result<Field, String> {
    of_elements(fields, 2)
}

fn of_dimension(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [list, dimension]
            if element(list).is_some()
                && (dimension.data_type().is_integer() || dimension.data_type().is_null()) =>
        {
            Ok(Field::new("", DataType::Int32, true))
        }
        _ => Err(String::new()),
    }
}

fn of_list(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [list] if element(list).is_some() => Ok(text_field()),
        _ => Err(String::new()),
    }
}

/// Returns the elements of a list in their form for bitwise comparison.
fn elements(value: &ScalarValue) -> Result<Option<Vec<ScalarValue>>, SqlError> {
    let Some(list) = list_of(value) else { return Ok(None) };
    let values = (0..list.len()).map(|index| {
        let value = ScalarValue::try_from_array(&list, index)?;
        as_compared(value)
    });
    values.collect::<Result<Vec<_>, SqlError>>().map(Some)
}

fn list_of(value: &ScalarValue) -> Option<Arc<dyn Array>> {
    match value {
        ScalarValue::List(list) if !list.is_null(0) => Some(list.value(0)),
        ScalarValue::LargeList(list) if !list.is_null(0) => Some(list.value(0)),
        _ => None,
    }
}

fn as_compared(value: ScalarValue) -> Result<ScalarValue, SqlError> {
    let of = value.data_type();
    if of.is_nested() || of.is_floating() || matches!(of, DataType::Interval(_)) {
        let what = "comparing elements of multidimensional, floating-point or interval arrays is \
                    not supported";
        return Err(SqlError::unsupported(what));
    }
    Ok(match of.is_string() {
        true => value.cast_to(&DataType::Utf8View)?,
        false => value,
    })
}

fn overlap(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    check_types(row)?;
    let (Some(one), Some(other)) = (elements(&row.values[0])?, elements(&row.values[1])?) else {
        return Ok(ScalarValue::Boolean(None));
    };
    let is_shared = one.iter().any(|it| !it.is_null() && other.contains(it));
    Ok(ScalarValue::Boolean(Some(is_shared)))
}

fn contain(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    check_types(row)?;
    let (Some(one), Some(other)) = (elements(&row.values[0])?, elements(&row.values[1])?) else {
        return Ok(ScalarValue::Boolean(None));
    };
    let contains = other.iter().all(|it| !it.is_null() && one.contains(it));
    Ok(ScalarValue::Boolean(Some(contains)))
}

/// Returns whether two elements are equal. NULL equals NULL here.
fn is_same(one: &ScalarValue, other: &ScalarValue) -> bool {
    one == other || one.is_null() && other.is_null()
}

fn list(row: &Row<'_>, values: &[ScalarValue]) -> Result<ScalarValue, SqlError> {
    let of = element(&row.fields[0]).cloned().unwrap_or(DataType::Null);
    let values = values.iter().map(|it| it.cast_to(&of)).collect::<Result<Vec<_>, _>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&values, &of)))
}

fn remove(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    check_types(row)?;
    let Some(mut values) = elements(&row.values[0])? else { return Ok(row.values[0].clone()) };
    let removed = as_compared(row.values[1].clone())?;
    values.retain(|it| !is_same(it, &removed));
    list(row, &values)
}

fn replace(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    check_types(row)?;
    let Some(mut values) = elements(&row.values[0])? else { return Ok(row.values[0].clone()) };
    let (from, to) = (as_compared(row.values[1].clone())?, as_compared(row.values[2].clone())?);
    for value in values.iter_mut().filter(|it| is_same(it, &from)) {
        *value = to.clone();
    }
    list(row, &values)
}

fn of_places(fields: &[FieldRef]) -> Result<Field, String> {
    of_elements(fields, 1)?;
    let place = Field::new_list_field(DataType::Int32, true);
    Ok(Field::new("", DataType::List(Arc::new(place)), true))
}

fn positions(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    check_types(row)?;
    let Some(values) = elements(&row.values[0])? else {
        return Ok(ScalarValue::new_null_list(DataType::Int32, true, 1));
    };
    let sought = as_compared(row.values[1].clone())?;
    let places = values.iter().zip(1..).filter(|(it, _)| is_same(it, &sought));
    let places: Vec<_> = places.map(|(_, place)| ScalarValue::Int32(Some(place))).collect();
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&places, &DataType::Int32)))
}

/// Returns the length of each dimension of an array. An empty array has none.
fn lengths(value: &ScalarValue) -> Vec<usize> {
    let mut found = Vec::new();
    let mut list = list_of(value);
    while let Some(values) = list.filter(|it| !it.is_empty()) {
        found.push(values.len());
        list = ScalarValue::try_from_array(&values, 0).ok().and_then(|it| list_of(&it));
    }
    found
}

fn lower(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let ScalarValue::Int64(Some(dimension)) = row.values[1].cast_to(&DataType::Int64)? else {
        return Ok(ScalarValue::Int32(None));
    };
    let count = lengths(&row.values[0]).len();
    let is_there = usize::try_from(dimension).is_ok_and(|it| (1..=count).contains(&it));
    Ok(ScalarValue::Int32(is_there.then_some(1)))
}

fn dims(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let lengths = lengths(&row.values[0]);
    if lengths.is_empty() {
        return Ok(ScalarValue::Utf8(None));
    }
    Ok(text_value(lengths.iter().map(|it| format!("[1:{it}]")).collect::<String>()))
}

fn of_fill(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [value, lengths] if element(lengths).is_some() && !value.data_type().is_nested() => {
            let of = value.as_ref().clone().with_name(Field::LIST_FIELD_DEFAULT_NAME);
            Ok(Field::new("", DataType::List(Arc::new(of.with_nullable(true))), true))
        }
        [_, _, _] => Err("array_fill with lower bounds".to_owned()),
        _ => Err(String::new()),
    }
}

fn fill(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some(lengths) = list_of(&row.values[1]) else {
        let what = "dimension array or low bound array cannot be null";
        return Err(SqlError::new(SqlState("22004"), what));
    };
    if lengths.len() > 1 {
        return Err(SqlError::unsupported("array_fill with several dimensions is not supported"));
    }
    let length = match lengths.is_empty() {
        true => Some(0),
        false => int_of(&ScalarValue::try_from_array(&lengths, 0)?)?,
    };
    let Some(length) = length else {
        let what = "dimension values cannot be null";
        return Err(SqlError::new(SqlState("22004"), what));
    };
    let length = usize::try_from(length).unwrap_or(0);
    let value = &row.values[0];
    if length.saturating_mul(value.size().max(1)) > RESULT_BYTES_MAX {
        return Err(too_much("array_fill"));
    }
    let values = vec![value.clone(); length];
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&values, &value.data_type())))
}

fn int_of(value: &ScalarValue) -> Result<Option<i64>, SqlError> {
    match value.cast_to(&DataType::Int64)? {
        ScalarValue::Int64(found) => Ok(found),
        _ => Ok(None),
    }
}

fn of_trim(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [list, count] if element(list).is_some() && count.data_type().is_integer() => {
            Ok(list.as_ref().clone())
        }
        _ => Err(String::new()),
    }
}

fn trim(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(list), Some(count)) = (list_of(&row.values[0]), int_of(&row.values[1])?) else {
        return Ok(ScalarValue::try_from(row.fields[0].data_type())?);
    };
    let kept = usize::try_from(count).ok().and_then(|it| list.len().checked_sub(it));
    let Some(kept) = kept else {
        let what = format!("number of elements to trim must be between 0 and {}", list.len());
        return Err(SqlError::new(SqlState("2202E"), what));
    };
    let values = (0..kept).map(|index| ScalarValue::try_from_array(&list, index));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let of = element(&row.fields[0]).cloned().unwrap_or(DataType::Null);
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&values, &of)))
}

fn of_texts(fields: &[FieldRef]) -> Result<Field, String> {
    let [list, texts @ ..] = fields else { return Err(String::new()) };
    if !(1..=2).contains(&texts.len()) || !texts.iter().all(is_text) {
        return Err(String::new());
    }
    match element(list) {
        Some(DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale))
            if *precision >= DECIMAL128_MAX_PRECISION && *scale > 0 =>
        {
            Err("array_to_string of numerics whose scale is not known".to_owned())
        }
        Some(_) => Ok(text_field()),
        None if list.data_type().is_null() => Ok(text_field()),
        None => Err(String::new()),
    }
}

fn to_string(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(mut list), Some(separator)) = (list_of(&row.values[0]), row.text(1)) else {
        return Ok(ScalarValue::Utf8(None));
    };
    while list.as_list_opt::<i32>().is_some() {
        let whole = ListArray::try_new(
            Arc::new(Field::new_list_field(list.data_type().clone(), true)),
            OffsetBuffer::from_lengths([list.len()]),
            list,
            None,
        );
        let whole: ArrayRef = Arc::new(whole.map_err(of_arrow)?);
        list = flat(&[whole])?.as_list::<i32>().value(0);
    }
    let texts = output_texts(&list).map_err(of_arrow)?;
    let null = row.text(2);
    let texts = texts.as_string_view().iter().filter_map(|it| it.or(null));
    Ok(text_value(texts.collect::<Vec<_>>().join(separator)))
}
