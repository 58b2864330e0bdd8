//! Checks and rewrites of a plan once names and types are resolved: rewrites subqueries with NULLs
//! to forms that the engine evaluates correctly, and rejects those that it does not. Also rejects
//! operands without a common type.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    Subquery, Union,
};

use super::dependent::{joined, lateral_of};
use super::fresh_names::Numbers;
use super::full_joins;
use super::inexact::is_aggregate as is_aggregate_of_postgresql;
use super::lifting::{Depth, check_subquery, follow};
use super::names::APART;
use super::nullable::with_null;
use super::own::sql_name;
use super::parts::{Asked, depends, is_subquery};
use super::ranges::with_exact_ranges;
use super::refusal::refused;
use super::same_json::JsonType;
use super::unnested::{outer_columns, subquery_of};
use super::untyped::no_json_of_both;
use crate::error::{SqlError, SqlState};
use crate::wire::PgType;

/// Counter for unique names of subqueries' columns.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// Rewrites a plan so that it has PostgreSQL's semantics, or rejects it.
pub(in crate::engine) fn with_exact_relations(plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    let numbers = Numbers::default();
    let exact = plan.transform_up_with_subqueries(|plan| exact_with_joins(plan, &numbers));
    let exact = exact?.data;
    if exact.schema().fields().iter().any(|it| matches!(it.data_type(), DataType::Struct(_))) {
        return Err(refused("a row as a column of the result"));
    }
    // Outer joins can make columns nullable above them.
    match numbers.are_used() {
        true => {
            let again = |plan: LogicalPlan| plan.recompute_schema().map(Transformed::yes);
            Ok(exact.transform_up_with_subqueries(again)?.data)
        }
        false => Ok(exact),
    }
}

/// Replaces the subqueries of a node by joins where the engine cannot evaluate them, and makes the
/// node exact.
fn exact_with_joins(plan: LogicalPlan, numbers: &Numbers) -> Result<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Join(join) => match lifted(&join, numbers)? {
            Some(lifted) => return Ok(Transformed::yes(lifted)),
            None => LogicalPlan::Join(join),
        },
        other => other,
    };
    let joined = joined(plan, numbers)?;
    let (plan, is_joined) = (joined.data, joined.transformed);
    let exact = match plan {
        // A node whose subqueries became joins is below a projection.
        LogicalPlan::Projection(mut it) if is_joined && is_below_projection(&it.input) => {
            it.input = Arc::new(exact_node(Arc::unwrap_or_clone(it.input))?.data);
            exact_node(LogicalPlan::Projection(it))?
        }
        plan => exact_node(plan)?,
    };
    Ok(Transformed { transformed: exact.transformed || is_joined, ..exact })
}

/// Moves conditions with subqueries from ON to a filter over an inner join. Those of outer joins
/// become columns of the side that they name.
fn lifted(join: &Join, numbers: &Numbers) -> Result<Option<LogicalPlan>> {
    let all = join.filter.iter().flat_map(split_conjunction).cloned();
    let (asking, plain): (Vec<_>, Vec<_>) =
        all.partition(|it| it.exists(|it| Ok(is_asking(it))).unwrap_or(true));
    let Some(condition) = conjunction(asking) else { return Ok(None) };
    if join.join_type == JoinType::Inner {
        let join = Join { filter: conjunction(plain), ..join.clone() };
        let input = Arc::new(exact_with_joins(LogicalPlan::Join(join), numbers)?.data);
        let filter = LogicalPlan::Filter(Filter::try_new(condition, input)?);
        return exact_with_joins(filter, numbers).map(|it| Some(it.data));
    }
    if !matches!(join.join_type, JoinType::Left | JoinType::Right | JoinType::Full) {
        return Ok(None);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let condition = condition.transform_down(|expr| {
        if !is_asking(&expr) {
            return Ok(Transformed::no(expr));
        }
        let name = format!("__on{}", numbers.next());
        if is_of(&expr, join.right.schema())? {
            right.push(expr.alias(&name));
        } else if is_of(&expr, join.left.schema())? {
            left.push(expr.alias(&name));
        } else {
            return Ok(Transformed::no(expr));
        }
        let column = Expr::Column(Column::new_unqualified(name));
        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
    })?;
    let condition = condition.data;
    if condition.exists(|it| Ok(is_asking(it)))? {
        return Ok(None);
    }
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    let (left, right) = (with(&join.left, left, numbers)?, with(&join.right, right, numbers)?);
    let pairs = join.on.iter().map(|(one, other)| one.clone().eq(other.clone()));
    let conditions = plain.into_iter().chain([condition]).chain(pairs);
    let joined = LogicalPlanBuilder::from(left).join_on(right, join.join_type, conditions)?;
    let joined = exact_with_joins(joined.build()?, numbers)?.data;
    LogicalPlanBuilder::from(joined).project(columns)?.build().map(Some)
}

/// Returns whether an expression is a subquery that the engine does not evaluate in ON.
fn is_asking(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarSubquery(it) => depends(&it.subquery),
        other => is_subquery(other),
    }
}

/// Adds columns to a plan.
fn with(plan: &LogicalPlan, columns: Vec<Expr>, numbers: &Numbers) -> Result<LogicalPlan> {
    if columns.is_empty() {
        return Ok(plan.clone());
    }
    let all = plan.schema().columns().into_iter().map(Expr::Column).chain(columns);
    let plan = LogicalPlanBuilder::from(plan.clone()).project(all)?.build()?;
    Ok(exact_with_joins(plan, numbers)?.data)
}

/// Returns whether a condition and its subqueries name columns of this schema only.
fn is_of(condition: &Expr, schema: &DFSchema) -> Result<bool> {
    let mut is_of = condition.column_refs().iter().all(|it| schema.has_column(it));
    condition.apply(|expr| {
        let mut columns = Vec::new();
        if let Some(subquery) = subquery_of(expr) {
            outer_columns(subquery, &mut columns)?;
        }
        is_of &= columns.iter().all(|it| schema.has_column(it));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_of)
}

fn is_below_projection(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_))
}

/// Rewrites the expressions of a node so that they have PostgreSQL's semantics, or rejects them.
fn exact_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    full_joins::check(&plan).map_err(SqlError::into_engine)?;
    check_types(&plan, &schema)?;
    if let LogicalPlan::Join(join) = &plan
        && let Some((lateral, _)) = lateral_of(&join.right)
    {
        follow(&lateral.subquery, Asked::Rows, Depth::Top)?;
    }
    for expr in plan.expressions() {
        check_expr(&expr, &schema, matches!(plan, LogicalPlan::Filter(_)))?;
    }
    match plan {
        LogicalPlan::Filter(mut filter) => {
            let exact = with_nulls(filter.predicate, Place::Conjunct)?;
            filter.predicate = exact.data;
            Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), exact.transformed))
        }
        LogicalPlan::Window(window) => {
            let ranged = with_exact_ranges(window)?;
            let exact = with_exact_values(ranged.data)?;
            Ok(Transformed::new_transformed(exact.data, exact.transformed || ranged.transformed))
        }
        other => with_exact_values(other),
    }
}

/// Rewrites the expressions of a node that is no filter.
fn with_exact_values(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(with_nulls(expr, Place::Value)?.update_data(|it| name.restore(it)))
    })
}

/// Context of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Filters rows: NULL is equivalent to false.
    Conjunct,
    /// Same as [`Self::Conjunct`], within an OR.
    Alternative,
    /// False and NULL differ.
    Value,
}

/// Rewrites `IN (SELECT …)` where NULL matters to a quantified comparison.
fn with_nulls(expr: Expr, place: Place) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if place != Place::Value && matches!(op, Operator::And | Operator::Or) =>
        {
            let place = if op == Operator::Or { Place::Alternative } else { place };
            let (left, right) = (with_nulls(*left, place)?, with_nulls(*right, place)?);
            let is_changed = left.transformed || right.transformed;
            let (left, right) = (Box::new(left.data), Box::new(right.data));
            let whole = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::new_transformed(whole, is_changed))
        }
        Expr::InSubquery(inner) => member(inner, place),
        Expr::SetComparison(mut inner) => {
            inner.subquery = with_own_name(inner.subquery)?;
            Ok(Transformed::yes(Expr::SetComparison(inner)))
        }
        Expr::ScalarSubquery(subquery) => {
            Ok(Transformed::yes(Expr::ScalarSubquery(with_null(subquery)?)))
        }
        Expr::Not(inner) if matches!(*inner, Expr::InSubquery(_)) => {
            let Expr::InSubquery(mut inner) = *inner else { unreachable!("it was looked at") };
            inner.negated = !inner.negated;
            member(inner, place)
        }
        other => other.map_children(|it| with_nulls(it, Place::Value)),
    }
}

/// Renames the column of a subquery uniquely. The engine compares by name, and an outer column may
/// have the same.
fn with_own_name(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let name = format!("members{APART}{}", NAMED.fetch_add(1, Ordering::Relaxed));
    let columns: Vec<_> = plan.schema().columns();
    let named = columns.into_iter().map(|column| Expr::Column(column).alias(&name));
    // An alias of the relation would hide columns used for correlation.
    let plan = LogicalPlanBuilder::from(plan).project(named.collect::<Vec<_>>())?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

fn member(inner: InSubquery, place: Place) -> Result<Transformed<Expr>> {
    // The engine's joins are correct in these cases: NULL is equivalent to false, or is handled by
    // the join.
    let is_exact = match (inner.negated, place) {
        (_, Place::Value) => false,
        (false, _) => true,
        (true, Place::Alternative) => false,
        (true, Place::Conjunct) => {
            inner.subquery.outer_ref_columns.is_empty()
                && inner.expr.any_column_refs()
                && !inner.expr.contains_outer()
        }
    };
    if is_exact {
        return Ok(Transformed::no(Expr::InSubquery(inner)));
    }
    let (op, quantifier) = match inner.negated {
        true => (Operator::NotEq, SetQuantifier::All),
        false => (Operator::Eq, SetQuantifier::Any),
    };
    let (expr, subquery) = (inner.expr, with_own_name(inner.subquery)?);
    let comparison = SetComparison { expr, subquery, op, quantifier };
    Ok(Transformed::yes(Expr::SetComparison(comparison)))
}

fn check_expr(expr: &Expr, schema: &DFSchema, is_filter: bool) -> Result<()> {
    expr.apply(|expr| {
        let (subquery, asked) = match expr {
            Expr::Exists(Exists { subquery, .. }) => (subquery, Asked::Existence),
            Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::SetComparison(SetComparison { subquery, .. }) => (subquery, Asked::Members),
            Expr::ScalarSubquery(subquery) => (subquery, Asked::Value),
            other => {
                check_operands(other, schema)?;
                return Ok(TreeNodeRecursion::Continue);
            }
        };
        if !is_filter && asked != Asked::Value {
            return Err(
                refused("EXISTS, IN or ANY with a subquery outside WHERE and HAVING").into_engine()
            );
        }
        check_subquery(subquery, schema, asked)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Checks operands that the engine would convert to a common type.
fn check_operands(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let (operands, state, what): (Vec<&Expr>, _, _) = match expr {
        Expr::BinaryExpr(it) if is_comparison(it.op) => {
            (vec![&it.left, &it.right], SqlState::UNDEFINED_FUNCTION, "operator")
        }
        Expr::Between(it) => {
            (vec![&it.expr, &it.low, &it.high], SqlState::UNDEFINED_FUNCTION, "BETWEEN")
        }
        Expr::InList(it) => {
            let operands = std::iter::once(&*it.expr).chain(&it.list);
            (operands.collect(), SqlState::UNDEFINED_FUNCTION, "IN")
        }
        Expr::Case(it) => {
            let values = it.when_then_expr.iter().map(|(_, value)| &**value);
            let whens = it.when_then_expr.iter().map(|(when, _)| &**when);
            if let Some(sought) = &it.expr {
                let compared = std::iter::once(&**sought).chain(whens).collect();
                check_types_of(compared, schema, SqlState::UNDEFINED_FUNCTION, "WHEN")?;
            } else {
                check_conditions(whens, schema)?;
            }
            let values = values.chain(it.else_expr.as_deref()).collect();
            (values, SqlState::DATATYPE, "CASE")
        }
        Expr::ScalarFunction(it) => {
            let (state, what) = match it.func.name() {
                "coalesce" => (SqlState::DATATYPE, "COALESCE"),
                "greatest" => (SqlState::DATATYPE, "GREATEST"),
                "least" => (SqlState::DATATYPE, "LEAST"),
                "nullif" => (SqlState::UNDEFINED_FUNCTION, "NULLIF"),
                _ => return Ok(()),
            };
            (it.args.iter().collect(), state, what)
        }
        Expr::InSubquery(it) => {
            let column = Expr::Column(it.subquery.subquery.schema().columns()[0].clone());
            let kinds =
                [kind_of(&it.expr, schema), kind_of(&column, it.subquery.subquery.schema())];
            return check_kinds(kinds.into_iter(), SqlState::UNDEFINED_FUNCTION, "IN");
        }
        Expr::AggregateFunction(it) => {
            if !is_aggregate_of_postgresql(it.func.name()) {
                let what = format!("aggregate {:?} does not exist", it.func.name());
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what).into_engine());
            }
            // Catalogue lookups are wrapped in `max` with a filter, and have a single row.
            let is_extreme = matches!(it.func.name(), "max" | "min") && it.params.filter.is_none();
            if is_extreme && it.params.args.iter().any(|it| is_boolean(it, schema)) {
                let what = format!("function {}(boolean) does not exist", it.func.name());
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what).into_engine());
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    check_types_of(operands, schema, state, what)
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_boolean(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|it| it == DataType::Boolean)
}

fn check_conditions<'a>(
    conditions: impl Iterator<Item = &'a Expr>,
    schema: &DFSchema,
) -> Result<()> {
    for condition in conditions {
        let found = condition.get_type(schema).unwrap_or(DataType::Null);
        if !matches!(found, DataType::Boolean | DataType::Null) {
            let what = format!(
                "argument of CASE/WHEN must be type boolean, not type {}",
                sql_name(&found)
            );
            return Err(SqlError::new(SqlState::DATATYPE, what).into_engine());
        }
    }
    Ok(())
}

/// Kind of a type, as far as the checks distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A literal, which adapts to the other operand.
    Unknown,
    /// A text literal. Among result values, the others become text.
    Quoted,
    Text,
    Row,
    Other,
}

/// Constructs that return one of their operands.
const ONE_VALUE: &[&str] = &["CASE", "COALESCE", "GREATEST", "LEAST", "NULLIF"];

fn kind_of(expr: &Expr, schema: &DFSchema) -> Kind {
    match expr {
        Expr::Literal(..) | Expr::Placeholder(_) => match expr.get_type(schema) {
            Ok(it) if kind_of_type(&it) == Kind::Text => Kind::Quoted,
            Ok(it) => kind_of_type(&it),
            Err(_) => Kind::Unknown,
        },
        Expr::Alias(it) => kind_of(&it.expr, schema),
        _ => match expr.get_type(schema) {
            Ok(it) => kind_of_type(&it),
            Err(_) => Kind::Unknown,
        },
    }
}

fn kind_of_type(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Null => Kind::Unknown,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
        DataType::Struct(_) => Kind::Row,
        _ => Kind::Other,
    }
}

fn check_types_of(
    operands: Vec<&Expr>,
    schema: &DFSchema,
    state: SqlState,
    what: &str,
) -> Result<()> {
    check_kinds(operands.into_iter().map(|it| kind_of(it, schema)), state, what)
}

fn check_kinds(kinds: impl Iterator<Item = Kind>, state: SqlState, what: &str) -> Result<()> {
    let (mut has_text, mut has_quoted, mut has_other) = (false, false, false);
    for kind in kinds {
        if kind == Kind::Row {
            return Err(refused("comparing rows as values").into_engine());
        }
        has_text |= kind == Kind::Text;
        has_quoted |= kind == Kind::Quoted;
        has_other |= kind == Kind::Other;
    }
    if has_text && has_other {
        let what = format!("{what} types text and another type cannot be matched");
        let hint = "Cast the other operand to text.";
        return Err(SqlError::new(state, what).with_hint(hint).into_engine());
    }
    if has_quoted && has_other && ONE_VALUE.contains(&what) {
        let what = format!("{what} with an untyped literal and values of this type");
        let hint = "Specify the literal's type, as in 7 or '7'::integer.";
        return Err(refused(&what).with_hint(hint).into_engine());
    }
    Ok(())
}

/// Checks columns that are merged or compared.
fn check_types(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    match plan {
        LogicalPlan::Join(join) => {
            for (left, right) in &join.on {
                let kinds = [kind_of(left, schema), kind_of(right, schema)];
                check_kinds(kinds.into_iter(), SqlState::DATATYPE, "JOIN")?;
            }
            Ok(())
        }
        LogicalPlan::Union(union) => {
            for index in 0..union.schema.fields().len() {
                check_json(union, index)?;
                let types = union.inputs.iter().filter_map(|it| it.schema().fields().get(index));
                let kinds = types.map(|it| match kind_of_type(it.data_type()) {
                    Kind::Row => Kind::Other,
                    kind => kind,
                });
                check_kinds(kinds, SqlState::DATATYPE, "UNION")?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Rejects merging JSON with other types.
fn check_json(union: &Union, index: usize) -> Result<()> {
    let fields = || union.inputs.iter().filter_map(|it| it.schema().fields().get(index));
    let is_json = |it: &FieldRef| PgType::of(it).is_json();
    let mut jsons = fields().filter_map(|it| JsonType::of(it));
    if let Some(first) = jsons.next()
        && let Some(other) = jsons.find(|it| *it != first)
    {
        return Err(no_json_of_both(other, first));
    }
    let other = fields().find(|it| !is_json(it) && !it.data_type().is_null());
    match other.filter(|_| fields().any(is_json)) {
        None => Ok(()),
        Some(other) => {
            let of = sql_name(other.data_type());
            let what = format!("UNION types json and {of} cannot be matched");
            let hint = "Cast the other value to json, or the json value to text.";
            Err(SqlError::new(SqlState::DATATYPE, what).with_hint(hint).into_engine())
        }
    }
}
