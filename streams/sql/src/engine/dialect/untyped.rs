//! Columns of untyped literals: NULL and quoted texts. In PostgreSQL they take the type of the
//! other side of a UNION, INTERSECT or EXCEPT, and become text in a FROM item. The engine would
//! leave them untyped until the whole statement is planned.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannedRelation, PlannerResult, RawBinaryExpr, RelationPlanner,
    RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection,
    Union, lit,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType as SqlType, Expr as Parsed, Query, SetExpr, TableFactor, TypedString,
    Value, ValueWithSpan,
};

use super::casts::number_of;
use super::conversions::{To, converted};
use super::jsonb_order::typed_in_comparison;
use super::moments::{set_zones, type_zones};
use super::names::name_rest;
use super::operands::is_not_compared;
use super::own::sql_name;
use super::planned::type_of;
use super::quoted_times::as_value;
use super::rewrites::cast_to;
use super::same_json::{JsonType, column_as_json, parameter_as_json, same_json};
use super::set_operations::SIDES;
use super::text_functions::{is_uuid, standard_uuid};
use super::united::is_set_operation;
use super::written::is_timestamp;
use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, array_elements};

/// Functions that return one of their operands.
const GIVE_ONE: &[&str] = &["coalesce", "greatest", "least", "nullif"];

/// Column of topics that `->` reads as JSON.
const VALUE: &str = "value";

/// Type of texts.
const TEXT: DataType = DataType::Utf8View;

/// Types the columns of FROM items before the enclosing query is planned.
#[derive(Debug)]
pub(in crate::engine) struct TypedTables;

thread_local! {
    /// True if [`TypedTables`] has passed the next table back to the engine.
    static IS_HANDED_ON: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for TypedTables {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let mut alias = match &mut relation {
            _ if IS_HANDED_ON.take() => return Ok(RelationPlanning::Original(Box::new(relation))),
            TableFactor::Derived { lateral: false, alias, .. }
            | TableFactor::Table { args: None, alias, .. } => alias.take(),
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        IS_HANDED_ON.set(true);
        let plan = context.plan(relation)?;
        let mut plan = with_column_types(plan)?;
        if let Some(alias) = &mut alias {
            name_rest(alias, plan.schema());
        }
        // The sides of a set operation take their types from each other. Columns of empty catalogue
        // tables are NULL of any type.
        if alias.as_ref().is_none_or(|it| it.name.value != SIDES) && !is_without_rows(&plan) {
            plan = of_texts(plan)?;
        }
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

fn is_without_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => is_without_rows(&alias.input),
        LogicalPlan::Projection(projection) => is_without_rows(&projection.input),
        LogicalPlan::Filter(filter) => filter.predicate == lit(false),
        _ => false,
    }
}

/// Types the sides of set operations by each other.
pub(in crate::engine) fn with_typed_columns(plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    Ok(with_column_types(plan)?)
}

fn with_column_types(plan: LogicalPlan) -> Result<LogicalPlan> {
    let is_changed = Cell::new(false);
    let typed = plan.transform_up_with_subqueries(|plan| {
        let valued = with_values(plan)?;
        let typed = of_sides(valued.data)?;
        let typed =
            Transformed::new_transformed(typed.data, typed.transformed || valued.transformed);
        is_changed.set(is_changed.get() || typed.transformed);
        Ok(match (is_changed.get(), typed.data) {
            (false, plan) => Transformed::no(plan),
            (true, LogicalPlan::Union(union)) => Transformed::yes(united(union.inputs)?),
            (true, plan) => Transformed::yes(plan.recompute_schema()?),
        })
    });
    Ok(typed?.data)
}

/// Types the sides of a set operation by each other.
fn of_sides(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Union(union) if union.inputs.len() == 2 => {
            let sides = (Arc::clone(&union.inputs[0]), Arc::clone(&union.inputs[1]));
            let sides = typed_sides(sides, true)?;
            Ok(match sides.transformed {
                false => Transformed::no(LogicalPlan::Union(union)),
                true => Transformed::yes(united(vec![sides.data.0, sides.data.1])?),
            })
        }
        LogicalPlan::Join(mut join) if is_set_operation(&join) => {
            let sides = typed_sides((join.left, join.right), false)?;
            (join.left, join.right) = sides.data;
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), sides.transformed))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn united(inputs: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
}

type Sides = (Arc<LogicalPlan>, Arc<LogicalPlan>);

/// The engine adds DISTINCT to the left side of INTERSECT and EXCEPT by itself.
fn typed_sides((mut left, mut right): Sides, is_union: bool) -> Result<Transformed<Sides>> {
    let mut is_changed = set_zones(&mut left, &right)? | set_zones(&mut right, &left)?;
    for index in 0..left.schema().fields().len().min(right.schema().fields().len()) {
        let json_of = |side: &LogicalPlan| JsonType::of(side.schema().field(index));
        match (json_of(&left), json_of(&right)) {
            (Some(json), None) => is_changed |= set_json(&mut right, index, json)?,
            (None, Some(json)) => is_changed |= set_json(&mut left, index, json)?,
            _ => {}
        }
    }
    for side in [&mut left, &mut right] {
        let is_text = |index| literal(side, index).is_none() || is_union && is_distinct(side);
        if (0..side.schema().fields().len()).any(|it| is_null(side, it) && is_text(it)) {
            *side = Arc::new(of_texts(LogicalPlan::clone(side))?);
            is_changed = true;
        }
    }
    let text: FieldRef = Arc::new(Field::new("", TEXT, true));
    for index in 0..left.schema().fields().len().min(right.schema().fields().len()) {
        let of = |side: &LogicalPlan| Arc::clone(&side.schema().fields()[index]);
        let (of_left, of_right) = (of(&left), of(&right));
        match (literal(&left, index).is_some(), literal(&right, index).is_some()) {
            (true, true) => {
                is_changed |= set_type(&mut left, index, &text)?;
                is_changed |= set_type(&mut right, index, &text)?;
            }
            (true, false) => is_changed |= set_type(&mut left, index, &of_right)?,
            (false, true) => is_changed |= set_type(&mut right, index, &of_left)?,
            (false, false) => {}
        }
    }
    Ok(Transformed::new_transformed((left, right), is_changed))
}

/// Returns the untyped literal in a column. The engine's own texts have another type than quoted
/// literals.
fn literal(plan: &LogicalPlan, index: usize) -> Option<&ScalarValue> {
    match column(plan, index)? {
        Expr::Literal(value @ (ScalarValue::Null | ScalarValue::Utf8(Some(_))), None) => {
            Some(value)
        }
        _ => None,
    }
}

/// Returns the expression of a column.
fn column(plan: &LogicalPlan, index: usize) -> Option<&Expr> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let mut expr = projection.expr.get(index)?;
            while let Expr::Alias(alias) = expr {
                expr = &alias.expr;
            }
            Some(expr)
        }
        LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => column(plan.inputs()[0], index),
        _ => None,
    }
}

fn is_plain_date(text: &str) -> bool {
    let is_digit = |index| text.as_bytes().get(index).is_some_and(u8::is_ascii_digit);
    text.len() == 10
        && [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(is_digit)
        && text.as_bytes()[4] == b'-'
        && text.as_bytes()[7] == b'-'
}

/// Converts the operands of CASE and of functions that return one of them to a common type.
fn with_values(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let typed = expr.transform_up(|it| of_operands(it, &schema))?;
        Ok(typed.update_data(|it| name.restore(it)))
    })
}

fn of_operands(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_nullif = matches!(&expr, Expr::ScalarFunction(it) if it.func.name() == "nullif");
    let operands: Vec<&mut Expr> = match &mut expr {
        Expr::Case(case) => {
            let thens = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            thens.chain(case.else_expr.as_deref_mut()).collect()
        }
        Expr::ScalarFunction(call) if GIVE_ONE.contains(&call.func.name()) => {
            call.args.iter_mut().collect()
        }
        _ => return typed_in_comparison(expr, schema),
    };
    let (quoted, mut others): (Vec<_>, Vec<_>) = operands.into_iter().partition(|it| is_quoted(it));
    let is_null_of_json = |it: &&mut Expr| **it == lit("null");
    if let [other] = others.as_slice()
        && is_nullif
        && quoted.iter().any(is_null_of_json)
        && other.get_type(schema)?.is_string()
    {
        // Generated for typed tables, where JSON's null has a single text form.
        return Ok(Transformed::no(expr));
    }
    if let Some(json) = json_of(&mut others, schema)? {
        for it in quoted {
            if let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = it {
                *text = json.written(text).map_err(SqlError::into_engine)?;
            }
        }
        return Ok(Transformed::yes(of_one_json(expr, json)?));
    }
    if quoted.is_empty() {
        return Ok(Transformed::no(expr));
    }
    let mut common: Option<FieldRef> = None;
    for other in others {
        let (_, field) = other.to_field(schema)?;
        common = match common {
            _ if field.data_type().is_null() => continue,
            None => Some(field),
            Some(before) => {
                let (one, other) = (before.data_type(), field.data_type());
                match one == other {
                    true => Some(before),
                    false => match comparison_coercion(one, other) {
                        Some(both) => Some(Arc::new(Field::new("", both, true))),
                        None => return Ok(Transformed::no(expr)),
                    },
                }
            }
        };
    }
    let Some(common) =
        common.filter(|it| !it.data_type().is_string() || is_json(it) || is_uuid(it))
    else {
        return Ok(Transformed::no(expr));
    };
    let mut is_changed = false;
    for it in quoted {
        if let Expr::Literal(literal, _) = &*it
            && let Some(typed) = as_type(literal, &common)?
        {
            *it = typed;
            is_changed = true;
        }
    }
    Ok(Transformed::new_transformed(expr, is_changed))
}

/// Returns the JSON type among the operands, and converts the others to it. JSON and another type
/// have no common type.
fn json_of(operands: &mut [&mut Expr], schema: &DFSchema) -> Result<Option<JsonType>> {
    let mut found: Option<JsonType> = None;
    for operand in &*operands {
        match (found, JsonType::of(&operand.to_field(schema)?.1)) {
            (Some(one), Some(other)) if one != other => return Err(no_json_of_both(other, one)),
            (_, None) => {}
            (_, json) => found = json,
        }
    }
    let Some(json) = found else { return Ok(None) };
    for operand in operands {
        let (_, field) = operand.to_field(schema)?;
        if is_json(&field) {
            continue;
        }
        match read_as_json(operand, &field, json) {
            Some(read) => **operand = read,
            None if field.data_type().is_null() => {}
            None => {
                let of = sql_name(field.data_type());
                let what = format!("types {} and {of} cannot be matched", json.name());
                let hint = "Write ::json behind the other value, or ::text behind the JSON.";
                return Err(SqlError::new(SqlState::DATATYPE, what).with_hint(hint).into_engine());
            }
        }
    }
    Ok(Some(json))
}

/// Error: json and jsonb have no common type.
pub(super) fn no_json_of_both(from: JsonType, to: JsonType) -> DataFusionError {
    let what = format!("could not convert type {} to {}", from.name(), to.name());
    SqlError::new(SqlState::CANNOT_COERCE, what).into_engine()
}

/// Converts an operand to JSON if it is an untyped parameter or the value column of a topic.
fn read_as_json(expr: &Expr, field: &Field, json: JsonType) -> Option<Expr> {
    match expr {
        Expr::Placeholder(it) if it.field.is_none() => Some(parameter_as_json(expr.clone(), json)),
        Expr::Column(it) if it.name == VALUE && field.data_type().is_string() => {
            Some(column_as_json(expr.clone(), json))
        }
        _ => None,
    }
}

/// Marks the result of CASE or coalesce as JSON, because the engine drops the metadata. Rejects
/// functions that compare their operands.
fn of_one_json(expr: Expr, json: JsonType) -> Result<Expr> {
    match &expr {
        Expr::Case(_) => Ok(same_json(expr, json)),
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" => Ok(same_json(expr, json)),
        _ => Err(is_not_compared(json)),
    }
}

fn is_json(field: &Field) -> bool {
    PgType::of(field).is_json()
}

fn is_quoted(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), None))
}

/// Types the quoted literal in arithmetic with a number.
#[derive(Debug)]
pub(in crate::engine) struct QuotedNumbers;

impl ExprPlanner for QuotedNumbers {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{
            BitwiseAnd, BitwiseOr, Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq,
            PGBitwiseXor, Plus,
        };
        let is_compared = matches!(expr.op, Eq | NotEq | Lt | LtEq | Gt | GtEq);
        if is_compared
            || matches!(
                expr.op,
                Plus | Minus | Multiply | Divide | Modulo | BitwiseAnd | BitwiseOr | PGBitwiseXor
            )
        {
            let (quoted, other) = match (&mut expr.left, &mut expr.right) {
                (left, right) if is_quoted(left) && !is_quoted(right) => (left, right),
                (left, right) if is_quoted(right) && !is_quoted(left) => (right, left),
                _ => return Ok(PlannerResult::Original(expr)),
            };
            let of = type_of(other, schema);
            if is_compared {
                let text = match &*quoted {
                    Expr::Literal(ScalarValue::Utf8(Some(text)), _) => text,
                    _ => return Ok(PlannerResult::Original(expr)),
                };
                if let Ok(of @ DataType::List(_)) = of
                    && let Some(list) = array_of(text, &of)?
                {
                    *quoted = list;
                }
                return Ok(PlannerResult::Original(expr));
            }
            // The type of a CASE is not known yet.
            if let Ok(of) = of
                && of.is_numeric()
                && !other.exists(|it| Ok(matches!(it, Expr::Case(_))))?
                && let Expr::Literal(literal, _) = &*quoted
                && let Some(typed) = as_type(literal, &Field::new("", of, true))?
            {
                *quoted = typed;
            }
        }
        Ok(PlannerResult::Original(expr))
    }
}

/// Types a column that is a literal. Returns whether it succeeded.
fn set_type(plan: &mut Arc<LogicalPlan>, index: usize, to: &FieldRef) -> Result<bool> {
    let Some(typed) = literal(plan, index).and_then(|it| as_type(it, to).transpose()) else {
        return Ok(false);
    };
    *plan = Arc::new(with_literal(LogicalPlan::clone(plan), index, typed?)?);
    Ok(true)
}

/// Converts a column to JSON if [`read_as_json`] can. Returns whether it succeeded.
fn set_json(plan: &mut Arc<LogicalPlan>, index: usize, json: JsonType) -> Result<bool> {
    let Some(expr) = column(plan, index) else { return Ok(false) };
    let Some(read) = read_as_json(expr, plan.schema().field(index), json) else { return Ok(false) };
    *plan = Arc::new(with_literal(LogicalPlan::clone(plan), index, read)?);
    Ok(true)
}

fn with_literal(plan: LogicalPlan, index: usize, typed: Expr) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(mut projection) => {
            let (table, field) = projection.schema.qualified_field(index);
            let typed = typed.alias_qualified(table.cloned(), field.name());
            projection.expr[index] = typed;
            let plan = Projection::try_new(projection.expr, projection.input)?;
            Ok(LogicalPlan::Projection(plan))
        }
        other => {
            let input = with_literal(other.inputs()[0].clone(), index, typed)?;
            other.with_new_exprs(other.expressions(), vec![input])?.recompute_schema()
        }
    }
}

/// Converts a quoted literal to an array of this type, if its elements can be.
fn array_of(text: &str, data_type: &DataType) -> Result<Option<Expr>> {
    let DataType::List(element) = data_type else { return Ok(None) };
    let mut values = Vec::new();
    for it in array_elements(text).map_err(SqlError::into_engine)? {
        let value = match it {
            None => ScalarValue::try_from(element.data_type())?,
            Some(text) => match as_type(&ScalarValue::from(text.as_str()), element)? {
                Some(Expr::Literal(value, _)) => value.cast_to(element.data_type())?,
                _ => return Ok(None),
            },
        };
        values.push(value);
    }
    let list = ScalarValue::new_list_nullable(&values, element.data_type());
    Ok(Some(Expr::Literal(ScalarValue::List(list), None)))
}

/// Converts a literal to a type. Returns `None` if the result may differ from PostgreSQL's.
pub(super) fn as_type(literal: &ScalarValue, to: &Field) -> Result<Option<Expr>> {
    let ScalarValue::Utf8(Some(text)) = literal else {
        let metadata = FieldMetadata::from(to);
        let metadata = (!metadata.is_empty()).then_some(metadata);
        let value = ScalarValue::try_from(to.data_type())?;
        return Ok((!value.data_type().is_null()).then_some(Expr::Literal(value, metadata)));
    };
    if let Some(json) = JsonType::of(to) {
        let text = json.written(text).map_err(SqlError::into_engine)?;
        let value = ScalarValue::Utf8View(Some(text));
        return Ok(Some(Expr::Literal(value, Some(FieldMetadata::from(to)))));
    }
    if is_uuid(to) {
        let text = standard_uuid(text).map_err(SqlError::into_engine)?;
        let metadata = Some(FieldMetadata::from(to));
        return Ok(Some(Expr::Literal(ScalarValue::Utf8(Some(text)), metadata)));
    }
    let of_text = |to| converted(to, &ColumnarValue::Scalar(literal.clone()));
    let value = match to.data_type() {
        _ if !to.metadata().is_empty() => return Ok(None),
        it if it.is_string() => ColumnarValue::Scalar(literal.cast_to(&TEXT)?),
        DataType::Float64 => of_text(To::Float8)?,
        DataType::Float32 => of_text(To::Float4)?,
        DataType::Binary => of_text(To::Bytea)?,
        DataType::Timestamp(_, None) => of_text(To::Timestamp)?,
        DataType::Timestamp(_, Some(_)) => of_text(To::Timestamptz)?,
        DataType::Boolean if matches!(text.as_str(), "t" | "f" | "true" | "false") => {
            ColumnarValue::Scalar(ScalarValue::from(text.starts_with('t')))
        }
        DataType::Date32 if is_plain_date(text) => {
            ColumnarValue::Scalar(literal.cast_to(to.data_type())?)
        }
        it @ (DataType::Interval(_) | DataType::Time64(_)) => return as_value(text, it).map(Some),
        it => match number_of(literal, it)? {
            Some(number) => number,
            None => return Ok(None),
        },
    };
    let ColumnarValue::Scalar(value) = value else { return Ok(None) };
    Ok(Some(Expr::Literal(value, None)))
}

fn is_distinct(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Distinct(_))
}

fn is_null(plan: &LogicalPlan, index: usize) -> bool {
    plan.schema().field(index).data_type().is_null()
}

/// Types untyped columns of a table as text.
fn of_texts(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let untyped =
        |plan: &LogicalPlan| (0..plan.schema().fields().len()).find(|it| is_null(plan, *it));
    let text: FieldRef = Arc::new(Field::new("", TEXT, true));
    while let Some(index) = untyped(&plan) {
        let mut typed = Arc::new(plan);
        if set_type(&mut typed, index, &text)? {
            plan = Arc::unwrap_or_clone(typed);
            continue;
        }
        let columns = typed.schema().iter().map(|(table, field)| {
            let column = Expr::from((table, field));
            match field.data_type().is_null() {
                true => {
                    let cast = column.cast_to(&TEXT, typed.schema())?;
                    Ok(cast.alias_qualified(table.cloned(), field.name()))
                }
                false => Ok(column),
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        plan = LogicalPlanBuilder::from(typed).project(columns)?.build()?;
    }
    Ok(plan)
}

/// Types NULL and quoted literals in VALUES as JSON, times or uuids if another row has that type
/// explicitly.
pub(super) fn type_values(query: &mut Query) {
    let SetExpr::Values(values) = query.body.as_mut() else { return };
    let count = values.rows.iter().map(|row| row.content.len()).max().unwrap_or_default();
    for index in 0..count {
        let written = values.rows.iter().find_map(|row| match row.content.get(index) {
            Some(
                Parsed::Cast { data_type: it, .. }
                | Parsed::TypedString(TypedString { data_type: it, .. }),
            ) if is_told_by_one(it) => Some(it.clone()),
            Some(Parsed::Interval(_)) => Some(SqlType::Interval { fields: None, precision: None }),
            _ => None,
        });
        type_zones(values, index);
        let Some(data_type) = written else { continue };
        for row in &mut values.rows {
            if let Some(expr) = row.content.get_mut(index)
                && let Parsed::Value(ValueWithSpan {
                    value: Value::Null | Value::SingleQuotedString(_),
                    ..
                }) = expr
            {
                *expr = cast_to(expr.clone(), data_type.clone());
            }
        }
    }
}

/// Returns whether a type in one row of VALUES applies to quoted literals in others: neither text,
/// nor a numeric type that could be widened.
fn is_told_by_one(data_type: &SqlType) -> bool {
    let is_whole = matches!(
        data_type,
        SqlType::JSON
            | SqlType::JSONB
            | SqlType::Bytea
            | SqlType::Date
            | SqlType::Time(..)
            | SqlType::Interval { .. }
            | SqlType::Timestamp(None, _)
            | SqlType::Uuid
    );
    is_whole || is_timestamp(data_type) && !matches!(data_type, SqlType::Timestamp(..))
}
