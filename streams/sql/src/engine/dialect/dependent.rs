//! Decorrelation: rewrites correlated subqueries to joins where PostgreSQL supports them and the
//! engine does not.
//!
//! A subquery is split into the part that does not depend on outer rows, the join conditions with
//! the outer query, and the outputs computed from both. For `LIMIT`, outer rows are numbered, and
//! the matches of each are numbered in order.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, ExprSchema, JoinType, Result, ScalarValue, Spans, TableReference,
};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder,
    Operator, Projection, Sort, Subquery, binary_expr, lit, when,
};

use super::fresh_names::Numbers;
use super::lifting::{check_subquery, is_aggregate};
use super::parts::{Asked, Kind, Parts, depends, is_subquery, only_row};
use super::same_json::JsonType;
use super::unnested::{Domain, Unnested, outer_columns, subquery_of};

/// Replaces the correlated subqueries of a plan node by joins, as far as rules exist.
pub(super) fn joined(plan: LogicalPlan, numbers: &Numbers) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(join) => lateral(join, numbers),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Window(_) => values(plan, numbers),
        other => Ok(Transformed::no(other)),
    }
}

/// Returns the LATERAL subquery that is a side of a join, and its alias.
pub(super) fn lateral_of(plan: &LogicalPlan) -> Option<(&Subquery, Option<&TableReference>)> {
    match plan {
        LogicalPlan::Subquery(it) if !it.outer_ref_columns.is_empty() => Some((it, None)),
        LogicalPlan::SubqueryAlias(it) => {
            lateral_of(&it.input).map(|(subquery, _)| (subquery, Some(&it.alias)))
        }
        _ => None,
    }
}

fn lateral(join: Join, numbers: &Numbers) -> Result<Transformed<LogicalPlan>> {
    let Some((subquery, alias)) = lateral_of(&join.right) else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    let found = match lateral_parts(&join, subquery, alias, numbers)? {
        None => lateral_unnested(&join, subquery, numbers)?,
        found => found,
    };
    Ok(match found {
        Some(plan) => Transformed::yes(plan),
        None => Transformed::no(LogicalPlan::Join(join)),
    })
}

fn lateral_parts(
    join: &Join,
    subquery: &Subquery,
    alias: Option<&TableReference>,
    numbers: &Numbers,
) -> Result<Option<LogicalPlan>> {
    let is_always = match &join.filter {
        None => true,
        Some(filter) => *filter == lit(true),
    };
    let kind = match join.join_type {
        JoinType::Inner if join.on.is_empty() => Kind::Inner,
        JoinType::Left if join.on.is_empty() && is_always => Kind::Left,
        _ => return Ok(None),
    };
    let number = numbers.next();
    let Some(mut parts) = Parts::of(&subquery.subquery, Asked::Rows, number)? else {
        return Ok(None);
    };
    if !parts.names_only(join.left.schema()) {
        return Ok(None);
    }
    if let Some(alias) = alias {
        parts.outputs.iter_mut().for_each(|it| it.qualifier = Some(alias.clone()));
    }
    // The alias can rename columns.
    for (output, field) in parts.outputs.iter_mut().zip(join.right.schema().fields()) {
        output.name.clone_from(field.name());
    }
    let Some((plan, outputs)) = parts.join(join.left.as_ref().clone(), kind)? else {
        return Ok(None);
    };
    let kept = join.left.schema().columns().into_iter().map(Expr::Column);
    let mut builder = LogicalPlanBuilder::from(plan).project(kept.chain(outputs))?;
    if let (false, Some(filter)) = (is_always, join.filter.clone()) {
        builder = builder.filter(filter)?;
    }
    builder.build().map(Some)
}

fn lateral_unnested(
    join: &Join,
    subquery: &Subquery,
    numbers: &Numbers,
) -> Result<Option<LogicalPlan>> {
    let has_subquery = match &join.filter {
        Some(filter) => filter.exists(|it| Ok(is_subquery(it)))?,
        None => false,
    };
    if has_subquery || !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let Some(domain) = Domain::of(&subquery.subquery, &join.left, numbers)? else {
        return Ok(None);
    };
    let Some(inner) = domain.unnest(&subquery.subquery)? else { return Ok(None) };
    let named = subquery.subquery.schema().columns().into_iter().zip(join.right.schema().iter());
    let named = named.map(|(column, (qualifier, field))| {
        Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
    });
    let conditions = domain.equal(&inner.keys).into_iter().chain(join.filter.clone());
    let pairs = join.on.iter().map(|(one, other)| one.clone().eq(other.clone()));
    let conditions = conjunction(conditions.chain(pairs)).unwrap_or_else(|| lit(true));
    let keys = inner.keys.iter().cloned().map(Expr::Column);
    let inner = LogicalPlanBuilder::from(inner.plan).project(named.chain(keys))?.build()?;
    let left = LogicalPlanBuilder::from(join.left.as_ref().clone());
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    let joined = left.join_on(inner, join.join_type, [conditions])?.project(columns)?;
    joined.build().map(Some)
}

/// Replaces subqueries in the expressions of a node.
fn values(plan: LogicalPlan, numbers: &Numbers) -> Result<Transformed<LogicalPlan>> {
    let mut is_asked = false;
    for expr in plan.expressions() {
        is_asked |= expr.exists(|it| Ok(is_subquery(it)))?;
    }
    let [_] = plan.inputs().as_slice() else { return Ok(Transformed::no(plan)) };
    if !is_asked {
        return Ok(Transformed::no(plan));
    }
    // Projections and aggregates have no columns of their input.
    let before = match &plan {
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => None,
        other => Some(other.schema().columns()),
    };
    let original = plan;
    let plan = match &original {
        LogicalPlan::Sort(sort) => LogicalPlan::Sort(widened(sort.clone())?),
        other => other.clone(),
    };
    let &[input] = plan.inputs().as_slice() else { return Ok(Transformed::no(original)) };
    let is_filter = matches!(plan, LogicalPlan::Filter(_));
    let is_lifted = is_filter || matches!(plan, LogicalPlan::Projection(_));
    let outer = input.clone();
    let mut values = Values { input: outer.clone(), outer: &outer, numbers, is_filter, is_lifted };
    let names = NamePreserver::new(&plan);
    let exprs = plan.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        Ok(expr.transform_down(|it| values.replace(it))?.update_data(|it| name.restore(it)))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    if !exprs.iter().any(|it| it.transformed) {
        return Ok(Transformed::no(original));
    }
    let exprs = exprs.into_iter().map(|it| it.data).collect();
    let plan = plan.with_new_exprs(exprs, vec![values.input])?;
    let Some(before) = before else { return Ok(Transformed::yes(plan)) };
    let kept = before.into_iter().map(Expr::Column);
    Ok(Transformed::yes(LogicalPlanBuilder::from(plan).project(kept)?.build()?))
}

/// Adds the columns that subqueries of a sort key name to the projection below.
fn widened(sort: Sort) -> Result<Sort> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else { return Ok(sort) };
    let mut columns = Vec::new();
    for key in &sort.expr {
        key.expr.apply(|expr| {
            if let Some(subquery) = subquery_of(expr) {
                outer_columns(subquery, &mut columns)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    columns
        .retain(|it| !projection.schema.has_column(it) && projection.input.schema().has_column(it));
    if columns.is_empty() {
        return Ok(sort);
    }
    let besides = columns.into_iter().map(Expr::Column);
    let all = projection.expr.iter().cloned().chain(besides).collect();
    let input = Projection::try_new(all, Arc::clone(&projection.input))?;
    Ok(Sort { input: Arc::new(LogicalPlan::Projection(input)), ..sort })
}

struct Values<'a> {
    /// Input, including the joins added so far.
    input: LogicalPlan,
    /// Input without them.
    outer: &'a LogicalPlan,
    numbers: &'a Numbers,
    is_filter: bool,
    /// The engine evaluates scalar subqueries of this node.
    is_lifted: bool,
}

impl Values<'_> {
    fn replace(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let found = match &expr {
            Expr::ScalarSubquery(it) if depends(&it.subquery) => self.scalar(it)?,
            // The engine supports these in conditions.
            Expr::Exists(Exists { subquery: it, .. })
                if self.is_filter && self.is_served(it, Asked::Existence) =>
            {
                None
            }
            Expr::InSubquery(InSubquery { subquery: it, .. })
            | Expr::SetComparison(SetComparison { subquery: it, .. })
                if self.is_filter && self.is_served(it, Asked::Members) =>
            {
                None
            }
            Expr::Exists(Exists { subquery, negated }) => {
                self.existence(subquery)?.map(|it| if *negated { !it } else { it })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => self
                .compared(expr, Operator::Eq, subquery)?
                .map(|it| if *negated { !it } else { it }),
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                match quantifier {
                    SetQuantifier::Any => self.compared(expr, *op, subquery)?,
                    // All are, unless the opposite is true of any.
                    SetQuantifier::All => match op.negate() {
                        Some(op) => self.compared(expr, op, subquery)?.map(|it| !it),
                        None => None,
                    },
                }
            }
            _ => None,
        };
        Ok(match found {
            Some(found) => Transformed::new(found, true, TreeNodeRecursion::Jump),
            None => Transformed::no(expr),
        })
    }

    /// Returns whether the engine can evaluate a subquery here.
    fn is_served(&self, subquery: &Subquery, asked: Asked) -> bool {
        let mut columns = Vec::new();
        outer_columns(&subquery.subquery, &mut columns).is_ok()
            && columns.iter().all(|it| self.outer.schema().has_column(it))
            && (asked != Asked::Value || is_by_equations(&subquery.subquery))
            && check_subquery(subquery, self.outer.schema(), asked).is_ok()
    }

    /// Replaces a correlated scalar subquery.
    fn scalar(&mut self, subquery: &Subquery) -> Result<Option<Expr>> {
        if let Some(found) = self.value(subquery)? {
            return Ok(Some(found));
        }
        match self.is_lifted && self.is_served(subquery, Asked::Value) {
            true => Ok(None),
            false => self.value_unnested(subquery),
        }
    }

    /// Returns the rows of a subquery for all outer rows, and conditions for those of one.
    fn unnested(&self, subquery: &Subquery) -> Result<Option<(Unnested, Vec<Expr>)>> {
        let plan = &subquery.subquery;
        let Some(domain) = Domain::of(plan, self.outer, self.numbers)? else { return Ok(None) };
        let Some(inner) = domain.unnest(plan)? else { return Ok(None) };
        let same = domain.equal(&inner.keys);
        Ok(Some((inner, same)))
    }

    fn value_unnested(&mut self, subquery: &Subquery) -> Result<Option<Expr>> {
        let columns = subquery.subquery.schema().columns();
        let [column] = columns.as_slice() else { return Ok(None) };
        let Some((inner, same)) = self.unnested(subquery)? else { return Ok(None) };
        let number = self.numbers.next();
        let name = format!("__value{number}");
        let keys: Vec<_> = inner.keys.iter().cloned().map(Expr::Column).collect();
        let value = Expr::Column(column.clone()).alias(&name);
        let mut builder = LogicalPlanBuilder::from(inner.plan);
        builder = builder.project(std::iter::once(value).chain(keys.iter().cloned()))?;
        if !is_aggregate(&subquery.subquery) {
            let place = format!("__place{number}");
            let numbered = row_number().partition_by(keys).build()?.alias(&place);
            let is_only = only_row(Expr::Column(Column::new_unqualified(place)));
            builder = builder.window([numbered])?.filter(is_only)?;
        }
        let same = conjunction(same).unwrap_or_else(|| lit(true));
        let kept = self.input.schema().columns().into_iter().map(Expr::Column);
        let value = Expr::Column(Column::new_unqualified(name));
        let joined = LogicalPlanBuilder::from(self.input.clone());
        let joined = joined.join_on(builder.build()?, JoinType::Left, [same])?;
        self.input = joined.project(kept.chain([value.clone()]))?.build()?;
        Ok(Some(value))
    }

    fn parts(&self, subquery: &Subquery, asked: Asked) -> Result<Option<Parts>> {
        let parts = Parts::of(&subquery.subquery, asked, self.numbers.next())?;
        Ok(parts.filter(|it| it.names_only(self.input.schema())))
    }

    /// Replaces a scalar subquery with one column.
    fn value(&mut self, subquery: &Subquery) -> Result<Option<Expr>> {
        let Some(mut parts) = self.parts(subquery, Asked::Value)? else { return Ok(None) };
        if parts.outputs.len() != 1 {
            return Ok(None);
        }
        let name = format!("__value{}", parts.number);
        parts.outputs[0].name.clone_from(&name);
        parts.outputs[0].qualifier = None;
        let input = self.input.clone();
        let Some((plan, outputs)) = parts.join(input, Kind::Value)? else { return Ok(None) };
        let kept = self.input.schema().columns().into_iter().map(Expr::Column);
        self.input = LogicalPlanBuilder::from(plan).project(kept.chain(outputs))?.build()?;
        Ok(Some(Expr::Column(Column::new_unqualified(name))))
    }

    fn existence(&mut self, subquery: &Subquery) -> Result<Option<Expr>> {
        if !depends(&subquery.subquery) {
            return has_rows(subquery.subquery.as_ref().clone()).map(Some);
        }
        match self.parts(subquery, Asked::Existence)? {
            Some(parts) => {
                let conditions = parts.conditions.clone();
                self.marked(&parts, conditions).map(Some)
            }
            None => match self.unnested(subquery)? {
                Some((inner, same)) => self.met(inner.plan, same).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Replaces IN and ANY: true, false, or NULL if unknown.
    fn compared(
        &mut self,
        sought: &Expr,
        op: Operator,
        subquery: &Subquery,
    ) -> Result<Option<Expr>> {
        let sought = sought.clone().transform_down(|it| self.replace(it))?.data;
        if sought.exists(|it| Ok(is_subquery(it)))? {
            return Ok(None);
        }
        if let (Operator::Eq, Some(found)) = (op, self.member(&sought, subquery)?) {
            return Ok(Some(found));
        }
        let plan = &subquery.subquery;
        let columns = plan.schema().columns();
        let [column] = columns.as_slice() else { return Ok(None) };
        let (_, field) = plan.schema().qualified_field_from_column(column)?;
        let (_, of_sought) = sought.to_field(self.input.schema())?;
        if !are_compared(&of_sought, field) {
            return Ok(None);
        }
        let Some((inner, same)) = self.unnested(subquery)? else { return Ok(None) };
        let name = Column::new_unqualified(format!("__member{}", self.numbers.next()));
        let keys = inner.keys.into_iter().map(Expr::Column);
        let value = Expr::Column(column.clone()).alias(&name.name);
        let inner =
            LogicalPlanBuilder::from(inner.plan).project([value].into_iter().chain(keys))?;
        let inner = inner.build()?;
        let is_met = binary_expr(sought, op, Expr::Column(name));
        let with = |condition| same.iter().cloned().chain([condition]).collect::<Vec<_>>();
        let is_there = self.met(inner.clone(), with(is_met.clone()))?;
        let is_unknown = self.met(inner, with(is_met.is_null()))?;
        let unknown = Expr::Literal(ScalarValue::Boolean(None), None);
        let found = when(is_there, lit(true)).when(is_unknown, unknown).otherwise(lit(false))?;
        Ok(Some(found))
    }

    /// Replaces IN: true, false, or NULL if unknown.
    fn member(&mut self, sought: &Expr, subquery: &Subquery) -> Result<Option<Expr>> {
        if sought.contains_outer() {
            return Ok(None);
        }
        let Some(parts) = self.parts(subquery, Asked::Members)? else { return Ok(None) };
        let Some(value) = parts.outputs.first().map(|it| it.expr.clone()) else { return Ok(None) };
        // The outer columns of the left operand, in the form in which the subquery refers to them.
        let schema = Arc::clone(self.input.schema());
        let sought_inside = sought.clone().transform_up(|it| match it {
            Expr::Column(column) => {
                let field = Arc::clone(schema.field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        });
        let sought_inside = sought_inside?.data;
        let with = |condition: Expr| {
            parts.conditions.iter().cloned().chain([condition]).collect::<Vec<_>>()
        };
        let equal = with(sought_inside.clone().eq(value.clone()));
        let is_there = self.marked(&parts, equal)?;
        let is_unknown = match !depends(&subquery.subquery) {
            false => {
                let nulls = with(value.is_null().or(sought_inside.is_null()));
                self.marked(&parts, nulls)?
            }
            true => {
                let rows = LogicalPlanBuilder::from(parts.base.clone());
                let has_null = has_rows(rows.clone().filter(value.is_null())?.build()?)?;
                has_null.or(sought.clone().is_null().and(has_rows(rows.build()?)?))
            }
        };
        let unknown = Expr::Literal(ScalarValue::Boolean(None), None);
        let found = when(is_there, lit(true)).when(is_unknown, unknown).otherwise(lit(false))?;
        Ok(Some(found))
    }

    /// Marks each row of the input by whether a row of the base meets the conditions.
    fn marked(&mut self, parts: &Parts, conditions: Vec<Expr>) -> Result<Expr> {
        let condition = conjunction(conditions).unwrap_or_else(|| lit(true));
        let condition = parts.outside(condition)?;
        match parts.renamed_base(Vec::new())? {
            Some(base) => self.met(base, vec![condition]),
            None => Ok(condition.is_true()),
        }
    }

    /// Marks each row of the input by whether a row of a plan meets the conditions.
    fn met(&mut self, base: LogicalPlan, conditions: Vec<Expr>) -> Result<Expr> {
        let number = self.numbers.next();
        let condition = conjunction(conditions).unwrap_or_else(|| lit(true));
        let alias = format!("__mark{number}");
        let right = LogicalPlanBuilder::from(base).alias(alias.as_str())?.build()?;
        let left = LogicalPlanBuilder::from(self.input.clone());
        let joined = left.join_on(right, JoinType::LeftMark, [condition])?;
        // Renamed, because a second join would otherwise find the mark of the first.
        let name = format!("__is_there{number}");
        let mark = Expr::Column(Column::new(Some(alias), "mark")).alias(&name);
        let kept = self.input.schema().columns().into_iter().map(Expr::Column);
        self.input = joined.project(kept.chain([mark]))?.build()?;
        Ok(Expr::Column(Column::new_unqualified(name)))
    }
}

/// Returns an expression for whether an uncorrelated query returns a row.
fn has_rows(plan: LogicalPlan) -> Result<Expr> {
    let counted = LogicalPlanBuilder::from(plan)
        .limit(0, Some(1))?
        .aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias("rows")])?
        .project([Expr::Column(Column::new_unqualified("rows"))
            .gt(lit(0_i64))
            .alias("has_rows")])?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(counted.build()?),
        outer_ref_columns: Vec::new(),
        spans: Spans::new(),
    }))
}

/// Returns whether rows belong to outer rows by equations of inner and outer expressions, by which
/// the engine groups aggregates.
fn is_by_equations(plan: &LogicalPlan) -> bool {
    let is_equation = |it: &Expr| match it {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let of_inner = |it: &Expr| it.any_column_refs() && !it.contains_outer();
            let of_outer = |it: &Expr| it.contains_outer() && !it.any_column_refs();
            of_inner(left) && of_outer(right) || of_outer(left) && of_inner(right)
        }
        other => !other.contains_outer(),
    };
    let is_own = match plan {
        LogicalPlan::Filter(it) => split_conjunction(&it.predicate).into_iter().all(is_equation),
        other => !other.expressions().iter().any(Expr::contains_outer),
    };
    is_own && plan.inputs().into_iter().all(is_by_equations)
}

/// Returns whether values of two types are compared by the engine's operators as in PostgreSQL.
fn are_compared(one: &Field, other: &Field) -> bool {
    let is_json = JsonType::of(one).is_some() || JsonType::of(other).is_some();
    let (one, other) = (one.data_type(), other.data_type());
    let is_exact = |it: &DataType| it.is_integer() || it.is_decimal();
    let is_plain = matches!(one, DataType::Boolean | DataType::Date32 | DataType::Timestamp(..));
    let are_texts = one.is_string() && other.is_string();
    !is_json && (is_exact(one) && is_exact(other) || are_texts || is_plain && one == other)
}
