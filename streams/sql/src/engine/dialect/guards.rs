//! Guards: an expression that can fail is evaluated only for rows that pass the preceding
//! conditions: AND and OR from left to right, and CASE only in the selected branch. The engine
//! would reorder the conditions of a filter by cost, rewrite boolean CASE to AND and OR, and
//! evaluate both sides of these.
//!
//! ```text
//! a AND f   ─▶   a AND holds(CASE WHEN a THEN int(f) ELSE 0 END)
//! a OR f    ─▶   holds(CASE WHEN a THEN 1 ELSE int(f) END)
//! ```
//!
//! Conditions are encoded as integers, because the engine would rewrite a boolean CASE.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Case, Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ScalarUDF, Volatility, create_udf, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::calls::is_call;
use super::casts::cast_target;
use super::chains::is_arithmetic;
use super::intervals::is_comparison;

const NAME: &str = "holds";

/// Maximum size of an expression guarded in a nullable context, where it is duplicated.
const VALUE_SIZE_MAX: usize = 200;

static HOLDS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let holds = |arguments: &[ColumnarValue]| {
        let is_scalar = matches!(arguments[0], ColumnarValue::Scalar(_));
        let numbers = arguments[0].to_array(1)?;
        let found = cast(&numbers, &DataType::Boolean)?;
        Ok(match is_scalar {
            true => {
                let value = datafusion::common::ScalarValue::try_from_array(&found, 0)?;
                ColumnarValue::Scalar(value)
            }
            false => ColumnarValue::Array(found),
        })
    };
    let from = vec![DataType::Int8];
    Arc::new(create_udf(NAME, from, DataType::Boolean, Volatility::Immutable, Arc::new(holds)))
});

/// Must be one of the last rules.
#[derive(Debug)]
pub(in crate::engine) struct Guards;

impl OptimizerRule for Guards {
    fn name(&self) -> &'static str {
        "guards"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(mut filter) => {
                let before = filter.predicate.clone();
                filter.predicate = condition(filter.predicate)?;
                let is_changed = before != filter.predicate;
                Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), is_changed))
            }
            LogicalPlan::Join(mut join) => {
                let before = join.filter.clone();
                join.filter = join.filter.map(condition).transpose()?;
                let is_changed = before != join.filter;
                Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_changed))
            }
            plan @ (LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_)) => {
                let names = NamePreserver::new(&plan);
                plan.map_expressions(|expr| {
                    let name = names.save(&expr);
                    Ok(value(expr)?.update_data(|expr| name.restore(expr)))
                })
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Returns the guarded part of a guard.
pub(in crate::engine) fn guarded(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let (true, [Expr::Case(case)]) = (call.func.name() == NAME, call.args.as_slice()) else {
        return None;
    };
    match (case.when_then_expr.as_slice(), case.else_expr.as_deref()) {
        ([(_, then)], Some(otherwise)) if *otherwise == lit(0_i8) => match then.as_ref() {
            Expr::Cast(cast) => Some(&cast.expr),
            _ => None,
        },
        _ => None,
    }
}

/// Rewrites a condition in which NULL is equivalent to false.
fn condition(expr: Expr) -> Result<Expr> {
    let mut before: Vec<Expr> = Vec::new();
    let mut all = Vec::new();
    for part in split_conjunction_owned(expr) {
        // Guarded parts are not guarded again.
        let fails = can_fail(&part);
        let part = match part {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (left, right) = (condition(*left)?, condition(*right)?);
                match can_fail(&right) {
                    true => holds(left, lit(1_i8), number(right)),
                    false => left.or(right),
                }
            }
            other => value(other)?.data,
        };
        let part = match (fails, conjunction(before.clone())) {
            (true, Some(guard)) => holds(guard, number(part), lit(0_i8)),
            _ => part,
        };
        if !is_guard(&part) {
            before.push(part.clone());
        }
        all.push(part);
    }
    // A part that can fail is not evaluated unless its guard holds.
    Ok(conjunction(all).unwrap_or_else(|| lit(true)))
}

/// Rewrites a nullable expression.
fn value(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right })
            if fails_somewhere(&right) && size_of(&right) <= VALUE_SIZE_MAX =>
        {
            let decisive = lit(op == Operator::Or);
            let rest = BinaryExpr::new(right.clone(), op, Box::new(null()));
            let branches = vec![
                (Box::new(decisive.clone()), Box::new(number(decisive))),
                (Box::new(lit(op == Operator::And)), Box::new(number(*right))),
            ];
            let otherwise = Some(Box::new(number(Expr::BinaryExpr(rest))));
            Ok(Transformed::yes(call(Case::new(Some(left), branches, otherwise))))
        }
        Expr::Case(case) if case.when_then_expr.iter().any(|(_, then)| can_be_undone(then)) => {
            Ok(Transformed::yes(call(encoded(case))))
        }
        Expr::Case(case) if case.else_expr.as_deref().is_some_and(can_be_undone) => {
            Ok(Transformed::yes(call(encoded(case))))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Returns whether a branch is a condition that can fail, which the engine would move out of a
/// CASE.
fn can_be_undone(branch: &Expr) -> bool {
    let is_condition = match branch {
        Expr::BinaryExpr(it) => is_comparison(it.op) || it.op.is_logic_operator(),
        Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::Between(_) => true,
        Expr::InList(_) | Expr::Like(_) => true,
        _ => false,
    };
    is_condition && can_fail(branch)
}

/// Encodes a boolean CASE so that the engine does not rewrite it.
pub(super) fn kept(case: Case) -> Expr {
    call(encoded(case))
}

fn encoded(mut case: Case) -> Case {
    for (_, then) in &mut case.when_then_expr {
        **then = number(then.as_ref().clone());
    }
    case.else_expr = case.else_expr.map(|it| Box::new(number(*it)));
    case
}

fn null() -> Expr {
    Expr::Literal(datafusion::common::ScalarValue::Boolean(None), None)
}

fn number(condition: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(condition), DataType::Int8))
}

fn holds(when: Expr, then: Expr, otherwise: Expr) -> Expr {
    let branches = vec![(Box::new(when), Box::new(then))];
    call(Case::new(None, branches, Some(Box::new(otherwise))))
}

fn call(case: Case) -> Expr {
    let arguments = vec![Expr::Case(case)];
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&HOLDS), arguments))
}

fn is_guard(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == NAME)
}

fn size_of(expr: &Expr) -> usize {
    let mut size = 0;
    let counted = expr.apply(|_| {
        size += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(usize::MAX, |_| size)
}

/// Returns whether an expression fails for some values. Guarded parts are ignored.
pub(super) fn can_fail(expr: &Expr) -> bool {
    fails(expr, is_guard)
}

/// Same as [`can_fail`], including guarded parts.
fn fails_somewhere(expr: &Expr) -> bool {
    fails(expr, |_| false)
}

fn fails(expr: &Expr, is_safe: fn(&Expr) -> bool) -> bool {
    let mut can = false;
    let looked = expr.apply(|expr| {
        if is_safe(expr) {
            return Ok(TreeNodeRecursion::Jump);
        }
        can |= match expr {
            Expr::Cast(cast) => !is_widening(cast),
            Expr::Negative(_) => true,
            Expr::ScalarFunction(call) => {
                is_arithmetic(&call.func)
                    || is_call(&call.func)
                    || cast_target(&call.func).is_some_and(|it| !it.is_string())
                    || MAY_FAIL.contains(&call.func.name())
            }
            Expr::BinaryExpr(it) => {
                let is_arithmetic = matches!(
                    it.op,
                    Operator::Plus
                        | Operator::Minus
                        | Operator::Multiply
                        | Operator::Divide
                        | Operator::Modulo
                );
                is_arithmetic
            }
            _ => false,
        };
        Ok(if can { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    looked.is_err() || can
}

/// Functions of the engine that fail for some values.
const MAY_FAIL: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "asin",
    "atanh",
    "chr",
    "cosh",
    "date",
    "date_bin",
    "date_trunc",
    "checked_json",
    "decode",
    "exp",
    "factorial",
    "interval",
    "is_like",
    "ln",
    "log",
    "log10",
    "log2",
    "lpad",
    "make_date",
    "make_interval",
    "make_time",
    "make_timestamp",
    "make_timestamptz",
    "power",
    "repeat",
    "replace",
    "round",
    "rpad",
    "sinh",
    "split_part",
    "sqrt",
    "substr",
    "time",
    "to_hex",
    "to_timestamp",
    "uuid",
];

/// Returns whether a cast never fails.
fn is_widening(cast: &Cast) -> bool {
    let to = cast.field.data_type();
    match cast.expr.as_ref() {
        Expr::Literal(..) => true,
        // Casts added by the engine to columns. Casts in the statement are function calls.
        Expr::Column(_) => !to.is_temporal(),
        _ => to.is_string() || *to == DataType::Int8 || *to == DataType::Boolean,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    #[test]
    fn what_can_fail_stands_behind_its_guards() {
        let fallible = || (lit(1) / col("x")).gt(lit(1));
        let guard = || col("x").not_eq(lit(0));
        let found = condition(guard().and(fallible())).expect("a condition");
        let parts = split_conjunction_owned(found.clone());
        assert_eq!(parts[0], guard());
        assert_eq!(guarded(&parts[1]), Some(&fallible()));
        assert_eq!(condition(found.clone()).expect("it is done"), found);
        // No condition precedes it.
        assert_eq!(condition(fallible()).expect("a condition"), fallible());
        let case = Case::new(
            None,
            vec![(Box::new(guard()), Box::new(fallible()))],
            Some(Box::new(lit(false))),
        );
        let found = value(Expr::Case(case)).expect("an expression");
        assert!(is_guard(&found.data) && found.transformed);
    }
}
