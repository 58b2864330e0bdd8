//! Scales of numerics in results, texts, JSON and divisions. PostgreSQL keeps the scale of each
//! value, the engine that of a column. Where they may differ, a plan computes the scale of each
//! value beside the value: a result column is shown as a text with that scale, and texts, JSON and
//! divisions take the scale as an argument.
//!
//! Columns whose scale cannot be derived are shown without trailing zeros, and have no texts.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, ExprSchemable, Limit, LogicalPlan, Operator, Projection,
};
use datafusion::optimizer::AnalyzerRule;

use super::calls::Call;
use super::chains;
use super::json_functions::OF_VALUES;
use super::numerics::is_unknown;
use super::planned::type_of;
use super::scale_columns::{Scaled, needs_scale};
use super::scale_exprs::{Columns, NoColumns, Scale, Scales, own_scale};
use super::scale_functions::{quotient, shown, shown_list};
use super::scale_subqueries::with_packed_values;
use super::scales::{check_texts, is_exact, is_mixed, is_text, is_trimmed};

/// Maximum scale of numerics that are not quotients or averages.
const WRITTEN_SCALE_MAX: i32 = 10;

/// Marks the plan of a query whose result clients see.
pub(in crate::engine) fn for_clients(plan: LogicalPlan) -> LogicalPlan {
    LogicalPlan::Limit(Limit { skip: None, fetch: None, input: Arc::new(plan) })
}

/// Rule that gives uses of numerics their scales, and shows the results of a marked plan.
#[derive(Debug)]
pub(in crate::engine) struct ShowScales;

impl AnalyzerRule for ShowScales {
    fn name(&self) -> &'static str {
        "show_scales"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let (plan, is_for_clients) = match plan {
            LogicalPlan::Limit(Limit { skip: None, fetch: None, input }) => {
                (Arc::unwrap_or_clone(input), true)
            }
            other => (other, false),
        };
        let mut asks = 0;
        let plan = plan.transform_up_with_subqueries(|node| {
            asks += 1;
            with_packed_values(node, asks)?.transform_data(|node| with_scales_of_uses(node, asks))
        })?;
        match is_for_clients {
            true => with_scales(plan.data, asks + 1),
            false => Ok(plan.data),
        }
    }
}

/// Shows the columns of a result with the scales of their values.
fn with_scales(mut plan: LogicalPlan, asks: usize) -> Result<LogicalPlan> {
    let fields: Vec<_> =
        plan.schema().iter().map(|(it, field)| (it.cloned(), Arc::clone(field))).collect();
    let mut scales = Vec::new();
    for (index, (_, field)) in fields.iter().enumerate() {
        let scale = match needs_scale(&plan, index) {
            true => Scaled::new(&mut plan, asks).scale_of(index)?,
            false => None,
        };
        let is_own = |it: &Scale| match it {
            Scale::Of(it) => {
                Some(*it) != own_scale(field.data_type()) || is_unknown(field.data_type())
            }
            Scale::Computed(_) => true,
        };
        scales.push(scale.filter(is_own));
    }
    if scales.iter().all(Option::is_none) {
        return Ok(plan);
    }
    let columns = fields.into_iter().zip(scales).map(|((qualifier, field), scale)| {
        let column = Expr::Column(Column::new(qualifier.clone(), field.name()));
        match scale {
            None => column,
            Some(scale) => {
                let shown = shown_as(column, field.data_type(), scale);
                shown.alias_qualified(qualifier, field.name())
            }
        }
    });
    let columns = columns.collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}

/// Shows a numeric or an array with its scales.
fn shown_as(value: Expr, data_type: &DataType, scale: Scale) -> Expr {
    let function = match data_type {
        DataType::List(_) => shown_list(),
        _ => shown(),
    };
    function.call(vec![value, scale.expr()])
}

/// Gives the texts, JSON and divisions of a node the scales of their operands.
fn with_scales_of_uses(plan: LogicalPlan, asks: usize) -> Result<Transformed<LogicalPlan>> {
    if !has_uses(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    let before: Vec<_> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let names = NamePreserver::new(&plan);
    let inputs: Vec<_> = plan.inputs().into_iter().cloned().collect();
    let mut changed = match inputs.as_slice() {
        [input] => {
            let mut input = input.clone();
            let changed = {
                let mut columns = Scaled::new(&mut input, asks);
                let mut uses = Uses { inputs: &inputs, columns: &mut columns };
                plan.map_expressions(|expr| named(&names, expr, |it| uses.with_scales(it)))?
            };
            match changed.transformed {
                true => changed.map_data(|plan| with_input(plan, input))?,
                false => changed,
            }
        }
        inputs => {
            let mut columns = NoColumns(schema.clone());
            let mut uses = Uses { inputs, columns: &mut columns };
            let changed =
                plan.map_expressions(|expr| named(&names, expr, |it| uses.with_scales(it)))?;
            changed.map_data(LogicalPlan::recompute_schema)?
        }
    };
    check_texts(&changed.data, &merge_schema(&changed.data.inputs()))?;
    if changed.data.schema().fields().len() > before.len() {
        let kept = Projection::try_new(before, Arc::new(changed.data))?;
        changed.data = LogicalPlan::Projection(kept);
    }
    Ok(changed)
}

/// Replaces the input of a node by one with more columns.
fn with_input(plan: LogicalPlan, input: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Distinct(Distinct::On(on)) => {
            Ok(LogicalPlan::Distinct(Distinct::On(DistinctOn { input: Arc::new(input), ..on })))
        }
        other => other.with_new_exprs(other.expressions(), vec![input]),
    }
}

fn named(
    names: &NamePreserver,
    expr: Expr,
    change: impl FnOnce(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    let name = names.save(&expr);
    Ok(change(expr)?.update_data(|it| name.restore(it)))
}

/// Returns whether expressions of a node use the scales of numerics.
fn has_uses(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if let Expr::ScalarFunction(call) = part {
                found |= is_shown(call) || is_division(call);
            }
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Returns whether a function shows numerics.
fn is_shown(call: &ScalarFunction) -> bool {
    is_text(call) || call.func.name() == "format" || OF_VALUES.contains(&call.func.name())
}

fn is_division(call: &ScalarFunction) -> bool {
    chains::operators(&call.func).contains(&Operator::Divide) || is_average(call)
}

/// Returns whether a call divides a sum by a count.
fn is_average(call: &ScalarFunction) -> bool {
    call.func.name() == Call::Average.name()
}

/// Expressions over columns, which use the scales of numerics.
struct Uses<'a> {
    inputs: &'a [LogicalPlan],
    columns: &'a mut dyn Columns,
}

impl Uses<'_> {
    fn with_scales(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expr));
        }
        expr.transform_up(|part| match part {
            Expr::ScalarFunction(call) if is_shown(&call) => self.with_shown(call),
            Expr::ScalarFunction(call) if is_division(&call) => self.with_quotients(call),
            other => Ok(Transformed::no(other)),
        })
    }

    fn with_shown(&mut self, mut call: ScalarFunction) -> Result<Transformed<Expr>> {
        let mut is_changed = false;
        for number in &mut call.args {
            let Ok(data_type) = type_of(number, self.columns.schema()) else { continue };
            let inputs: Vec<_> = self.inputs.iter().collect();
            let is_own = !is_exact(&data_type)
                || !is_unknown(&data_type) && !is_mixed(number, &inputs, 0)
                || is_trimmed(number, self.columns.schema());
            if is_own {
                continue;
            }
            if let Some(scale) = (Scales { columns: &mut *self.columns }).of_expr(number)? {
                *number = shown_as(std::mem::take(number), &data_type, scale);
                is_changed = true;
            }
        }
        Ok(Transformed::new_transformed(Expr::ScalarFunction(call), is_changed))
    }

    /// Divides quotients with their scales, on which the rounding depends.
    fn with_quotients(&mut self, call: ScalarFunction) -> Result<Transformed<Expr>> {
        let mut operands = call.args.iter().cloned();
        let Some(mut left) = operands.next() else {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        };
        let mut is_changed = false;
        let operators = match is_average(&call) {
            true => &[Operator::Divide],
            false => chains::operators(&call.func),
        };
        for (operator, right) in operators.iter().zip(operands) {
            let schema: &DFSchema = self.columns.schema();
            let (left_type, right_type) = (left.get_type(schema)?, right.get_type(schema)?);
            if *operator == Operator::Divide && is_of_quotient(&left_type, &right_type) {
                let scale = (Scales { columns: &mut *self.columns }).of_expr(&left)?;
                let other = (Scales { columns: &mut *self.columns }).of_expr(&right)?;
                if let (Some(scale), Some(other)) = (scale, other) {
                    left = quotient().call(vec![left, right, scale.expr(), other.expr()]);
                    is_changed = true;
                    continue;
                }
            }
            if is_average(&call) {
                break;
            }
            left = chains::call((left, &left_type), *operator, (right, &right_type))?;
        }
        Ok(match is_changed {
            true => Transformed::yes(left),
            false => Transformed::no(Expr::ScalarFunction(call)),
        })
    }
}

/// Returns whether numerics are divided of which one comes from a quotient.
fn is_of_quotient(left: &DataType, right: &DataType) -> bool {
    let is_quotient =
        |it: &DataType| it.is_decimal() && own_scale(it).is_some_and(|it| it > WRITTEN_SCALE_MAX);
    let is_number = |it: &DataType| it.is_decimal() || it.is_integer();
    is_number(left) && is_number(right) && (is_quotient(left) || is_quotient(right))
}
