//! Protection of expressions that the engine would simplify incorrectly: merging IN lists, which
//! loses NULLs; rewriting a boolean CASE to AND and OR, which evaluates guarded branches; and
//! removing the test of a non-nullable value, which loses its errors.

use std::collections::HashMap;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, lit};

use super::guards::{can_fail, kept};
use super::nullable::unseen;

/// Context of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// NULL is equivalent to false.
    Condition,
    Value,
}

/// Protects an expression whose operands have their final types.
pub(super) fn unmerged(expr: Expr, place: Place, schema: &DFSchema) -> Result<Expr> {
    let expr = expr.transform_up(|it| of_one(it, schema))?.data;
    match place {
        Place::Value => lists_apart(expr, place),
        Place::Condition => {
            let parts = split_conjunction_owned(expr).into_iter();
            let parts = parts.map(|it| lists_apart(it, place)).collect::<Result<Vec<_>>>()?;
            Ok(conjunction(parts).unwrap_or_else(|| lit(true)))
        }
    }
}

fn of_one(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_lost = match &expr {
        Expr::IsNull(of) | Expr::IsNotNull(of) | Expr::IsUnknown(of) | Expr::IsNotUnknown(of) => {
            can_fail(of) && !of.nullable(schema)?
        }
        _ => false,
    };
    if is_lost {
        return expr.map_children(|of| Ok(Transformed::yes(unseen(of, 0))));
    }
    Ok(match expr {
        case @ Expr::Case(_) if can_fail(&case) => {
            let is_condition = case.get_type(schema)? == DataType::Boolean;
            Transformed::yes(match case {
                Expr::Case(case) if is_condition => kept(case),
                other => unseen(other, 0),
            })
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
            if left == right && can_fail(&left) =>
        {
            Transformed::yes(unseen(*left, 0).eq(*right))
        }
        other => Transformed::no(other),
    })
}

/// Makes IN lists on the same operand distinct, unless NULL does not matter for them.
fn lists_apart(expr: Expr, place: Place) -> Result<Expr> {
    let mut counts: HashMap<Expr, usize> = HashMap::new();
    expr.apply(|it| {
        if let Some(operand) = operand_of_list(it) {
            *counts.entry(operand.clone()).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    counts.retain(|_, count| *count > 1);
    if counts.is_empty() || place == Place::Condition && is_plain(&expr)? {
        return Ok(expr);
    }
    let mut number = 0;
    let apart = expr.transform_up(|it| {
        if operand_of_list(&it).is_none_or(|it| !counts.contains_key(it)) {
            return Ok(Transformed::no(it));
        }
        number += 1;
        Ok(Transformed::yes(match it {
            Expr::InList(mut list) => {
                list.expr = Box::new(unseen(*list.expr, number));
                Expr::InList(list)
            }
            Expr::BinaryExpr(mut it) => {
                it.left = Box::new(unseen(*it.left, number));
                Expr::BinaryExpr(it)
            }
            other => other,
        }))
    });
    Ok(apart?.data)
}

/// Returns the operand of an IN list, or of an equality that the engine treats as one.
fn operand_of_list(expr: &Expr) -> Option<&Expr> {
    let is_column = |it: &Expr| matches!(it, Expr::Column(_));
    match expr {
        Expr::InList(list) if !list.expr.is_volatile() => Some(&list.expr),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            match (is_column(left), is_column(right)) {
                (true, false) => Some(left),
                (false, true) => Some(right),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns whether IN lists are not negated, and are combined only by AND and OR.
fn is_plain(expr: &Expr) -> Result<bool> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            is_plain(left)? && is_plain(right)?
        }
        Expr::InList(list) => !list.negated,
        other => {
            operand_of_list(other).is_some()
                || !other.exists(|it| Ok(operand_of_list(it).is_some()))?
        }
    })
}
