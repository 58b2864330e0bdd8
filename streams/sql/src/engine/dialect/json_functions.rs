//! JSON functions of PostgreSQL: inspection, and construction from other values.
//!
//! Invalid JSON is treated as NULL, as by `->`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::by_row::{
    Body, RESULT_BYTES_MAX, Returns, Row, function, is_text, text_field, text_value, too_much,
};
use super::json_text::{elements, kind, members, sorted_members, valid};
use super::jsonb::{put_string, unescaped, written};
use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, described_field, json_field, jsonb_field};

/// Functions that return arrays, for set-returning functions in statements.
pub(super) const ELEMENTS: &str = "json_elements_of";
pub(super) const JSONB_ELEMENTS: &str = "jsonb_elements_of";
pub(super) const ELEMENT_TEXTS: &str = "json_element_texts_of";
pub(super) const JSONB_ELEMENT_TEXTS: &str = "jsonb_element_texts_of";
pub(super) const KEYS: &str = "json_keys_of";
pub(super) const JSONB_KEYS: &str = "jsonb_keys_of";
pub(super) const VALUES: &str = "json_values_of";
pub(super) const JSONB_VALUES: &str = "jsonb_values_of";
pub(super) const VALUE_TEXTS: &str = "json_value_texts_of";
pub(super) const JSONB_VALUE_TEXTS: &str = "jsonb_value_texts_of";
/// Converts a value, including NULL, to JSON.
pub(super) const JSON_OF: &str = "json_of";
pub(super) const JSONB_OF: &str = "jsonb_of";
/// A row, on a separate line within an array.
pub(super) const JSON_LINE: &str = "json_line_of";
/// An array of such rows.
pub(super) const JSON_LIST: &str = "json_list";
pub(super) const JSONB_LIST: &str = "jsonb_list";
/// A name and its value, and an object of a list of such.
pub(super) const JSON_PAIR: &str = "json_pair";
pub(super) const JSONB_PAIR: &str = "jsonb_pair";
/// An object from the names and values of a row, formatted without spaces.
pub(super) const JSON_ROW: &str = "json_of_row";
pub(super) const JSON_OBJECT: &str = "json_of_pairs";
pub(super) const JSONB_OBJECT: &str = "jsonb_of_pairs";

/// Functions that show numerics in JSON.
pub(super) const OF_VALUES: &[&str] = &[
    JSON_OF,
    JSONB_OF,
    JSON_ROW,
    JSON_PAIR,
    JSONB_PAIR,
    "to_json",
    "to_jsonb",
    "json_build_array",
    "jsonb_build_array",
    "json_build_object",
    "jsonb_build_object",
];

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        ("json_typeof", text_of_json, kind_of),
        ("jsonb_typeof", text_of_json, kind_of),
        ("json_array_length", count_of_json, length),
        ("jsonb_array_length", count_of_json, length),
        (ELEMENTS, list_of_texts, |row| element_list(row, plain)),
        (JSONB_ELEMENTS, list_of_texts, |row| element_list(row, canonical_text)),
        (ELEMENT_TEXTS, list_of_texts, |row| element_list(row, text)),
        (JSONB_ELEMENT_TEXTS, list_of_texts, |row| element_list(row, canonical_inner)),
        (KEYS, list_of_texts, |row| member_list(row, false, |name, _| Ok(Some(name)))),
        (JSONB_KEYS, list_of_texts, |row| member_list(row, true, |name, _| Ok(Some(name)))),
        (VALUES, list_of_texts, |row| member_list(row, false, |_, value| plain(value))),
        (JSONB_VALUES, list_of_texts, |row| member_list(row, true, |_, it| canonical_text(it))),
        (VALUE_TEXTS, list_of_texts, |row| member_list(row, false, |_, value| text(value))),
        (JSONB_VALUE_TEXTS, list_of_texts, |row| {
            member_list(row, true, |_, it| canonical_inner(it))
        }),
        (JSON_OF, json_of_any, item),
        (JSON_LINE, json_of_any, |row| Ok(text_value(on_line(row.text(0).unwrap_or_default())))),
        (JSONB_OF, jsonb_of_any, |row| json_of(row, 0, Form::Jsonb).map(text_value)),
        ("to_json", json_of_any, |row| strict(row, Form::Json)),
        ("to_jsonb", jsonb_of_any, |row| strict(row, Form::Jsonb)),
        (JSON_LIST, json_of_list, list),
        (JSONB_LIST, jsonb_of_list, list),
        (JSON_ROW, json_of_all, built_row),
        (JSON_PAIR, of_pair, |row| pair(row, Form::Json)),
        (JSONB_PAIR, of_pair, |row| pair(row, Form::Jsonb)),
        (JSON_OBJECT, json_of_list, |row| {
            Ok(joined(row, ["{ ", ", ", " }"], "json_object_agg")?.map_or_else(no_text, text_value))
        }),
        (JSONB_OBJECT, jsonb_of_list, |row| {
            match joined(row, ["{", ", ", "}"], "jsonb_object_agg")? {
                Some(object) => Ok(ScalarValue::Utf8(canonical_text(&object)?)),
                None => Ok(no_text()),
            }
        }),
        ("json_strip_nulls", json_of_one, |row| {
            Ok(match row.text(0).and_then(valid) {
                Some(json) => text_value(without_nulls(json)),
                None => no_text(),
            })
        }),
        ("json_build_array", json_of_all, |row| built_array(row, Form::Json)),
        ("jsonb_build_array", jsonb_of_all, |row| built_array(row, Form::Jsonb)),
        ("json_build_object", json_of_all, |row| built_object(row, Form::Json)),
        ("jsonb_build_object", jsonb_of_all, |row| built_object(row, Form::Jsonb)),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

fn one_json(fields: &[FieldRef]) -> Result<(), String> {
    match fields {
        [one] if is_text(one) => Ok(()),
        _ => Err(String::new()),
    }
}

fn text_of_json(fields: &[FieldRef]) -> Result<Field, String> {
    one_json(fields).map(|()| text_field())
}

fn json_of_one(fields: &[FieldRef]) -> Result<Field, String> {
    one_json(fields).map(|()| json_field("", DataType::Utf8))
}

/// Removes members that are null, and writes arrays and objects without blanks.
fn without_nulls(json: &str) -> String {
    let parts: Vec<_> = match kind(json) {
        "object" => {
            let kept = members(json).filter(|(_, value)| kind(value) != "null");
            let kept = kept.map(|(name, value)| format!("{name}:{}", without_nulls(value)));
            return format!("{{{}}}", kept.collect::<Vec<_>>().join(","));
        }
        "array" => elements(json).map(without_nulls).collect(),
        _ => return json.trim().to_owned(),
    };
    format!("[{}]", parts.join(","))
}

fn count_of_json(fields: &[FieldRef]) -> Result<Field, String> {
    one_json(fields).map(|()| Field::new("", DataType::Int32, true))
}

fn list_of(element: Field) -> Field {
    Field::new(
        "",
        DataType::List(Arc::new(element.with_name(Field::LIST_FIELD_DEFAULT_NAME))),
        true,
    )
}

fn list_of_texts(fields: &[FieldRef]) -> Result<Field, String> {
    one_json(fields).map(|()| list_of(text_field()))
}

/// Rejects rows, whose conversion to JSON is not supported.
fn may_be_json(field: &FieldRef) -> Result<(), String> {
    match field.data_type() {
        DataType::Struct(_) | DataType::Map(..) => Err("converting a row to json".to_owned()),
        _ => Ok(()),
    }
}

fn json_of_any(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one] => may_be_json(one).map(|()| json_field("", DataType::Utf8)),
        _ => Err(String::new()),
    }
}

fn json_of_all(fields: &[FieldRef]) -> Result<Field, String> {
    fields.iter().try_for_each(may_be_json)?;
    Ok(json_field("", DataType::Utf8))
}

fn json_of_list(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one] if matches!(one.data_type(), DataType::List(_) | DataType::Null) => {
            Ok(json_field("", DataType::Utf8))
        }
        _ => Err(String::new()),
    }
}

fn jsonb_of_any(fields: &[FieldRef]) -> Result<Field, String> {
    json_of_any(fields).map(as_jsonb)
}

fn jsonb_of_all(fields: &[FieldRef]) -> Result<Field, String> {
    json_of_all(fields).map(as_jsonb)
}

fn jsonb_of_list(fields: &[FieldRef]) -> Result<Field, String> {
    json_of_list(fields).map(as_jsonb)
}

fn as_jsonb(json: Field) -> Field {
    jsonb_field("", json.data_type().clone())
}

/// Returns the JSON text of a row's argument, or `None` if it is NULL or invalid.
fn json<'a>(row: &'a Row<'_>) -> Option<&'a str> {
    row.text(0).and_then(valid)
}

fn invalid(what: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, what)
}

fn kind_of(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    Ok(ScalarValue::Utf8(json(row).map(|it| kind(it).to_owned())))
}

fn length(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    match json(row).map(|it| (it, kind(it))) {
        None => Ok(ScalarValue::Int32(None)),
        Some((text, "array")) => Ok(ScalarValue::Int32(i32::try_from(elements(text).count()).ok())),
        Some((_, "object")) => Err(invalid("cannot get array length of a non-array")),
        Some(_) => Err(invalid("cannot get array length of a scalar")),
    }
}

type Shown = Result<Option<String>, SqlError>;

fn plain(value: &str) -> Shown {
    Ok(Some(value.to_owned()))
}

fn canonical_text(value: &str) -> Shown {
    written(value).map(Some)
}

fn text(value: &str) -> Shown {
    match kind(value) {
        "null" => Ok(None),
        "string" => unescaped(value).map(Some),
        _ => plain(value),
    }
}

fn canonical_inner(value: &str) -> Shown {
    match kind(value) {
        "null" | "string" => text(value),
        _ => canonical_text(value),
    }
}

fn list_value(texts: Vec<Option<String>>) -> ScalarValue {
    let values: Vec<_> = texts.into_iter().map(ScalarValue::Utf8).collect();
    ScalarValue::List(ScalarValue::new_list(&values, &DataType::Utf8, true))
}

fn no_list() -> ScalarValue {
    ScalarValue::new_null_list(DataType::Utf8, true, 1)
}

fn element_list(row: &Row<'_>, shown: fn(&str) -> Shown) -> Result<ScalarValue, SqlError> {
    match json(row).map(|it| (it, kind(it))) {
        None => Ok(no_list()),
        Some((list, "array")) => {
            Ok(list_value(elements(list).map(shown).collect::<Result<_, _>>()?))
        }
        Some((_, "object")) => Err(invalid("cannot extract elements from an object")),
        Some(_) => Err(invalid("cannot extract elements from a scalar")),
    }
}

fn member_list(
    row: &Row<'_>,
    is_sorted: bool,
    shown: fn(String, &str) -> Shown,
) -> Result<ScalarValue, SqlError> {
    let Some(object) = json(row) else { return Ok(no_list()) };
    match kind(object) {
        "object" => {
            let all = match is_sorted {
                true => sorted_members(object)?,
                false => members(object)
                    .map(|(name, value)| Ok((unescaped(name)?, value)))
                    .collect::<Result<_, SqlError>>()?,
            };
            let shown = all.into_iter().map(|(name, value)| shown(name, value));
            Ok(list_value(shown.collect::<Result<_, _>>()?))
        }
        other => {
            let what = if other == "array" { "an array" } else { "a scalar" };
            Err(invalid(format!("cannot deconstruct {what} as an object")))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Jsonb,
}

/// Converts a value to JSON.
fn json_of(row: &Row<'_>, index: usize, form: Form) -> Result<String, SqlError> {
    let value = &row.values[index];
    let mut out = String::new();
    if value.is_null() {
        out.push_str("null");
        return Ok(out);
    }
    let field = &row.fields[index];
    let is_json = PgType::of(field).is_json();
    let is_numeric = PgType::described(field).0 == PgType::NUMERIC;
    if let ScalarValue::List(list) = value {
        put_list(&list.value(0), PgType::described(field).0.oid, form, &mut out)?;
        return Ok(out);
    }
    let text = row.output(index)?.unwrap_or_default();
    let is_number = text.bytes().all(|it| it.is_ascii_digit() || b"+-.eE".contains(&it));
    match field.data_type() {
        _ if is_json => match valid(&text) {
            Some(json) => out.push_str(if form == Form::Json { &text } else { json }),
            None => out.push_str("null"),
        },
        DataType::Boolean => out.push_str(if text == "t" { "true" } else { "false" }),
        it if (it.is_numeric() || is_numeric) && is_number => out.push_str(&text),
        DataType::Timestamp(_, zone) => {
            // With the complete UTC offset, of which the output format only has the hours.
            let zone = if zone.is_some() { ":00" } else { "" };
            put_string(&format!("{}{zone}", text.replacen(' ', "T", 1)), &mut out);
        }
        _ => put_string(&text, &mut out),
    }
    match form {
        Form::Json => Ok(out),
        Form::Jsonb => written(&out),
    }
}

fn put_list(
    values: &dyn Array,
    described: u32,
    form: Form,
    out: &mut String,
) -> Result<(), SqlError> {
    let field = Field::new("", values.data_type().clone(), true);
    let field: FieldRef = Arc::new(match described {
        PgType::NUMERICS => described_field(&field, PgType::NUMERIC.oid, -1),
        _ => field,
    });
    let separator = if form == Form::Json { "," } else { ", " };
    out.push('[');
    for index in 0..values.len() {
        out.push_str(if index > 0 { separator } else { "" });
        let value = ScalarValue::try_from_array(values, index)?;
        let row = Row { values: &[value], fields: std::slice::from_ref(&field) };
        out.push_str(&json_of(&row, 0, form)?);
    }
    out.push(']');
    Ok(())
}

fn strict(row: &Row<'_>, form: Form) -> Result<ScalarValue, SqlError> {
    match row.values[0].is_null() {
        true => Ok(ScalarValue::Utf8(None)),
        false => json_of(row, 0, form).map(text_value),
    }
}

fn list(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    Ok(joined(row, ["[", ", ", "]"], "json_agg")?.map_or_else(no_text, text_value))
}

/// Marks an array element that starts a new line. This character cannot occur in JSON.
const LINE: char = '\u{1}';

fn on_line(text: &str) -> String {
    format!("{LINE}{text}")
}

/// Converts an element of an aggregated array.
fn item(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let json = json_of(row, 0, Form::Json)?;
    let is_array = matches!(row.values[0], ScalarValue::List(_)) && !row.values[0].is_null();
    Ok(text_value(if is_array { on_line(&json) } else { json }))
}

fn no_text() -> ScalarValue {
    ScalarValue::Utf8(None)
}

/// Concatenates a list of texts with an opening sign, a separator and a closing sign.
fn joined(row: &Row<'_>, signs: [&str; 3], name: &str) -> Result<Option<String>, SqlError> {
    let ScalarValue::List(list) = &row.values[0] else { return Ok(None) };
    if list.is_null(0) {
        return Ok(None);
    }
    let mut out = String::from(signs[0]);
    let texts = datafusion::arrow::compute::cast(&list.value(0), &DataType::Utf8View)
        .map_err(|error| SqlError::new(SqlState::INTERNAL, error.to_string()))?;
    for (index, text) in texts.as_string_view().iter().enumerate() {
        out.push_str(if index > 0 { signs[1] } else { "" });
        let text = text.unwrap_or("null");
        match text.strip_prefix(LINE) {
            Some(text) => out.extend([if index > 0 { "\n " } else { "" }, text]),
            None => out.push_str(text),
        }
        if out.len() > RESULT_BYTES_MAX {
            return Err(too_much(name));
        }
    }
    out.push_str(signs[2]);
    Ok(Some(out))
}

fn of_pair(fields: &[FieldRef]) -> Result<Field, String> {
    fields.iter().try_for_each(may_be_json)?;
    if fields.len() == 2 { Ok(text_field()) } else { Err(String::new()) }
}

fn pair(row: &Row<'_>, form: Form) -> Result<ScalarValue, SqlError> {
    check_key(&row.fields[0])?;
    let Some(name) = row.output(0)? else {
        return Err(invalid("field name must not be null"));
    };
    let mut part = String::new();
    put_string(&name, &mut part);
    part.push_str(" : ");
    part.push_str(&json_of(row, 1, form)?);
    Ok(text_value(part))
}

/// Rejects names that are arrays or JSON.
fn check_key(field: &FieldRef) -> Result<(), SqlError> {
    let is_list = matches!(field.data_type(), DataType::List(_));
    match is_list || PgType::of(field).is_json() {
        true => Err(invalid("key value must be scalar, not array, composite, or json")),
        false => Ok(()),
    }
}

fn built_array(row: &Row<'_>, form: Form) -> Result<ScalarValue, SqlError> {
    let all = (0..row.values.len()).map(|index| json_of(row, index, form));
    Ok(text_value(format!("[{}]", all.collect::<Result<Vec<_>, _>>()?.join(", "))))
}

fn built_row(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let mut out = String::from("{");
    for index in (0..row.values.len()).step_by(2) {
        out.push_str(if index > 0 { "," } else { "" });
        put_string(row.text(index).unwrap_or_default(), &mut out);
        out.push(':');
        out.push_str(&json_of(row, index + 1, Form::Json)?);
    }
    out.push('}');
    Ok(text_value(out))
}

fn built_object(row: &Row<'_>, form: Form) -> Result<ScalarValue, SqlError> {
    if !row.values.len().is_multiple_of(2) {
        return Err(invalid("argument list must have even number of elements"));
    }
    let mut parts = Vec::new();
    for index in (0..row.values.len()).step_by(2) {
        check_key(&row.fields[index])?;
        let Some(name) = row.output(index)? else {
            let what = match form {
                Form::Json => format!("argument {} cannot be null", index + 1),
                Form::Jsonb => format!("argument {}: key must not be null", index + 1),
            };
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
        };
        let mut part = String::new();
        put_string(&name, &mut part);
        part.push_str(" : ");
        part.push_str(&json_of(row, index + 1, form)?);
        parts.push(part);
    }
    let object = format!("{{{}}}", parts.join(", "));
    match form {
        Form::Json => Ok(text_value(object)),
        Form::Jsonb => Ok(ScalarValue::Utf8(canonical_text(&object)?)),
    }
}
