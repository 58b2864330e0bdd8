//! Evaluation of a correlated subquery for all outer rows at once, where [`parts`](super::parts)
//! does not apply: the distinct values of the outer columns that the subquery names become a
//! relation, and each node of its plan is evaluated for all rows of that relation.
//!
//! The outer plan is evaluated twice, for these values and for its rows. Therefore it must give the
//! same rows each time.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprFunctionExt, FetchType, Join, Limit, LogicalPlan,
    LogicalPlanBuilder, SkipType, Union, Values, Window, lit,
};

use super::fresh_names::Numbers;
use super::same_json::JsonType;

/// Aggregates whose result depends on the order of rows.
const ORDERED: &[&str] =
    &["array_agg", "json_agg", "json_object_agg", "jsonb_agg", "jsonb_object_agg", "string_agg"];

/// The outer columns that a subquery names, and the plan that has them.
pub(super) struct Domain<'a> {
    columns: Vec<Column>,
    outer: &'a LogicalPlan,
    numbers: &'a Numbers,
}

/// Rows of a subquery's plan for all outer rows: its columns, and the outer columns of each row.
pub(super) struct Unnested {
    pub(super) plan: LogicalPlan,
    pub(super) keys: Vec<Column>,
}

impl<'a> Domain<'a> {
    /// Returns the outer columns of a subquery, or `None` if its outer rows cannot be told apart by
    /// their values.
    pub(super) fn of(
        subquery: &LogicalPlan,
        outer: &'a LogicalPlan,
        numbers: &'a Numbers,
    ) -> Result<Option<Self>> {
        let mut columns = Vec::new();
        outer_columns(subquery, &mut columns)?;
        columns.retain(|it| outer.schema().has_column(it));
        let domain = Self { columns, outer, numbers };
        if domain.columns.is_empty() {
            return Ok(Some(domain));
        }
        for column in &domain.columns {
            let (_, field) = outer.schema().qualified_field_from_column(column)?;
            if JsonType::of(field).is_some() || !is_compared(field.data_type()) {
                return Ok(None);
            }
        }
        Ok(is_repeatable(outer)?.then_some(domain))
    }

    /// Returns the distinct values of the outer columns.
    fn rows(&self) -> Result<Unnested> {
        let number = self.numbers.next();
        let names = (0..self.columns.len()).map(|index| format!("__outer{number}_{index}"));
        let keys: Vec<_> = names.map(Column::new_unqualified).collect();
        let columns = self.columns.iter().cloned().zip(&keys);
        let columns = columns.map(|(column, key)| Expr::Column(column).alias(&key.name));
        let rows = LogicalPlanBuilder::from(self.outer.clone()).project(columns)?.distinct()?;
        Ok(Unnested { plan: rows.build()?, keys })
    }

    /// Returns conditions under which a row belongs to an outer row.
    pub(super) fn equal(&self, keys: &[Column]) -> Vec<Expr> {
        let columns: Vec<_> = self.columns.clone();
        equal(&columns, keys)
    }

    /// Evaluates a plan for all rows. Returns `None` if it has a node that is not supported.
    pub(super) fn unnest(&self, plan: &LogicalPlan) -> Result<Option<Unnested>> {
        if !self.is_named_in(plan)? {
            return self.crossed(plan).map(Some);
        }
        if self.is_named_in_subqueries(plan)? {
            return Ok(None);
        }
        match plan {
            LogicalPlan::Filter(it) => self.with_input(&it.input, |input| {
                let predicate = self.inside(it.predicate.clone(), &input.keys)?;
                LogicalPlanBuilder::from(input.plan).filter(predicate)?.build()
            }),
            LogicalPlan::Projection(it) => {
                let Some(input) = self.unnest(&it.input)? else { return Ok(None) };
                let exprs = self.all_inside(plan, &it.expr, &input.keys)?;
                projected(input.plan, exprs, input.keys).map(Some)
            }
            LogicalPlan::SubqueryAlias(it) => {
                let Some(input) = self.unnest(&it.input)? else { return Ok(None) };
                let named = it.input.schema().columns().into_iter().zip(it.schema.iter());
                let named = named.map(|(column, (qualifier, field))| {
                    Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
                });
                projected(input.plan, named.collect(), input.keys).map(Some)
            }
            LogicalPlan::Subquery(it) => self.unnest(&it.subquery),
            LogicalPlan::Sort(it) if it.fetch.is_none() => self.unnest(&it.input),
            LogicalPlan::Aggregate(it) => self.aggregate(it, plan),
            LogicalPlan::Window(it) => self.window(it, plan),
            LogicalPlan::Limit(it) => self.limit(it),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(input) = self.unnest(input)? else { return Ok(None) };
                let distinct = LogicalPlanBuilder::from(input.plan).distinct()?.build()?;
                Ok(Some(Unnested { plan: distinct, keys: input.keys }))
            }
            LogicalPlan::Union(it) => self.union(it),
            LogicalPlan::Join(it) => self.join(it),
            LogicalPlan::Values(it) => self.values(it),
            LogicalPlan::Unnest(it) => self.with_input(&it.input, |input| {
                LogicalPlanBuilder::from(input.plan)
                    .unnest_columns_with_options(it.exec_columns.clone(), it.options.clone())?
                    .build()
            }),
            _ => Ok(None),
        }
    }

    /// Returns each row of an uncorrelated plan for each outer row.
    fn crossed(&self, plan: &LogicalPlan) -> Result<Unnested> {
        if self.columns.is_empty() {
            return Ok(Unnested { plan: plan.clone(), keys: Vec::new() });
        }
        let rows = self.rows()?;
        let crossed = LogicalPlanBuilder::from(plan.clone()).cross_join(rows.plan)?.build()?;
        Ok(Unnested { plan: crossed, keys: rows.keys })
    }

    /// Evaluates a node with the keys of its input.
    fn with_input(
        &self,
        input: &LogicalPlan,
        node: impl FnOnce(Unnested) -> Result<LogicalPlan>,
    ) -> Result<Option<Unnested>> {
        let Some(input) = self.unnest(input)? else { return Ok(None) };
        let keys = input.keys.clone();
        Ok(Some(Unnested { plan: node(input)?, keys }))
    }

    fn aggregate(&self, it: &Aggregate, plan: &LogicalPlan) -> Result<Option<Unnested>> {
        let is_set = it.group_expr.iter().any(|it| matches!(it, Expr::GroupingSet(_)));
        if is_set || it.aggr_expr.iter().any(|it| is_in_order(it) || is_of_outer(it)) {
            return Ok(None);
        }
        let Some(input) = self.unnest(&it.input)? else { return Ok(None) };
        let groups = self.all_inside(plan, &it.group_expr, &input.keys)?;
        let mut aggregates = self.all_inside(plan, &it.aggr_expr, &input.keys)?;
        let (builder, keys) = match groups.is_empty() {
            false => (LogicalPlanBuilder::from(input.plan), input.keys),
            // An outer row without rows has an aggregate, too.
            true => {
                let (rows, there) = (self.rows()?, format!("__is_there{}", self.numbers.next()));
                let besides = input.keys.iter().cloned().map(Expr::Column);
                let columns = it.input.schema().columns().into_iter().map(Expr::Column);
                let inner = LogicalPlanBuilder::from(input.plan);
                let inner =
                    inner.project(columns.chain(besides).chain([lit(true).alias(&there)]))?;
                let same = equal(&rows.keys, &input.keys);
                let builder = LogicalPlanBuilder::from(rows.plan);
                let builder = builder.join_on(inner.build()?, JoinType::Left, same)?;
                let there = Expr::Column(Column::new_unqualified(there)).is_true();
                aggregates = of_rows(aggregates, &there)?;
                (builder, rows.keys)
            }
        };
        let besides = keys.iter().cloned().map(Expr::Column);
        let aggregated =
            builder.aggregate(groups.into_iter().chain(besides), aggregates)?.build()?;
        let columns = it.schema.columns().into_iter().map(Expr::Column).collect();
        projected(aggregated, columns, keys).map(Some)
    }

    fn window(&self, it: &Window, plan: &LogicalPlan) -> Result<Option<Unnested>> {
        let Some(input) = self.unnest(&it.input)? else { return Ok(None) };
        let names = NamePreserver::new(plan);
        let exprs = it.window_expr.iter().map(|expr| {
            let name = names.save(expr);
            let inside = self.inside(expr.clone(), &input.keys)?.transform_up(|it| match it {
                Expr::WindowFunction(mut call) => {
                    let keys = input.keys.iter().cloned().map(Expr::Column);
                    call.params.partition_by.extend(keys);
                    Ok(Transformed::yes(Expr::WindowFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            });
            Ok(name.restore(inside?.data))
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let windowed = LogicalPlanBuilder::from(input.plan).window(exprs)?.build()?;
        let columns = it.schema.columns().into_iter().map(Expr::Column).collect();
        projected(windowed, columns, input.keys).map(Some)
    }

    /// Limits the rows of each outer row, which must be sorted.
    fn limit(&self, it: &Limit) -> Result<Option<Unnested>> {
        let (FetchType::Literal(fetch), SkipType::Literal(skip)) =
            (it.get_fetch_type()?, it.get_skip_type()?)
        else {
            return Ok(None);
        };
        self.limited(&it.input, fetch, skip)
    }

    fn limited(
        &self,
        plan: &LogicalPlan,
        fetch: Option<usize>,
        skip: usize,
    ) -> Result<Option<Unnested>> {
        match plan {
            LogicalPlan::Projection(it) => {
                let Some(input) = self.limited(&it.input, fetch, skip)? else { return Ok(None) };
                let exprs = self.all_inside(plan, &it.expr, &input.keys)?;
                projected(input.plan, exprs, input.keys).map(Some)
            }
            LogicalPlan::Sort(it) if it.fetch.is_none() => {
                let Some(input) = self.unnest(&it.input)? else { return Ok(None) };
                let order = it.expr.iter().map(|key| {
                    let expr = self.inside(key.expr.clone(), &input.keys)?;
                    Ok(datafusion::logical_expr::SortExpr { expr, ..key.clone() })
                });
                let order = order.collect::<Result<Vec<_>>>()?;
                let place = format!("__place{}", self.numbers.next());
                let of_row = input.keys.iter().cloned().map(Expr::Column).collect();
                let number = row_number().partition_by(of_row).order_by(order).build()?;
                let place_of = Expr::Column(Column::new_unqualified(&place));
                let from = u64::try_from(skip).unwrap_or(u64::MAX);
                let mut kept = place_of.clone().gt(lit(from));
                if let Some(fetch) = fetch {
                    let fetch = u64::try_from(fetch).unwrap_or(u64::MAX);
                    kept = kept.and(place_of.lt_eq(lit(from.saturating_add(fetch))));
                }
                let numbered =
                    LogicalPlanBuilder::from(input.plan).window([number.alias(place)])?;
                let cut = numbered.filter(kept)?.build()?;
                let columns = it.input.schema().columns().into_iter().map(Expr::Column).collect();
                projected(cut, columns, input.keys).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn union(&self, it: &Union) -> Result<Option<Unnested>> {
        let number = self.numbers.next();
        let name = |index: usize| Column::new_unqualified(format!("__outer{number}_{index}"));
        let keys: Vec<_> = (0..self.columns.len()).map(name).collect();
        let mut inputs = Vec::new();
        for input in &it.inputs {
            let Some(side) = self.unnest(input)? else { return Ok(None) };
            let columns = input.schema().columns().into_iter().map(Expr::Column);
            let besides = side.keys.into_iter().zip(&keys);
            let besides = besides.map(|(from, to)| Expr::Column(from).alias(&to.name));
            let side = LogicalPlanBuilder::from(side.plan).project(columns.chain(besides))?;
            inputs.push(Arc::new(side.build()?));
        }
        let united = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let columns = united.schema().columns();
        let named = columns.into_iter().zip(it.schema.iter());
        let named = named.map(|(column, (qualifier, field))| {
            Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
        });
        projected(united, named.collect::<Vec<_>>(), keys).map(Some)
    }

    fn values(&self, it: &Values) -> Result<Option<Unnested>> {
        let mut inputs = Vec::new();
        let mut keys = Vec::new();
        for row in &it.values {
            let rows = self.rows()?;
            let number = self.numbers.next();
            let exprs = row.iter().zip(it.schema.iter()).map(|(expr, (_, field))| {
                let expr = self.inside(expr.clone(), &rows.keys)?;
                Ok(expr.alias(field.name()))
            });
            let exprs = exprs.collect::<Result<Vec<_>>>()?;
            if keys.is_empty() {
                let name =
                    |index: usize| Column::new_unqualified(format!("__outer{number}_{index}"));
                keys = (0..self.columns.len()).map(name).collect();
            }
            let besides = rows.keys.iter().cloned().zip(&keys);
            let besides = besides.map(|(from, to)| Expr::Column(from).alias(&to.name));
            let row = LogicalPlanBuilder::from(rows.plan);
            inputs.push(Arc::new(row.project(exprs.into_iter().chain(besides))?.build()?));
        }
        if let [row] = inputs.as_slice() {
            return Ok(Some(Unnested { plan: row.as_ref().clone(), keys }));
        }
        let united = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        Ok(Some(Unnested { plan: united, keys }))
    }

    fn join(&self, it: &Join) -> Result<Option<Unnested>> {
        let is_right = it.join_type == JoinType::Right;
        if !is_right && !is_of_left(it.join_type) {
            return Ok(None);
        }
        let names_outer =
            match &it.filter {
                Some(filter) => self.is_named_by(filter),
                None => false,
            } || it.on.iter().any(|(one, other)| self.is_named_by(one) || self.is_named_by(other));
        let (kept, other) = if is_right { (&it.right, &it.left) } else { (&it.left, &it.right) };
        let is_plain = !names_outer && !self.is_named_in(other)?;
        let Some(kept) = self.unnest(kept)? else { return Ok(None) };
        let (other, same) = match is_plain {
            true => (other.as_ref().clone(), Vec::new()),
            false => {
                let Some(other) = self.unnest(other)? else { return Ok(None) };
                let same = equal(&kept.keys, &other.keys);
                (other.plan, same)
            }
        };
        let pairs = it.on.iter().map(|(one, other)| {
            let (one, other) = (one.clone(), other.clone());
            match it.null_equality {
                NullEquality::NullEqualsNull => not_distinct(one, other),
                NullEquality::NullEqualsNothing => one.eq(other),
            }
        });
        let conditions = pairs.chain(it.filter.clone());
        let conditions = conditions.map(|it| self.inside(it, &kept.keys));
        let conditions = conditions.collect::<Result<Vec<_>>>()?.into_iter().chain(same);
        let keys = kept.keys.clone();
        let (left, right) = if is_right { (other, kept.plan) } else { (kept.plan, other) };
        let condition = conjunction(conditions).unwrap_or_else(|| lit(true));
        let joined = LogicalPlanBuilder::from(left).join_on(right, it.join_type, [condition])?;
        let columns = it.schema.columns().into_iter().map(Expr::Column).collect();
        projected(joined.build()?, columns, keys).map(Some)
    }

    /// Rewrites the expressions of a node, which keep their names.
    fn all_inside(&self, plan: &LogicalPlan, exprs: &[Expr], keys: &[Column]) -> Result<Vec<Expr>> {
        let names = NamePreserver::new(plan);
        let inside = exprs.iter().map(|expr| {
            let name = names.save(expr);
            Ok(name.restore(self.inside(expr.clone(), keys)?))
        });
        inside.collect()
    }

    /// Replaces outer columns by the columns of the evaluated plan.
    fn inside(&self, expr: Expr, keys: &[Column]) -> Result<Expr> {
        let replaced = expr.transform_up(|it| match &it {
            Expr::OuterReferenceColumn(_, column) => {
                let index = self.columns.iter().position(|it| it == column);
                Ok(match index {
                    Some(index) => Transformed::yes(Expr::Column(keys[index].clone())),
                    None => Transformed::no(it),
                })
            }
            _ => Ok(Transformed::no(it)),
        });
        Ok(replaced?.data)
    }

    fn is_named_by(&self, expr: &Expr) -> bool {
        let is_named = expr.exists(|it| {
            Ok(matches!(it, Expr::OuterReferenceColumn(_, column) if self.columns.contains(column)))
        });
        is_named.unwrap_or(true)
    }

    /// Returns whether a plan names the outer columns, without its subqueries.
    fn is_named_in(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut columns = Vec::new();
        outer_columns(plan, &mut columns)?;
        Ok(columns.iter().any(|it| self.columns.contains(it)))
    }

    /// Returns whether subqueries in the expressions of a node name the outer columns.
    fn is_named_in_subqueries(&self, plan: &LogicalPlan) -> Result<bool> {
        let own = plan.inputs();
        let mut is_named = false;
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Some(subquery) = subquery_of(expr) {
                    let mut columns = Vec::new();
                    outer_columns(subquery, &mut columns)?;
                    is_named |= columns.iter().any(|it| {
                        let is_own = own.iter().any(|input| input.schema().has_column(it));
                        !is_own && self.columns.contains(it)
                    });
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(is_named)
    }
}

fn is_of_left(join_type: JoinType) -> bool {
    use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi};
    matches!(join_type, Inner | Left | LeftSemi | LeftAnti | LeftMark)
}

/// Returns the plan of an expression that is a subquery.
pub(super) fn subquery_of(expr: &Expr) -> Option<&LogicalPlan> {
    match expr {
        Expr::ScalarSubquery(it) => Some(&it.subquery),
        Expr::Exists(it) => Some(&it.subquery.subquery),
        Expr::InSubquery(it) => Some(&it.subquery.subquery),
        Expr::SetComparison(it) => Some(&it.subquery.subquery),
        _ => None,
    }
}

/// Collects the outer columns that a plan names, and those of its subqueries that do not belong to
/// the node of the subquery.
pub(super) fn outer_columns(plan: &LogicalPlan, found: &mut Vec<Column>) -> Result<()> {
    let inputs = plan.inputs();
    plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            match expr {
                Expr::OuterReferenceColumn(_, column) if !found.contains(column) => {
                    found.push(column.clone());
                }
                other => {
                    if let Some(subquery) = subquery_of(other) {
                        let mut inner = Vec::new();
                        outer_columns(subquery, &mut inner)?;
                        inner.retain(|it| !found.contains(it));
                        inner.retain(|it| !inputs.iter().any(|of| of.schema().has_column(it)));
                        found.extend(inner);
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if let LogicalPlan::Subquery(it) = plan {
        outer_columns(&it.subquery, found)?;
    }
    inputs.into_iter().try_for_each(|it| outer_columns(it, found))
}

fn projected(plan: LogicalPlan, exprs: Vec<Expr>, keys: Vec<Column>) -> Result<Unnested> {
    // A union has the keys among its columns.
    let is_key = |it: &Expr| keys.iter().any(|key| it.schema_name().to_string() == key.name);
    let exprs = exprs.into_iter().filter(|it| !is_key(it)).collect::<Vec<_>>();
    let besides = keys.iter().cloned().map(Expr::Column);
    let plan = LogicalPlanBuilder::from(plan).project(exprs.into_iter().chain(besides))?.build()?;
    Ok(Unnested { plan, keys })
}

fn equal(left: &[Column], right: &[Column]) -> Vec<Expr> {
    let pairs = left.iter().cloned().zip(right.iter().cloned());
    pairs.map(|(one, other)| not_distinct(Expr::Column(one), Expr::Column(other))).collect()
}

fn not_distinct(one: Expr, other: Expr) -> Expr {
    datafusion::logical_expr::binary_expr(
        one,
        datafusion::logical_expr::Operator::IsNotDistinctFrom,
        other,
    )
}

/// Makes aggregates skip the rows of an outer join that have no match.
fn of_rows(aggregates: Vec<Expr>, there: &Expr) -> Result<Vec<Expr>> {
    let filtered = aggregates.into_iter().map(|expr| {
        let name = expr.schema_name().to_string();
        let filtered = expr.unalias().transform_down(|it| match it {
            Expr::AggregateFunction(mut call) => {
                let filter = call.params.filter.take().map(|it| *it);
                let filter = filter.map_or_else(|| there.clone(), |it| there.clone().and(it));
                call.params.filter = Some(Box::new(filter));
                let call = Expr::AggregateFunction(call);
                Ok(Transformed::new(call, true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(filtered?.data.alias(name))
    });
    filtered.collect()
}

/// Returns whether an aggregate is one of the outer query, whose columns alone it names.
fn is_of_outer(expr: &Expr) -> bool {
    expr.contains_outer() && !expr.any_column_refs()
}

/// Returns whether an aggregate depends on the order of rows.
fn is_in_order(expr: &Expr) -> bool {
    let found = expr.exists(|it| {
        Ok(matches!(it, Expr::AggregateFunction(call) if ORDERED.contains(&call.func.name())
            && call.params.order_by.is_empty()))
    });
    found.unwrap_or(true)
}

/// Returns whether values of a type are grouped and joined as PostgreSQL compares them.
fn is_compared(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_string()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Decimal128(..)
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Time64(_)
                | DataType::Binary
                | DataType::BinaryView
        )
}

/// Returns whether a plan gives the same rows when it is evaluated again, unless PostgreSQL may
/// give others, too.
fn is_repeatable(plan: &LogicalPlan) -> Result<bool> {
    let mut is_repeatable = true;
    plan.apply_with_subqueries(|plan| {
        is_repeatable &= match plan {
            LogicalPlan::Limit(it) => is_sorted(&it.input),
            LogicalPlan::Distinct(Distinct::On(it)) => it.sort_expr.is_some(),
            LogicalPlan::Extension(_) | LogicalPlan::RecursiveQuery(_) => false,
            LogicalPlan::Aggregate(it) => !it.aggr_expr.iter().any(is_in_order),
            _ => true,
        };
        plan.apply_expressions(|expr| {
            is_repeatable &= !expr.exists(|it| Ok(is_volatile(it)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(is_repeatable)
}

/// Functions that are volatile only for the planner.
const CONSTANT: &[&str] = &["is_only_row", "may_be_null"];

fn is_volatile(expr: &Expr) -> bool {
    expr.is_volatile_node()
        && !matches!(expr, Expr::ScalarFunction(call) if CONSTANT.contains(&call.func.name()))
}

fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(it) => is_sorted(&it.input),
        LogicalPlan::SubqueryAlias(it) => is_sorted(&it.input),
        LogicalPlan::Sort(_) => true,
        _ => false,
    }
}
