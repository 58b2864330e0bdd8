//! Values opaque to the planner. It would take a scalar subquery for never NULL if its column is
//! not, though the subquery can return no row. Other values it would merge with equal expressions.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};

/// Makes the columns of a subquery nullable, unless it always returns a row.
pub(super) fn with_null(subquery: Subquery) -> Result<Subquery> {
    let plan = &subquery.subquery;
    let is_nullable = plan.schema().fields().iter().all(|field| field.is_nullable());
    if is_nullable || !subquery.outer_ref_columns.is_empty() || gives_a_row(plan) {
        return Ok(subquery);
    }
    let function = ScalarUDF::new_from_impl(MayBeNull::default());
    let columns = plan.schema().columns().into_iter().map(|column| {
        let name = column.name.clone();
        function.call(vec![Expr::Column(column)]).alias(name)
    });
    let columns: Vec<_> = columns.collect();
    let plan = LogicalPlanBuilder::from(plan.as_ref().clone()).project(columns)?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

fn gives_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(it) => gives_a_row(&it.input),
        LogicalPlan::SubqueryAlias(it) => gives_a_row(&it.input),
        LogicalPlan::Sort(it) => it.fetch != Some(0) && gives_a_row(&it.input),
        LogicalPlan::Aggregate(it) => it.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(it) => it.produce_one_row,
        _ => false,
    }
}

/// Wraps an expression so that the planner considers it equal only to wrapped ones with the same
/// number.
pub(super) fn unseen(expr: Expr, number: usize) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(MayBeNull { signature, number }).call(vec![expr])
}

/// Identity function that the planner does not evaluate.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MayBeNull {
    signature: Signature,
    number: usize,
}

impl Default for MayBeNull {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Volatile), number: 0 }
    }
}

impl ScalarUDFImpl for MayBeNull {
    fn name(&self) -> &'static str {
        "may_be_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = Field::clone(&args.arg_fields[0]);
        Ok(Arc::new(field.with_name(self.name()).with_nullable(true)))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
