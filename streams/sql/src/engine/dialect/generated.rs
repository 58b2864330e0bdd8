//! Rows of `generate_series`: of integers where it is called with integers.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, col, lit};

const NAME: &str = "generate_series";

/// The engine's column of bigint.
const COLUMN: &str = "value";

/// Has the function of a session take integers.
pub(super) fn generate_integers(state: &mut SessionState) {
    if let Some(function) = state.table_functions().get(NAME) {
        let engine = Arc::clone(function.function());
        state.register_udtf(NAME, Arc::new(Generated { engine }));
    }
}

#[derive(Debug)]
struct Generated {
    engine: Arc<dyn TableFunctionImpl>,
}

impl TableFunctionImpl for Generated {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let wide = |it: &Expr| match it {
            Expr::Literal(ScalarValue::Int32(Some(number)), _) => lit(i64::from(*number)),
            Expr::Literal(value, _) if value.is_null() => lit(ScalarValue::Null),
            other => other.clone(),
        };
        let arguments: Vec<_> = args.exprs().iter().map(wide).collect();
        let given = TableFunctionArgs::new(&arguments, args.session());
        let rows = self.engine.call_with_args(given)?;
        let is = |it: &Expr, of: &DataType| match it {
            Expr::Literal(value, _) => value.data_type() == *of,
            _ => false,
        };
        let has_only_integers = args.exprs().iter().any(|it| is(it, &DataType::Int32))
            && !args.exprs().iter().any(|it| is(it, &DataType::Int64));
        if !has_only_integers {
            return Ok(rows);
        }
        // Between two integers is none that is not one.
        let plan = LogicalPlanBuilder::scan(NAME, provider_as_source(rows), None)?;
        let plan = plan.project([cast(col(COLUMN), DataType::Int32).alias(COLUMN)])?.build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}
