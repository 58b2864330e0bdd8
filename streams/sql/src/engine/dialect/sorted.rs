//! Order of sorted subqueries, which PostgreSQL preserves and the engine drops. It is made explicit
//! in order-dependent aggregates, in windows and DISTINCT ON without their own order, and in UNION
//! ALL.
//!
//! The sort keys of a subquery are propagated upwards in additional hidden columns, to where they
//! matter.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, JoinType, Result, ScalarValue};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{AggregateFunction, Sort, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprFunctionExt, ExprSchemable, Filter, Join, Limit,
    LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias, Union, Window, WindowFrame,
    WindowFrameBound, WindowFrameUnits, lit,
};

use super::dependent::lateral_of;
use super::names::APART;
use super::refusal::refused;
use super::unused_windows::{check_used, window_keys};
use crate::error::SqlError;

/// Counter for unique names of added columns.
static ADDED: AtomicU64 = AtomicU64::new(0);

/// Aggregates whose result depends on the order of rows.
pub(in crate::engine) const ORDERED: &[&str] = &["array_agg", "string_agg"];

/// Window functions that depend on the order of rows for every frame.
const OF_PLACES: &[&str] =
    &["first_value", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"];

/// Makes the order of sorted subqueries explicit where PostgreSQL preserves it.
pub(in crate::engine) fn with_sorted_inputs(plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    if !has_order(&plan)? {
        return Ok(plan);
    }
    // Stack of whether the order of rows matters above each node.
    let counts = RefCell::new(vec![true]);
    let sorted = plan.transform_down_up_with_subqueries(
        |plan| {
            let mut counts = counts.borrow_mut();
            let is_above = counts.last().copied().unwrap_or(true);
            counts.push(order_counts_below(&plan, is_above));
            Ok(Transformed::no(plan))
        },
        |plan| {
            counts.borrow_mut().pop();
            let counts = counts.borrow().last().copied().unwrap_or(true);
            with_order(plan, counts)
        },
    );
    Ok(unsorted_below(sorted?.data)?)
}

fn order_counts_below(plan: &LogicalPlan, counts_above: bool) -> bool {
    match plan {
        LogicalPlan::Distinct(Distinct::All(_)) | LogicalPlan::Sort(_) => false,
        LogicalPlan::Aggregate(it) => it.aggr_expr.iter().any(is_ordered_aggregate),
        LogicalPlan::Distinct(Distinct::On(_))
        | LogicalPlan::Limit(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Subquery(_) => true,
        _ => counts_above,
    }
}

/// Adds the order to a node. `counts` tells whether the order of its rows matters above.
fn with_order(plan: LogicalPlan, counts: bool) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(it) if it.aggr_expr.iter().any(is_ordered_aggregate) => {
            aggregate(it)
        }
        LogicalPlan::Window(it) if it.window_expr.iter().any(depends_on_places) => window(it),
        LogicalPlan::Distinct(Distinct::On(it)) => first_of_each(it),
        LogicalPlan::Union(it) if counts && has_sorted_part(&it) => united(&it),
        LogicalPlan::Limit(it) if order_of(&it.input).is_some_and(|it| it.is_spread) => {
            Err(spread("LIMIT"))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Removes the sorting in correlated subqueries. Only their aggregates depended on it, which now
/// have explicit keys, and sorted ones cannot be decorrelated.
fn unsorted_below(plan: LogicalPlan) -> Result<LogicalPlan> {
    let unsorted = plan.transform_down_with_subqueries(|plan| match plan {
        LogicalPlan::Subquery(mut it) if !it.outer_ref_columns.is_empty() => {
            let plan = Arc::unwrap_or_clone(it.subquery);
            it.subquery = Arc::new(unsorted(plan, Place::Top)?);
            Ok(Transformed::yes(LogicalPlan::Subquery(it)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(unsorted?.data)
}

/// Position of a query relative to an enclosing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Top,
    From,
}

fn unsorted(plan: LogicalPlan, place: Place) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Limit(_) => Ok(plan),
        LogicalPlan::Sort(it) if place == Place::From && it.fetch.is_none() => {
            unsorted(Arc::unwrap_or_clone(it.input), place)
        }
        other => {
            let is_from = matches!(other, LogicalPlan::SubqueryAlias(_));
            let place = if is_from { Place::From } else { place };
            Ok(other.map_children(|it| Ok(Transformed::yes(unsorted(it, place)?)))?.data)
        }
    }
}

/// Returns whether a plan contains an order that could be lost.
fn has_order(plan: &LogicalPlan) -> Result<bool> {
    let mut is_there = false;
    plan.apply_with_subqueries(|plan| {
        is_there |= matches!(
            plan,
            LogicalPlan::Sort(_)
                | LogicalPlan::Union(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Distinct(Distinct::On(_))
        );
        Ok(if is_there { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_there)
}

/// Removes aliases around an expression.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => bare(&alias.expr),
        other => other,
    }
}

fn unaliased(mut expr: Expr) -> Expr {
    while let Expr::Alias(alias) = expr {
        expr = *alias.expr;
    }
    expr
}

fn is_ordered_aggregate(expr: &Expr) -> bool {
    matches!(bare(expr), Expr::AggregateFunction(AggregateFunction { func, params })
        if ORDERED.contains(&func.name()) && params.order_by.is_empty() && !params.distinct)
}

fn depends_on_places(expr: &Expr) -> bool {
    let Expr::WindowFunction(it) = bare(expr) else { return false };
    let frame = &it.params.window_frame;
    it.params.order_by.is_empty()
        && (OF_PLACES.contains(&it.fun.name())
            || frame.units == WindowFrameUnits::Rows && !is_whole(frame))
}

fn is_whole(frame: &WindowFrame) -> bool {
    matches!(&frame.start_bound, WindowFrameBound::Preceding(it) if it.is_null())
        && matches!(&frame.end_bound, WindowFrameBound::Following(it) if it.is_null())
}

fn aggregate(of: Aggregate) -> Result<Transformed<LogicalPlan>> {
    check_used(&of.input, of.group_expr.iter().chain(&of.aggr_expr))?;
    let Some(input) = carried(&of.input)? else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(of)));
    };
    input.keys.iter().try_for_each(|key| check_key(&key.expr, input.plan.schema()))?;
    // Rows with equal keys keep their order within a query, but not across several.
    if order_of(&of.input).is_some_and(|it| it.origin == Origin::Parts && it.is_spread) {
        return Err(spread("an aggregate"));
    }
    let ordered = of.aggr_expr.into_iter().map(|expr| {
        if !is_ordered_aggregate(&expr) {
            return expr;
        }
        let name = expr.schema_name().to_string();
        match unaliased(expr) {
            Expr::AggregateFunction(mut it) => {
                it.params.order_by.clone_from(&input.keys);
                Expr::AggregateFunction(it).alias(name)
            }
            other => other,
        }
    });
    let ordered = ordered.collect();
    let plan = Aggregate::try_new(Arc::new(input.plan), of.group_expr, ordered)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(plan)))
}

/// Window functions that need no order remain below those that do.
fn window(of: Window) -> Result<Transformed<LogicalPlan>> {
    let input = match order_of(&of.input) {
        Some(it) if it.is_spread => return Err(spread("a window")),
        // The parts are returned in sequence.
        Some(it) if it.origin == Origin::Parts => None,
        Some(_) => carried(&of.input)?,
        None => None,
    };
    let Some(input) = input else {
        return Ok(Transformed::no(LogicalPlan::Window(of)));
    };
    let columns = of.schema.columns();
    let (sorted, others): (Vec<_>, Vec<_>) =
        of.window_expr.into_iter().partition(depends_on_places);
    let mut builder = LogicalPlanBuilder::from(input.plan);
    if !others.is_empty() {
        builder = builder.window(others)?;
    }
    let sorted = sorted.into_iter().map(|expr| {
        let name = expr.schema_name().to_string();
        match unaliased(expr) {
            Expr::WindowFunction(mut it) => {
                in_order(&mut it, &input.keys);
                Expr::WindowFunction(it).alias(name)
            }
            other => other,
        }
    });
    let sorted: Vec<_> = sorted.collect();
    let plan = LogicalPlanBuilder::from(LogicalPlan::Window(Window::try_new(
        sorted,
        Arc::new(builder.build()?),
    )?));
    let plan = plan.project(columns.into_iter().map(Expr::Column))?.build()?;
    Ok(Transformed::yes(plan))
}

/// Adds an order to a window function. Without one, all rows were peers, so the frame is the whole
/// partition.
fn in_order(function: &mut WindowFunction, keys: &[Sort]) {
    let params = &mut function.params;
    params.order_by = keys.to_vec();
    if params.window_frame.units != WindowFrameUnits::Rows {
        params.window_frame = WindowFrame::new(None);
    }
}

fn first_of_each(of: DistinctOn) -> Result<Transformed<LogicalPlan>> {
    let Some(input) = carried(&of.input)? else {
        return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::On(of))));
    };
    let is_told = of.sort_expr.as_ref().is_some_and(|it| it.len() > of.on_expr.len());
    if !is_told && order_of(&of.input).is_some_and(|it| it.is_spread) {
        return Err(spread("DISTINCT ON"));
    }
    let mut sorted = of.sort_expr.unwrap_or_else(|| {
        of.on_expr.iter().map(|it| Sort::new(it.clone(), true, false)).collect()
    });
    for key in input.keys {
        // The engine requires distinct keys.
        if sorted.iter().all(|it| it.expr != key.expr) {
            sorted.push(key);
        }
    }
    let plan = DistinctOn::try_new(of.on_expr, of.select_expr, Some(sorted), Arc::new(input.plan))?;
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(plan))))
}

/// Returns the sorted parts of a UNION ALL in sequence.
fn united(of: &Union) -> Result<Transformed<LogicalPlan>> {
    let columns = of.schema.columns().into_iter().map(Expr::Column);
    let Ordered { plan, keys } = numbered(of)?;
    let plan = LogicalPlanBuilder::from(plan).sort(keys)?.project(columns)?.build()?;
    Ok(Transformed::yes(plan))
}

fn has_sorted_part(of: &Union) -> bool {
    of.inputs.iter().any(|input| match input.as_ref() {
        LogicalPlan::Union(inner) => has_sorted_part(inner),
        other => order_of(other).is_some_and(|it| it.origin == Origin::Sort && !it.is_spread),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// ORDER BY of a subquery, or DISTINCT ON.
    Sort,
    Window,
    /// Parts of a UNION ALL.
    Parts,
}

/// Order of a plan's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    origin: Origin,
    /// True if one sorted row became several in unknown order, by unnesting or a correlated
    /// subquery.
    is_spread: bool,
}

/// Returns the order of the rows of a plan, as found by [`carried`].
fn order_of(plan: &LogicalPlan) -> Option<Order> {
    let of = |origin| Some(Order { origin, is_spread: false });
    let spread = |input: &LogicalPlan, is_it: bool| {
        let is_sorted = |it: &Order| it.origin != Origin::Parts;
        order_of(input).map(|it| Order { is_spread: it.is_spread || is_it && is_sorted(&it), ..it })
    };
    match plan {
        LogicalPlan::Sort(_) => of(Origin::Sort),
        LogicalPlan::Projection(it) => order_of(&it.input),
        LogicalPlan::SubqueryAlias(it) => order_of(&it.input),
        LogicalPlan::Filter(it) => order_of(&it.input),
        LogicalPlan::Limit(it) => order_of(&it.input),
        LogicalPlan::Distinct(Distinct::On(it)) => {
            it.sort_expr.as_ref().and_then(|_| of(Origin::Sort))
        }
        LogicalPlan::Window(it) => match window_keys(it) {
            Some(keys) if keys.is_empty() => order_of(&it.input),
            keys => keys.and_then(|_| of(Origin::Window)),
        },
        LogicalPlan::Unnest(it) => spread(&it.input, true),
        LogicalPlan::Join(it) if matches!(it.join_type, JoinType::Inner | JoinType::Left) => {
            spread(&it.left, lateral_of(&it.right).is_some())
        }
        LogicalPlan::Union(it) => {
            let is_spread = |it: &Arc<LogicalPlan>| order_of(it).is_some_and(|it| it.is_spread);
            let origin = if has_sorted_part(it) { Origin::Sort } else { Origin::Parts };
            Some(Order { origin, is_spread: it.inputs.iter().any(is_spread) })
        }
        _ => None,
    }
}

fn spread(what: &str) -> DataFusionError {
    let hint = "Put ORDER BY into OVER or into an enclosing subquery.";
    let of = format!("{what} on arrays or LATERAL subqueries next to a sorted subquery");
    refused(&of).with_hint(hint).into_engine()
}

/// A plan with sorted rows.
struct Ordered {
    plan: LogicalPlan,
    /// Sort keys, which are columns of the plan.
    keys: Vec<Sort>,
}

impl Ordered {
    /// Adds a node on top whose columns have the same positions as in its input, and translates the
    /// keys.
    fn below(self, step: impl FnOnce(Arc<LogicalPlan>) -> Result<LogicalPlan>) -> Result<Self> {
        let before = Arc::clone(self.plan.schema());
        let plan = step(Arc::new(self.plan))?;
        let keys = self.keys.into_iter().map(|key| {
            let place = place_of(&key.expr, &before)?;
            Ok(Sort { expr: column_at(plan.schema(), place), ..key })
        });
        let keys = keys.collect::<Result<_>>()?;
        Ok(Self { plan, keys })
    }
}

fn place_of(key: &Expr, schema: &DFSchema) -> Result<usize> {
    schema.index_of_column(key.try_as_col().expect("keys are columns"))
}

fn column_at(schema: &DFSchema, place: usize) -> Expr {
    Expr::Column(Column::from(schema.qualified_field(place)))
}

fn added() -> String {
    // Relaxed: the number carries no data.
    format!("order{APART}{}", ADDED.fetch_add(1, Ordering::Relaxed))
}

/// Returns the plan with its sort keys among its columns: the original columns followed by added
/// ones. Returns `None` if its rows are not sorted.
fn carried(plan: &LogicalPlan) -> Result<Option<Ordered>> {
    let below = |input: &LogicalPlan| carried(input);
    Ok(match plan {
        LogicalPlan::Sort(it) => {
            let keyed = with_columns(&it.input, &it.expr)?;
            let sort = |input| {
                let expr = keyed.keys.clone();
                LogicalPlan::Sort(datafusion::logical_expr::Sort { expr, input, fetch: it.fetch })
            };
            let plan = sort(Arc::new(keyed.plan));
            Some(Ordered { plan, keys: keyed.keys })
        }
        LogicalPlan::Projection(it) => {
            below(&it.input)?.map(|input| projected(it, input)).transpose()?
        }
        LogicalPlan::SubqueryAlias(it) => {
            let alias = |input| {
                SubqueryAlias::try_new(input, it.alias.clone()).map(LogicalPlan::SubqueryAlias)
            };
            below(&it.input)?.map(|input| input.below(alias)).transpose()?
        }
        LogicalPlan::Filter(it) => {
            let filter =
                |input| Filter::try_new(it.predicate.clone(), input).map(LogicalPlan::Filter);
            below(&it.input)?.map(|input| input.below(filter)).transpose()?
        }
        LogicalPlan::Limit(it) => {
            let limit = |input| {
                let (skip, fetch) = (it.skip.clone(), it.fetch.clone());
                Ok(LogicalPlan::Limit(Limit { skip, fetch, input }))
            };
            below(&it.input)?.map(|input| input.below(limit)).transpose()?
        }
        LogicalPlan::Distinct(Distinct::On(it)) => distinct(it)?,
        LogicalPlan::Window(it) => windowed(it)?,
        LogicalPlan::Unnest(it) => {
            let Some(input) = below(&it.input)? else { return Ok(None) };
            Some(unnested(it, input)?)
        }
        LogicalPlan::Join(it) if matches!(it.join_type, JoinType::Inner | JoinType::Left) => {
            let join = |left| {
                let (right, on, filter) = (Arc::clone(&it.right), it.on.clone(), it.filter.clone());
                let (kind, constraint) = (it.join_type, it.join_constraint);
                let (nulls, is_aware) = (it.null_equality, it.null_aware);
                Join::try_new(left, right, on, filter, kind, constraint, nulls, is_aware)
                    .map(LogicalPlan::Join)
            };
            below(&it.left)?.map(|input| input.below(join)).transpose()?
        }
        LogicalPlan::Union(it) => Some(numbered(it)?),
        _ => None,
    })
}

/// Adds a column to a plan for each key that is not a column.
fn with_columns(plan: &LogicalPlan, keys: &[Sort]) -> Result<Ordered> {
    let mut columns: Vec<_> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let count = columns.len();
    let mut named = Vec::with_capacity(keys.len());
    for (index, key) in keys.iter().enumerate() {
        // The engine requires distinct keys.
        if keys[..index].iter().any(|it| it.expr == key.expr) {
            continue;
        }
        let expr = match &key.expr {
            Expr::Column(_) => key.expr.clone(),
            other => {
                let name = added();
                columns.push(other.clone().alias(&name));
                Expr::Column(Column::new_unqualified(name))
            }
        };
        named.push(Sort { expr, ..key.clone() });
    }
    let plan = match columns.len() > count {
        true => LogicalPlanBuilder::from(plan.clone()).project(columns)?.build()?,
        false => plan.clone(),
    };
    Ok(Ordered { plan, keys: named })
}

/// Rejects keys that aggregates compare differently from ORDER BY.
fn check_key(key: &Expr, schema: &DFSchema) -> Result<()> {
    match key.get_type(schema) {
        Ok(DataType::Interval(_) | DataType::List(_)) => {
            Err(refused("an aggregate over a subquery sorted by an interval or an array")
                .into_engine())
        }
        _ => Ok(()),
    }
}

fn projected(of: &Projection, input: Ordered) -> Result<Ordered> {
    let mut exprs = of.expr.clone();
    let places = input.keys.iter().map(|key| {
        of.expr.iter().position(|it| bare(it) == &key.expr).unwrap_or_else(|| {
            exprs.push(key.expr.clone().alias(added()));
            exprs.len() - 1
        })
    });
    let places: Vec<_> = places.collect();
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input.plan))?);
    let keys = input.keys.into_iter().zip(places);
    let keys =
        keys.map(|(key, place)| Sort { expr: column_at(plan.schema(), place), ..key }).collect();
    Ok(Ordered { plan, keys })
}

/// Rows of DISTINCT ON are sorted by its keys.
fn distinct(of: &DistinctOn) -> Result<Option<Ordered>> {
    let Some(sorted) = &of.sort_expr else { return Ok(None) };
    let (mut select, mut names) = (of.select_expr.clone(), Vec::new());
    for key in sorted.iter().take(of.on_expr.len()) {
        let name = added();
        select.push(key.expr.clone().alias(&name));
        names.push(Sort { expr: Expr::Column(Column::new_unqualified(name)), ..key.clone() });
    }
    let (on, input) = (of.on_expr.clone(), Arc::clone(&of.input));
    let plan = DistinctOn::try_new(on, select, Some(sorted.clone()), input)?;
    Ok(Some(Ordered { plan: LogicalPlan::Distinct(Distinct::On(plan)), keys: names }))
}

/// Rows of a window function are sorted by its keys, or as the input if it has none.
fn windowed(of: &Window) -> Result<Option<Ordered>> {
    let Some(keys) = window_keys(of) else { return Ok(None) };
    let input = match keys.is_empty() {
        true => carried(&of.input)?,
        false => Some(with_columns(&of.input, &keys)?),
    };
    let Some(Ordered { plan, keys }) = input else { return Ok(None) };
    let plan = Window::try_new(of.window_expr.clone(), Arc::new(plan))?;
    Ok(Some(Ordered { plan: LogicalPlan::Window(plan), keys }))
}

fn unnested(of: &datafusion::logical_expr::Unnest, input: Ordered) -> Result<Ordered> {
    let names: Vec<_> = input.keys.iter().map(|key| (added(), key.expr.clone())).collect();
    // An unnested list may itself be a key.
    let columns = input.plan.schema().columns().into_iter().map(Expr::Column);
    let copies = names.iter().map(|(name, key)| key.clone().alias(name));
    let plan = LogicalPlanBuilder::from(input.plan.clone())
        .project(columns.chain(copies))?
        .unnest_columns_with_options(of.exec_columns.clone(), of.options.clone())?
        .build()?;
    let keys = input
        .keys
        .into_iter()
        .zip(names)
        .map(|(key, (name, _))| Sort { expr: Expr::Column(Column::new_unqualified(name)), ..key });
    let keys = keys.collect();
    Ok(Ordered { plan, keys })
}

/// Numbers the parts of a UNION ALL, and the rows within sorted parts.
fn numbered(of: &Union) -> Result<Ordered> {
    let names = Names { part: added(), place: has_sorted_part(of).then(added) };
    let mut count = 0;
    let plan = names.numbered(of, &mut count)?;
    let column =
        |name: &String| Sort::new(Expr::Column(Column::new_unqualified(name.clone())), true, false);
    let keys = std::iter::once(&names.part).chain(&names.place).map(column).collect();
    Ok(Ordered { plan: LogicalPlan::Union(plan), keys })
}

/// Names of the columns with part and row numbers.
struct Names {
    part: String,
    /// Row number, if some parts are sorted.
    place: Option<String>,
}

impl Names {
    fn numbered(&self, of: &Union, count: &mut u64) -> Result<Union> {
        let mut inputs = Vec::with_capacity(of.inputs.len());
        for input in &of.inputs {
            inputs.push(Arc::new(match input.as_ref() {
                LogicalPlan::Union(inner) => LogicalPlan::Union(self.numbered(inner, count)?),
                part => {
                    *count += 1;
                    self.part(part, *count)?
                }
            }));
        }
        Union::try_new_with_loose_types(inputs)
    }

    fn part(&self, part: &LogicalPlan, number: u64) -> Result<LogicalPlan> {
        let columns = part.schema().columns().into_iter().map(Expr::Column);
        let number = lit(number).alias(&self.part);
        let columns = columns.chain([number]);
        let Some(place) = &self.place else {
            return LogicalPlanBuilder::from(part.clone()).project(columns)?.build();
        };
        match carried(part)? {
            Some(_) if order_of(part).is_some_and(|it| it.is_spread) => Err(spread("UNION ALL")),
            None => {
                let none = lit(ScalarValue::UInt64(Some(0))).alias(place);
                LogicalPlanBuilder::from(part.clone()).project(columns.chain([none]))?.build()
            }
            Some(Ordered { plan, keys }) => {
                let row = added();
                let places = row_number().order_by(keys).build()?.alias(&row);
                let place = Expr::Column(Column::new_unqualified(row)).alias(place);
                LogicalPlanBuilder::from(plan)
                    .window([places])?
                    .project(columns.chain([place]))?
                    .build()
            }
        }
    }
}
