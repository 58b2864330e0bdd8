//! Conditions of joins that the engine takes for others.
//!
//! It joins by IS NOT DISTINCT FROM as if NULL were equal to NULL in all conditions of the join,
//! also in those with `=` that it finds later. And it takes `1 = a` and `a = 1` for a contradiction
//! when it moves conditions to a side of a join (`simplify_predicates`). The former is the
//! condition of `1 IN (SELECT a …)`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, lit, when,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Spells out the former with `=`, and has columns before literals.
#[derive(Debug)]
pub(super) struct SpellNullKeys;

/// Rule of the engine that makes keys of conditions.
pub(super) const FINDS_KEYS: &str = "extract_equijoin_predicate";

impl OptimizerRule for SpellNullKeys {
    fn name(&self) -> &'static str {
        "spell_null_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
        let Some(filter) = &join.filter else {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        };
        let conditions = split_conjunction(filter);
        if !conditions.iter().any(|it| pair(it).is_some() || turned(it).is_some()) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let spelled = conditions.into_iter().map(|it| match turned(it) {
            Some(turned) => Ok(turned),
            None => spelled(it, &join),
        });
        let filter = conjunction(spelled.collect::<Result<Vec<_>>>()?);
        Ok(Transformed::yes(LogicalPlan::Join(Join { filter, ..join })))
    }
}

fn pair(condition: &Expr) -> Option<(&Expr, &Expr)> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::IsNotDistinctFrom, right }) => {
            Some((left, right))
        }
        _ => None,
    }
}

/// Returns `a = 1` for `1 = a`.
fn turned(condition: &Expr) -> Option<Expr> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
            if matches!(**left, Expr::Literal(..)) && !matches!(**right, Expr::Literal(..)) =>
        {
            Some(right.as_ref().clone().eq(left.as_ref().clone()))
        }
        _ => None,
    }
}

fn spelled(condition: &Expr, join: &Join) -> Result<Expr> {
    let Some((one, other)) = pair(condition) else { return Ok(condition.clone()) };
    let (left, right) = (join.left.schema(), join.right.schema());
    let type_of = |it: &Expr| it.get_type(left).or_else(|_| it.get_type(right)).ok();
    let is_key = is_of(one, left) && is_of(other, right) || is_of(one, right) && is_of(other, left);
    let is_nullable = |it: &Expr| it.nullable(left).or_else(|_| it.nullable(right)).unwrap_or(true);
    if is_key && !(is_nullable(one) && is_nullable(other)) {
        return Ok(one.clone().eq(other.clone()));
    }
    let value = match (type_of(one), type_of(other)) {
        (Some(of_one), Some(of_other)) if is_key && of_one == of_other => value_for_null(&of_one),
        _ => None,
    };
    let Some(value) = value else { return Ok(unkeyed(one, other)) };
    let key = |it: &Expr| when(it.clone().is_null(), lit(value.clone())).otherwise(it.clone());
    let is_null = one.clone().is_null().eq(other.clone().is_null());
    Ok(is_null.and(key(one)?.eq(key(other)?)))
}

/// Returns the condition in a form that does not become a key.
fn unkeyed(one: &Expr, other: &Expr) -> Expr {
    let are_null = one.clone().is_null().and(other.clone().is_null());
    one.clone().eq(other.clone()).is_true().or(are_null)
}

fn is_of(expr: &Expr, schema: &DFSchema) -> bool {
    let columns = expr.column_refs();
    !columns.is_empty() && columns.iter().all(|it| schema.has_column(it))
}

/// Returns a value that stands for NULL in a key.
fn value_for_null(data_type: &DataType) -> Option<ScalarValue> {
    let is_plain = data_type.is_integer()
        || data_type.is_string()
        || matches!(data_type, DataType::Boolean | DataType::Date32 | DataType::Timestamp(..));
    match data_type {
        _ if is_plain => ScalarValue::new_default(data_type).ok(),
        DataType::Decimal128(precision, scale) => {
            Some(ScalarValue::Decimal128(Some(0), *precision, *scale))
        }
        _ => None,
    }
}
