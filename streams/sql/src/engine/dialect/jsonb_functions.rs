//! Functions and operators that modify or compare jsonb: `||`, `-`, `#-`, `@>`, `jsonb_set` and
//! similar.
//!
//! Invalid JSON is treated as NULL, as by `->`.

use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::by_row::{Body, Returns, Row, function, is_text, text_field, text_value};
use super::json_text::{elements, kind, sorted_members, valid};
use super::jsonb::{put_string, unescaped, written};
use crate::error::{SqlError, SqlState};
use crate::wire::{array_elements, jsonb_field};

/// Functions that implement operators.
pub(super) const CONCATENATED: &str = "jsonb_concatenated";
pub(super) const WITHOUT: &str = "jsonb_without";
pub(super) const WITHOUT_PATH: &str = "jsonb_without_path";
pub(super) const CONTAINS: &str = "jsonb_contains_jsonb";
pub(super) const HAS_ANY: &str = "jsonb_has_any";
pub(super) const HAS_ALL: &str = "jsonb_has_all";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        (CONCATENATED, of_two_jsons, concatenated),
        (WITHOUT, of_keys, without),
        (WITHOUT_PATH, of_path, without_path),
        (CONTAINS, test_of_two_jsons, contains),
        (HAS_ANY, test_of_keys, |row| has(row, Has::Any)),
        (HAS_ALL, test_of_keys, |row| has(row, Has::All)),
        ("jsonb_set", of_change, set),
        ("jsonb_insert", of_change, insert),
        ("jsonb_strip_nulls", of_json, strip_nulls),
        ("jsonb_pretty", text_of_json, pretty),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

/// A jsonb value.
#[derive(Clone, Debug)]
enum Node {
    /// JSON's null, a boolean or a number, as written.
    Word(String),
    Text(String),
    List(Vec<Node>),
    /// Members in jsonb's order, with unique names.
    Object(Vec<(String, Node)>),
}

impl Node {
    /// Parses valid JSON.
    fn of(text: &str) -> Result<Self, SqlError> {
        Ok(match kind(text) {
            "object" => {
                let members = sorted_members(text)?.into_iter();
                let members = members.map(|(name, value)| Ok((name, Self::of(value)?)));
                Self::Object(members.collect::<Result<_, SqlError>>()?)
            }
            "array" => Self::List(elements(text).map(Self::of).collect::<Result<_, _>>()?),
            "string" => Self::Text(unescaped(text)?),
            _ => Self::Word(written(text)?),
        })
    }

    fn is_scalar(&self) -> bool {
        matches!(self, Self::Word(_) | Self::Text(_))
    }

    fn put(&self, out: &mut String) {
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Text(text) => put_string(text, out),
            Self::List(list) => {
                out.push('[');
                for (index, value) in list.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    value.put(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    put_string(name, out);
                    out.push_str(": ");
                    value.put(out);
                }
                out.push('}');
            }
        }
    }

    fn put_lines(&self, depth: usize, out: &mut String) {
        let line = |depth, out: &mut String| {
            out.push('\n');
            out.extend(std::iter::repeat_n("    ", depth));
        };
        match self {
            Self::List(list) => {
                out.push('[');
                for (index, value) in list.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    line(depth + 1, out);
                    value.put_lines(depth + 1, out);
                }
                line(depth, out);
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    line(depth + 1, out);
                    put_string(name, out);
                    out.push_str(": ");
                    value.put_lines(depth + 1, out);
                }
                line(depth, out);
                out.push('}');
            }
            scalar => scalar.put(out),
        }
    }

    fn value(&self) -> ScalarValue {
        let mut out = String::new();
        self.put(&mut out);
        text_value(out)
    }

    /// Returns whether both are equal scalars. 1.0 equals 1.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Word(one), Self::Word(other)) => digits(one) == digits(other),
            _ => false,
        }
    }

    /// Returns whether an array or object contains all of another one.
    fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(members), Self::Object(others)) => others.iter().all(|(name, other)| {
                let found = members.iter().find(|(it, _)| it == name);
                found.is_some_and(|(_, value)| match other.is_scalar() {
                    true => value.is_same(other),
                    false => value.contains(other),
                })
            }),
            (Self::List(list), Self::List(others)) => others.iter().all(|other| {
                list.iter().any(|value| match other.is_scalar() {
                    true => value.is_same(other),
                    false => value.contains(other),
                })
            }),
            _ => false,
        }
    }
}

/// Returns a number without trailing zeros.
fn digits(word: &str) -> &str {
    match word.contains('.') {
        true => word.trim_end_matches('0').trim_end_matches('.'),
        false => word,
    }
}

fn of_json(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one] if is_text(one) => Ok(jsonb_field("", DataType::Utf8)),
        _ => Err(String::new()),
    }
}

fn text_of_json(fields: &[FieldRef]) -> Result<Field, String> {
    of_json(fields).map(|_| text_field())
}

fn of_two_jsons(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one, other] if is_text(one) && is_text(other) => Ok(jsonb_field("", DataType::Utf8)),
        _ => Err(String::new()),
    }
}

fn test_of_two_jsons(fields: &[FieldRef]) -> Result<Field, String> {
    of_two_jsons(fields).map(|_| Field::new("", DataType::Boolean, true))
}

fn is_texts(field: &FieldRef) -> bool {
    match field.data_type() {
        DataType::List(element) => element.data_type().is_string(),
        _ => is_text(field),
    }
}

fn of_path(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one, path] if is_text(one) && is_texts(path) => Ok(jsonb_field("", DataType::Utf8)),
        _ => Err(String::new()),
    }
}

fn test_of_keys(fields: &[FieldRef]) -> Result<Field, String> {
    of_path(fields).map(|_| Field::new("", DataType::Boolean, true))
}

fn of_keys(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one, index]
            if is_text(one) && matches!(index.data_type(), DataType::Int16 | DataType::Int32) =>
        {
            Ok(jsonb_field("", DataType::Utf8))
        }
        other => of_path(other),
    }
}

fn of_change(fields: &[FieldRef]) -> Result<Field, String> {
    let is_flag = |it: &FieldRef| matches!(it.data_type(), DataType::Boolean | DataType::Null);
    match fields {
        [one, path, value] | [one, path, value, _]
            if is_text(one)
                && is_texts(path)
                && is_text(value)
                && fields.get(3).is_none_or(is_flag) =>
        {
            Ok(jsonb_field("", DataType::Utf8))
        }
        _ => Err(String::new()),
    }
}

/// Returns a jsonb argument, or `None` if it is NULL or invalid.
fn node(row: &Row<'_>, index: usize) -> Result<Option<Node>, SqlError> {
    row.text(index).and_then(valid).map(Node::of).transpose()
}

/// Returns the texts of an array or an array literal.
fn texts(value: &ScalarValue) -> Result<Option<Vec<Option<String>>>, SqlError> {
    if let Some(text) = value.try_as_str() {
        return text.map(array_elements).transpose();
    }
    let ScalarValue::List(list) = value else { return Ok(None) };
    if list.is_null(0) {
        return Ok(None);
    }
    let values = list.value(0);
    let texts = (0..values.len()).map(|index| {
        let value = ScalarValue::try_from_array(&values, index)?;
        Ok(value.try_as_str().flatten().map(str::to_owned))
    });
    texts.collect::<Result<_, SqlError>>().map(Some)
}

const NULL: ScalarValue = ScalarValue::Utf8(None);

fn invalid(what: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, what)
}

fn concatenated(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(left), Some(right)) = (node(row, 0)?, node(row, 1)?) else { return Ok(NULL) };
    let whole = match (left, right) {
        (Node::Object(mut members), Node::Object(others)) => {
            for (name, value) in others {
                put_member(&mut members, name, value);
            }
            Node::Object(members)
        }
        (left, right) => {
            let list = |it| match it {
                Node::List(list) => list,
                other => vec![other],
            };
            Node::List([list(left), list(right)].concat())
        }
    };
    Ok(whole.value())
}

fn put_member(members: &mut Vec<(String, Node)>, name: String, value: Node) {
    let place = |it: &str| (it.len(), it.to_owned());
    let found = members.binary_search_by(|(it, _)| place(it).cmp(&place(&name)));
    match found {
        Ok(index) => members[index].1 = value,
        Err(index) => members.insert(index, (name, value)),
    }
}

fn without(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some(mut node) = node(row, 0)? else { return Ok(NULL) };
    let key = &row.values[1];
    if key.is_null() {
        return Ok(NULL);
    }
    if node.is_scalar() {
        return Err(invalid("cannot delete from scalar"));
    }
    if key.data_type().is_integer() {
        let ScalarValue::Int64(Some(index)) = key.cast_to(&DataType::Int64)? else {
            return Ok(NULL);
        };
        let Node::List(list) = &mut node else {
            return Err(invalid("cannot delete from object using integer index"));
        };
        if let Some(index) = place_of(index, list.len()).filter(|it| *it < list.len()) {
            list.remove(index);
        }
        return Ok(node.value());
    }
    let keys = match key.try_as_str() {
        Some(text) => vec![text.map(str::to_owned)],
        None => texts(key)?.unwrap_or_default(),
    };
    let is_key = |it: &str| keys.iter().any(|key| key.as_deref() == Some(it));
    match &mut node {
        Node::Object(members) => members.retain(|(name, _)| !is_key(name)),
        Node::List(list) => list.retain(|it| !matches!(it, Node::Text(text) if is_key(text))),
        _ => {}
    }
    Ok(node.value())
}

/// Resolves an index, where negative ones count from the end. Returns `None` for a position before
/// the first element.
fn place_of(index: i64, count: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => count.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

fn contains(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(left), Some(right)) = (node(row, 0)?, node(row, 1)?) else {
        return Ok(ScalarValue::Boolean(None));
    };
    let contains = match (&left, &right) {
        // An array contains a scalar as it contains an array of that scalar.
        (Node::List(list), right) if right.is_scalar() => list.iter().any(|it| it.is_same(right)),
        (left, right) if left.is_scalar() => left.is_same(right),
        (left, right) => left.contains(right),
    };
    Ok(ScalarValue::Boolean(Some(contains)))
}

/// Number of keys that must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    Any,
    All,
}

fn has(row: &Row<'_>, wanted: Has) -> Result<ScalarValue, SqlError> {
    let (Some(node), Some(keys)) = (node(row, 0)?, texts(&row.values[1])?) else {
        return Ok(ScalarValue::Boolean(None));
    };
    let is_there = |key: &str| match &node {
        Node::Object(members) => members.iter().any(|(name, _)| name == key),
        Node::List(list) => list.iter().any(|it| matches!(it, Node::Text(text) if text == key)),
        Node::Text(text) => text == key,
        Node::Word(_) => false,
    };
    let mut keys = keys.iter().flatten();
    Ok(ScalarValue::Boolean(Some(match wanted {
        Has::Any => keys.any(|it| is_there(it)),
        Has::All => keys.all(|it| is_there(it)),
    })))
}

/// Modification at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Remove,
    Replace,
    /// Replaces the element, or adds it if it is missing.
    Put,
    InsertBefore,
    InsertAfter,
}

impl Change {
    fn adds(self) -> bool {
        !matches!(self, Self::Remove | Self::Replace)
    }

    fn inserts(self) -> bool {
        matches!(self, Self::InsertBefore | Self::InsertAfter)
    }
}

fn without_path(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(node), Some(path)) = (node(row, 0)?, texts(&row.values[1])?) else {
        return Ok(NULL);
    };
    if node.is_scalar() {
        return Err(invalid("cannot delete path in scalar"));
    }
    changed(node, &path, &Node::List(Vec::new()), Change::Remove)
}

fn set(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    change(row, true, |creates| if creates { Change::Put } else { Change::Replace })
}

fn insert(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    change(row, false, |after| if after { Change::InsertAfter } else { Change::InsertBefore })
}

fn change(
    row: &Row<'_>,
    otherwise: bool,
    change: fn(bool) -> Change,
) -> Result<ScalarValue, SqlError> {
    let flag = match row.values.get(3) {
        None => Some(otherwise),
        Some(ScalarValue::Boolean(flag)) => *flag,
        Some(_) => None,
    };
    let (Some(node), Some(path), Some(value), Some(flag)) =
        (node(row, 0)?, texts(&row.values[1])?, self::node(row, 2)?, flag)
    else {
        return Ok(NULL);
    };
    if node.is_scalar() {
        return Err(invalid("cannot set path in scalar"));
    }
    changed(node, &path, &value, change(flag))
}

fn changed(
    mut node: Node,
    path: &[Option<String>],
    value: &Node,
    change: Change,
) -> Result<ScalarValue, SqlError> {
    let is_empty = match &node {
        Node::List(list) => list.is_empty(),
        Node::Object(members) => members.is_empty(),
        _ => false,
    };
    if !path.is_empty() && (!is_empty || change.adds()) {
        change_at(&mut node, path, 0, value, change)?;
    }
    Ok(node.value())
}

fn change_at(
    node: &mut Node,
    path: &[Option<String>],
    level: usize,
    value: &Node,
    change: Change,
) -> Result<(), SqlError> {
    let Some(step) = &path[level] else {
        let what = format!("path element at position {} is null", level + 1);
        return Err(SqlError::new(SqlState("22004"), what));
    };
    let is_last = level + 1 == path.len();
    match node {
        Node::Object(members) => match members.iter().position(|(name, _)| name == step) {
            Some(index) if !is_last => {
                change_at(&mut members[index].1, path, level + 1, value, change)?;
            }
            Some(_) if change.inserts() => return Err(invalid("cannot replace existing key")),
            Some(index) if change == Change::Remove => {
                members.remove(index);
            }
            Some(index) => members[index].1 = value.clone(),
            None if is_last && change.adds() => put_member(members, step.clone(), value.clone()),
            None => {}
        },
        Node::List(list) => {
            let Ok(index) = step.trim_start().parse::<i32>() else {
                let position = level + 1;
                let what =
                    format!("path element at position {position} is not an integer: {step:?}");
                return Err(SqlError::new(SqlState::INVALID_TEXT, what));
            };
            let place = place_of(index.into(), list.len());
            match place.filter(|it| *it < list.len()) {
                Some(index) if !is_last => {
                    change_at(&mut list[index], path, level + 1, value, change)?;
                }
                Some(index) => match change {
                    Change::Remove => drop(list.remove(index)),
                    Change::Replace | Change::Put => list[index] = value.clone(),
                    Change::InsertBefore => list.insert(index, value.clone()),
                    Change::InsertAfter => list.insert(index + 1, value.clone()),
                },
                None if is_last && change.adds() => {
                    let at = if place.is_none() { 0 } else { list.len() };
                    list.insert(at, value.clone());
                }
                None => {}
            }
        }
        Node::Word(_) | Node::Text(_) => {}
    }
    Ok(())
}

fn strip_nulls(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    fn stripped(node: Node) -> Node {
        match node {
            Node::List(list) => Node::List(list.into_iter().map(stripped).collect()),
            Node::Object(members) => {
                let is_null = |it: &Node| matches!(it, Node::Word(word) if word == "null");
                let kept = members.into_iter().filter(|(_, it)| !is_null(it));
                Node::Object(kept.map(|(name, it)| (name, stripped(it))).collect())
            }
            scalar => scalar,
        }
    }
    Ok(node(row, 0)?.map_or(NULL, |it| stripped(it).value()))
}

fn pretty(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some(node) = node(row, 0)? else { return Ok(NULL) };
    let mut out = String::new();
    node.put_lines(0, &mut out);
    Ok(text_value(out))
}
