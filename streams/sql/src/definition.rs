//! Objects that SQL statements define and the program around the server stores.

use live_queries::Table;
use serde::{Deserialize, Serialize};

/// Suffix of a topic's name in the name of the table of its current values.
pub(crate) const CURRENT_SUFFIX: &str = "$current";

/// Suffix of a topic's name in the name of the table of its log. Optional, except for a
/// materialized view. Stored definitions may omit it there too: in them the plain name is the log
/// of any topic.
pub(crate) const LOG_SUFFIX: &str = "$log";

/// Returns the topic of a table by the table's name, and the table.
pub fn table_of(name: &str) -> (&str, Table) {
    match (name.strip_suffix(CURRENT_SUFFIX), name.strip_suffix(LOG_SUFFIX)) {
        (Some(topic), _) => (topic, Table::values(name)),
        (None, Some(topic)) => (topic, Table::log(name)),
        (None, None) => (name, Table::log(name)),
    }
}

/// Kind of object that a definition creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionKind {
    /// Typed columns over a topic: `CREATE TABLE`.
    Table,
    /// A topic filled by a query: `CREATE TOPIC … AS`.
    Topic,
    /// The incrementally maintained result of a query: `CREATE MATERIALIZED VIEW`.
    View,
}

impl DefinitionKind {
    /// Name in statements and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Topic => "topic",
            Self::View => "materialized view",
        }
    }
}

/// Definition to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDefinition {
    /// Name in queries and for clients, unique among definitions.
    pub name: String,
    pub kind: DefinitionKind,
    /// The full text of the statement.
    pub statement: String,
}

/// Stored definition. Survives restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: String,
    pub kind: DefinitionKind,
    pub statement: String,
    /// Principal that created it, such as `User:alice`.
    pub owner: String,
    /// Version across all definitions: later definitions have greater versions, even if they reuse
    /// the name of a dropped one.
    pub version: u64,
}
