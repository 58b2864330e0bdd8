//! Checks the operand types of functions and operators once types are known. The engine would
//! convert other types to text, and treats JSON as text.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, JoinConstraint, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, InList, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Join, LogicalPlan, Operator,
};

use super::array_order;
use super::casts::cast_target;
use super::chains;
use super::conversions::To;
use super::intervals::is_comparison;
use super::json_functions::{JSON_LINE, JSON_OF, JSON_PAIR, JSONB_OF, JSONB_PAIR};
use super::kinds::{Kind, has_cast};
use super::known::Columns;
use super::numbers::mixed_column;
use super::own::{does_not_exist, no_operator};
use super::planned::type_of;
use super::refusal::refused;
use super::same_json::JsonType;
use super::scale_exprs::own_scale;
use super::united::is_set_operation;
use crate::error::{SqlError, SqlState};

/// Functions whose first argument must be a text.
const OF_TEXT: &[&str] = &[
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "initcap",
    "left",
    "lower",
    "lpad",
    "ltrim",
    "octet_length",
    "overlay",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
    "repeat",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "split_part",
    "starts_with",
    "string_to_array",
    "strpos",
    "substr",
    "translate",
    "upper",
];

/// Functions that search for the elements of one array in another.
const OF_ELEMENTS: &[&str] = &["array_has_all", "array_has_any"];

/// Rejects invalid operations of a plan node on its rows.
pub(super) fn check_rows(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    check_sorted(plan, schema)?;
    check_numbers(plan, schema)
}

/// Rejects `SELECT *` from joins with USING unless the merged columns come first on the left side,
/// because `*` starts with them.
pub(in crate::engine) fn check_wild_joins(
    plan: &LogicalPlan,
    columns: Columns,
) -> Result<(), SqlError> {
    plan.apply_with_subqueries(|plan| {
        let LogicalPlan::Join(Join { left, on, join_constraint: JoinConstraint::Using, .. }) = plan
        else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let keys = on.iter().enumerate();
        let is_first = keys.into_iter().all(|(index, (key, _))| match key {
            Expr::Column(column) => {
                left.schema().fields().get(index).is_some_and(|it| *it.name() == column.name)
            }
            _ => false,
        });
        // Of two merged columns, the engine returns the one whose table's name sorts first.
        let is_shown = columns == Columns::Ordered
            || !has_merged(left)
                && on.iter().all(|(left, right)| match (left, right) {
                    (Expr::Column(left), Expr::Column(right)) => left <= right,
                    _ => false,
                });
        match is_first && is_shown {
            true => Ok(TreeNodeRecursion::Continue),
            false => Err(refused("SELECT * from this join with USING or NATURAL")
                .with_hint("Name the columns.")
                .into_engine()),
        }
    })?;
    Ok(())
}

/// Returns whether a join, or one below it, merges columns.
fn has_merged(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => {
            join.join_constraint == JoinConstraint::Using
                || has_merged(&join.left)
                || has_merged(&join.right)
        }
        _ => false,
    }
}

/// Rejects sorting, grouping and DISTINCT on json, which has no order and would be compared as
/// text; and on jsonb where it would be.
fn check_sorted(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    let json_in = |schema: &DFSchema| {
        let is_json = |it: &JsonType| *it == JsonType::Json;
        schema.fields().iter().filter_map(|it| JsonType::of(it)).find(is_json)
    };
    let json_among = |exprs: &[Expr]| {
        exprs.iter().filter_map(|it| json_of(it, schema)).find(|it| *it == JsonType::Json)
    };
    let json = match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => json_in(input.schema()),
        LogicalPlan::Distinct(Distinct::On(on)) => {
            on.on_expr.iter().find_map(|it| json_of(it, schema))
        }
        LogicalPlan::Aggregate(it) => match it.group_expr.as_slice() {
            [Expr::GroupingSet(sets)] => {
                sets.distinct_expr().into_iter().find_map(|it| json_of(it, schema))
            }
            keys => json_among(keys),
        },
        LogicalPlan::Sort(sort) => {
            json_among(&sort.expr.iter().map(|it| it.expr.clone()).collect::<Vec<_>>())
        }
        LogicalPlan::Join(join) if is_set_operation(join) => json_in(join.left.schema()),
        LogicalPlan::Join(join) => {
            join.on.iter().find_map(|(left, _)| json_of(left, join.left.schema()))
        }
        _ => None,
    };
    json.map_or(Ok(()), |it| Err(is_not_compared(it)))
}

/// Rejects VALUES whose numeric column type would differ from PostgreSQL.
fn check_numbers(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    let is_cast = |it: &Expr| match it {
        Expr::Cast(cast) => {
            cast.field.data_type().is_decimal()
                && cast.expr.get_type(schema).is_ok_and(|it| it.is_floating())
        }
        _ => false,
    };
    if let LogicalPlan::Values(values) = plan
        && values.values.iter().flatten().any(|it| has_mixed_case(it, schema))
    {
        return Err(refused("VALUES with a CASE of different numeric types")
            .with_hint("Cast the results of CASE to one type.")
            .into_engine());
    }
    match plan {
        LogicalPlan::Values(values) if values.values.iter().flatten().any(is_cast) => {
            Err(mixed_column().into_engine())
        }
        _ => Ok(()),
    }
}

/// Returns whether an expression contains a CASE with several numeric types. Its type is determined
/// only after that of the column.
fn has_mixed_case(expr: &Expr, schema: &DFSchema) -> bool {
    let is_mixed = |expr: &Expr| match expr {
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, value)| value);
            let types = values.chain(&case.else_expr).filter_map(|it| it.get_type(schema).ok());
            let mut types = types.filter(DataType::is_numeric);
            types.next().is_some_and(|first| types.any(|it| it != first))
        }
        _ => false,
    };
    expr.exists(|it| Ok(is_mixed(it))).unwrap_or(false)
}

/// Error of a comparison: PostgreSQL has none for json, and the engine none for jsonb.
pub(super) fn is_not_compared(json: JsonType) -> DataFusionError {
    let error = match json {
        JsonType::Jsonb => refused("comparing jsonb"),
        JsonType::Json => {
            let what = "there is no operator that compares values of type json";
            SqlError::new(SqlState::UNDEFINED_FUNCTION, what)
        }
    };
    error.with_hint("Compare texts, by ->> or ::text.").into_engine()
}

/// Rejects an expression whose operand types are not supported.
pub(super) fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    check_relations(expr)?;
    match expr {
        Expr::ScalarFunction(call) => {
            if let (Some(to), [from]) = (cast_target(&call.func), call.args.as_slice()) {
                let to = match call.func.name() == To::Jsonb.name() {
                    true => Kind::Json,
                    false => Kind::of_field(&Field::new("", to, true)),
                };
                check_cast(Kind::of(from, schema), to)?;
            }
            check_call(call, schema)
        }
        Expr::Cast(cast) => check_cast(Kind::of(&cast.expr, schema), Kind::of_field(&cast.field)),
        Expr::AggregateFunction(call) => check_aggregate(call, schema),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ Operator::Plus, right }) => {
            let is_time =
                |it: &Expr| it.get_type(schema).is_ok_and(|it| matches!(it, DataType::Time64(_)));
            match is_time(left) && is_time(right) {
                true => Err(no_operator(&op).into_engine()),
                false => Ok(()),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            if are_apart(left, right, schema) {
                return Err(no_operator(&op).into_engine());
            }
            check_comparison(&[left, right], schema, *op)
        }
        Expr::InList(InList { expr, list, .. }) => {
            let is_bytes = expr.get_type(schema).is_ok_and(|it| is_binary(&it));
            if is_bytes && list.iter().any(|it| it.get_type(schema).is_ok_and(|it| it.is_string()))
            {
                let error = refused("IN with bytea and untyped literals");
                return Err(error.with_hint("Cast the literals to bytea.").into_engine());
            }
            if list.iter().any(|it| are_apart(expr, it, schema)) {
                return Err(no_operator(&Operator::Eq).into_engine());
            }
            let operands: Vec<_> = std::iter::once(&**expr).chain(list).collect();
            check_comparison(&operands, schema, Operator::Eq)
        }
        Expr::WindowFunction(call) => {
            let params = &call.params;
            let sorted = params.order_by.iter().map(|it| &it.expr).chain(&params.partition_by);
            check_keys(sorted, schema)?;
            check_default(call.fun.name(), &params.args, schema)
        }
        Expr::Between(it) => {
            check_comparison(&[&it.expr, &it.low, &it.high], schema, Operator::GtEq)
        }
        _ => Ok(()),
    }
}

/// Returns whether the engine compares types that PostgreSQL does not.
fn are_apart(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let of = |it: &Expr| it.get_type(schema);
    let (Ok(left), Ok(right)) = (of(left), of(right)) else { return false };
    match (&left, &right) {
        (DataType::List(one), DataType::List(other)) => {
            !array_order::are_same(one.data_type(), other.data_type())
        }
        _ => left.is_temporal() && right.is_numeric() || left.is_numeric() && right.is_temporal(),
    }
}

fn check_cast(from: Kind, to: Kind) -> Result<()> {
    match has_cast(from, to) {
        true => Ok(()),
        false => {
            let what = format!("cannot cast {} to {}", from.name(), to.name());
            Err(SqlError::new(SqlState::CANNOT_COERCE, what).into_engine())
        }
    }
}

fn check_call(call: &ScalarFunction, schema: &DFSchema) -> Result<()> {
    chains::check(call, schema)?;
    let name = call.func.name();
    if OF_ELEMENTS.contains(&name) {
        return match call.args.iter().all(has_no_null) {
            true => Ok(()),
            false => {
                Err(refused("operators @>, <@ and && on arrays that may contain NULL")
                    .into_engine())
            }
        };
    }
    if name == "array_element" {
        let element = call.args.first().and_then(|it| element_of(it, schema));
        return match element {
            Some(DataType::List(_)) => {
                Err(refused("subscripting a multidimensional array").into_engine())
            }
            _ => Ok(()),
        };
    }
    if name == "array_concat" {
        return check_joined(call, schema);
    }
    if name == "make_array" {
        if call.args.iter().any(|it| is_json(it, schema)) {
            return Err(refused("ARRAY with json elements")
                .with_hint("Use jsonb_build_array.")
                .into_engine());
        }
        let types = call.args.iter().filter_map(|it| type_of(it, schema).ok());
        return check_elements(types, "an array of numerics with different scales");
    }
    let Some(first) = call.args.first().filter(|it| OF_TEXT.contains(&name) && !is_text_call(it))
    else {
        return Ok(());
    };
    let Ok((_, field)) = first.to_field(schema) else { return Ok(()) };
    if let Some(json) = JsonType::of(&field) {
        return Err(no_function(name, json).into_engine());
    }
    let data_type = field.data_type().clone();
    match data_type.is_string()
        || data_type.is_null()
        || is_binary(&data_type) && name == "character_length"
    {
        true => Ok(()),
        false => Err(does_not_exist(name, &[data_type]).into_engine()),
    }
}

/// Returns whether an expression is a call whose result is a text, without walking down its
/// operands, so that calls in calls do not take quadratic time.
fn is_text_call(expr: &Expr) -> bool {
    const TEXTS: &[&str] = &["initcap", "lower", "replace", "reverse", "rpad", "upper"];
    matches!(expr, Expr::ScalarFunction(call) if TEXTS.contains(&call.func.name()))
}

/// An oid of a relation that came from a name is shown as a name by PostgreSQL.
fn check_relations(expr: &Expr) -> Result<()> {
    const SHOWING: &[&str] = &["concat", "concat_ws", "format", "make_array", "text", "textout"];
    let is_relation = |it: &Expr| match it {
        Expr::ScalarFunction(inner) => ["regclass_oid", "to_regclass"].contains(&inner.func.name()),
        _ => false,
    };
    let is_shown = match expr {
        Expr::ScalarFunction(call) => {
            SHOWING.contains(&call.func.name()) && call.args.iter().any(is_relation)
        }
        Expr::Case(case) => {
            let thens = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            thens.chain(case.else_expr.as_deref()).any(is_relation)
        }
        _ => false,
    };
    match is_shown {
        true => Err(refused("regclass within an expression")
            .with_hint("Cast it to text: 'name'::regclass::text.")
            .into_engine()),
        false => Ok(()),
    }
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::BinaryView | DataType::LargeBinary)
}

fn element_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    match expr.get_type(schema).ok()? {
        DataType::List(element) => Some(element.data_type().clone()),
        _ => None,
    }
}

fn check_joined(call: &ScalarFunction, schema: &DFSchema) -> Result<()> {
    let elements = call.args.iter().filter_map(|it| element_of(it, schema));
    check_elements(elements, "concatenating arrays of numerics with different scales")
}

/// Mixed numerics would be padded with zeros.
fn check_elements(types: impl Iterator<Item = DataType>, what: &str) -> Result<()> {
    let types: Vec<_> = types.filter(|it| !it.is_null()).collect();
    let is_mixed = types.windows(2).any(|it| it[0] != it[1]);
    match is_mixed && types.iter().any(DataType::is_decimal) {
        true => Err(refused(what).into_engine()),
        false => Ok(()),
    }
}

fn check_aggregate(call: &AggregateFunction, schema: &DFSchema) -> Result<()> {
    let name = call.func.name();
    let params = &call.params;
    if let Some(filter) = &params.filter
        && filter.get_type(schema).is_ok_and(|it| it != DataType::Boolean && !it.is_null())
    {
        let what = "argument of FILTER must be type boolean";
        return Err(SqlError::new(SqlState::DATATYPE, what).into_engine());
    }
    check_keys(params.order_by.iter().map(|it| &it.expr), schema)?;
    let Some(first) = params.args.first() else { return Ok(()) };
    let compares = params.distinct || matches!(name, "min" | "max");
    if let Some(json) = json_of(first, schema).filter(|_| compares) {
        let has_none = matches!(name, "min" | "max");
        match (has_none, json, name) {
            (true, ..) => return Err(no_function(name, json).into_engine()),
            (false, JsonType::Jsonb, "count") => {}
            _ => return Err(is_not_compared(json)),
        }
    }
    let is_text = |it: &DataType| it.is_string() || it.is_null();
    match type_of(first, schema) {
        _ if name == "array_agg" && is_json(first, schema) && !is_made_of_rows(first) => {
            Err(refused("array_agg of JSON").with_hint("Use json_agg or jsonb_agg.").into_engine())
        }
        Ok(DataType::List(_)) if name == "array_agg" => {
            Err(refused("array_agg of arrays").into_engine())
        }
        Ok(it) if name == "string_agg" && is_binary(&it) => {
            Err(refused("string_agg of bytea").into_engine())
        }
        Ok(it) if matches!(name, "min" | "max") && is_binary(&it) => {
            Err(does_not_exist(name, &[it]).into_engine())
        }
        Ok(it) if name == "string_agg" && !is_text(&it) => {
            Err(does_not_exist(name, &[it]).into_engine())
        }
        _ => Ok(()),
    }
}

/// The engine would cast a default of another type.
fn check_default(name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    let ("lag" | "lead", [value, _, default]) = (name, arguments) else { return Ok(()) };
    let (value, kind) = (value.get_type(schema)?, default.get_type(schema)?);
    let is_one = value == kind
        || kind.is_null()
        || value.is_integer() && kind.is_integer()
        || value == DataType::Float64 && (kind.is_integer() || kind.is_decimal())
        || value.is_decimal() && own_scale(&kind).is_some_and(|it| Some(it) <= own_scale(&value))
        || !value.is_decimal() && matches!(default, Expr::Literal(ScalarValue::Utf8(_), _));
    match is_one {
        true => Ok(()),
        false => {
            Err(refused(&format!("{name} with a default value of another type")).into_engine())
        }
    }
}

/// Returns whether an array is a constructor with non-NULL elements.
fn has_no_null(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "make_array" => {
            call.args.iter().all(has_no_null)
        }
        Expr::Literal(value, _) => !value.is_null(),
        Expr::Cast(cast) => has_no_null(&cast.expr),
        _ => false,
    }
}

fn is_json(expr: &Expr, schema: &DFSchema) -> bool {
    json_of(expr, schema).is_some()
}

/// Returns whether an expression is the argument of a JSON aggregate, which collects an array.
fn is_made_of_rows(expr: &Expr) -> bool {
    const PARTS: &[&str] = &[JSON_LINE, JSON_OF, JSON_PAIR, JSONB_OF, JSONB_PAIR];
    match expr {
        Expr::Alias(alias) => is_made_of_rows(&alias.expr),
        Expr::ScalarFunction(call) => PARTS.contains(&call.func.name()),
        _ => false,
    }
}

fn json_of(expr: &Expr, schema: &DFSchema) -> Option<JsonType> {
    expr.to_field(schema).ok().and_then(|(_, field)| JsonType::of(&field))
}

fn no_function(name: &str, json: JsonType) -> SqlError {
    let what = format!("function {name}({}) does not exist", json.name());
    SqlError::new(SqlState::UNDEFINED_FUNCTION, what).with_hint("Write ->> or ::text.")
}

/// Rejects sorting by json.
fn check_keys<'a>(mut keys: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Result<()> {
    match keys.any(|it| json_of(it, schema) == Some(JsonType::Json)) {
        true => Err(is_not_compared(JsonType::Json)),
        false => Ok(()),
    }
}

/// Rejects a comparison of json, or of jsonb with another type.
fn check_comparison(operands: &[&Expr], schema: &DFSchema, op: Operator) -> Result<()> {
    let is_null = |it: &Expr| it.get_type(schema).is_ok_and(|it| it.is_null());
    let (mut has_jsonb, mut has_others) = (false, false);
    for operand in operands.iter().filter(|it| !is_null(it)) {
        match json_of(operand, schema) {
            Some(JsonType::Json) => return Err(is_not_compared(JsonType::Json)),
            Some(JsonType::Jsonb) => has_jsonb = true,
            None => has_others = true,
        }
    }
    match has_jsonb && has_others {
        true => Err(no_operator(&op).into_engine()),
        false => Ok(()),
    }
}
