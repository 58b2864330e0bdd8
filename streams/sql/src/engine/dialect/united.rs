//! Columns merged from several: set operations, recursion, USING, LATERAL. As in PostgreSQL, they
//! get the common type of all, or the query is rejected.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{
    DFSchema, ExprSchema, JoinConstraint, JoinType, NullEquality, Result, ScalarValue,
};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, RecursiveQuery,
};

use super::numbers::mixed_column;
use super::own::sql_name;
use super::refusal::refused;
use super::text_functions::is_uuid;
use crate::error::{SqlError, SqlState};

/// Rejects merged columns for which the engine's type would differ.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|it| it.schema().as_ref());
            check_inputs(&inputs.collect::<Vec<_>>())
        }
        LogicalPlan::Join(join) if is_set_operation(join) => {
            check_inputs(&[join.left.schema(), join.right.schema()])
        }
        LogicalPlan::Join(join) if join.join_constraint == JoinConstraint::Using => {
            check_keys(join)
        }
        LogicalPlan::Join(join) => check_lateral(join),
        LogicalPlan::RecursiveQuery(query) => check_terms(query),
        _ => Ok(()),
    }
}

/// Casts the left side's columns of INTERSECT and EXCEPT, from which the engine takes the result's,
/// to the common types.
pub(super) fn of_one_type(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Join(mut join) = plan else { return Ok(plan) };
    if is_set_operation(&join) {
        let pairs = join.left.schema().iter().zip(join.right.schema().fields());
        let typed = pairs.map(|((table, left), right)| {
            let (of, other) = (left.data_type(), right.data_type());
            let to = comparison_coercion(of, other).unwrap_or_else(|| of.clone());
            let column = Expr::from((table, left));
            match to == *of {
                true => Ok(column),
                false => {
                    let typed = column.cast_to(&to, join.left.schema())?;
                    Ok(typed.alias_qualified(table.cloned(), left.name()))
                }
            }
        });
        let typed = typed.collect::<Result<Vec<_>>>()?;
        if typed.iter().any(|it| !matches!(it, Expr::Column(_))) {
            let left = LogicalPlanBuilder::from(join.left).project(typed)?.build()?;
            join.left = Arc::new(left);
        }
    }
    Ok(LogicalPlan::Join(join))
}

/// Returns whether a join implements INTERSECT or EXCEPT. Other such joins only appear when
/// subqueries are rewritten to joins.
pub(super) fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
}

/// Rejects columns of mixed floats and numerics: PostgreSQL makes them floats, and the engine
/// numerics. Also those of uuids and texts.
fn check_inputs(inputs: &[&DFSchema]) -> Result<()> {
    let count = inputs.first().map_or(0, |it| it.fields().len());
    for index in 0..count {
        let has = |asks: fn(&Field) -> bool| {
            inputs.iter().any(|it| it.fields().get(index).is_some_and(|it| asks(it)))
        };
        if has(|it| it.data_type().is_floating()) && has(|it| it.data_type().is_decimal()) {
            return Err(mixed_column().into_engine());
        }
        if has(is_uuid) && has(|it| it.data_type().is_string() && !is_uuid(it)) {
            return Err(refused("a column with both uuids and texts")
                .with_hint("Cast the texts to uuid.")
                .into_engine());
        }
    }
    Ok(())
}

/// Rejects USING on different numeric types, because the merged column would have the type of the
/// left side.
fn check_keys(join: &Join) -> Result<()> {
    for (left, right) in &join.on {
        let (left, right) =
            (left.get_type(join.left.schema())?, right.get_type(join.right.schema())?);
        if left.is_numeric() && right.is_numeric() && !is_type_of_both(&left, &right) {
            return Err(refused("USING or NATURAL on columns with different numeric types")
                .with_hint("Use ON, or cast the left column in a subquery.")
                .into_engine());
        }
    }
    Ok(())
}

/// Returns whether the first type is PostgreSQL's common type of both.
fn is_type_of_both(first: &DataType, other: &DataType) -> bool {
    match first.is_decimal() {
        true => !other.is_floating(),
        false => comparison_coercion(first, other).is_some_and(|it| it == *first),
    }
}

fn check_lateral(join: &Join) -> Result<()> {
    join.right.apply(|plan| {
        if let LogicalPlan::Subquery(subquery) = plan {
            for it in &subquery.outer_ref_columns {
                if let Expr::OuterReferenceColumn(before, column) = it
                    && let Ok(field) = join.left.schema().field_from_column(column)
                    && field.data_type() != before.data_type()
                {
                    let what =
                        format!("LATERAL that refers to column {:?} of several types", column.name);
                    return Err(refused(&what)
                        .with_hint("Cast its values to one type.")
                        .into_engine());
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Checks that the recursive term has the types of the non-recursive one.
fn check_terms(query: &RecursiveQuery) -> Result<()> {
    let begins = query.static_term.schema();
    for (begins, goes_on) in begins.fields().iter().zip(types_before(&query.recursive_term)?) {
        let (of, other) = (begins.data_type(), &goes_on);
        if !of.is_numeric() || !other.is_numeric() {
            if sql_name(of) != sql_name(other) && !other.is_null() {
                let what = format!(
                    "recursive query {:?} column {:?} has type {} in non-recursive term but type \
                     {} overall",
                    query.name,
                    begins.name(),
                    sql_name(of),
                    sql_name(other)
                );
                return Err(SqlError::new(SqlState::DATATYPE, what).into_engine());
            }
            continue;
        }
        if of == other {
            continue;
        }
        if of.is_decimal() && other.is_decimal() {
            let what = "a recursive query with numerics of different scales";
            return Err(refused(what).with_hint("Cast both to numeric.").into_engine());
        }
        if !is_type_of_both(of, other) {
            let what = format!(
                "recursive query {:?} has a column {:?} of a wider type in its recursive term",
                query.name,
                begins.name()
            );
            let hint = "Cast the output of the non-recursive term to that type.";
            return Err(SqlError::new(SqlState::DATATYPE, what).with_hint(hint).into_engine());
        }
    }
    Ok(())
}

/// Returns the column types of the recursive term before the engine's casts to those of the other
/// term. Casts in the query itself are function calls.
fn types_before(term: &LogicalPlan) -> Result<Vec<DataType>> {
    let LogicalPlan::Projection(projection) = term else {
        return Ok(term.schema().fields().iter().map(|it| it.data_type().clone()).collect());
    };
    let before = |expr: &Expr| match expr.clone().unalias() {
        // A quoted literal has any type.
        Expr::Cast(cast) if matches!(*cast.expr, Expr::Literal(ScalarValue::Utf8(_), _)) => {
            Ok(DataType::Null)
        }
        Expr::Cast(cast) => cast.expr.get_type(projection.input.schema()),
        expr => expr.get_type(projection.input.schema()),
    };
    projection.expr.iter().map(before).collect()
}
