//! Objects that SQL made and the program around the server keeps.

use live_queries::Table;
use serde::{Deserialize, Serialize};

/// The table of a topic's current values has this behind the topic's name.
pub(crate) const CURRENT_SUFFIX: &str = "$current";

/// The table of a topic's log may have this behind the topic's name. Of a materialized view it
/// must, but in definitions that are kept: there the name alone is the log of any topic.
pub(crate) const LOG_SUFFIX: &str = "$log";

/// The topic that a table shows the records of, by the table's name, and the table.
pub fn table_of(name: &str) -> (&str, Table) {
    match (name.strip_suffix(CURRENT_SUFFIX), name.strip_suffix(LOG_SUFFIX)) {
        (Some(topic), _) => (topic, Table::values(name)),
        (None, Some(topic)) => (topic, Table::log(name)),
        (None, None) => (name, Table::log(name)),
    }
}

/// Kind of object that a definition makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionKind {
    /// Typed columns over a topic: `CREATE TABLE`.
    Table,
    /// A topic that a query fills: `CREATE TOPIC … AS`.
    Topic,
    /// The result of a query, kept up to date: `CREATE MATERIALIZED VIEW`.
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

/// Definition that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDefinition {
    /// Name in queries and for clients; one definition has it.
    pub name: String,
    pub kind: DefinitionKind,
    /// The whole statement as it was written.
    pub statement: String,
}

/// Definition that is kept, also over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: String,
    pub kind: DefinitionKind,
    pub statement: String,
    /// The principal that made it, such as `User:alice`.
    pub owner: String,
    /// Version of all definitions: a later one has a greater number, also where it has the name of
    /// one that was dropped.
    pub version: u64,
}
