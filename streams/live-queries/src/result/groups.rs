//! Groups of records with aggregates, maintained incrementally.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{RowError, SqlError, SqlState};
use crate::expr::{Aggregate, Expr};
use crate::json::Fields;
use crate::query::{Query, Shape, evaluate_all};
use crate::result::accumulate::Accumulator;
use crate::result::change::{ResultChange, ResultRow};
use crate::row::Row;
use crate::scalar::Value;
use crate::table::TableKind;

/// Memory limits of a view's groups.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    pub groups_max: usize,
    /// Maximum distinct values that `min` and `max` store for current values, in all groups.
    pub kept_values_max: usize,
}

#[derive(Debug)]
pub(super) struct Groups {
    limits: GroupLimits,
    groups: HashMap<Arc<[u8]>, Group>,
    kept_value_count: usize,
}

#[derive(Debug)]
struct Group {
    keys: Vec<Value<'static>>,
    row_count: u64,
    accumulators: Vec<Accumulator>,
    shown: Option<Arc<ResultRow>>,
}

/// Contribution of a record to its group.
struct Addend {
    id: Arc<[u8]>,
    keys: Vec<Value<'static>>,
    /// Arguments of the aggregates; `None` if FILTER excludes the record. `count(*)` has a number.
    arguments: Vec<Option<Value<'static>>>,
}

/// Parts of a grouped query.
#[derive(Clone, Copy)]
struct Plan<'a> {
    query: &'a Query,
    keys: &'a [Expr],
    aggregates: &'a [Aggregate],
    projection: &'a [Expr],
    having: Option<&'a Expr>,
}

impl Groups {
    pub(super) fn new(limits: GroupLimits) -> Self {
        Self { limits, groups: HashMap::new(), kept_value_count: 0 }
    }

    /// Creates the single row of a query without GROUP BY, before there are any records.
    pub(super) fn start(&mut self, query: &Query) -> Option<ResultChange> {
        let plan = plan(query)?;
        if !plan.keys.is_empty() {
            return None;
        }
        let id = encode(&[]);
        self.groups.insert(id.clone(), Group::new(plan, Vec::new()));
        self.show(plan, &id)
    }

    /// Removes `old` from its group, adds `new` to its own, and appends the changes of both groups
    /// to `out`. Fails if the limits of groups or values are exceeded, which ends the view. A
    /// record on which the query fails belongs to no group; `failed` is called for a new one.
    pub(super) fn apply(
        &mut self,
        query: &Query,
        [old, new]: [Option<&Row<'_>>; 2],
        failed: &mut impl FnMut(RowError),
        out: &mut Vec<ResultChange>,
    ) -> Result<(), SqlError> {
        let Some(plan) = plan(query) else { return Ok(()) };
        let old = old.and_then(|it| addend(plan, it).ok());
        let new = new.and_then(|it| addend(plan, it).map_err(&mut *failed).ok());
        let mut touched = Vec::with_capacity(2);
        if let Some(addend) = old {
            self.subtract(plan, &addend)?;
            touched.push(addend.id);
        }
        if let Some(addend) = new {
            let id = addend.id.clone();
            self.add(plan, addend)?;
            if !touched.contains(&id) {
                touched.push(id);
            }
        }
        out.extend(touched.iter().filter_map(|it| self.show(plan, it)));
        Ok(())
    }

    fn add(&mut self, plan: Plan<'_>, addend: Addend) -> Result<(), SqlError> {
        let group_count = self.groups.len();
        if !self.groups.contains_key(&addend.id) && group_count >= self.limits.groups_max {
            return Err(too_large(&format!("{group_count} groups")));
        }
        let group = self.groups.entry(addend.id).or_insert_with(|| Group::new(plan, addend.keys));
        group.row_count += 1;
        let each = group.accumulators.iter_mut().zip(plan.aggregates);
        for ((accumulator, aggregate), argument) in each.zip(addend.arguments) {
            if let Some(value) = argument {
                let before = accumulator.kept_count();
                accumulator.add(value, aggregate.kind);
                self.kept_value_count += accumulator.kept_count() - before;
            }
        }
        if self.kept_value_count > self.limits.kept_values_max {
            return Err(too_large("values for min and max"));
        }
        Ok(())
    }

    fn subtract(&mut self, plan: Plan<'_>, addend: &Addend) -> Result<(), SqlError> {
        let group = self.groups.get_mut(&addend.id).filter(|it| it.row_count > 0);
        let group = group.ok_or_else(|| {
            SqlError::new(
                SqlState::INTERNAL,
                "internal error: a removed record belongs to no group",
            )
        })?;
        group.row_count -= 1;
        for (accumulator, argument) in group.accumulators.iter_mut().zip(&addend.arguments) {
            if let Some(value) = argument {
                let before = accumulator.kept_count();
                accumulator.subtract(value.clone());
                self.kept_value_count -= before - accumulator.kept_count();
            }
        }
        debug_assert_eq!(group.accumulators.len(), plan.aggregates.len(), "one for each");
        Ok(())
    }

    /// Returns the change of a group's row since it was last shown. Empty groups are removed.
    fn show(&mut self, plan: Plan<'_>, id: &Arc<[u8]>) -> Option<ResultChange> {
        let group = self.groups.get_mut(id)?;
        let is_there = group.row_count > 0 || plan.keys.is_empty();
        let after = if is_there { group.row(plan).map(Arc::new) } else { None };
        let before = std::mem::replace(&mut group.shown, after.clone());
        if !is_there {
            self.groups.remove(id);
        }
        Some(ResultChange { key: id.clone(), before, after }).filter(ResultChange::is_change)
    }
}

impl Group {
    fn new(plan: Plan<'_>, keys: Vec<Value<'static>>) -> Self {
        let forgets = plan.query.kind == TableKind::Values;
        let accumulators = plan.aggregates.iter().map(|it| Accumulator::new(it.kind, forgets));
        Self { keys, row_count: 0, accumulators: accumulators.collect(), shown: None }
    }

    /// Returns the group's row, unless HAVING excludes it or an expression on its aggregates fails.
    fn row(&self, plan: Plan<'_>) -> Option<ResultRow> {
        let each = self.accumulators.iter().zip(plan.aggregates);
        let aggregates = each.map(|(accumulator, aggregate)| accumulator.result(aggregate));
        let mut results = self.keys.clone();
        results.extend(aggregates.collect::<Result<Vec<_>, _>>().ok()?);
        let fields = Fields::default();
        let row = Row::of_results(&results, &fields);
        if !plan.having.is_none_or(|it| it.is_true(&row) == Ok(true)) {
            return None;
        }
        let columns = evaluate_all(plan.projection, &row).ok()?;
        let order = plan.query.order.iter().map(|it| it.expr.evaluate(&row));
        let order = order.map(|it| it.map(Value::into_owned)).collect::<Result<_, _>>().ok()?;
        Some(ResultRow { columns, order })
    }
}

fn plan(query: &Query) -> Option<Plan<'_>> {
    let Shape::Groups { keys, aggregates, projection, having } = &query.shape else { return None };
    Some(Plan { query, keys, aggregates, projection, having: having.as_ref() })
}

fn addend(plan: Plan<'_>, row: &Row<'_>) -> Result<Addend, RowError> {
    let keys = evaluate_all(plan.keys, row)?;
    let mut arguments = Vec::with_capacity(plan.aggregates.len());
    for aggregate in plan.aggregates {
        arguments.push(argument(aggregate, row)?);
    }
    Ok(Addend { id: encode(&keys), keys, arguments })
}

fn argument(aggregate: &Aggregate, row: &Row<'_>) -> Result<Option<Value<'static>>, RowError> {
    if let Some(filter) = &aggregate.filter
        && !filter.is_true(row)?
    {
        return Ok(None);
    }
    let Some(argument) = &aggregate.argument else { return Ok(Some(Value::Int(1))) };
    let value = argument.evaluate(row)?;
    Accumulator::check(&value, aggregate.kind)?;
    Ok(Some(value.into_owned()).filter(|it| !it.is_null()))
}

/// Encodes keys such that the encodings are equal if and only if the keys are.
fn encode(keys: &[Value<'_>]) -> Arc<[u8]> {
    let mut bytes = Vec::new();
    for key in keys {
        let text = match key {
            Value::Null => {
                bytes.push(0);
                continue;
            }
            Value::Numeric(it) => it.normalize().to_string(),
            // Negative zero equals zero.
            Value::Float(it) => Value::Float(it + 0.0).to_string(),
            other => other.to_string(),
        };
        bytes.push(1);
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.into_bytes());
    }
    bytes.into()
}

fn too_large(what: &str) -> SqlError {
    let message = format!("query exceeds the limit of {what}");
    SqlError::new(SqlState::CONFIGURATION_LIMIT, message)
        .with_hint("group by fewer values, or ask the administrator to raise the limit")
}
