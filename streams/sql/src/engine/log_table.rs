//! Tables of a topic: a row for each record of its log, or for the last record of each key.

use std::sync::Arc;

use access::Operation;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use live_queries::TableKind;
use record_log::LogError;

use super::columns::{Form, LogColumn, ReadColumn, schema_of};
use super::json_fields::JsonFields;
use super::log_reader::ReadPlan;
use super::log_scan::LogScan;
use super::past::Past;
use super::pins::Pins;
use super::pushdown::LogFilter;
use crate::error::{SqlError, SqlState};
use crate::host::{Client, Host};
use crate::typed::OnError;

/// A topic's log or current values, for one client.
pub(crate) struct LogTable {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) client: Arc<Client>,
    pub(crate) topic: Arc<str>,
    pub(crate) form: Form,
    /// Handling of a value that is not UTF-8.
    pub(crate) on_error: OnError,
    pub(crate) kind: TableKind,
    pub(crate) past: Option<Past>,
}

impl std::fmt::Debug for LogTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogTable").field("topic", &self.topic).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for LogTable {
    fn schema(&self) -> SchemaRef {
        schema_of(&LogColumn::ALL, self.form)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            let mut taken = LogFilter::default();
            if taken.add(filter) {
                TableProviderFilterPushDown::Exact
            } else if self.form == Form::Text && taken.add_contained(filter) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    /// Checks the client's permission on every scan, because plans can outlive permissions.
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.client
            .check(&*self.host, Operation::Read, &self.topic)
            .map_err(SqlError::into_engine)?;
        let topic = self.host.topic(&self.topic);
        let topic = topic.ok_or_else(|| undefined_table(&self.topic).into_engine())?;
        let mut filter = LogFilter::default();
        for expression in filters {
            let is_taken = filter.add(expression) || filter.add_contained(expression);
            assert!(is_taken, "only filters that are of use are handed over");
        }
        let columns: Vec<LogColumn> = match projection {
            Some(indexes) => indexes.iter().map(|index| LogColumn::ALL[*index]).collect(),
            None => LogColumn::ALL.to_vec(),
        };
        let pins = state.config().get_extension::<Pins>().unwrap_or_default();
        let pinned = match &self.past {
            Some(_) => None,
            None => Some(pins.read((&self.topic, &topic), self.kind).map_err(of_log)?),
        };
        let plan = ReadPlan {
            topic: Arc::clone(&self.topic),
            schema: schema_of(&columns, self.form),
            columns: columns.into_iter().map(ReadColumn::Record).collect(),
            fields: JsonFields::default(),
            form: self.form,
            on_error: self.on_error,
            kind: self.kind,
            past: self.past.clone(),
            pinned,
            filter,
            limit,
        };
        let streams_max = state.config().target_partitions();
        let scan = LogScan::new(&topic, (plan, Arc::clone(&self.host)), streams_max);
        Ok(Arc::new(scan.map_err(of_log)?))
    }
}

fn of_log(error: LogError) -> DataFusionError {
    SqlError::from(error).into_engine()
}

pub(super) fn undefined_table(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation {name:?} does not exist"))
}
