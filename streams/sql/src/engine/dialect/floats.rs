//! A float that meets a `numeric` keeps being one, as in PostgreSQL: the engine would make both
//! numbers of few digits, which large and small floats do not fit.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// Functions whose arguments become one type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "greatest", "least", "nullif"];

/// To be the first of the rules, before types are made equal.
#[derive(Debug)]
pub(in crate::engine) struct KeepFloats;

impl AnalyzerRule for KeepFloats {
    fn name(&self) -> &'static str {
        "keep_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let changed = expr.transform_up(|expr| keep_floats(expr, &schema))?;
                Ok(changed.update_data(|expr| name.restore(expr)))
            })
        });
        Ok(changed?.data)
    }
}

fn keep_floats(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !makes_one_type(&expr) {
        return Ok(Transformed::no(expr));
    }
    // Columns of an outer query are not in the schema: their types stay as they are.
    let type_of = |operand: &Expr| operand.get_type(schema).ok();
    let (mut has_float, mut has_decimal) = (false, false);
    expr.apply_children(|operand| {
        has_float |= type_of(operand).is_some_and(|it| it.is_floating());
        has_decimal |= type_of(operand).is_some_and(|it| it.is_decimal());
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !(has_float && has_decimal) {
        return Ok(Transformed::no(expr));
    }
    expr.map_children(|operand| match type_of(&operand).is_some_and(|it| it.is_decimal()) {
        true => Ok(Transformed::yes(operand.cast_to(&DataType::Float64, schema)?)),
        false => Ok(Transformed::no(operand)),
    })
}

/// Whether the operands become one type.
fn makes_one_type(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(it) => !it.op.is_logic_operator(),
        Expr::Between(_) | Expr::InList(_) => true,
        Expr::ScalarFunction(call) => OF_ONE_TYPE.contains(&call.func.name()),
        _ => false,
    }
}
