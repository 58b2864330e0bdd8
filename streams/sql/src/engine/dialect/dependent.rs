//! Decorrelation: rewrites correlated subqueries to joins where PostgreSQL supports them and the
//! engine does not.
//!
//! A subquery is split into the part that does not depend on outer rows, the join conditions with
//! the outer query, and the outputs computed from both. For `LIMIT`, outer rows are numbered, and
//! the matches of each are numbered in order.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, ExprSchema, JoinType, Result, ScalarValue, Spans, TableReference,
};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, Join, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, when,
};

use super::parts::{Asked, Kind, Parts, is_subquery};

/// Generator of column names that are unique in a statement.
#[derive(Debug, Default)]
pub(super) struct Numbers(Cell<usize>);

impl Numbers {
    fn next(&self) -> usize {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// Returns whether a subquery may have been replaced by a join.
    pub(super) fn are_used(&self) -> bool {
        self.0.get() > 0
    }
}

/// Replaces the correlated subqueries of a plan node by joins, as far as rules exist.
pub(super) fn joined(plan: LogicalPlan, numbers: &Numbers) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(join) => lateral(join, numbers),
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::Aggregate(_) => {
            values(plan, numbers)
        }
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
    let unchanged = |join| Ok(Transformed::no(LogicalPlan::Join(join)));
    let Some((subquery, alias)) = lateral_of(&join.right) else { return unchanged(join) };
    let is_always = match &join.filter {
        None => true,
        Some(filter) => *filter == lit(true),
    };
    let kind = match join.join_type {
        JoinType::Inner if join.on.is_empty() => Kind::Inner,
        JoinType::Left if join.on.is_empty() && is_always => Kind::Left,
        _ => return unchanged(join),
    };
    let number = numbers.next();
    let Some(mut parts) = Parts::of(&subquery.subquery, Asked::Rows, number)? else {
        return unchanged(join);
    };
    if !parts.names_only(join.left.schema()) {
        return unchanged(join);
    }
    if let Some(alias) = alias {
        parts.outputs.iter_mut().for_each(|it| it.qualifier = Some(alias.clone()));
    }
    // The alias can rename columns.
    for (output, field) in parts.outputs.iter_mut().zip(join.right.schema().fields()) {
        output.name.clone_from(field.name());
    }
    let Some((plan, outputs)) = parts.join(join.left.as_ref().clone(), kind)? else {
        return unchanged(join);
    };
    let kept = join.left.schema().columns().into_iter().map(Expr::Column);
    let mut builder = LogicalPlanBuilder::from(plan).project(kept.chain(outputs))?;
    if let (false, Some(filter)) = (is_always, join.filter) {
        builder = builder.filter(filter)?;
    }
    Ok(Transformed::yes(builder.build()?))
}

/// Replaces subqueries in the expressions of a node.
fn values(plan: LogicalPlan, numbers: &Numbers) -> Result<Transformed<LogicalPlan>> {
    let mut is_asked = false;
    for expr in plan.expressions() {
        is_asked |= expr.exists(|it| Ok(is_subquery(it)))?;
    }
    let &[input] = plan.inputs().as_slice() else { return Ok(Transformed::no(plan)) };
    if !is_asked {
        return Ok(Transformed::no(plan));
    }
    let before = input.schema().columns();
    let is_filter = matches!(plan, LogicalPlan::Filter(_));
    let mut values = Values { input: input.clone(), numbers, is_filter };
    let names = NamePreserver::new(&plan);
    let exprs = plan.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        Ok(expr.transform_down(|it| values.replace(it))?.update_data(|it| name.restore(it)))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    if !exprs.iter().any(|it| it.transformed) {
        return Ok(Transformed::no(plan));
    }
    let exprs = exprs.into_iter().map(|it| it.data).collect();
    let plan = plan.with_new_exprs(exprs, vec![values.input])?;
    if !is_filter {
        return Ok(Transformed::yes(plan));
    }
    let kept = before.into_iter().map(Expr::Column);
    Ok(Transformed::yes(LogicalPlanBuilder::from(plan).project(kept)?.build()?))
}

struct Values<'a> {
    /// Input, including the joins added so far.
    input: LogicalPlan,
    numbers: &'a Numbers,
    is_filter: bool,
}

impl Values<'_> {
    fn replace(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let found = match &expr {
            Expr::ScalarSubquery(it) if !it.outer_ref_columns.is_empty() => self.value(it)?,
            // The engine supports these in conditions.
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) if self.is_filter => {
                None
            }
            Expr::Exists(Exists { subquery, negated }) => {
                self.existence(subquery)?.map(|it| if *negated { !it } else { it })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                self.member(expr, subquery)?.map(|it| if *negated { !it } else { it })
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                match (op, quantifier) {
                    (Operator::Eq, SetQuantifier::Any) => self.member(expr, subquery)?,
                    (Operator::NotEq, SetQuantifier::All) => {
                        self.member(expr, subquery)?.map(|it| !it)
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        Ok(match found {
            Some(found) => Transformed::new(found, true, TreeNodeRecursion::Jump),
            None => Transformed::no(expr),
        })
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
        if subquery.outer_ref_columns.is_empty() {
            return has_rows(subquery.subquery.as_ref().clone()).map(Some);
        }
        let Some(parts) = self.parts(subquery, Asked::Existence)? else { return Ok(None) };
        let conditions = parts.conditions.clone();
        self.marked(&parts, conditions).map(Some)
    }

    /// Replaces IN: true, false, or NULL if unknown.
    fn member(&mut self, sought: &Expr, subquery: &Subquery) -> Result<Option<Expr>> {
        if sought.exists(|it| Ok(is_subquery(it)))? || sought.contains_outer() {
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
        let is_unknown = match subquery.outer_ref_columns.is_empty() {
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
        let number = self.numbers.next();
        let condition = conjunction(conditions).unwrap_or_else(|| lit(true));
        let condition = parts.outside(condition)?;
        let Some(base) = parts.renamed_base(Vec::new())? else {
            return Ok(condition.is_true());
        };
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
