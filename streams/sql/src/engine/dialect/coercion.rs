//! Type coercion, from the operands up. Each expression is rewritten to PostgreSQL's semantics when
//! its operands have their final types, and before the engine's coercion. Earlier, the type of a
//! CASE is that of its first branch, and the type of a UNION that of its first query.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::tree_node::{Transformed, TreeNodeRewriter};
use datafusion::common::{DFSchema, ExprSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;

use super::arithmetic::difference;
use super::patterns::like_by_signs;
use super::unmerged::{self, Place};
use super::{
    array_order, intervals, jsonb_order, moments, numbers, operands, scales, type_names, united,
};

/// Replacement of the engine's rule.
#[derive(Debug)]
pub(in crate::engine) struct Coercion;

impl AnalyzerRule for Coercion {
    fn name(&self) -> &'static str {
        "type_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up(coerced)?.data)
    }
}

/// Coerces a node of a plan whose inputs are coerced.
fn coerced(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let outer_typed = |it| with_outer_types(it, &schema)?.transform_up(coerced);
    let mut plan = plan.map_subqueries(outer_typed)?.data;
    united::check(&plan)?;
    intervals::check_rows(&plan, &schema)?;
    operands::check_rows(&plan, &schema)?;
    plan = jsonb_order::grouped(plan, &schema)?;
    if let LogicalPlan::Filter(filter) = &mut plan {
        let predicate = std::mem::take(&mut filter.predicate);
        filter.predicate = predicate.cast_to(&DataType::Boolean, &schema)?;
    }
    let mut types = Types { schema: &schema, engine: TypeCoercionRewriter::new(&schema) };
    let names = NamePreserver::new(&plan);
    let is_sort = matches!(plan, LogicalPlan::Sort(_));
    let place = match plan {
        LogicalPlan::Filter(_) | LogicalPlan::Join(_) => Place::Condition,
        _ => Place::Value,
    };
    let plan = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let mut changed = expr.rewrite(&mut types)?;
        changed.data = unmerged::unmerged(changed.data, place, &schema)?;
        Ok(match is_sort {
            true => changed.update_data(|it| {
                jsonb_order::key_of(intervals::length_of_interval(it, &schema).data, &schema)
            }),
            false => changed.update_data(|it| name.restore(it)),
        })
    })?;
    plan.map_data(|plan| types.engine.coerce_plan(united::of_one_type(plan)?))?
        .map_data(LogicalPlan::recompute_schema)
}

/// Updates the types of outer columns in a subquery.
fn with_outer_types(plan: LogicalPlan, outer: &DFSchema) -> Result<LogicalPlan> {
    let LogicalPlan::Subquery(mut subquery) = plan else { return Ok(plan) };
    if subquery.outer_ref_columns.is_empty() {
        return Ok(LogicalPlan::Subquery(subquery));
    }
    let typed = |expr| {
        Ok(match expr {
            Expr::OuterReferenceColumn(before, column) => {
                let field = outer.field_from_column(&column).map_or(before, Arc::clone);
                Transformed::yes(Expr::OuterReferenceColumn(field, column))
            }
            other => Transformed::no(other),
        })
    };
    let columns = subquery.outer_ref_columns.into_iter().map(|it| Ok(typed(it)?.data));
    subquery.outer_ref_columns = columns.collect::<Result<_>>()?;
    let inner = Arc::unwrap_or_clone(subquery.subquery);
    let inner = inner.transform_up(|it| it.map_expressions(|it| it.transform_up(typed)))?.data;
    subquery.subquery = Arc::new(inner);
    Ok(LogicalPlan::Subquery(subquery))
}

/// Coerces a single expression.
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
        let expr = moments::zoned(expr, self.schema)?.data;
        let compared = intervals::compared(expr, self.schema)?.data;
        let compared = array_order::compared(compared, self.schema)?.data;
        let compared = jsonb_order::compared(compared, self.schema)?;
        let compared = type_names::named(compared, self.schema)?;
        let computed = numbers::computed(compared, self.schema)?.data;
        let expr = difference(self.engine.f_up(computed)?.data, self.schema);
        let expr = like_by_signs(expr);
        numbers::check_computed(&expr, self.schema)?;
        Ok(Transformed::yes(scales::rounded(expr, self.schema)?))
    }
}
