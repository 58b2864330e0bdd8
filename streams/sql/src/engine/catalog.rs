//! Tables visible to a client: those of topics that it is authorized to describe.

use std::sync::Arc;

use access::Operation;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use live_queries::{Table, TableKind};

use super::columns::{BYTES_SUFFIX, CURRENT_SUFFIX, Form, LOG_SUFFIX};
use super::log_table::LogTable;
use super::names::SCHEMA;
use super::past::{AS_OF, Past};
use super::pg_catalog::{INFORMATION_SCHEMA, PG_CATALOG, SystemSchema, Viewer};
use super::typed_view;
use crate::definition::table_of;
use crate::error::{SqlError, SqlState};
use crate::host::{Client, Host};
use crate::typed::{MaterializedView, OnError, TypedTable};

/// The database as one client sees it.
#[derive(Debug)]
pub(crate) struct Catalog {
    topics: Arc<Topics>,
    system: Arc<SystemSchema>,
    information: Arc<SystemSchema>,
}

impl Catalog {
    pub(crate) fn new(viewer: &Arc<Viewer>) -> Self {
        let system = Arc::new(SystemSchema::new(PG_CATALOG, viewer));
        let (host, client) = (Arc::clone(&viewer.host), Arc::clone(&viewer.client));
        let topics = Arc::new(Topics { host, client, system: Arc::clone(&system) });
        let information = Arc::new(SystemSchema::new(INFORMATION_SCHEMA, viewer));
        Self { topics, system, information }
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        [SCHEMA, PG_CATALOG, INFORMATION_SCHEMA].map(str::to_owned).to_vec()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SCHEMA => Some(Arc::clone(&self.topics) as Arc<dyn SchemaProvider>),
            PG_CATALOG => Some(Arc::clone(&self.system) as Arc<dyn SchemaProvider>),
            INFORMATION_SCHEMA => Some(Arc::clone(&self.information) as Arc<dyn SchemaProvider>),
            _ => None,
        }
    }
}

/// Tables of topics, for one client.
struct Topics {
    host: Arc<dyn Host>,
    client: Arc<Client>,
    /// System schema. Its tables are found by unqualified names, before those of topics.
    system: Arc<SystemSchema>,
}

impl std::fmt::Debug for Topics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topics").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Topics {
    /// Resolves a table of records, if the client is authorized to see its topic. The plain name of
    /// a materialized view is its current values.
    fn resolve(&self, table: &str, past: Option<Past>) -> Option<LogTable> {
        let (rest, form) = match table.strip_suffix(BYTES_SUFFIX) {
            Some(rest) => (rest, Form::Bytes),
            None => (table, Form::Text),
        };
        let (topic, Table { kind, .. }) = table_of(rest);
        let kind = match MaterializedView::find(&*self.host, rest) {
            Some(_) => TableKind::Values,
            None => kind,
        };
        let topic = match kind {
            TableKind::Values => self.host.values_topic(topic),
            TableKind::Log => Arc::from(topic),
        };
        self.records(&topic, form, (kind, past))
    }

    /// Returns the table of a topic's records, if the client is authorized to see the topic.
    fn records(
        &self,
        topic: &str,
        form: Form,
        (kind, past): (TableKind, Option<Past>),
    ) -> Option<LogTable> {
        let may_see = self.client.check(&*self.host, Operation::Describe, topic).is_ok();
        let is_there = may_see
            && self.host.topic(topic).is_some()
            && (kind == TableKind::Log || self.host.keeps_values(topic));
        let (host, client) = (Arc::clone(&self.host), Arc::clone(&self.client));
        let on_error = OnError::Fail;
        is_there.then(|| LogTable { host, client, topic: topic.into(), form, on_error, kind, past })
    }

    /// Returns the materialized view of this name with the columns of its query, if the client is
    /// authorized to see it.
    fn view(&self, name: &str, past: Option<&Past>) -> Result<Option<Arc<dyn TableProvider>>> {
        let view = MaterializedView::find(&*self.host, name).filter(|it| !it.is_of_records);
        let Some(view) = view else { return Ok(None) };
        let records = self.records(name, Form::Text, (TableKind::Values, past.cloned()));
        records.map(|records| typed_view::view(&view.table, &|_| false, records)).transpose()
    }

    /// Returns the typed table of this name, if the client is authorized to see its topic.
    fn typed(&self, name: &str, past: Option<Past>) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(table) = TypedTable::find(&*self.host, name) else { return Ok(None) };
        if past.is_some() && table.kind == TableKind::Log {
            return Err(log_of_the_past(name));
        }
        let topic = match table.kind {
            TableKind::Log => Arc::from(table.topic.as_str()),
            TableKind::Values => self.host.values_topic(&table.topic),
        };
        let records = self.records(&topic, Form::Text, (table.kind, past));
        let records = records.map(|it| LogTable { on_error: table.on_error, ..it });
        let is_jsonb = |name: &str| table.is_jsonb(name);
        records.map(|records| typed_view::view(&table.live(), &is_jsonb, records)).transpose()
    }
}

#[async_trait]
impl SchemaProvider for Topics {
    fn table_names(&self) -> Vec<String> {
        let names = self.host.topic_names();
        let all = |name: &Arc<str>| {
            ["", CURRENT_SUFFIX, LOG_SUFFIX].map(|suffix| format!("{name}{suffix}"))
        };
        names.iter().flat_map(all).filter(|name| self.table_exist(name)).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(table) = self.system.find(name) {
            return Ok(Some(table));
        }
        let (name, past) = match name.split_once(AS_OF) {
            Some((name, when)) => (name, Some(Past::read(when).map_err(SqlError::into_engine)?)),
            None => (name, None),
        };
        if let Some(view) = self.view(name, past.as_ref())? {
            return Ok(Some(view));
        }
        let found: Option<Arc<dyn TableProvider>> = match self.resolve(name, past.clone()) {
            Some(table) if table.past.is_some() && table.kind == TableKind::Log => {
                return Err(log_of_the_past(name));
            }
            Some(table) => Some(Arc::new(table)),
            None => self.typed(name, past)?,
        };
        Ok(found)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.system.table_exist(name)
            || self.resolve(name, None).is_some()
            || TypedTable::find(&*self.host, name).is_some()
    }
}

fn log_of_the_past(name: &str) -> DataFusionError {
    let what = format!("AS OF cannot be applied to {name:?}: it is a log with all records");
    SqlError::new(SqlState::INVALID_PARAMETER, what)
        .with_hint("Filter it by time or offset, or use AS OF with current values.")
        .into_engine()
}
