//! The tables that a client sees: those of the topics that it may describe.

use std::sync::Arc;

use access::Operation;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};

use super::columns::{BYTES_SUFFIX, Form};
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
    /// The topic of a table, and the form of its keys and values.
    fn resolve(&self, table: &str) -> Option<(Arc<str>, Form)> {
        let (topic, form) = match table.strip_suffix(BYTES_SUFFIX) {
            Some(topic) => (topic, Form::Bytes),
            None => (table, Form::Text),
        };
        let may_see = self.client.check(&*self.host, Operation::Describe, topic).is_ok();
        (may_see && self.host.topic(topic).is_some()).then(|| (topic.into(), form))
    }
}

#[async_trait]
impl SchemaProvider for Topics {
    fn table_names(&self) -> Vec<String> {
        let names = self.host.topic_names().into_iter();
        names.filter(|name| self.resolve(name).is_some()).map(|name| name.to_string()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let Some((topic, form)) = self.resolve(name) else { return Ok(None) };
        let (host, client) = (Arc::clone(&self.host), Arc::clone(&self.client));
        Ok(Some(Arc::new(LogTable { host, client, topic, form })))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.resolve(name).is_some()
    }
}
