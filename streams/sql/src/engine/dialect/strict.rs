//! Strict functions, which return NULL if an operand is NULL. As in PostgreSQL, a call with a
//! literal NULL is not evaluated, so its other operands cannot fail.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{Expr, ScalarUDFImpl};

/// Simplifies the call of a strict function with a NULL operand to NULL. Constant operands are
/// evaluated earlier: if one of them fails, the call is kept.
pub(super) fn simplified(
    function: &impl ScalarUDFImpl,
    operands: Vec<Expr>,
    info: &SimplifyContext,
) -> Result<ExprSimplifyResult> {
    let is_null = |it: &Expr| matches!(it, Expr::Literal(value, _) if value.is_null());
    let Some(place) = operands.iter().position(is_null) else {
        return Ok(ExprSimplifyResult::Original(operands));
    };
    let is_known = |it: &Expr| matches!(it, Expr::Literal(..));
    let is_computed = place > 1 && operands[..place].iter().all(is_known);
    if is_computed || operands.iter().any(|it| !is_known(it) && has_constant_part(it)) {
        return Ok(ExprSimplifyResult::Original(operands));
    }
    let types = operands.iter().map(|it| info.get_data_type(it)).collect::<Result<Vec<_>>>()?;
    let null = ScalarValue::try_new_null(&function.return_type(&types)?)?;
    Ok(ExprSimplifyResult::Simplified(Expr::Literal(null, None)))
}

/// Returns whether an expression contains an unevaluated constant part, which means that its
/// evaluation failed.
fn has_constant_part(expr: &Expr) -> bool {
    let mut has = false;
    let looked = expr.apply(|part| {
        has |= !matches!(part, Expr::Literal(..)) && !depends(part)?;
        Ok(if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    looked.is_err() || has
}

fn depends(expr: &Expr) -> Result<bool> {
    let has_source = expr.exists(|it| {
        Ok(matches!(
            it,
            Expr::Column(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
        ))
    });
    Ok(has_source? || expr.is_volatile())
}
