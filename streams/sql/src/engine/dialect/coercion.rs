//! Types that are made equal, from the operands up. Each expression is changed to PostgreSQL's
//! meaning once its operands have the types that they are going to have, and before the engine
//! makes these equal: what is known earlier is the type of a CASE's first branch, or of the first
//! of united queries.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::tree_node::{Transformed, TreeNodeRewriter};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;

use super::{intervals, numbers, operands};

/// Takes the place of the engine's rule.
#[derive(Debug)]
pub(in crate::engine) struct Coercion;

impl AnalyzerRule for Coercion {
    fn name(&self) -> &'static str {
        "type_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(coerced)?.data)
    }
}

/// A step of a plan whose inputs have their types.
fn coerced(mut plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    intervals::check_rows(&plan, &schema)?;
    operands::check_rows(&plan, &schema)?;
    numbers::check_united(&plan)?;
    if let LogicalPlan::Filter(filter) = &mut plan {
        let predicate = std::mem::take(&mut filter.predicate);
        filter.predicate = predicate.cast_to(&DataType::Boolean, &schema)?;
    }
    let mut types = Types { schema: &schema, engine: TypeCoercionRewriter::new(&schema) };
    let names = NamePreserver::new(&plan);
    let is_sort = matches!(plan, LogicalPlan::Sort(_));
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.rewrite(&mut types)?;
        Ok(match is_sort {
            true => changed.update_data(|it| intervals::length_of_interval(it, &schema).data),
            false => changed.update_data(|it| name.restore(it)),
        })
    })?
    .map_data(|plan| types.engine.coerce_plan(plan))?
    .map_data(LogicalPlan::recompute_schema)
}

/// An expression by itself, in the types that it has in a plan.
pub(in crate::engine) fn with_types(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let engine = TypeCoercionRewriter::new(schema);
    Ok(expr.rewrite(&mut Types { schema, engine })?.data)
}

struct Types<'a> {
    schema: &'a DFSchema,
    engine: TypeCoercionRewriter<'a>,
}

impl TreeNodeRewriter for Types<'_> {
    type Node = Expr;

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        operands::check(&expr, self.schema)?;
        let compared = intervals::compared(expr, self.schema)?.data;
        let computed = numbers::computed(compared, self.schema)?.data;
        let expr = self.engine.f_up(computed)?.data;
        numbers::check_computed(&expr, self.schema)?;
        Ok(Transformed::yes(expr))
    }
}
