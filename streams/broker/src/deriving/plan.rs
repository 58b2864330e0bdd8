//! Plan of a definition: converts its statement to the processing of each record, or rejects it.

use std::collections::BTreeMap;
use std::sync::Arc;

use live_queries::{
    CreateAs, CreateKind, Join, Paths, Query, Statement, TableKind, parse_statement,
};
use sql::{SqlError, SqlState, table_of};

use super::objects_of;
use super::output::{ColumnNames, RecordShape};
use crate::topics::{NewTopic, OpenTopic, Topics};

/// Method of deriving the output.
pub(super) enum Shape {
    /// One output record per record or current value.
    Records(RecordShape),
    /// One current value per group.
    Groups,
}

pub(super) struct Plan {
    pub(super) source: String,
    pub(super) source_kind: TableKind,
    pub(super) query: Arc<Query>,
    pub(super) paths: Paths,
    pub(super) shape: Shape,
    pub(super) joined: Option<Joined>,
    /// Names of the source tables, as written.
    tables: Vec<String>,
    options: Vec<(String, String)>,
}

/// Current values that are joined with each record.
pub(super) struct Joined {
    pub(super) topic: String,
    pub(super) join: Join,
}

/// Topics that a plan reads.
#[derive(Clone)]
pub(super) struct PlanTopics {
    pub(super) source: Arc<OpenTopic>,
    pub(super) joined: Option<Arc<OpenTopic>>,
}

impl PlanTopics {
    pub(super) fn names(&self) -> Vec<String> {
        let all = std::iter::once(&self.source).chain(&self.joined);
        all.map(|it| it.name.to_string()).collect()
    }
}

impl Plan {
    pub(super) fn of(statement: &str) -> Result<Self, SqlError> {
        let parsed = parse_statement(statement)?;
        let Some(Statement::Create(create)) = parsed else {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                "the statement is not CREATE TOPIC or CREATE MATERIALIZED VIEW",
            ));
        };
        let sources = Query::sources(&create.query)?;
        if let Some(joined) = sources.joined {
            return Self::of_join(create, [sources.table, joined], &sources.alias);
        }
        let (source, table) = table_of(&sources.table);
        let (source, source_kind) = (source.to_owned(), table.kind);
        let tables = vec![sources.table.clone()];
        let CreateAs { kind, options, mut query, .. } = create;
        let mut paths = Paths::new();
        let whole = Query::compile(&query, &table, &mut paths)?;
        if whole.is_top() {
            return Err(not_supported(
                "ORDER BY and LIMIT in derived topics and materialized \
                                      views",
            ));
        }
        let is_view = kind == CreateKind::MaterializedView;
        if whole.is_grouped() {
            if !is_view {
                return Err(not_supported("aggregates in CREATE TOPIC")
                    .with_hint("Use CREATE MATERIALIZED VIEW for aggregates."));
            }
            if whole.identity().is_none() {
                let what = "a materialized view must select all its GROUP BY columns";
                return Err(SqlError::new(SqlState::NOT_SUPPORTED, what));
            }
            let (query, shape) = (Arc::new(whole), Shape::Groups);
            let joined = None;
            return Ok(Self { source, source_kind, query, paths, shape, joined, tables, options });
        }
        if is_view && source_kind == TableKind::Log {
            return Err(not_supported("a materialized view of a log without aggregates")
                .with_hint("Select from the current values, or use CREATE TOPIC … AS."));
        }
        whole.release(&mut paths);
        let taken = RecordShape::take(&mut query, source_kind, ColumnNames::Bare)?;
        let compiled = Query::compile(&query, &table, &mut paths)?;
        let shape = Shape::Records(taken.with_columns(compiled.columns())?);
        let (query, joined) = (Arc::new(compiled), None);
        Ok(Self { source, source_kind, query, paths, shape, joined, tables, options })
    }

    /// Plans a join of a log with current values, which are looked up for each record.
    fn of_join(create: CreateAs, names: [String; 2], alias: &str) -> Result<Self, SqlError> {
        let CreateAs { kind, options, mut query, .. } = create;
        let [(source, stream), (topic, values)] = [&*names[0], &*names[1]].map(table_of);
        let (source, source_kind) = (source.to_owned(), stream.kind);
        if kind == CreateKind::MaterializedView {
            return Err(not_supported("a join in CREATE MATERIALIZED VIEW").with_hint(
                "Use CREATE TOPIC, which creates a record for each record of the log.",
            ));
        }
        if (source_kind, values.kind) != (TableKind::Log, TableKind::Values) {
            return Err(not_supported("a join other than between a log and current values")
                .with_hint("FROM orders o [LEFT] JOIN \"prices$current\" p ON … = p.key"));
        }
        let mut paths = Paths::new();
        let taken = RecordShape::take(&mut query, source_kind, ColumnNames::Qualified(alias))?;
        let (compiled, join) = Query::compile_join(&query, [&stream, &values], &mut paths)?;
        let shape = Shape::Records(taken.with_columns(compiled.columns())?);
        let joined = Some(Joined { topic: topic.to_owned(), join });
        let (query, tables) = (Arc::new(compiled), names.to_vec());
        Ok(Self { source, source_kind, query, paths, shape, joined, tables, options })
    }

    /// Rejects legacy definitions for new objects: the bare name of a materialized view, which
    /// means its log here but its rows in queries, and duplicate column names.
    pub(super) fn check_new(&self, is_view: impl Fn(&str) -> bool) -> Result<(), SqlError> {
        if let Some(name) = self.tables.iter().find(|it| is_view(it)) {
            let what = format!("materialized view {name:?} as the source of another topic");
            return Err(not_supported(&what).with_hint(format!(
                "Select from \"{name}$current\", whose values are JSON objects of its columns, or \
                 from its log, \"{name}$log\"."
            )));
        }
        match self.query.repeated_name() {
            Some(name) => {
                let what = format!("column {name:?} specified more than once");
                Err(SqlError::new(SqlState::DUPLICATE_COLUMN, what))
            }
            None => Ok(()),
        }
    }

    /// Returns the shape of output records. Only for plans of records.
    pub(super) fn record_shape(&self) -> &RecordShape {
        match &self.shape {
            Shape::Records(shape) => shape,
            Shape::Groups => unreachable!("plans of groups make no records of records"),
        }
    }

    /// Rejects topics that the client may not see, as if they did not exist.
    pub(super) fn check_seen(&self, may_see: impl Fn(&str) -> bool) -> Result<(), SqlError> {
        let check = |name: &str, kind| {
            let is_seen = may_see(name) || kind == TableKind::Values && may_see(&objects_of(name));
            is_seen.then_some(()).ok_or_else(|| no_table(name, kind))
        };
        check(&self.source, self.source_kind)?;
        self.joined.as_ref().map_or(Ok(()), |it| check(&it.topic, TableKind::Values))
    }

    /// Looks up the topics that the plan reads.
    pub(super) fn find_topics(&self, topics: &Topics) -> Result<PlanTopics, SqlError> {
        let source = find(topics, &self.source, self.source_kind)?;
        let joined = self.joined.as_ref();
        let joined = joined.map(|it| find(topics, &it.topic, TableKind::Values)).transpose()?;
        Ok(PlanTopics { source, joined })
    }

    /// Returns the definition of the derived topic.
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
                let what = "a derived topic with current values requires cleanup.policy = compact";
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
            }
            settings.insert("memlane.values".to_owned(), "latest".to_owned());
        }
        Ok(NewTopic {
            name: name.to_owned(),
            partition_count,
            settings,
            is_derived: true,
            owner: shares::Owner::NOBODY,
        })
    }

    fn keeps_values(&self) -> bool {
        self.source_kind == TableKind::Values || matches!(self.shape, Shape::Groups)
    }
}

/// Returns the topic of a table. Current values of merged topics are in a separate topic.
fn find(topics: &Topics, name: &str, kind: TableKind) -> Result<Arc<OpenTopic>, SqlError> {
    let fits = |topic: &Arc<OpenTopic>| kind == TableKind::Log || topic.settings().keeps_values;
    let topic = topics.by_name(name).and_then(|it| match kind {
        TableKind::Values if it.settings().merges_values => topics.by_name(&objects_of(name)),
        _ => Some(it),
    });
    topic.filter(fits).ok_or_else(|| no_table(name, kind))
}

fn no_table(name: &str, kind: TableKind) -> SqlError {
    let what = match kind {
        TableKind::Log => format!("relation {name:?} does not exist"),
        TableKind::Values => format!("topic {name:?} does not exist, or keeps no current values"),
    };
    SqlError::new(SqlState::UNDEFINED_TABLE, what)
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
            "CREATE TOPIC t AS SELECT key, o.value FROM orders o JOIN \"q$current\" q \
             ON q.key = o.key",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN q ON q.key = o.key",
            "CREATE TOPIC t AS SELECT o.* FROM \"o$current\" o JOIN \"q$current\" q \
             ON q.key = o.key",
            "CREATE TOPIC t AS SELECT o.* FROM orders o RIGHT JOIN \"q$current\" q \
             ON q.key = o.key",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q USING (key)",
            "CREATE TOPIC t AS SELECT o.* FROM orders o CROSS JOIN \"q$current\" q",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q ON q.key > o.key",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q ON q.value = o.key",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q ON q.key = q.value",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q \
             ON q.key = o.\"offset\"",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" o ON o.key = o.key",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q ON q.key = o.key \
             AND o.partition = 1",
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q ON q.key = o.key \
             JOIN \"r$current\" r ON r.key = o.key",
            "CREATE TOPIC t AS SELECT count(*) AS n FROM orders o JOIN \"q$current\" q \
             ON q.key = o.key",
            "CREATE TOPIC t AS SELECT o.*, q.value->>'a' AS a FROM orders o \
             JOIN \"q$current\" q ON q.key = o.key",
            "CREATE MATERIALIZED VIEW t AS SELECT count(*) AS n FROM orders o \
             JOIN \"q$current\" q ON q.key = o.key",
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
            "CREATE TOPIC t AS SELECT o.* FROM orders o JOIN \"q$current\" q ON q.key = o.key",
            "CREATE TOPIC t AS SELECT o.key, o.value->>'a' AS a, q.value->>'a' AS b FROM orders o \
             LEFT JOIN \"q$current\" AS q ON (o.value->>'s' = (q.key)) WHERE q.value->>'a' <> '1'",
            "CREATE TOPIC t AS SELECT value->>'k' AS key, value FROM orders WHERE key = '1'",
            "CREATE TOPIC t AS SELECT value->>'a' AS a, \"offset\" FROM \"orders$current\"",
            "CREATE MATERIALIZED VIEW v AS SELECT value FROM \"orders$current\"",
            "CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM orders",
        ] {
            Plan::of(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
}
