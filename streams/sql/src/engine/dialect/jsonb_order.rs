//! Comparison and grouping of jsonb as in PostgreSQL: null, texts, numbers, booleans, arrays and
//! objects follow one another. Shorter arrays and objects precede longer ones, and an empty array
//! that is not part of another value precedes everything.
//!
//! Values are compared by keys: texts in the same order, as windows cannot be sorted by bytes. They
//! are grouped by their text, which is the same for equal values unless numbers have trailing
//! zeros; these are rejected.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, Placeholder, Sort, WindowFunction};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, Subquery,
};

use super::by_row::{Row, function, is_text, text_field, text_value};
use super::intervals::is_comparison;
use super::json_text::{elements, kind, members};
use super::jsonb::{canonical, unescaped};
use super::own::no_operator;
use super::refusal::refused;
use super::same_json::{JsonType, parameter_as_json};
use super::text_functions::{is_uuid, uuid};
use super::united::is_set_operation;
use crate::error::SqlError;
use crate::wire::jsonb_field;

/// Functions for the key of a value, and for a value by which rows are grouped.
const KEY: &str = "jsonb_key";
const GROUPED: &str = "jsonb_grouped";

/// First bytes of the keys of values, in their order.
const EMPTY: u8 = 0;
const NULL: u8 = 1;
const TEXT: u8 = 2;
const NUMBER: u8 = 3;
const BOOLEAN: u8 = 4;
const ARRAY: u8 = 5;
const OBJECT: u8 = 6;

fn key_function() -> Arc<ScalarUDF> {
    let returns = |fields: &[_]| match fields {
        [one] if is_text(one) => Ok(text_field()),
        _ => Err(String::new()),
    };
    function(KEY, returns, |row| {
        let key = row.text(0).map(|it| {
            let mut key = Vec::with_capacity(it.len());
            match it {
                "[]" => key.push(EMPTY),
                _ => put(it, &mut key)?,
            }
            Ok::<_, SqlError>(hexadecimal(&key))
        });
        Ok(ScalarValue::Utf8(key.transpose()?))
    })
}

fn grouped_function() -> Arc<ScalarUDF> {
    let returns = |fields: &[_]| match fields {
        [one] if is_text(one) => Ok(jsonb_field("", DataType::Utf8View)),
        _ => Err(String::new()),
    };
    function(GROUPED, returns, |row: &Row<'_>| match row.text(0) {
        Some(text) if has_trailing_zeros(text) => {
            Err(refused("grouping jsonb that contains numbers with trailing zeros")
                .with_hint("Group by texts, by ->> or ::text."))
        }
        Some(text) => Ok(text_value(text)),
        None => Ok(ScalarValue::Utf8(None)),
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |it: u8| char::from_digit(it.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|it| [digit(it >> 4), digit(it & 15)]).collect()
}

/// Appends the key of a value in jsonb's form.
fn put(text: &str, key: &mut Vec<u8>) -> Result<(), SqlError> {
    match kind(text) {
        "null" => key.push(NULL),
        "string" => put_text(TEXT, &unescaped(text)?, key),
        "boolean" => key.extend([BOOLEAN, u8::from(text == "true")]),
        "array" => {
            let elements: Vec<_> = elements(text).collect();
            put_count(ARRAY, elements.len(), key);
            elements.into_iter().try_for_each(|it| put(it, key))?;
        }
        "object" => {
            let members: Vec<_> = members(text).collect();
            put_count(OBJECT, members.len(), key);
            for (name, value) in members {
                put_text(TEXT, &unescaped(name)?, key);
                put(value, key)?;
            }
        }
        _ => put_number(text, key),
    }
    Ok(())
}

fn put_count(of: u8, count: usize, key: &mut Vec<u8>) {
    key.push(of);
    key.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

/// No text in jsonb contains a zero byte.
fn put_text(of: u8, text: &str, key: &mut Vec<u8>) {
    key.push(of);
    key.extend(text.as_bytes());
    key.push(0);
}

/// Appends a number without an exponent: its sign, the number of digits before the point, and its
/// digits without the zeros at both ends. The bytes of a negative number are inverted.
fn put_number(text: &str, key: &mut Vec<u8>) {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let places = i64::try_from(whole.len()).unwrap_or(i64::MAX)
        - i64::try_from(all.len() - digits.len()).unwrap_or(0);
    let digits = digits.trim_end_matches('0');
    key.push(NUMBER);
    if digits.is_empty() {
        return key.push(1);
    }
    let begin = key.len();
    key.push(2);
    key.extend((places.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    key.extend(digits.as_bytes());
    key.push(0);
    if is_negative {
        key[begin..].iter_mut().for_each(|it| *it = !*it);
        key[begin] = 0;
    }
}

/// Returns whether a number in a value ends in zeros after the decimal point.
fn has_trailing_zeros(text: &str) -> bool {
    match kind(text) {
        "array" => elements(text).any(has_trailing_zeros),
        "object" => members(text).any(|(_, value)| has_trailing_zeros(value)),
        "number" => text.contains('.') && text.ends_with('0'),
        _ => false,
    }
}

fn is_jsonb(expr: &Expr, schema: &DFSchema) -> bool {
    let field = expr.to_field(schema);
    field.is_ok_and(|(_, field)| JsonType::of(&field) == Some(JsonType::Jsonb))
}

/// Types literals and parameters that are compared with jsonb or with a uuid.
pub(super) fn typed_in_comparison(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let operands: Vec<&mut Expr> = match &mut expr {
        Expr::BinaryExpr(it) if is_comparison(it.op) => {
            vec![it.left.as_mut(), it.right.as_mut()]
        }
        Expr::Between(it) => vec![it.expr.as_mut(), it.low.as_mut(), it.high.as_mut()],
        Expr::InList(it) => std::iter::once(it.expr.as_mut()).chain(&mut it.list).collect(),
        _ => return Ok(Transformed::no(expr)),
    };
    let mut is_changed = false;
    let is_one = |it: &Expr| it.to_field(schema).is_ok_and(|(_, field)| is_uuid(&field));
    let has_uuid = operands.iter().any(|it| is_one(it));
    if has_uuid || operands.iter().any(|it| is_jsonb(it, schema)) {
        for it in operands {
            let typed = match &*it {
                Expr::Literal(ScalarValue::Utf8(_), None) | Expr::Placeholder(_) if has_uuid => {
                    uuid(it.clone())
                }
                Expr::Literal(ScalarValue::Utf8(Some(text)), None) => {
                    let text = canonical(text).map_err(SqlError::into_engine)?;
                    let field = jsonb_field("", DataType::Utf8View);
                    let metadata = Some(FieldMetadata::from(&field));
                    Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata)
                }
                // The engine may have given it the type of the texts that jsonb has here.
                Expr::Placeholder(Placeholder { id, field })
                    if field.as_ref().is_none_or(|it| it.data_type().is_string()) =>
                {
                    let untyped = Placeholder { id: id.clone(), field: None };
                    parameter_as_json(Expr::Placeholder(untyped), JsonType::Jsonb)
                }
                _ => continue,
            };
            *it = typed;
            is_changed = true;
        }
    }
    Ok(Transformed::new_transformed(expr, is_changed))
}

/// Replaces a value by its key, for sorting.
pub(super) fn key_of(expr: Expr, schema: &DFSchema) -> Expr {
    match is_jsonb(&expr, schema) {
        true => key_function().call(vec![expr]),
        false => expr,
    }
}

/// Rewrites what compares values to compare their keys. All operands are known to be comparable.
pub(super) fn compared(mut expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let is_one = |it: &Expr| is_jsonb(it, schema);
    let keys = |it| Ok(Transformed::yes(key_of(it, schema)));
    let sorted = |keys: &mut Vec<Sort>| {
        for key in keys {
            key.expr = key_of(std::mem::take(&mut key.expr), schema);
        }
    };
    match &mut expr {
        Expr::BinaryExpr(it) if is_comparison(it.op) && (is_one(&it.left) || is_one(&it.right)) => {
            return Ok(expr.map_children(keys)?.data);
        }
        Expr::InSubquery(it) => {
            check_members(&it.expr, &it.subquery, Operator::Eq, schema)?;
            if is_one(&it.expr) {
                *it.expr = key_of(std::mem::take(&mut it.expr), schema);
                it.subquery.subquery = keys_of(&it.subquery.subquery)?;
            }
        }
        Expr::SetComparison(it) => {
            check_members(&it.expr, &it.subquery, it.op, schema)?;
            if is_one(&it.expr) {
                *it.expr = key_of(std::mem::take(&mut it.expr), schema);
                it.subquery.subquery = keys_of(&it.subquery.subquery)?;
            }
        }
        Expr::Between(it) if is_one(&it.expr) => return Ok(expr.map_children(keys)?.data),
        Expr::InList(it) if is_one(&it.expr) => return Ok(expr.map_children(keys)?.data),
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            if params.distinct && func.name() == "count" {
                for it in &mut params.args {
                    *it = key_of(std::mem::take(it), schema);
                }
            }
            sorted(&mut params.order_by);
        }
        Expr::WindowFunction(window) => {
            let WindowFunction { params, .. } = window.as_mut();
            sorted(&mut params.order_by);
            for it in &mut params.partition_by {
                *it = key_of(std::mem::take(it), schema);
            }
        }
        _ => {}
    }
    Ok(expr)
}

/// Rejects members of a subquery that are not comparable with a value.
fn check_members(value: &Expr, members: &Subquery, op: Operator, schema: &DFSchema) -> Result<()> {
    let json = value.to_field(schema).ok().and_then(|(_, field)| JsonType::of(&field));
    let members = members.subquery.schema().fields();
    match (json, members.first().and_then(|it| JsonType::of(it))) {
        (None, None) | (Some(JsonType::Jsonb), Some(JsonType::Jsonb)) => Ok(()),
        (None, Some(JsonType::Jsonb)) if is_null(value, schema) => Ok(()),
        (None, Some(JsonType::Jsonb)) if matches!(value, Expr::Literal(..)) => {
            Err(refused("comparing a literal in quotes with a subquery of jsonb")
                .with_hint("Write ::jsonb behind the literal.")
                .into_engine())
        }
        _ => Err(no_operator(&op).into_engine()),
    }
}

fn is_null(value: &Expr, schema: &DFSchema) -> bool {
    value.get_type(schema).is_ok_and(|it| it.is_null())
}

/// Replaces the column of a query by keys.
fn keys_of(plan: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    let columns = plan.schema().columns().into_iter().map(|it| {
        let (qualifier, name) = (it.relation.clone(), it.name.clone());
        key_of(Expr::Column(it), plan.schema()).alias_qualified(qualifier, name)
    });
    let columns = columns.collect::<Vec<_>>();
    let plan = LogicalPlanBuilder::from(Arc::clone(plan)).project(columns)?.build()?;
    Ok(Arc::new(plan))
}

/// Has rows grouped by values of which equal ones have one text.
pub(super) fn grouped(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let all = |plan: Arc<LogicalPlan>| -> Result<Arc<LogicalPlan>> {
        let columns = plan.schema().columns().into_iter().map(Expr::Column);
        let columns = columns.map(|it| grouped_by(it, plan.schema())).collect::<Vec<_>>();
        if columns.iter().all(|it| matches!(it, Expr::Column(_))) {
            return Ok(plan);
        }
        let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
        Ok(Arc::new(plan))
    };
    Ok(match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => {
            LogicalPlan::Distinct(Distinct::All(all(input)?))
        }
        LogicalPlan::Join(mut join) if is_set_operation(&join) => {
            (join.left, join.right) = (all(join.left)?, all(join.right)?);
            LogicalPlan::Join(join)
        }
        LogicalPlan::Aggregate(mut it) if it.group_expr.iter().any(|it| is_jsonb(it, schema)) => {
            for key in &mut it.group_expr {
                *key = grouped_by(std::mem::take(key), schema);
            }
            LogicalPlan::Aggregate(it)
        }
        other => other,
    })
}

/// The value by which rows are grouped, under the same name.
fn grouped_by(expr: Expr, schema: &DFSchema) -> Expr {
    if !is_jsonb(&expr, schema) {
        return expr;
    }
    let (qualifier, name) = expr.qualified_name();
    let bare = expr.unalias();
    grouped_function().call(vec![bare]).alias_qualified(qualifier, name)
}

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![key_function(), grouped_function()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_order_of_values() {
        const ORDERED: &[&str] = &[
            "[]",
            "null",
            "\"\"",
            "\"a\"",
            "\"a\\tb\"",
            "\"ab\"",
            "\"b\"",
            "-100.5",
            "-100",
            "-99",
            "-0.02",
            "-0.01",
            "0",
            "0.001",
            "0.01",
            "0.1",
            "0.11",
            "1",
            "1.05",
            "2",
            "10",
            "99.9",
            "100",
            "false",
            "true",
            "[null]",
            "[1]",
            "[true]",
            "[[]]",
            "[{}]",
            "[1, 2]",
            "[2, 1]",
            "{}",
            "{\"a\": 1}",
            "{\"a\": 2}",
            "{\"b\": 1}",
            "{\"a\": 1, \"b\": 1}",
        ];
        let key = |text: &str| {
            let mut key = Vec::new();
            if text == "[]" {
                key.push(EMPTY)
            } else {
                put(text, &mut key).expect(text)
            }
            key
        };
        for pair in ORDERED.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
        for (one, other) in [("1", "1.00"), ("0", "0.0"), ("[1.5]", "[1.50]"), ("10", "10.0")] {
            assert_eq!(key(one), key(other));
            assert!(has_trailing_zeros(other) && !has_trailing_zeros(one));
        }
    }
}
