//! The tables that a client sees: those of the topics that it may describe.

use std::sync::Arc;

use access::Operation;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use live_queries::TableKind;

use super::columns::{BYTES_SUFFIX, CURRENT_SUFFIX, Form};
use super::log_table::LogTable;
use crate::host::{Client, Host};

/// The one database, and the schema of topics in it.
pub(crate) const DATABASE: &str = "memlane";
pub(crate) const SCHEMA: &str = "public";

/// The database of one client.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) topics: Arc<Topics>,
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SCHEMA => Some(Arc::clone(&self.topics) as Arc<dyn SchemaProvider>),
            _ => None,
        }
    }
}

/// Tables of topics, for one client.
pub(crate) struct Topics {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) client: Arc<Client>,
}

impl std::fmt::Debug for Topics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topics").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Topics {
    /// The table of this name, if the client may see its topic.
    fn resolve(&self, table: &str) -> Option<LogTable> {
        let (rest, form) = match table.strip_suffix(BYTES_SUFFIX) {
            Some(rest) => (rest, Form::Bytes),
            None => (table, Form::Text),
        };
        let (topic, kind) = match rest.strip_suffix(CURRENT_SUFFIX) {
            Some(topic) => (self.host.values_topic(topic), TableKind::Values),
            None => (Arc::from(rest), TableKind::Log),
        };
        let topic = &*topic;
        let may_see = self.client.check(&*self.host, Operation::Describe, topic).is_ok();
        let is_there = may_see
            && self.host.topic(topic).is_some()
            && (kind == TableKind::Log || self.host.keeps_values(topic));
        let (host, client) = (Arc::clone(&self.host), Arc::clone(&self.client));
        is_there.then(|| LogTable { host, client, topic: topic.into(), form, kind })
    }
}

#[async_trait]
impl SchemaProvider for Topics {
    fn table_names(&self) -> Vec<String> {
        let names = self.host.topic_names();
        let both = |name: &Arc<str>| [name.to_string(), format!("{name}{CURRENT_SUFFIX}")];
        names.iter().flat_map(both).filter(|name| self.table_exist(name)).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        Ok(self.resolve(name).map(|table| Arc::new(table) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.resolve(name).is_some()
    }
}
