//! FULL JOIN: PostgreSQL joins by an equality of both sides, and rejects other conditions.

use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Join, JoinType, LogicalPlan, Operator};

use crate::error::SqlError;

/// Rejects a FULL JOIN on a condition without an equality of both sides.
pub(super) fn check(plan: &LogicalPlan) -> Result<(), SqlError> {
    let LogicalPlan::Join(join) = plan else { return Ok(()) };
    let Some(condition) = join.filter.as_ref().filter(|_| join.join_type == JoinType::Full) else {
        return Ok(());
    };
    if !join.on.is_empty() || condition.column_refs().is_empty() {
        return Ok(());
    }
    match split_conjunction(condition).into_iter().any(|it| is_equality(it, join)) {
        true => Ok(()),
        false => {
            let what = "FULL JOIN is only supported with merge-joinable or hash-joinable join \
                        conditions";
            Err(SqlError::unsupported(what)
                .with_hint("Join by an equality of columns of both tables."))
        }
    }
}

fn is_equality(condition: &Expr, join: &Join) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return false;
    };
    let is_of = |it: &Expr, schema: &DFSchema| {
        let columns = it.column_refs();
        !columns.is_empty() && columns.iter().all(|it| schema.has_column(it))
    };
    let (one, other) = (join.left.schema(), join.right.schema());
    is_of(left, one) && is_of(right, other) || is_of(left, other) && is_of(right, one)
}
