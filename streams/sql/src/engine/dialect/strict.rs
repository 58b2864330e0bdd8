//! Functions that give NULL where an operand is that: with one that is written as NULL they are not
//! computed, as in PostgreSQL, and no other operand fails.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{Expr, ScalarUDFImpl};

/// NULL for the call of such a function with NULL. What depends on no row is computed before: where
/// it fails, the call stays.
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

/// Whether it has a part that depends on no row and was not computed yet: one that fails.
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
