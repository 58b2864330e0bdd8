//! From the statement of a definition to what is done with each record, or a refusal.

use std::collections::BTreeMap;
use std::sync::Arc;

use live_queries::{
    CreateAs, CreateKind, Paths, Query, Statement, Table, TableKind, parse_statement,
};
use sql::{SqlError, SqlState};

use super::output::RecordShape;
use crate::topics::{NewTopic, OpenTopic, Topics};

/// The table of a topic's current values has this behind the topic's name.
const CURRENT_SUFFIX: &str = "$current";

/// How a source becomes an output.
pub(super) enum Shape {
    /// A record of each record, or of each current value.
    Records(RecordShape),
    /// A current value of each group.
    Groups,
}

pub(super) struct Plan {
    pub(super) source: String,
    pub(super) source_kind: TableKind,
    pub(super) query: Arc<Query>,
    pub(super) paths: Paths,
    pub(super) shape: Shape,
    options: Vec<(String, String)>,
}

impl Plan {
    pub(super) fn of(statement: &str) -> Result<Self, SqlError> {
        let parsed = parse_statement(statement)?;
        let Some(Statement::Create(create)) = parsed else {
            return Err(SqlError::new(SqlState::SYNTAX, "the statement derives nothing"));
        };
        let name = Query::table_name(&create.query)?;
        let (source, source_kind) = match name.strip_suffix(CURRENT_SUFFIX) {
            Some(topic) => (topic.to_owned(), TableKind::Values),
            None => (name.clone(), TableKind::Log),
        };
        let table = match source_kind {
            TableKind::Log => Table::log(&name),
            TableKind::Values => Table::values(&name),
        };
        let CreateAs { kind, options, mut query, .. } = create;
        let mut paths = Paths::new();
        let whole = Query::compile(&query, &table, &mut paths)?;
        if whole.is_top() {
            return Err(not_supported("ORDER BY and LIMIT in what is kept up to date"));
        }
        let is_view = kind == CreateKind::MaterializedView;
        if whole.is_grouped() {
            if !is_view {
                return Err(not_supported("aggregates in CREATE TOPIC")
                    .with_hint("CREATE MATERIALIZED VIEW keeps aggregates."));
            }
            if whole.identity().is_none() {
                let what = "a materialized view must select all that it groups by";
                return Err(SqlError::new(SqlState::NOT_SUPPORTED, what));
            }
            let (query, shape) = (Arc::new(whole), Shape::Groups);
            return Ok(Self { source, source_kind, query, paths, shape, options });
        }
        if is_view && source_kind == TableKind::Log {
            return Err(not_supported("a materialized view of a log without aggregates")
                .with_hint("Select from the current values, or use CREATE TOPIC … AS."));
        }
        whole.release(&mut paths);
        let shape = RecordShape::take(&mut query, source_kind)?;
        let compiled = Query::compile(&query, &table, &mut paths)?;
        let shape = Shape::Records(shape.with_columns(compiled.columns())?);
        let query = Arc::new(compiled);
        Ok(Self { source, source_kind, query, paths, shape, options })
    }

    /// The topic that is read, as it is now.
    pub(super) fn find_source(&self, topics: &Topics) -> Result<Arc<OpenTopic>, SqlError> {
        let topic = topics.by_name(&self.source).filter(|topic| {
            let settings = topic.settings();
            self.source_kind == TableKind::Log || settings.keeps_values
        });
        topic.ok_or_else(|| {
            let what = match self.source_kind {
                TableKind::Log => format!("relation {:?} does not exist", self.source),
                TableKind::Values => {
                    format!("topic {:?} does not exist, or keeps no current values", self.source)
                }
            };
            SqlError::new(SqlState::UNDEFINED_TABLE, what)
        })
    }

    /// The topic that is filled.
    pub(super) fn new_topic(&self, name: &str, source: &OpenTopic) -> Result<NewTopic, SqlError> {
        let partition_count = match self.shape {
            Shape::Records(_) => source.log.partition_count(),
            Shape::Groups => 1,
        };
        let mut settings: BTreeMap<String, String> = self.options.iter().cloned().collect();
        if self.keeps_values() {
            let policy = settings.entry("cleanup.policy".to_owned());
            let policy = policy.or_insert_with(|| "compact".to_owned());
            if policy != "compact" {
                let what = "what holds current values has cleanup.policy = compact";
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
            }
            settings.insert("memlane.values".to_owned(), "latest".to_owned());
        }
        Ok(NewTopic { name: name.to_owned(), partition_count, settings, is_derived: true })
    }

    fn keeps_values(&self) -> bool {
        self.source_kind == TableKind::Values || matches!(self.shape, Shape::Groups)
    }
}

fn not_supported(what: &str) -> SqlError {
    SqlError::new(SqlState::NOT_SUPPORTED, format!("{what}: not supported"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_derived_is_refused_when_it_is_made() {
        for statement in [
            "CREATE TOPIC t AS SELECT count(*) FROM orders",
            "CREATE TOPIC t AS SELECT * FROM orders ORDER BY time LIMIT 3",
            "CREATE TOPIC t AS SELECT * FROM orders o JOIN \"q$current\" q ON q.key = o.key",
            "CREATE TOPIC t AS SELECT value, key, value->>'a' AS a FROM orders",
            "CREATE TOPIC t AS SELECT key FROM orders",
            "CREATE TOPIC t AS SELECT value->>'a' AS a, value->>'b' AS a FROM orders",
            "CREATE TOPIC t AS SELECT value, value->>'h' AS headers FROM orders",
            "CREATE TOPIC t AS SELECT value, value->>'k' AS key FROM \"orders$current\"",
            "CREATE MATERIALIZED VIEW v AS SELECT value FROM orders",
            "CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM orders GROUP BY key",
            "DROP TOPIC t",
        ] {
            assert!(Plan::of(statement).is_err(), "{statement}");
        }
        for statement in [
            "CREATE TOPIC t AS SELECT * FROM orders",
            "CREATE TOPIC t AS SELECT value->>'k' AS key, value FROM orders WHERE key = '1'",
            "CREATE TOPIC t AS SELECT value->>'a' AS a, \"offset\" FROM \"orders$current\"",
            "CREATE MATERIALIZED VIEW v AS SELECT value FROM \"orders$current\"",
            "CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM orders",
        ] {
            Plan::of(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
}
