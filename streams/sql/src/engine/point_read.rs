//! Reads of current values by a single key, without planning: names are resolved when the query is
//! prepared, and the record is found by the index on the calling thread.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use access::Operation;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, ScalarValue};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlan, Operator, Projection, TableScan, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use live_queries::TableKind;
use record_log::Partition;
use values::Values;

use super::clock::unix_ms;
use super::columns::{KEY, LogColumn, ReadColumn, bytes_of, schema_of};
use super::current_reader::{LOOK_INTERVAL, WAIT_MAX, behind};
use super::dialect::with_types;
use super::json_fields::JsonFields;
use super::log_reader::{ReadPlan, Rows};
use super::log_table::{LogTable, undefined_table};
use super::pushdown::LogFilter;
use crate::error::SqlError;
use crate::host::{Client, Host};

/// `SELECT … FROM "topic$current" WHERE key = …`, with columns that depend on no other row.
pub(crate) struct PointRead {
    host: Arc<dyn Host>,
    client: Arc<Client>,
    plan: Arc<ReadPlan>,
    key: KeySource,
    /// Output expressions over the columns that `plan` reads.
    outputs: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
}

/// Source of the key.
enum KeySource {
    Literal(Vec<u8>),
    /// Index of the parameter, from 0.
    Parameter(usize),
}

impl PointRead {
    /// Recognizes a point read. Returns `None` for other queries.
    pub(crate) fn of(plan: &LogicalPlan, state: &SessionState) -> Option<Self> {
        let LogicalPlan::Projection(Projection { expr, input, .. }) = plan else { return None };
        let LogicalPlan::Filter(filter) = input.as_ref() else { return None };
        let scan = scan_below(&filter.input)?;
        let provider = source_as_provider(&scan.source).ok()?;
        let table = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<LogTable>()?;
        let is_whole = scan.filters.is_empty() && scan.fetch.is_none();
        let is_now = table.kind == TableKind::Values && table.past.is_none();
        if !is_now || !is_whole || !expr.iter().all(is_fixed) {
            return None;
        }
        let key = key_of(&filter.predicate)?;
        let wanted: BTreeSet<usize> =
            expr.iter().flat_map(Expr::column_refs).map(index_of).collect::<Option<_>>()?;
        let columns: Vec<LogColumn> = wanted.iter().map(|index| LogColumn::ALL[*index]).collect();
        let below = filter.input.schema();
        let fields = wanted.iter().map(|index| {
            let (qualifier, field) = below.qualified_field(*index);
            (qualifier.cloned(), Arc::clone(field))
        });
        let below = DFSchema::new_with_metadata(fields.collect(), Default::default()).ok()?;
        let outputs = expr
            .iter()
            .map(|it| state.create_physical_expr(with_types(it.clone(), &below)?, &below));
        let outputs = outputs.collect::<Result<Vec<_>, _>>().ok()?;
        let described = plan.schema().fields().iter().zip(&outputs).map(|(field, output)| {
            let data_type = output.data_type(below.as_arrow())?;
            Ok(field.as_ref().clone().with_data_type(data_type))
        });
        let described = Schema::new(described.collect::<Result<Vec<_>, DataFusionError>>().ok()?);
        let read = ReadPlan {
            topic: Arc::clone(&table.topic),
            schema: schema_of(&columns, table.form),
            columns: columns.into_iter().map(ReadColumn::Record).collect(),
            fields: JsonFields::default(),
            form: table.form,
            on_error: table.on_error,
            kind: table.kind,
            past: None,
            pinned: None,
            filter: LogFilter::default(),
            limit: None,
        };
        let (host, client) = (Arc::clone(&table.host), Arc::clone(&table.client));
        let schema = Arc::new(described);
        Some(Self { host, client, plan: Arc::new(read), key, outputs, schema })
    }

    /// Returns the rows for these parameters. Waits for values as new as the log at the time of the
    /// call, and checks the client's permission each time.
    pub(crate) async fn read(&self, parameters: &[ScalarValue]) -> Result<RecordBatch, SqlError> {
        let name = &self.plan.topic;
        self.client.check(&*self.host, Operation::Read, name)?;
        let topic = self.host.topic(name).ok_or_else(|| undefined_table(name))?;
        let key = match &self.key {
            KeySource::Literal(key) => Some(key.clone()),
            KeySource::Parameter(index) => parameters.get(*index).and_then(bytes_of),
        };
        let mut rows = Rows::new(Arc::clone(&self.plan), usize::MAX);
        let (mut buffer, now_ms) = (Vec::new(), unix_ms());
        for number in 0..topic.partition_count() {
            let Some(key) = &key else { break };
            let values = self.values(&*topic.partition(number)?).await?;
            let number = i32::try_from(number).expect("partitions have a limit");
            values
                .get(key, now_ms, &mut buffer, |record| rows.add(number, record, None))?
                .transpose()?;
        }
        let found = rows.finish()?;
        let evaluate =
            |output: &Arc<dyn PhysicalExpr>| output.evaluate(&found)?.into_array(found.num_rows());
        let columns = self.outputs.iter().map(evaluate).collect::<Result<_, _>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(DataFusionError::from)?)
    }

    /// Waits for values as new as the log now.
    async fn values(&self, partition: &Partition) -> Result<Arc<Values>, SqlError> {
        let (topic, number) = (&self.plan.topic, partition.number());
        let (wanted, begun) = (partition.last_stable_offset(), Instant::now());
        loop {
            let values = self.host.values(topic, number);
            let applied = values.as_ref().map_or(0, |it| it.applied());
            match values.filter(|_| applied >= wanted) {
                Some(values) => return Ok(values),
                None if begun.elapsed() < WAIT_MAX => tokio::time::sleep(LOOK_INTERVAL).await,
                None => return Err(behind(topic, number, applied, wanted)),
            }
        }
    }
}

/// Returns the scan of a query's only table, below any aliases.
fn scan_below(plan: &LogicalPlan) -> Option<&TableScan> {
    match plan {
        LogicalPlan::TableScan(scan) => Some(scan),
        LogicalPlan::SubqueryAlias(alias) => scan_below(&alias.input),
        _ => None,
    }
}

fn index_of(column: &Column) -> Option<usize> {
    LogColumn::ALL.iter().position(|it| it.name() == column.name())
}

/// Returns whether an expression is deterministic for a record, and contains no parameter or
/// subquery.
fn is_fixed(expr: &Expr) -> bool {
    let mut is_fixed = true;
    let walked = expr.apply(|node| {
        is_fixed &= match node {
            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
            Expr::Placeholder(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::ScalarSubquery(_)
            | Expr::OuterReferenceColumn(..) => false,
            _ => true,
        };
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && is_fixed
}

/// Returns the operand that the condition, as a whole, compares the key with for equality.
fn key_of(predicate: &Expr) -> Option<KeySource> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = predicate else {
        return None;
    };
    let is_key = |it: &Expr| matches!(it, Expr::Column(column) if column.name() == KEY);
    let other = match (is_key(left), is_key(right)) {
        (true, false) => right,
        (false, true) => left,
        _ => return None,
    };
    source_of(other)
}

fn source_of(expr: &Expr) -> Option<KeySource> {
    match expr {
        // Casts between the engine's text types do not change the value.
        Expr::Cast(cast) if cast.field.data_type().is_string() => match cast.expr.as_ref() {
            parameter @ Expr::Placeholder(_) => source_of(parameter),
            _ => None,
        },
        Expr::Literal(value, _) => bytes_of(value).map(KeySource::Literal),
        Expr::Placeholder(placeholder) => {
            let number = placeholder.id.strip_prefix('$')?.parse::<usize>().ok()?;
            number.checked_sub(1).map(KeySource::Parameter)
        }
        _ => None,
    }
}
