//! Scales of the columns of a plan. A column of scales is computed beside the values and passes
//! through the same nodes, so that each value keeps its scale behind joins, groups and windows.
//!
//! Grouping ignores the scale, as in PostgreSQL: a group has that of its first row.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::functions_aggregate::min_max::max_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Case, WindowFunctionParams,
};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection,
    Subquery, SubqueryAlias, Union, Unnest, Values, Window, WindowFunctionDefinition,
};

use super::numerics::is_unknown;
use super::scale_aggregates::{Extreme, first_scale};
use super::scale_exprs::{Columns, NoColumns, Scale, Scales, own_scale};
use super::scales::{is_exact, is_mixed};
use crate::engine::names::AVERAGED;

/// Prefix of the names of columns with scales.
const NAME: &str = "\0scale of ";

/// Aggregates and functions of windows whose result is one of their values, or an array of them.
const OF_VALUES: &[&str] = &["array_agg", "first_value", "lag", "last_value", "lead", "nth_value"];

/// Returns whether the scale of a function's result follows from the scales of its values.
fn is_of_values(function: &str) -> bool {
    let function = function.to_ascii_lowercase();
    ["sum", AVERAGED, "min", "max"].contains(&function.as_str())
        || OF_VALUES.contains(&function.as_str())
}

/// Maximum depth of plan nodes between a column and the values that it comes from.
const DEPTH_MAX: u32 = 32;

/// Place of a node in a plan, which makes the names of its columns of scales unique: the path from
/// the node that asks, with one bit for each step.
#[derive(Clone, Copy, Debug)]
struct Place {
    asks: usize,
    path: u64,
}

impl Place {
    fn left(self) -> Self {
        Self { path: self.path << 1, ..self }
    }

    fn right(self) -> Self {
        Self { path: self.path << 1 | 1, ..self }
    }

    fn is_deep(self) -> bool {
        self.path.ilog2() > DEPTH_MAX
    }

    fn name(self, index: usize) -> String {
        format!("{NAME}{} {} {index}", self.asks, self.path)
    }
}

/// A plan whose columns have scales. Columns of scales are added to it at its end.
pub(super) struct Scaled<'a> {
    plan: &'a mut LogicalPlan,
    place: Place,
}

impl<'a> Scaled<'a> {
    /// Columns of the plan. No other node that asks has the same number.
    pub(super) fn new(plan: &'a mut LogicalPlan, asks: usize) -> Self {
        Self { plan, place: Place { asks, path: 1 } }
    }
}

impl Columns for Scaled<'_> {
    fn schema(&self) -> &DFSchema {
        self.plan.schema()
    }

    fn scale_of(&mut self, index: usize) -> Result<Option<Scale>> {
        Ok(match scale_column(self.plan, index, self.place)? {
            None if !needs_scale(self.plan, index) => {
                own_scale(self.plan.schema().field(index).data_type()).map(Scale::Of)
            }
            scale => scale,
        })
    }
}

/// Returns whether the values of a column may have other scales than its type.
pub(super) fn needs_scale(plan: &LogicalPlan, index: usize) -> bool {
    let (qualifier, field) = plan.schema().qualified_field(index);
    let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
    let data_type = field.data_type();
    is_exact(data_type) && (is_unknown(data_type) || is_mixed(&column, &[plan], 0))
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn columns_of(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

/// Returns the scale of a column of a node's input, which is replaced by one with that scale.
fn of_input(input: &mut Arc<LogicalPlan>, index: usize, place: Place) -> Result<Option<Scale>> {
    let mut plan = Arc::unwrap_or_clone(Arc::clone(input));
    let scale = Scaled { plan: &mut plan, place }.scale_of(index)?;
    *input = Arc::new(plan);
    Ok(scale)
}

/// Returns the scale of an expression over a node's input.
fn of_expr(input: &mut Arc<LogicalPlan>, expr: &Expr, place: Place) -> Result<Option<Scale>> {
    let mut plan = Arc::unwrap_or_clone(Arc::clone(input));
    let scale = Scales { columns: &mut Scaled { plan: &mut plan, place } }.of_expr(expr)?;
    *input = Arc::new(plan);
    Ok(scale)
}

/// Adds a column with the scales of a column to a plan, at its end, unless they are constant.
fn scale_column(plan: &mut LogicalPlan, index: usize, place: Place) -> Result<Option<Scale>> {
    if place.is_deep() {
        return Ok(None);
    }
    let name = place.name(index);
    if plan.schema().has_column_with_unqualified_name(&name) {
        return Ok(Some(Scale::Computed(column(&name))));
    }
    let below = place.left();
    match plan {
        LogicalPlan::Sort(sort) => of_input(&mut sort.input, index, below),
        LogicalPlan::Limit(limit) => of_input(&mut limit.input, index, below),
        LogicalPlan::Filter(filter) => of_input(&mut filter.input, index, below),
        LogicalPlan::Projection(projection) => {
            let Some(expr) = projection.expr.get(index).cloned() else { return Ok(None) };
            let scale = of_expr(&mut projection.input, &expr, below)?;
            let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
            let mut columns = projection.expr.clone();
            columns.push(scale.alias(&name));
            let input = Arc::clone(&projection.input);
            *plan = LogicalPlan::Projection(Projection::try_new(columns, input)?);
            Ok(Some(Scale::Computed(column(&name))))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let scale = of_named_input(&mut alias.input, index, (below, &name))?;
            let Some(Scale::Computed(_)) = scale else { return Ok(scale) };
            let table = alias.alias.clone();
            let named = SubqueryAlias::try_new(Arc::clone(&alias.input), table.clone())?;
            *plan = LogicalPlan::SubqueryAlias(named);
            Ok(Some(Scale::Computed(Expr::Column(Column::new(Some(table), name)))))
        }
        LogicalPlan::Subquery(Subquery { subquery, .. }) => {
            of_named_input(subquery, index, (below, &name))
        }
        LogicalPlan::Values(values) => of_rows(values, index, &name),
        LogicalPlan::Union(union) => {
            let union = union.clone();
            of_union(plan, &union, index, (below, &name))
        }
        LogicalPlan::Join(join) => {
            let join = join.clone();
            of_join(plan, join, index, (place, &name))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let aggregate = aggregate.clone();
            of_aggregate(plan, aggregate, index, (below, &name))
        }
        LogicalPlan::Window(window) => {
            let window = window.clone();
            of_window(plan, window, index, (below, &name))
        }
        LogicalPlan::Distinct(distinct) => {
            let distinct = distinct.clone();
            of_distinct(plan, distinct, index, (below, &name))
        }
        LogicalPlan::Unnest(unnest) => {
            let unnest = unnest.clone();
            of_unnest(plan, unnest, index, (below, &name))
        }
        _ => Ok(None),
    }
}

/// Same as [`of_input`], with the scales in a column of that name.
fn of_named_input(
    input: &mut Arc<LogicalPlan>,
    index: usize,
    (place, name): (Place, &str),
) -> Result<Option<Scale>> {
    let scale = of_input(input, index, place)?;
    let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
    let mut columns = columns_of(input.schema());
    columns.push(scale.alias(name));
    let named = Projection::try_new(columns, Arc::clone(input))?;
    *input = Arc::new(LogicalPlan::Projection(named));
    Ok(Some(Scale::Computed(column(name))))
}

/// Replaces a node by one with more columns: keeps its columns in order, and adds the scales.
fn replace(
    plan: &mut LogicalPlan,
    by: LogicalPlan,
    scale: Expr,
    name: &str,
) -> Result<Option<Scale>> {
    let mut columns = columns_of(plan.schema());
    columns.push(scale.alias(name));
    *plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(by))?);
    Ok(Some(Scale::Computed(column(name))))
}

fn of_union(
    plan: &mut LogicalPlan,
    union: &Union,
    index: usize,
    (below, name): (Place, &str),
) -> Result<Option<Scale>> {
    let (mut inputs, mut scales) = (Vec::new(), Vec::new());
    for input in &union.inputs {
        let columns = columns_of(input.schema());
        let mut input = Arc::clone(input);
        let Some(scale) = of_input(&mut input, index, below)? else { return Ok(None) };
        scales.push(scale);
        inputs.push((input, columns));
    }
    if let Some(first @ Scale::Of(_)) = scales.first()
        && scales.iter().all(|it| it == first)
    {
        return Ok(Some(first.clone()));
    }
    let inputs = inputs.into_iter().zip(scales).map(|((input, mut columns), scale)| {
        columns.push(scale.expr().alias(name));
        Projection::try_new(columns, input).map(|it| Arc::new(LogicalPlan::Projection(it)))
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    *plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
    Ok(Some(Scale::Computed(column(name))))
}

fn of_join(
    plan: &mut LogicalPlan,
    mut join: Join,
    index: usize,
    (place, name): (Place, &str),
) -> Result<Option<Scale>> {
    let count = join.left.schema().fields().len();
    let scale = match join.join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            of_input(&mut join.right, index, place.right())?
        }
        _ if index < count => of_input(&mut join.left, index, place.left())?,
        _ => of_input(&mut join.right, index - count, place.right())?,
    };
    let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
    let joined = Join::try_new(
        join.left,
        join.right,
        join.on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    replace(plan, LogicalPlan::Join(joined), scale, name)
}

/// Returns the scale of a key, of a sum, which is the largest one of its values, or of a value that
/// an aggregate selects.
fn of_aggregate(
    plan: &mut LogicalPlan,
    mut aggregate: Aggregate,
    index: usize,
    (below, name): (Place, &str),
) -> Result<Option<Scale>> {
    let count = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let (added, scale) = match index.checked_sub(count) {
        None => {
            let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
            let Some(key) = keys.get(index).map(|it| (*it).clone()) else { return Ok(None) };
            let scale = of_expr(&mut aggregate.input, &key, below)?;
            let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
            (first_scale().call(vec![scale]), column(name))
        }
        Some(index) => {
            let call = match aggregate.aggr_expr.get(index).map(|it| it.clone().unalias()) {
                Some(Expr::AggregateFunction(call)) => call,
                _ => return Ok(None),
            };
            let Some(value) = call.params.args.first() else { return Ok(None) };
            if !is_of_values(call.func.name()) {
                return Ok(None);
            }
            let scale = of_expr(&mut aggregate.input, value, below)?;
            let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
            let Some(found) = of_call(&call, scale, name) else { return Ok(None) };
            found
        }
    };
    aggregate.aggr_expr.push(added.alias(name));
    let added = Aggregate::try_new(aggregate.input, aggregate.group_expr, aggregate.aggr_expr)?;
    replace(plan, LogicalPlan::Aggregate(added), scale, name)
}

/// Returns an aggregate from which the scale of another one's result follows, and that scale. The
/// aggregate is a column of that name.
fn of_call(call: &AggregateFunction, scale: Expr, name: &str) -> Option<(Expr, Expr)> {
    let value = call.params.args.first()?.clone();
    let function = call.func.name().to_ascii_lowercase();
    let with = |func, arg| {
        let rest = call.params.args[1..].iter().cloned();
        let args = std::iter::once(arg).chain(rest).collect();
        let params = AggregateFunctionParams { args, distinct: false, ..call.params.clone() };
        Expr::AggregateFunction(AggregateFunction { func, params })
    };
    match function.as_str() {
        "sum" | AVERAGED => Some((with(max_udaf(), of_present(value, scale)), column(name))),
        "min" | "max" => {
            let extreme = Extreme::of(&function);
            let func = Arc::clone(&call.func);
            Some((with(func, extreme.packed(value, scale)), extreme.scale(column(name))))
        }
        it if OF_VALUES.contains(&it) && !call.params.distinct => {
            Some((with(Arc::clone(&call.func), scale), column(name)))
        }
        _ => None,
    }
}

/// Returns the scale of values that are not NULL.
fn of_present(value: Expr, scale: Expr) -> Expr {
    let present = (Box::new(value.is_not_null()), Box::new(scale));
    Expr::Case(Case::new(None, vec![present], None))
}

fn of_window(
    plan: &mut LogicalPlan,
    mut window: Window,
    index: usize,
    (below, name): (Place, &str),
) -> Result<Option<Scale>> {
    let count = window.input.schema().fields().len();
    let scale = match index.checked_sub(count) {
        None => of_input(&mut window.input, index, below)?,
        Some(index) => {
            let call = match window.window_expr.get(index).map(|it| it.clone().unalias()) {
                Some(Expr::WindowFunction(call)) => call,
                _ => return Ok(None),
            };
            if !is_of_values(call.fun.name()) {
                return Ok(None);
            }
            let mut args = Vec::new();
            for (at, arg) in call.params.args.iter().enumerate() {
                // The second argument of `lag` and `nth_value` counts rows.
                let scale = match at {
                    1 => Scale::Computed(arg.clone()),
                    _ => match of_expr(&mut window.input, arg, below)? {
                        Some(scale) => scale,
                        None => return Ok(None),
                    },
                };
                args.push(scale);
            }
            match args.as_slice() {
                [] => return Ok(None),
                [scale @ Scale::Of(_)] | [scale @ Scale::Of(_), _] => {
                    return Ok(Some(scale.clone()));
                }
                _ => {}
            }
            let function = call.fun.name().to_ascii_lowercase();
            let args: Vec<_> = args.into_iter().map(Scale::expr).collect();
            let value = call.params.args[0].clone();
            let (fun, args, scale) = match function.as_str() {
                "sum" | AVERAGED => {
                    let largest = WindowFunctionDefinition::AggregateUDF(max_udaf());
                    (largest, vec![of_present(value, args[0].clone())], column(name))
                }
                "min" | "max" => {
                    let extreme = Extreme::of(&function);
                    let packed = extreme.packed(value, args[0].clone());
                    (call.fun.clone(), vec![packed], extreme.scale(column(name)))
                }
                it if OF_VALUES.contains(&it) => (call.fun.clone(), args, column(name)),
                _ => return Ok(None),
            };
            let params = WindowFunctionParams { args, ..call.params };
            let call = datafusion::logical_expr::expr::WindowFunction { fun, params };
            window.window_expr.push(Expr::WindowFunction(Box::new(call)).alias(name));
            Some(Scale::Computed(scale))
        }
    };
    let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
    let with = Window::try_new(window.window_expr, window.input)?;
    replace(plan, LogicalPlan::Window(with), scale, name)
}

fn of_distinct(
    plan: &mut LogicalPlan,
    distinct: Distinct,
    index: usize,
    (below, name): (Place, &str),
) -> Result<Option<Scale>> {
    match distinct {
        Distinct::All(mut input) => {
            let columns = columns_of(input.schema());
            let scale = of_input(&mut input, index, below)?;
            let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
            let first = first_scale().call(vec![scale]).alias(name);
            *plan = LogicalPlan::Aggregate(Aggregate::try_new(input, columns, vec![first])?);
        }
        Distinct::On(mut on) => {
            let Some(expr) = on.select_expr.get(index).cloned() else { return Ok(None) };
            let scale = of_expr(&mut on.input, &expr, below)?;
            let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
            on.select_expr.push(scale.alias(name));
            let sort_expr = on.sort_expr;
            let mut with = DistinctOn::try_new(on.on_expr, on.select_expr, None, on.input)?;
            with.sort_expr = sort_expr;
            *plan = LogicalPlan::Distinct(Distinct::On(with));
        }
    }
    Ok(Some(Scale::Computed(column(name))))
}

/// Returns the scale of an element of an array: arrays of scales have the same lengths.
fn of_unnest(
    plan: &mut LogicalPlan,
    mut unnest: Unnest,
    index: usize,
    (below, name): (Place, &str),
) -> Result<Option<Scale>> {
    let Some(at) = unnest.dependency_indices.get(index).copied() else { return Ok(None) };
    let lists = unnest.list_type_columns.iter().filter(|(it, _)| *it == at);
    let depths: Vec<_> = lists.map(|(_, list)| list.depth).collect();
    let scale = match depths.as_slice() {
        [] => of_input(&mut unnest.input, at, below)?,
        [1] => of_named_input(&mut unnest.input, at, (below, name))?,
        _ => return Ok(None),
    };
    let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
    let mut columns = unnest.exec_columns;
    if !depths.is_empty() {
        columns.push(Column::new_unqualified(name));
    }
    let input = LogicalPlanBuilder::new_from_arc(unnest.input);
    let with = input.unnest_columns_with_options(columns, unnest.options)?.build()?;
    replace(plan, with, scale, name)
}

/// Adds a column with the scales of a column's values to rows.
fn of_rows(values: &mut Values, index: usize, name: &str) -> Result<Option<Scale>> {
    let mut scales = Vec::new();
    for row in &values.values {
        let Some(expr) = row.get(index) else { return Ok(None) };
        let mut columns = NoColumns(DFSchema::empty());
        match (Scales { columns: &mut columns }).of_expr(expr)? {
            Some(scale) => scales.push(scale),
            None => return Ok(None),
        }
    }
    if let Some(first @ Scale::Of(_)) = scales.first()
        && scales.iter().all(|it| it == first)
    {
        return Ok(Some(first.clone()));
    }
    for (row, scale) in values.values.iter_mut().zip(scales) {
        row.push(scale.expr());
    }
    let field: FieldRef = Field::new(name, DataType::Int32, true).into();
    let fields = values.schema.iter().map(|(it, field)| (it.cloned(), Arc::clone(field)));
    let fields = fields.chain([(None, field)]).collect();
    let schema = DFSchema::new_with_metadata(fields, Default::default())?;
    values.schema = Arc::new(schema);
    Ok(Some(Scale::Computed(column(name))))
}
