//! A decomposed subquery: the part that does not depend on outer rows, the join conditions with the
//! outer query, and the outputs computed from both.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, JoinType, Result, ScalarValue, TableReference, UnnestOptions, plan_err,
};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Distinct, Expr, ExprFunctionExt, FetchType, LogicalPlan,
    LogicalPlanBuilder, Projection, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    SkipType, SubqueryAlias, Volatility, lit, when,
};

use super::conversions::{self, To};
use super::generated::{one_or_more, ordinals};
use super::same_json::{JsonType, same_json};
use crate::error::{SqlError, SqlState};

/// Use of a subquery's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Rows,
    Value,
    /// Order, duplicates and contents of rows are irrelevant.
    Existence,
    /// Order and duplicates of rows are irrelevant.
    Members,
}

/// Join of a subquery to the outer rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Inner,
    /// Outer rows without a match are preserved.
    Left,
    /// Same as [`Self::Left`]. More than one match is an error.
    Value,
}

/// An output column of a subquery.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) qualifier: Option<TableReference>,
    pub(super) name: String,
    pub(super) expr: Expr,
}

/// A decomposed subquery. Its expressions refer to columns of the base and outer columns.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) number: usize,
    /// Part without outer references.
    pub(super) base: LogicalPlan,
    pub(super) conditions: Vec<Expr>,
    /// Arrays to unnest for each row.
    lists: Vec<Expr>,
    /// Aggregates of all matches of an outer row. The outputs are computed from them.
    aggregates: Vec<Expr>,
    pub(super) outputs: Vec<Output>,
    order: Vec<Sort>,
    skip: usize,
    fetch: Option<usize>,
}

impl Parts {
    /// Decomposes a subquery. Returns `None` if it is not supported.
    pub(super) fn of(plan: &LogicalPlan, asked: Asked, number: usize) -> Result<Option<Self>> {
        if !depends(plan) {
            return Ok(Some(Self::whole(plan, number)));
        }
        for expr in plan.expressions() {
            if !matches!(plan, LogicalPlan::Filter(_)) && expr.exists(|it| Ok(is_subquery(it)))? {
                return Ok(None);
            }
        }
        let &[input] = plan.inputs().as_slice() else { return Ok(None) };
        let Some(mut parts) = Self::of(input, asked, number)? else { return Ok(None) };
        let is_cut = parts.fetch.is_some() || parts.skip > 0;
        match plan {
            LogicalPlan::Projection(it) => parts.project(it, input)?,
            LogicalPlan::SubqueryAlias(it) => parts.rename(it),
            _ if !parts.aggregates.is_empty() => return Ok(None),
            LogicalPlan::Subquery(_) => {}
            LogicalPlan::Aggregate(it) if !is_cut && parts.is_total(it, asked) => {
                parts.aggregate(it, input)?;
            }
            LogicalPlan::Filter(it) if !is_cut => {
                if !parts.filter(&it.predicate, input)? {
                    return Ok(None);
                }
            }
            LogicalPlan::Sort(it) if !is_cut && it.fetch.is_none() => {
                let sorted = it.expr.iter().map(|key| {
                    let expr = parts.inside(&key.expr, input.schema())?;
                    Ok(Sort { expr, ..key.clone() })
                });
                parts.order = sorted.collect::<Result<_>>()?;
            }
            LogicalPlan::Limit(it) if !is_cut => {
                let (FetchType::Literal(fetch), SkipType::Literal(skip)) =
                    (it.get_fetch_type()?, it.get_skip_type()?)
                else {
                    return Ok(None);
                };
                match asked {
                    Asked::Existence => {
                        return Ok((skip == 0 && fetch != Some(0)).then_some(parts));
                    }
                    Asked::Members => return Ok(None),
                    Asked::Rows | Asked::Value => {}
                }
                (parts.fetch, parts.skip) = (fetch, skip);
            }
            LogicalPlan::Distinct(Distinct::All(_))
                if matches!(asked, Asked::Existence | Asked::Members) => {}
            LogicalPlan::Unnest(it) => {
                let is_plain = it.struct_type_columns.is_empty()
                    && it.list_type_columns.iter().all(|(_, list)| list.depth == 1);
                if !is_plain || !parts.is_one_row() || !parts.conditions.is_empty() || is_cut {
                    return Ok(None);
                }
                parts.unnest(it)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(parts))
    }

    /// Returns the parts of an uncorrelated subquery.
    fn whole(plan: &LogicalPlan, number: usize) -> Self {
        let columns = plan.schema().iter().map(|(qualifier, field)| Output {
            qualifier: qualifier.cloned(),
            name: field.name().clone(),
            expr: Expr::Column(Column::new(qualifier.cloned(), field.name())),
        });
        Self {
            number,
            outputs: columns.collect(),
            base: plan.clone(),
            conditions: Vec::new(),
            lists: Vec::new(),
            aggregates: Vec::new(),
            order: Vec::new(),
            skip: 0,
            fetch: None,
        }
    }

    /// Adds a filter. Returns `false` if it is not supported.
    fn filter(&mut self, predicate: &Expr, input: &LogicalPlan) -> Result<bool> {
        let all = split_conjunction(predicate).into_iter().cloned();
        let (joining, own): (Vec<_>, Vec<_>) = all.partition(Expr::contains_outer);
        // Uncorrelated conditions may contain subqueries, which join conditions must not.
        let is_plain = !depends(input) && !self.is_one_row();
        if let (true, Some(own)) = (is_plain, conjunction(own.clone())) {
            self.base = LogicalPlanBuilder::from(self.base.clone()).filter(own)?.build()?;
        }
        let joining = if is_plain { joining } else { [joining, own].concat() };
        for condition in &joining {
            if condition.exists(|it| Ok(is_subquery(it)))? {
                return Ok(false);
            }
            let condition = self.inside(condition, input.schema())?;
            self.conditions.push(condition);
        }
        Ok(true)
    }

    fn project(&mut self, it: &Projection, input: &LogicalPlan) -> Result<()> {
        let outputs = it.expr.iter().zip(it.schema.iter()).map(|(expr, column)| {
            let (qualifier, field) = (column.0.cloned(), column.1);
            let expr = self.inside(expr, input.schema())?.unalias_nested().data;
            Ok(Output { qualifier, name: field.name().clone(), expr })
        });
        self.outputs = outputs.collect::<Result<_>>()?;
        Ok(())
    }

    fn unnest(&mut self, unnest: &datafusion::logical_expr::Unnest) -> Result<()> {
        let before = std::mem::take(&mut self.outputs);
        for (column, from) in unnest.schema.iter().zip(&unnest.dependency_indices) {
            let mut expr = before[*from].expr.clone();
            if unnest.list_type_columns.iter().any(|(index, _)| index == from) {
                self.lists.push(expr);
                expr = Expr::Column(self.list(self.lists.len() - 1));
            }
            let (qualifier, name) = (column.0.cloned(), column.1.name().clone());
            self.outputs.push(Output { qualifier, name, expr });
        }
        Ok(())
    }

    fn rename(&mut self, it: &SubqueryAlias) {
        for (output, (qualifier, field)) in self.outputs.iter_mut().zip(it.schema.iter()) {
            output.qualifier = qualifier.cloned();
            output.name.clone_from(field.name());
        }
    }

    fn aggregate(&mut self, it: &Aggregate, input: &LogicalPlan) -> Result<()> {
        for expr in &it.aggr_expr {
            let expr = self.inside(expr, input.schema())?.unalias_nested().data;
            self.aggregates.push(expr);
        }
        let outputs = it.schema.columns().into_iter().enumerate().map(|(index, column)| Output {
            qualifier: column.relation,
            name: column.name,
            expr: Expr::Column(self.aggregated(index)),
        });
        self.outputs = outputs.collect();
        Ok(())
    }

    fn aggregated(&self, index: usize) -> Column {
        Column::new_unqualified(format!("__aggregate{}_{index}", self.number))
    }

    /// Returns whether aggregates are of the elements of an outer row's arrays. The engine itself
    /// aggregates rows of relations by the inner sides of equations.
    fn is_total(&self, it: &Aggregate, asked: Asked) -> bool {
        let is_asked = matches!(asked, Asked::Value | Asked::Rows);
        if !is_asked || !it.group_expr.is_empty() || !self.order.is_empty() {
            return false;
        }
        self.is_one_row() && !self.lists.is_empty()
    }

    fn list(&self, index: usize) -> Column {
        Column::new_unqualified(format!("__list{}_{index}", self.number))
    }

    /// Returns whether the base is a single row without a table.
    fn is_one_row(&self) -> bool {
        matches!(&self.base, LogicalPlan::EmptyRelation(it) if it.produce_one_row)
    }

    /// Rewrites an expression over columns of the subquery to columns of the base.
    fn inside(&self, expr: &Expr, schema: &DFSchema) -> Result<Expr> {
        let replaced = expr.clone().transform_up(|it| match it {
            Expr::Column(column) => {
                let index = schema.index_of_column(&column)?;
                Ok(Transformed::yes(self.outputs[index].expr.clone()))
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(replaced?.data)
    }

    /// Rewrites an expression over the base to columns of the joined result.
    pub(super) fn outside(&self, expr: Expr) -> Result<Expr> {
        let replaced = expr.transform_up(|it| match it {
            Expr::Column(column) => match self.base.schema().index_of_column(&column) {
                Ok(index) => Ok(Transformed::yes(Expr::Column(self.renamed(index)))),
                Err(_) => Ok(Transformed::no(Expr::Column(column))),
            },
            Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
            other => Ok(Transformed::no(other)),
        });
        Ok(replaced?.data)
    }

    fn renamed(&self, index: usize) -> Column {
        Column::new_unqualified(format!("__inner{}_{index}", self.number))
    }

    /// Returns the base with unique column names and additional columns, or `None` if it is a
    /// single row.
    pub(super) fn renamed_base(&self, besides: Vec<Expr>) -> Result<Option<LogicalPlan>> {
        if self.is_one_row() {
            return Ok(None);
        }
        let columns = self.base.schema().columns().into_iter().enumerate();
        let columns = columns.map(|(index, it)| Expr::Column(it).alias(self.renamed(index).name));
        let base = LogicalPlanBuilder::from(self.base.clone());
        base.project(columns.chain(besides))?.build().map(Some)
    }

    /// Returns whether all outer columns belong to this schema.
    pub(super) fn names_only(&self, schema: &DFSchema) -> bool {
        let exprs = self.conditions.iter().chain(&self.lists).chain(&self.aggregates);
        let exprs = exprs.chain(self.outputs.iter().map(|it| &it.expr));
        let mut exprs = exprs.chain(self.order.iter().map(|it| &it.expr));
        exprs.all(|expr| {
            let is_strange = expr.exists(|it| {
                Ok(matches!(it, Expr::OuterReferenceColumn(_, column)
                    if !schema.has_column(column)))
            });
            is_strange.is_ok_and(|it| !it)
        })
    }

    /// Joins the subquery to the left side. Returns the plan with the left side's columns, and
    /// expressions for the outputs.
    pub(super) fn join(
        self,
        left: LogicalPlan,
        kind: Kind,
    ) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
        if !self.aggregates.is_empty() {
            return self.join_aggregated(left);
        }
        let is_left = kind != Kind::Inner;
        let is_cut = self.fetch.is_some() || self.skip > 0;
        let is_of_lists = !self.lists.is_empty();
        if is_left
            && (self.skip > 0
                || self.fetch == Some(0)
                || is_of_lists && !self.conditions.is_empty())
        {
            return Ok(None);
        }
        let row = format!("__row{}", self.number);
        let mut builder = LogicalPlanBuilder::from(left);
        let is_ranked = is_cut || kind == Kind::Value;
        if is_ranked {
            builder = builder.window([row_number().alias(&row)])?;
        }
        let conditions = self.conditions.iter().map(|it| self.outside(it.clone()));
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        let (mut builder, is_there) = match self.is_one_row() {
            true => {
                let (builder, is_of_list) = self.unnested(builder, is_left)?;
                match (conjunction(conditions), is_left) {
                    (Some(condition), false) => (builder.filter(condition)?, None),
                    (condition, _) => (builder, is_of_list.or(condition)),
                }
            }
            false => {
                let is_there = format!("__is_there{}", self.number);
                let mut besides = vec![lit(true).alias(&is_there)];
                besides.extend(self.computed());
                let base = self.renamed_base(besides)?.expect("it is no single row");
                let join_type = if is_left { JoinType::Left } else { JoinType::Inner };
                let is_there = Expr::Column(Column::new_unqualified(is_there));
                let builder = match conditions.is_empty() && !is_left {
                    true => builder.cross_join(base)?,
                    false => {
                        let always = conditions.is_empty().then(|| lit(true));
                        builder.join_on(base, join_type, conditions.into_iter().chain(always))?
                    }
                };
                (builder, is_left.then_some(is_there))
            }
        };
        if is_ranked {
            builder = self.ranked(builder, &row, kind)?;
        }
        let outputs = self.shown(is_there.as_ref())?;
        Ok(Some((builder.build()?, outputs)))
    }

    /// Unnests the arrays for each row. With `keeps_rows`, rows without elements remain, and the
    /// condition for those with elements is returned too.
    fn unnested(
        &self,
        builder: LogicalPlanBuilder,
        keeps_rows: bool,
    ) -> Result<(LogicalPlanBuilder, Option<Expr>)> {
        if self.lists.is_empty() {
            return Ok((builder, None));
        }
        let lists = self.lists.iter().map(|it| self.outside(it.clone()));
        let mut lists = lists.collect::<Result<Vec<_>>>()?;
        if keeps_rows {
            lists.push(ordinals().call(lists.clone()));
            lists = lists.into_iter().map(|it| one_or_more().call(vec![it])).collect();
        }
        let kept = builder.schema().columns().into_iter().map(Expr::Column);
        let columns: Vec<_> = (0..lists.len()).map(|index| self.list(index)).collect();
        let lists = lists.into_iter().zip(&columns).map(|(list, it)| list.alias(&it.name));
        let is_of_list = columns.last().filter(|_| keeps_rows);
        let is_of_list = is_of_list.map(|it| Expr::Column(it.clone()).is_not_null());
        let options = UnnestOptions::new().with_preserve_nulls(false);
        let builder = builder.project(kept.chain(lists))?;
        Ok((builder.unnest_columns_with_options(columns, options)?, is_of_list))
    }

    /// Joins the aggregates of each row's matches to the left side. Rows are told apart by their
    /// numbers.
    fn join_aggregated(self, left: LogicalPlan) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
        if left.schema().fields().iter().any(|it| matches!(it.data_type(), DataType::Interval(_))) {
            return Ok(None);
        }
        let row = Expr::Column(Column::new_unqualified(format!("__row{}", self.number)));
        let (kept, restored) = self.kept(left.schema());
        let numbered = row_number().alias(format!("__row{}", self.number));
        let builder = LogicalPlanBuilder::from(left).window([numbered])?;
        let conditions = self.conditions.iter().map(|it| self.outside(it.clone()));
        let mut conditions = conditions.collect::<Result<Vec<_>>>()?;
        let there = format!("__is_there{}", self.number);
        let (builder, is_there) = match self.renamed_base(vec![lit(true).alias(&there)])? {
            Some(base) => {
                let builder = builder.join_on(base, JoinType::Left, conditions)?;
                (builder, Expr::Column(Column::new_unqualified(there)).is_true())
            }
            None => {
                let (builder, is_of_list) = self.unnested(builder, true)?;
                conditions.extend(is_of_list);
                (builder, conjunction(conditions).unwrap_or_else(|| lit(true)))
            }
        };
        let aggregates = self.aggregates.iter().enumerate().map(|(index, expr)| {
            let mut expr = self.outside(expr.clone())?;
            let Expr::AggregateFunction(call) = &mut expr else {
                return plan_err!("an aggregate is expected");
            };
            let filter = call.params.filter.take().map(|it| *it);
            let filter = filter.map_or_else(|| is_there.clone(), |it| is_there.clone().and(it));
            call.params.filter = Some(Box::new(filter));
            let is_ordered = matches!(call.func.name(), "array_agg" | "string_agg");
            if is_ordered
                && !self.lists.is_empty()
                && call.params.order_by.is_empty()
                && !call.params.distinct
            {
                // The ordinals of the elements are the last list.
                let ordinal = Expr::Column(self.list(self.lists.len()));
                call.params.order_by = vec![ordinal.sort(true, false)];
            }
            Ok(expr.alias(self.aggregated(index).name))
        });
        let aggregates = aggregates.collect::<Result<Vec<_>>>()?;
        let columns = (0..aggregates.len()).map(|index| Expr::Column(self.aggregated(index)));
        let restored = restored.into_iter().chain(columns).collect::<Vec<_>>();
        let builder = builder.aggregate(kept.into_iter().chain([row]), aggregates)?;
        let builder = builder.project(restored)?;
        Ok(Some((builder.build()?, self.shown(None)?)))
    }

    /// Returns expressions that group rows by columns, and expressions that give them again. JSON
    /// is grouped as text.
    fn kept(&self, schema: &DFSchema) -> (Vec<Expr>, Vec<Expr>) {
        let columns = schema.iter().enumerate().map(|(index, (qualifier, field))| {
            let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
            let Some(json) = JsonType::of(field) else { return (column.clone(), column) };
            let name = format!("__json{}_{index}", self.number);
            let text = conversions::call(To::Text, column).alias(&name);
            let restored = same_json(Expr::Column(Column::new_unqualified(name)), json);
            (text, restored.alias_qualified(qualifier.cloned(), field.name()))
        });
        columns.unzip()
    }

    /// Returns the outputs, which are NULL where `is_there` is not true.
    fn shown(&self, is_there: Option<&Expr>) -> Result<Vec<Expr>> {
        let outputs = self.outputs.iter().enumerate().map(|(index, output)| {
            let expr = match self.is_computed(output) {
                true => Expr::Column(self.computed_column(index)),
                false => {
                    let expr = self.outside(output.expr.clone())?;
                    match is_there {
                        Some(is_there) => when(is_there.clone().is_true(), expr).end()?,
                        None => expr,
                    }
                }
            };
            Ok(expr.alias_qualified(output.qualifier.clone(), &output.name))
        });
        outputs.collect()
    }

    /// Returns whether an output is computed before the join, so that it is NULL for rows without a
    /// match.
    fn is_computed(&self, output: &Output) -> bool {
        !self.is_one_row() && self.aggregates.is_empty() && !output.expr.contains_outer()
    }

    fn computed_column(&self, index: usize) -> Column {
        Column::new_unqualified(format!("__output{}_{index}", self.number))
    }

    fn computed(&self) -> impl Iterator<Item = Expr> {
        let outputs = self.outputs.iter().enumerate().filter(|(_, it)| self.is_computed(it));
        outputs.map(|(index, it)| it.expr.clone().alias(self.computed_column(index).name))
    }

    /// Limits the matches of each outer row.
    fn ranked(
        &self,
        builder: LogicalPlanBuilder,
        row: &str,
        kind: Kind,
    ) -> Result<LogicalPlanBuilder> {
        let place = format!("__place{}", self.number);
        let of_row = vec![Expr::Column(Column::new_unqualified(row))];
        let order = self
            .order
            .iter()
            .map(|key| Ok(Sort { expr: self.outside(key.expr.clone())?, ..key.clone() }));
        let order = order.collect::<Result<Vec<_>>>()?;
        let number = row_number().partition_by(of_row);
        let number = if order.is_empty() { number } else { number.order_by(order) }.build()?;
        let builder = builder.window([number.alias(&place)])?;
        let place = Expr::Column(Column::new_unqualified(place));
        let skip = u64::try_from(self.skip).unwrap_or(u64::MAX);
        let fetch = self.fetch.map(|it| u64::try_from(it).unwrap_or(u64::MAX));
        let mut kept = lit(true);
        if self.skip > 0 {
            kept = place.clone().gt(lit(skip));
        }
        if let Some(fetch) = fetch {
            kept = kept.and(place.clone().lt_eq(lit(skip.saturating_add(fetch))));
        }
        if kind == Kind::Value && fetch != Some(1) {
            kept = kept.and(only_row(place));
        }
        builder.filter(kept)
    }
}

/// Returns whether a plan refers to outer columns.
pub(super) fn depends(plan: &LogicalPlan) -> bool {
    plan.expressions().iter().any(Expr::contains_outer) || plan.inputs().into_iter().any(depends)
}

/// Returns a condition that fails for all rows of a scalar subquery but the first.
pub(super) fn only_row(place: Expr) -> Expr {
    ScalarUDF::new_from_impl(OnlyRow::default()).call(vec![place])
}

/// Fails for all rows of a scalar subquery but the first.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyRow {
    signature: Signature,
}

impl Default for OnlyRow {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for OnlyRow {
    fn name(&self) -> &'static str {
        "is_only_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let places = args.args[0].cast_to(&DataType::Int64, None)?.to_array(args.number_rows)?;
        let is_more = (0..places.len()).any(|row| {
            let place = ScalarValue::try_from_array(&places, row);
            place.is_ok_and(|it| it > ScalarValue::Int64(Some(1)))
        });
        if is_more {
            let what = "more than one row returned by a subquery used as an expression";
            return Err(SqlError::new(SqlState("21000"), what).into_engine());
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}

/// Returns whether an expression is a subquery.
pub(super) fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
    )
}
