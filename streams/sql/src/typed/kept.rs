//! The typed tables that the host keeps.

use super::table::TypedTable;
use crate::definition::{Definition, DefinitionKind};
use crate::host::Host;

impl TypedTable {
    /// The table of this name that the host keeps.
    pub(crate) fn find(host: &dyn Host, name: &str) -> Option<Self> {
        let found = host.definition(name).filter(|it| it.kind == DefinitionKind::Table)?;
        Self::of(&found)
    }

    /// The typed table of a name in statements that are not the engine's: topics come first.
    pub(crate) fn of_name(host: &dyn Host, name: &str) -> Option<Self> {
        host.topic(name).is_none().then(|| Self::find(host, name)).flatten()
    }

    /// All that the host keeps.
    pub(crate) fn all(host: &dyn Host) -> Vec<Self> {
        let kept = host.definitions();
        let tables = kept.iter().filter(|it| it.kind == DefinitionKind::Table);
        tables.filter_map(|it| Self::of(it)).collect()
    }

    /// What was kept was read before: but by another version of the program, perhaps.
    fn of(definition: &Definition) -> Option<Self> {
        let read = Self::parse(&definition.statement);
        read.inspect_err(|error| {
            tracing::warn!(%error, table = definition.name, "a typed table cannot be read");
        })
        .ok()
    }
}
