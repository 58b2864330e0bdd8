//! Leaf operator of plans that read a log.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use live_queries::TableKind;
use record_log::{LogError, Partition, Topic};

use super::columns::{Form, LogColumn, ReadColumn};
use super::current_reader::{CurrentReader, pinned_snapshot};
use super::json_fields::{JsonField, JsonFields};
use super::log_reader::{LogReader, ReadPlan, Span};
use crate::error::SqlError;
use crate::host::Host;

/// Maximum number of batches buffered per stream.
const BATCHES_WAITING: usize = 2;

/// Scan of the records of a topic that match a filter, up to the statement's pinned end.
pub(crate) struct LogScan {
    plan: Arc<ReadPlan>,
    host: Arc<dyn Host>,
    /// Partitions of each stream, read one after the other.
    streams: Vec<Vec<Arc<Partition>>>,
    properties: Arc<PlanProperties>,
}

impl LogScan {
    pub(crate) fn new(
        topic: &Topic,
        (plan, host): (ReadPlan, Arc<dyn Host>),
        streams_max: usize,
    ) -> Result<Self, LogError> {
        let wanted = &plan.filter.partitions;
        let numbers = (0..topic.partition_count()).filter(|it| wanted.contains(i64::from(*it)));
        let partitions = numbers.map(|it| topic.partition(it)).collect::<Result<Vec<_>, _>>()?;
        let count = partitions.len().clamp(1, streams_max.max(1));
        let mut streams = vec![Vec::new(); count];
        for (index, partition) in partitions.into_iter().enumerate() {
            streams[index % count].push(partition);
        }
        Ok(Self::of(plan, host, streams))
    }

    fn of(plan: ReadPlan, host: Arc<dyn Host>, streams: Vec<Vec<Arc<Partition>>>) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&plan.schema)),
            Partitioning::UnknownPartitioning(streams.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { plan: Arc::new(plan), host, streams, properties }
    }

    /// Returns a plan that extracts the fields that a projection looks up, and the equivalent
    /// expressions over its columns. Returns `None` if the projection looks up none.
    fn with_fields(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<(ReadPlan, Vec<ProjectionExpr>)>> {
        let plan = &self.plan;
        if plan.form != Form::Text {
            return Ok(None);
        }
        let (mut columns, mut fields) = (Vec::new(), plan.fields.all().to_vec());
        let mut schema: Vec<FieldRef> = Vec::new();
        let mut column = |column: ReadColumn, field: FieldRef| {
            let index = columns.iter().position(|it| *it == column).unwrap_or(columns.len());
            if index == columns.len() {
                columns.push(column);
                schema.push(Arc::clone(&field));
            }
            Transformed::new(column_at(&field, index), true, TreeNodeRecursion::Jump)
        };
        let value = ReadColumn::Record(LogColumn::Value);
        let mut exprs = Vec::new();
        for it in projection.expr() {
            let changed = Arc::clone(&it.expr).transform_down(|expr| {
                if let Some(read) = expr.downcast_ref::<Column>() {
                    let field = plan.schema.field(read.index()).clone();
                    return Ok(column(plan.columns[read.index()], Arc::new(field)));
                }
                let Some((input, found)) = JsonField::of(&*expr) else {
                    return Ok(Transformed::no(expr));
                };
                if plan.columns[input] != value {
                    return Ok(Transformed::no(expr));
                }
                let field = expr.return_field(&plan.schema)?.as_ref().clone();
                let field = Arc::new(field.with_name(found.to_string()));
                let index = fields.iter().position(|it| *it == found).unwrap_or(fields.len());
                if index == fields.len() {
                    fields.push(found);
                }
                Ok(column(ReadColumn::Json(index), field))
            })?;
            exprs.push(ProjectionExpr::new(changed.data, it.alias.clone()));
        }
        let is_more = fields.len() > plan.fields.all().len();
        let Some(fields) = JsonFields::new(fields).filter(|_| is_more) else { return Ok(None) };
        let plan = ReadPlan {
            topic: Arc::clone(&plan.topic),
            columns,
            fields,
            form: plan.form,
            on_error: plan.on_error,
            kind: plan.kind,
            past: plan.past.clone(),
            pinned: plan.pinned.clone(),
            filter: plan.filter.clone(),
            schema: Arc::new(Schema::new(schema)),
            limit: plan.limit,
        };
        Ok(Some((plan, exprs)))
    }
}

fn column_at(field: &Field, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(field.name(), index))
}

impl std::fmt::Debug for LogScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogScan").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl DisplayAs for LogScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let partition_count: usize = self.streams.iter().map(Vec::len).sum();
        write!(f, "{}: topic={} partitions={partition_count}", self.name(), self.plan.topic)?;
        write!(f, "{}", self.plan.filter)?;
        if let Some(past) = &self.plan.past {
            write!(f, " as_of={past}")?;
        }
        if let Some(limit) = self.plan.limit {
            write!(f, " limit={limit}")?;
        }
        let name = |column: &ReadColumn| match column {
            ReadColumn::Record(column) => column.name().to_owned(),
            ReadColumn::Json(field) => self.plan.fields.all()[*field].to_string(),
        };
        let names: Vec<_> = self.plan.columns.iter().map(name).collect();
        write!(f, " columns=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for LogScan {
    fn name(&self) -> &'static str {
        match self.plan.kind {
            TableKind::Log => "LogScan",
            TableKind::Values => "ValuesScan",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some((mut plan, exprs)) = self.with_fields(projection)? else { return Ok(None) };
        let is_column = |(index, it): (usize, &ProjectionExpr)| {
            it.expr.downcast_ref::<Column>().is_some_and(|column| column.index() == index)
        };
        let is_all = exprs.len() == plan.columns.len() && exprs.iter().enumerate().all(is_column);
        if is_all {
            plan.schema = projection.schema();
        }
        let scan = Arc::new(Self::of(plan, Arc::clone(&self.host), self.streams.clone()));
        Ok(Some(match is_all {
            true => scan,
            false => Arc::new(ProjectionExec::try_new(exprs, scan)?),
        }))
    }

    fn execute(&self, stream: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let plan = Arc::clone(&self.plan);
        let partitions = self.streams[stream].clone();
        let schema = Arc::clone(&self.plan.schema);
        let mut builder = RecordBatchReceiverStream::builder(schema, BATCHES_WAITING);
        let rows = builder.tx();
        if self.plan.kind == TableKind::Values {
            let host = Arc::clone(&self.host);
            builder.spawn_blocking(move || {
                let mut reader = CurrentReader::new(plan, &*host);
                let is_wanted = || !rows.is_closed();
                let send = &mut |batch| rows.blocking_send(Ok(batch)).is_ok();
                for partition in partitions {
                    let goes_on = reader.read(&partition, &is_wanted, send);
                    if !goes_on.map_err(SqlError::into_engine)? {
                        break;
                    }
                }
                Ok(())
            });
            return Ok(builder.build());
        }
        let host = Arc::clone(&self.host);
        builder.spawn_blocking(move || {
            let is_wanted = || !rows.is_closed();
            let spans = partitions.into_iter().map(|it| {
                let end = end(&it, &plan, (&*host, &is_wanted))?;
                span(it, &plan, end)
            });
            let spans = spans.collect::<Result<Vec<_>, _>>().map_err(SqlError::into_engine)?;
            let mut reader = LogReader::new(plan, spans);
            while let Some(batch) = reader.next_batch().map_err(SqlError::into_engine)? {
                if rows.blocking_send(Ok(batch)).is_err() {
                    // The query has ended.
                    break;
                }
            }
            Ok(())
        });
        Ok(builder.build())
    }
}

/// Returns the offset up to which the statement reads a partition.
fn end(
    partition: &Partition,
    plan: &ReadPlan,
    (host, is_wanted): (&dyn Host, &dyn Fn() -> bool),
) -> Result<i64, SqlError> {
    match &plan.pinned {
        None => Ok(partition.last_stable_offset()),
        Some(pinned) if pinned.has_snapshot() => {
            Ok(pinned_snapshot(plan, (pinned, partition), (host, is_wanted))?.applied())
        }
        Some(pinned) => Ok(pinned.end(partition.number())),
    }
}

/// Returns the offsets of a partition to read, before `end` and within the filter's bounds.
fn span(partition: Arc<Partition>, plan: &ReadPlan, end: i64) -> Result<Span, SqlError> {
    let (first, last) = plan.filter.offsets.ends();
    let end = end.min(last.saturating_add(1));
    let mut next = partition.start_offset().max(first);
    let (oldest_us, newest_us) = plan.filter.times_us.ends();
    if oldest_us > newest_us {
        next = end;
    } else if oldest_us > i64::MIN && next < end {
        // All records before the first one with this time or later are older.
        let found = partition.find_time(oldest_us.div_euclid(1_000))?;
        next = found.map_or(end, |place| next.max(place.offset));
    }
    Ok(Span { partition, next, end })
}
