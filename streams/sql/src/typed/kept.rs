//! Typed tables stored by the host.

use super::table::TypedTable;
use crate::definition::{Definition, DefinitionKind};
use crate::host::Host;

impl Definition {
    /// Returns the topic whose rights decide who sees the object.
    pub fn topic(&self) -> String {
        let table = (self.kind == DefinitionKind::Table).then(|| TypedTable::of(self)).flatten();
        table.map_or_else(|| self.name.clone(), |table| table.topic)
    }
}

impl TypedTable {
    /// Returns the stored typed table of this name.
    pub(crate) fn find(host: &dyn Host, name: &str) -> Option<Self> {
        let found = host.definition(name).filter(|it| it.kind == DefinitionKind::Table)?;
        Self::of(&found)
    }

    /// Resolves a typed table in statements that the engine does not plan. Topics take precedence.
    pub(crate) fn of_name(host: &dyn Host, name: &str) -> Option<Self> {
        host.topic(name).is_none().then(|| Self::find(host, name)).flatten()
    }

    /// Returns all stored typed tables.
    pub(crate) fn all(host: &dyn Host) -> Vec<Self> {
        let kept = host.definitions();
        let tables = kept.iter().filter(|it| it.kind == DefinitionKind::Table);
        tables.filter_map(|it| Self::of(it)).collect()
    }

    /// Parses a stored definition. Fails with a warning if another version of the program has
    /// stored it and it is not readable.
    fn of(definition: &Definition) -> Option<Self> {
        let read = Self::parse(&definition.statement);
        read.inspect_err(|error| {
            tracing::warn!(%error, table = definition.name, "invalid definition of a typed table");
        })
        .ok()
    }
}
