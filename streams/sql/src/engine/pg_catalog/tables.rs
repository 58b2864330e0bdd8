//! System tables as table providers of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, SchemaProvider, Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::definitions::Definition;
use super::rows::rows_of;
use super::viewer::Viewer;

/// A system schema, for one client.
#[derive(Debug)]
pub(crate) struct SystemSchema {
    tables: BTreeMap<&'static str, Arc<SystemTable>>,
}

impl SystemSchema {
    pub(crate) fn new(name: &str, viewer: &Arc<Viewer>) -> Self {
        let definitions = Definition::all().iter().filter(|it| it.schema_name == name);
        let tables = definitions.map(|definition| {
            let viewer = Arc::clone(viewer);
            (definition.name, Arc::new(SystemTable { definition, viewer }))
        });
        Self { tables: tables.collect() }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.tables.get(name).map(|table| Arc::clone(table) as Arc<dyn TableProvider>)
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.keys().map(|name| (*name).to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        Ok(self.find(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.contains_key(name)
    }
}

/// A table whose rows are generated on each scan.
#[derive(Debug)]
struct SystemTable {
    definition: &'static Definition,
    viewer: Arc<Viewer>,
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.definition.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = match rows_of(self.definition) {
            Some(rows) => rows(&self.viewer),
            None => Vec::new(),
        };
        let batch = self.definition.batch(&rows)?;
        let table = MemTable::try_new(self.schema(), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
    }
}
