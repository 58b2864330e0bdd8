//! Scales of numerics in results. PostgreSQL keeps the scale of each value, the engine that of a
//! column. Where they may differ, the plan of a query computes the scale of each value of a result
//! column beside the value, and the column is shown as a text with that scale.
//!
//! The scale of an expression follows from its operands: a quotient's from their digits, that of a
//! CASE from the branch taken. Columns whose scale cannot be derived are shown without trailing
//! zeros.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::functions_aggregate::min_max::max_udaf;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, EmptyRelation, Expr, ExprSchemable, Limit, LogicalPlan, Operator,
    Projection, SubqueryAlias, Union, Values, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::casts::NUMERIC;
use super::scale_functions::{larger, of_call, of_quotient, of_text, shown, sum};
use super::scales::{is_given_scale, is_mixed, is_text, is_trimmed, is_unknown};
use super::{chains, short_names};
use crate::engine::names::AVERAGED;

/// Prefix of the names of columns with scales.
const NAME: &str = "\0scale of ";

/// Name of the aggregate for sums.
const SUM: &str = "sum";

/// Maximum depth of plan nodes and expressions between a result and its operands.
const DEPTH_MAX: usize = 32;

/// Maximum number of parts of an expression whose scale is computed, since they are repeated.
const PARTS_MAX: usize = 200;

/// Marks the plan of a query whose result clients see.
pub(in crate::engine) fn for_clients(plan: LogicalPlan) -> LogicalPlan {
    LogicalPlan::Limit(Limit { skip: None, fetch: None, input: Arc::new(plan) })
}

/// Rule that shows the scales of a marked plan.
#[derive(Debug)]
pub(in crate::engine) struct ShowScales;

impl AnalyzerRule for ShowScales {
    fn name(&self) -> &'static str {
        "show_scales"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Limit(Limit { skip: None, fetch: None, input }) => {
                with_scales(Arc::unwrap_or_clone(input))
            }
            other => Ok(other),
        }
    }
}

/// The scale of the values of an expression.
#[derive(Clone, Debug)]
enum Scale {
    Of(i32),
    Computed(Expr),
}

impl Scale {
    fn expr(self) -> Expr {
        match self {
            Self::Of(scale) => lit(scale),
            Self::Computed(expr) => expr,
        }
    }

    fn or_larger(self, other: Self) -> Self {
        match (self, other) {
            (Self::Of(one), Self::Of(other)) => Self::Of(one.max(other)),
            (one, other) => Self::Computed(larger().call(vec![one.expr(), other.expr()])),
        }
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Of(one), Self::Of(other)) => Self::Of(one + other),
            (one, other) => Self::Computed(sum().call(vec![one.expr(), other.expr()])),
        }
    }
}

fn with_scales(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let fields: Vec<_> =
        plan.schema().iter().map(|(it, field)| (it.cloned(), Arc::clone(field))).collect();
    let mut scales = Vec::new();
    for (index, (_, field)) in fields.iter().enumerate() {
        let scale = match needs_scale(&plan, index, field.data_type()) {
            true => scale_column(&mut plan, index, 0)?,
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
                shown().call(vec![column, scale.expr()]).alias_qualified(qualifier, field.name())
            }
        }
    });
    let columns = columns.collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}

fn own_scale(data_type: &DataType) -> Option<i32> {
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(i32::from(*scale)),
        it if it.is_integer() => Some(0),
        _ => None,
    }
}

fn needs_scale(plan: &LogicalPlan, index: usize, data_type: &DataType) -> bool {
    let (qualifier, field) = plan.schema().qualified_field(index);
    let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
    data_type.is_decimal() && (is_unknown(data_type) || is_mixed(&column, &[plan], 0))
}

/// Adds a column with the scales of a column to a plan, at its end, unless they are constant.
fn scale_column(plan: &mut LogicalPlan, index: usize, depth: usize) -> Result<Option<Scale>> {
    if depth > DEPTH_MAX {
        return Ok(None);
    }
    let name = format!("{NAME}{depth} {index}");
    if plan.schema().has_column_with_unqualified_name(&name) {
        return Ok(Some(Scale::Computed(Expr::Column(Column::new_unqualified(name)))));
    }
    match plan {
        LogicalPlan::Projection(projection) => {
            let Some(expr) = projection.expr.get(index).cloned() else { return Ok(None) };
            let mut input = Arc::unwrap_or_clone(Arc::clone(&projection.input));
            let scale = Scales { input: &mut input, depth: depth + 1 }.of(&expr, 0)?;
            let Some(Scale::Computed(scale)) = scale else { return Ok(scale) };
            let mut columns = projection.expr.clone();
            columns.push(scale.alias(&name));
            *plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?);
            Ok(Some(Scale::Computed(Expr::Column(Column::new_unqualified(name)))))
        }
        LogicalPlan::Sort(sort) => of_input(&mut sort.input, index, depth),
        LogicalPlan::Limit(limit) => of_input(&mut limit.input, index, depth),
        LogicalPlan::Filter(filter) => of_input(&mut filter.input, index, depth),
        LogicalPlan::SubqueryAlias(alias) => {
            let mut input = Arc::unwrap_or_clone(Arc::clone(&alias.input));
            let scale = scale_column(&mut input, index, depth + 1)?;
            let Some(Scale::Computed(Expr::Column(column))) = scale else { return Ok(scale) };
            let table = alias.alias.clone();
            let named = SubqueryAlias::try_new(Arc::new(input), table.clone())?;
            *plan = LogicalPlan::SubqueryAlias(named);
            Ok(Some(Scale::Computed(Expr::Column(Column::new(Some(table), column.name)))))
        }
        LogicalPlan::Values(values) => {
            let Some(values) = with_scales_of_rows(values, index, &name)? else { return Ok(None) };
            *plan = LogicalPlan::Values(values);
            Ok(Some(Scale::Computed(Expr::Column(Column::new_unqualified(name)))))
        }
        LogicalPlan::Aggregate(aggregate) => {
            if matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]) {
                return Ok(None);
            }
            let count = aggregate.group_expr.len();
            let expr = match index.checked_sub(count) {
                None => aggregate.group_expr.get(index),
                Some(index) => aggregate.aggr_expr.get(index),
            };
            match expr.cloned() {
                Some(expr) => of_aggregate(aggregate, &expr, (&name, depth)),
                None => Ok(None),
            }
        }
        LogicalPlan::Union(union) => {
            let mut inputs = Vec::new();
            for input in &union.inputs {
                let mut input = Arc::unwrap_or_clone(Arc::clone(input));
                let columns = input.schema().columns().into_iter().map(Expr::Column);
                let mut columns: Vec<_> = columns.collect();
                let Some(scale) = scale_column(&mut input, index, depth + 1)? else {
                    return Ok(None);
                };
                columns.push(scale.expr().alias(&name));
                let input = Projection::try_new(columns, Arc::new(input))?;
                inputs.push(Arc::new(LogicalPlan::Projection(input)));
            }
            *plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
            Ok(Some(Scale::Computed(Expr::Column(Column::new_unqualified(name)))))
        }
        _ => Ok(None),
    }
}

fn of_input(input: &mut Arc<LogicalPlan>, index: usize, depth: usize) -> Result<Option<Scale>> {
    let mut plan = Arc::unwrap_or_clone(Arc::clone(input));
    let scale = scale_column(&mut plan, index, depth + 1)?;
    *input = Arc::new(plan);
    Ok(scale)
}

/// Returns the scale of a sum: the largest one of its values. Those of other aggregates are known
/// only if all values have one scale.
fn of_aggregate(
    aggregate: &mut Aggregate,
    expr: &Expr,
    (name, depth): (&str, usize),
) -> Result<Option<Scale>> {
    let call = match expr {
        Expr::Alias(alias) => return of_aggregate(aggregate, &alias.expr, (name, depth)),
        Expr::AggregateFunction(call) => call,
        _ => return Ok(None),
    };
    let function = call.func.name().to_ascii_lowercase();
    let is_sum = [SUM, AVERAGED].contains(&function.as_str());
    let Some(value) = call.params.args.first() else { return Ok(None) };
    if !is_sum && !matches!(function.as_str(), "min" | "max") || call.params.distinct {
        return Ok(None);
    }
    let mut input = Arc::unwrap_or_clone(Arc::clone(&aggregate.input));
    let scale = match (Scales { input: &mut input, depth: depth + 1 }).of(value, 0)? {
        Some(Scale::Computed(scale)) if is_sum => scale,
        Some(Scale::Of(scale)) => return Ok(Some(Scale::Of(scale))),
        _ => return Ok(None),
    };
    let mut largest = max_udaf().call(vec![scale]);
    if let Expr::AggregateFunction(largest) = &mut largest {
        largest.params.filter.clone_from(&call.params.filter);
    }
    let mut aggregates = aggregate.aggr_expr.clone();
    aggregates.push(largest.alias(name));
    *aggregate = Aggregate::try_new(Arc::new(input), aggregate.group_expr.clone(), aggregates)?;
    Ok(Some(Scale::Computed(Expr::Column(Column::new_unqualified(name)))))
}

/// Adds a column with the scales of a column's values to rows.
fn with_scales_of_rows(values: &Values, index: usize, name: &str) -> Result<Option<Values>> {
    let Some(scales) = scales_of_rows(values, index)? else { return Ok(None) };
    let mut rows = values.values.clone();
    for (row, scale) in rows.iter_mut().zip(scales) {
        row.push(lit(scale));
    }
    let field: FieldRef = Field::new(name, DataType::Int32, true).into();
    let fields = values.schema.iter().map(|(it, field)| (it.cloned(), Arc::clone(field)));
    let fields = fields.chain([(None, field)]).collect();
    let schema = DFSchema::new_with_metadata(fields, Default::default())?;
    Ok(Some(Values { schema: Arc::new(schema), values: rows }))
}

fn scales_of_rows(values: &Values, index: usize) -> Result<Option<Vec<i32>>> {
    let mut found = Vec::new();
    for row in &values.values {
        let mut input = no_rows(DFSchema::empty());
        let Some(expr) = row.get(index) else { return Ok(None) };
        match (Scales { input: &mut input, depth: 0 }).of(expr, 0)? {
            Some(Scale::Of(scale)) => found.push(scale),
            _ => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Derives the scales of expressions over a plan's columns.
struct Scales<'a> {
    input: &'a mut LogicalPlan,
    depth: usize,
}

impl Scales<'_> {
    fn of(&mut self, expr: &Expr, depth: usize) -> Result<Option<Scale>> {
        if depth > DEPTH_MAX {
            return Ok(None);
        }
        let data_type = expr.get_type(self.input.schema())?;
        let known = own_scale(&data_type).map(Scale::Of);
        Ok(match expr {
            Expr::Literal(value, _) if value.is_null() => Some(Scale::Of(0)),
            Expr::Literal(..) => known,
            _ if data_type.is_integer() => known,
            Expr::Alias(alias) => self.of(&alias.expr, depth + 1)?,
            Expr::Negative(inner) => self.of(inner, depth + 1)?,
            Expr::Column(column) => {
                let Some(index) = self.input.schema().maybe_index_of_column(column) else {
                    return Ok(None);
                };
                match scale_column(self.input, index, self.depth)? {
                    None if !needs_scale(self.input, index, &data_type) => known,
                    scale => scale,
                }
            }
            Expr::Case(case) => self.of_case(case, depth)?,
            Expr::Cast(_) => self.of_cast(expr, depth)?,
            Expr::ScalarFunction(call) => match short_names::is_mark(&call.func) {
                true => self.of(&call.args[0], depth + 1)?,
                false => self.of_call(call, &data_type, depth)?,
            },
            _ if !is_unknown(&data_type) => known,
            _ => None,
        })
    }

    /// Returns the scale of a value that the engine may have cast to a common type with others.
    fn of_cast(&mut self, expr: &Expr, depth: usize) -> Result<Option<Scale>> {
        let Expr::Cast(cast) = expr else { return self.of(expr, depth) };
        let own = own_scale(cast.field.data_type());
        let from = cast.expr.get_type(self.input.schema())?;
        Ok(match is_given_scale(cast) {
            true => own.map(Scale::Of),
            false if from.is_null() => Some(Scale::Of(0)),
            false if own_scale(&from) <= own => self.of(&cast.expr, depth + 1)?,
            false => None,
        })
    }

    fn of_case(&mut self, case: &Case, depth: usize) -> Result<Option<Scale>> {
        if is_costly(&Expr::Case(case.clone())) {
            return Ok(None);
        }
        let mut branches = Vec::new();
        for (when, then) in &case.when_then_expr {
            let Some(scale) = self.of(then, depth + 1)? else { return Ok(None) };
            branches.push((when.clone(), Box::new(scale.expr())));
        }
        let last = match &case.else_expr {
            Some(last) => self.of(last, depth + 1)?,
            None => Some(Scale::Of(0)),
        };
        let Some(last) = last.map(|it| Box::new(it.expr())) else { return Ok(None) };
        let scale = Case::new(case.expr.clone(), branches, Some(last));
        Ok(Some(Scale::Computed(Expr::Case(scale))))
    }

    /// Returns the scale of the first of several values that passes a test.
    fn of_first(
        &mut self,
        values: &[Expr],
        test: impl Fn(&Expr) -> Expr,
        depth: usize,
    ) -> Result<Option<Scale>> {
        let mut branches = Vec::new();
        for value in values {
            let Some(scale) = self.of(value, depth + 1)? else { return Ok(None) };
            branches.push((Box::new(test(value)), Box::new(scale.expr())));
        }
        Ok(Some(Scale::Computed(Expr::Case(Case::new(None, branches, None)))))
    }

    fn of_call(
        &mut self,
        call: &ScalarFunction,
        data_type: &DataType,
        depth: usize,
    ) -> Result<Option<Scale>> {
        let whole = Expr::ScalarFunction(call.clone());
        if is_costly(&whole) {
            return Ok(None);
        }
        let args = call.args.as_slice();
        Ok(match (call.func.name(), args) {
            ("coalesce", _) => self.of_first(args, |it| it.clone().is_not_null(), depth)?,
            ("greatest" | "least", _) => {
                let is_it = |it: &Expr| {
                    let pair = (Box::new(it.clone()), Box::new(whole.clone()));
                    Expr::BinaryExpr(BinaryExpr::new(pair.0, Operator::Eq, pair.1))
                };
                self.of_first(args, is_it, depth)?
            }
            ("nullif", [first, _]) => self.of(first, depth + 1)?,
            ("abs" | "may_be_null", [one]) => self.of(one, depth + 1)?,
            (NUMERIC, [one]) => match one.get_type(self.input.schema())? {
                it if it.is_string() => Some(Scale::Computed(of_text().call(vec![one.clone()]))),
                it if it.is_numeric() && !it.is_floating() => self.of(one, depth + 1)?,
                _ => None,
            },
            ("average", [total, count]) => {
                let of_total = self.of(total, depth + 1)?;
                let operands = vec![total.clone(), count.clone()];
                of_total.map(|it| quotient(operands, it, Scale::Of(0)))
            }
            ("exp" | "ln" | "log" | "log10" | "power" | "sqrt", args) if data_type.is_decimal() => {
                of_call(call.func.name(), args.len())
                    .map(|it| Scale::Computed(it.call(args.to_vec())))
            }
            _ if chains::is_arithmetic(&call.func) => self.of_chain(call, depth)?,
            _ if !is_unknown(data_type) => own_scale(data_type).map(Scale::Of),
            _ => None,
        })
    }

    /// Returns the scale of operators that are evaluated from left to right.
    fn of_chain(&mut self, call: &ScalarFunction, depth: usize) -> Result<Option<Scale>> {
        let Some((first, rest)) = call.args.split_first() else { return Ok(None) };
        let Some(mut scale) = self.of(first, depth + 1)? else { return Ok(None) };
        let mut left = first.clone();
        for (operator, right) in chains::operators(&call.func).iter().zip(rest) {
            let Some(other) = self.of(right, depth + 1)? else { return Ok(None) };
            let schema = self.input.schema();
            let (one_type, other_type) = (left.get_type(schema)?, right.get_type(schema)?);
            scale = match operator {
                Operator::Plus | Operator::Minus | Operator::Modulo => scale.or_larger(other),
                Operator::Multiply => scale.plus(other),
                Operator::Divide if one_type.is_integer() && other_type.is_integer() => {
                    Scale::Of(0)
                }
                Operator::Divide => quotient(vec![left.clone(), right.clone()], scale, other),
                _ => return Ok(None),
            };
            left = chains::call((left, &one_type), *operator, (right.clone(), &other_type))?;
        }
        Ok(Some(scale))
    }
}

fn quotient(mut operands: Vec<Expr>, left: Scale, right: Scale) -> Scale {
    operands.extend([left.expr(), right.expr()]);
    Scale::Computed(of_quotient().call(operands))
}

/// Returns whether an expression cannot be evaluated twice.
fn is_costly(expr: &Expr) -> bool {
    let mut parts = 0;
    let is_other = expr.exists(|it| {
        parts += 1;
        Ok(matches!(it, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)))
    });
    is_other.unwrap_or(true) || parts > PARTS_MAX || expr.is_volatile()
}

/// Shows texts of numerics with a scale that follows from the expression alone.
pub(super) fn with_texts(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|mut part| {
        if let Expr::ScalarFunction(call) = &mut part
            && (is_text(call) || call.func.name() == "format")
        {
            let mut is_changed = false;
            for number in &mut call.args {
                if !number.get_type(schema).is_ok_and(|it| is_unknown(&it))
                    || is_trimmed(number, schema)
                {
                    continue;
                }
                let mut input = no_rows(schema.clone());
                if let Some(scale) = (Scales { input: &mut input, depth: 0 }).of(number, 0)? {
                    *number = shown().call(vec![std::mem::take(number), scale.expr()]);
                    is_changed = true;
                }
            }
            return Ok(Transformed::new_transformed(part, is_changed));
        }
        Ok(Transformed::no(part))
    })
}

fn no_rows(schema: DFSchema) -> LogicalPlan {
    let schema = Arc::new(schema);
    LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema })
}
