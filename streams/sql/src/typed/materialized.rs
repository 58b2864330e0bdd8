//! Materialized view as a table: the columns of its query over its current values.
//!
//! It is derived from the definition on each use. No other state is stored.

use live_queries::{
    ColumnSource, OutputColumn, Paths, Query, Statement, Table, TableColumn, Type, parse_statement,
};

use crate::definition::{Definition, DefinitionKind, table_of};
use crate::error::SqlError;
use crate::host::Host;

/// A materialized view. Its topic has the same name.
pub(crate) struct MaterializedView {
    /// Table with the columns of its query, or those of records if the query passes whole records.
    pub(crate) table: Table,
    /// True if the columns are those of records.
    pub(crate) is_of_records: bool,
    /// Query that fills it.
    pub(crate) query: String,
}

impl MaterializedView {
    /// Returns the view of this name, if its topic exists.
    pub(crate) fn find(host: &dyn Host, name: &str) -> Option<Self> {
        let found = host.definition(name).filter(|it| it.kind == DefinitionKind::View)?;
        (host.topic(name).is_some() && host.keeps_values(name)).then(|| Self::of(&found))
    }

    /// Derives the view from its definition. If the definition is not readable, because another
    /// version of the program stored it, the view has the columns of records.
    fn of(definition: &Definition) -> Self {
        let name = &definition.name;
        Self::read(definition).unwrap_or_else(|error| {
            tracing::warn!(%error, view = name, "cannot parse the definition of a view");
            Self { table: Table::values(name), is_of_records: true, query: String::new() }
        })
    }

    fn read(definition: &Definition) -> Result<Self, SqlError> {
        let name = &definition.name;
        let Some(Statement::Create(create)) = parse_statement(&definition.statement)? else {
            return Err(SqlError::unsupported("the stored statement does not create a view"));
        };
        let source = table_of(&Query::table_name(&create.query)?).1;
        let query = Query::compile(&create.query, &source, &mut Paths::new())?;
        let mut table = Table::values(name);
        let columns = columns(&query);
        let is_of_records = columns.is_none();
        if let Some(columns) = columns {
            table.columns = columns;
            if query.is_grouped() {
                let keys = query.identity().unwrap_or_default().iter();
                table.identity = keys.map(|it| table.columns[*it].name.clone()).collect();
            }
        }
        Ok(Self { table, is_of_records, query: create.query.to_string() })
    }
}

/// Returns the columns of a view, or `None` if its values are those of the source, or column names
/// repeat.
fn columns(query: &Query) -> Option<Vec<TableColumn>> {
    if query.repeated_name().is_some() {
        return None;
    }
    let is_grouped = query.is_grouped();
    let columns =
        query.columns().iter().enumerate().map(|(index, OutputColumn { name, data_type })| {
            // Matches how derived records are built: with grouping, all columns are in the value;
            // otherwise these are not.
            let source = match name.as_str() {
                "value" if !is_grouped => return None,
                "key" if !is_grouped => ColumnSource::Key,
                "time" if !is_grouped => ColumnSource::Time,
                "headers" if !is_grouped => ColumnSource::Headers,
                _ => ColumnSource::Field { name: name.clone(), is_whole: query.is_whole(index) },
            };
            // In a JSON value these types are text.
            let data_type = match data_type {
                Type::Bytea | Type::Unknown => Type::Text,
                other => *other,
            };
            Some(TableColumn { name: name.clone(), source, data_type })
        });
    columns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(query: &str) -> MaterializedView {
        MaterializedView::of(&Definition {
            name: "v".to_owned(),
            kind: DefinitionKind::View,
            statement: format!("CREATE MATERIALIZED VIEW v AS {query}"),
            owner: "User:a".to_owned(),
            version: 1,
        })
    }

    fn described(view: &MaterializedView) -> Vec<String> {
        let of = |it: &TableColumn| match &it.source {
            ColumnSource::Field { is_whole: true, .. } => format!("{} whole", it.name),
            ColumnSource::Field { name, .. } => format!("{name} {}", it.data_type),
            other => format!("{} {} = {other:?}", it.name, it.data_type),
        };
        view.table.columns.iter().map(of).collect()
    }

    #[test]
    fn a_view_has_the_columns_of_its_query() {
        for (query, expected, identity) in [
            (
                "SELECT value->>'s' AS s, sum((value->>'q')::bigint) AS q, count(*) AS n \
                 FROM orders GROUP BY 1",
                vec!["s text", "q whole", "n bigint"],
                vec!["s"],
            ),
            (
                "SELECT count(*), key, max(time) AS time, min((value->>'d')::interval) AS \"D d\" \
                 FROM \"o$current\" GROUP BY key",
                vec!["count bigint", "key text", "time timestamp with time zone", "D d interval"],
                vec!["key"],
            ),
            (
                "SELECT sum((value->>'a')::int) AS i, sum((value->>'a')::numeric) AS m, \
                 avg((value->>'a')::bigint) AS a, sum((value->>'a')::bigint) / 2 AS h \
                 FROM \"o$log\"",
                vec!["i bigint", "m numeric", "a numeric", "h numeric"],
                vec![],
            ),
            (
                "SELECT value->'a' AS a, key, time, headers, \"offset\", 'x' AS x, \
                 (value->>'b')::bytea AS b FROM \"o$current\"",
                vec![
                    "a json",
                    "key text = Key",
                    "time timestamp with time zone = Time",
                    "headers json = Headers",
                    "offset bigint",
                    "x text",
                    "b text",
                ],
                vec![],
            ),
        ] {
            let view = view(query);
            assert!(!view.is_of_records, "{query}");
            assert_eq!(described(&view), expected, "{query}");
            assert_eq!(view.table.identity, identity, "{query}");
            assert_eq!(view.table.name, "v");
        }
    }

    #[test]
    fn a_view_of_whole_records_and_one_without_names_have_the_columns_of_records() {
        for query in [
            "SELECT * FROM \"o$current\"",
            "SELECT key, value FROM \"o$current\" WHERE key > 'a'",
            "SELECT value->>'inner' AS value FROM \"o$current\"",
            "SELECT key, count(*), count(*) FROM o GROUP BY key",
            "SELECT nothing FROM o",
        ] {
            let view = view(query);
            assert!(view.is_of_records, "{query}");
            assert_eq!(view.table, Table::values("v"), "{query}");
        }
    }
}
