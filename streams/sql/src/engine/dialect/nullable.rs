//! Values that the engine does not look into. That of a subquery that may give no row it takes for
//! one that is never NULL where its column is not, as a constant is; others it would compare with
//! their like.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};

/// The subquery with a column that may be NULL, unless it gives a row in any case.
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

/// The value of an expression, which the planner takes for equal to those of the same number alone.
pub(super) fn unseen(expr: Expr, number: usize) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(MayBeNull { signature, number }).call(vec![expr])
}

/// The identity, which the planner does not look into.
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
