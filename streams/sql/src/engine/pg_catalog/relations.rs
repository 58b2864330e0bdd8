//! Catalogue of relations: tables of topics and system tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::Operation;
use datafusion::arrow::datatypes::SchemaRef;

use super::super::columns::{CURRENT_SUFFIX, Form, LOG_SUFFIX, LogColumn, schema_of};
use super::super::names::SCHEMA;
use super::super::typed_view;
use super::definitions::{Definition, INFORMATION_SCHEMA, PG_CATALOG};
use super::viewer::{Viewer, number_of};
use crate::typed::{MaterializedView, TypedTable};

/// First oid for user objects. Smaller ones are reserved for PostgreSQL's own objects.
const FIRST_OID: u32 = 16_384;

/// Each topic has a block of oids, one for each of its tables.
const BLOCK_OIDS: u32 = 8;
const BLOCK_COUNT: u32 = 1 << 27;

/// Oids of the schemas. The first two are PostgreSQL's.
pub(super) const NAMESPACES: [(u32, &str); 3] =
    [(11, PG_CATALOG), (2200, SCHEMA), (13_000, INFORMATION_SCHEMA)];

/// A table as listed in the catalogue.
pub(super) struct Relation {
    pub(super) oid: u32,
    pub(super) schema_name: &'static str,
    pub(super) name: String,
    /// `r` for a table, `m` for a materialized view, `v` for any other that does not accept
    /// inserts.
    pub(super) kind: &'static str,
    /// Topic of the table; `None` for system tables.
    pub(super) topic: Option<Arc<str>>,
    pub(super) columns: SchemaRef,
    /// Defining query of a topic's view, as far as SQL can express it.
    pub(super) query: Option<String>,
}

impl Relation {
    /// Returns whether it is the topic's primary table, to which the storage is attributed.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self.kind, "r" | "m")
    }

    /// Returns the approximate number of records, by offsets, and their bytes in the log.
    pub(super) fn size(&self, viewer: &Viewer) -> (i64, i64) {
        let Some(topic) = self.topic.as_ref().and_then(|name| viewer.host.topic(name)) else {
            return (0, 0);
        };
        let partitions = (0..topic.partition_count()).filter_map(|it| topic.partition(it).ok());
        partitions.fold((0, 0), |(records, bytes), it| {
            let length = i64::try_from(it.size_bytes()).unwrap_or(i64::MAX);
            let count = it.last_stable_offset() - it.start_offset();
            (records + count, bytes.saturating_add(length))
        })
    }

    pub(super) fn namespace_oid(&self) -> u32 {
        NAMESPACES.iter().find(|it| it.1 == self.schema_name).map_or(0, |it| it.0)
    }
}

/// Returns all tables that the client is authorized to see.
pub(super) fn relations(viewer: &Viewer) -> Vec<Relation> {
    let mut found: Vec<Relation> = Definition::all()
        .iter()
        // Entries without an oid are functions.
        .filter(|it| it.oid > 0)
        .map(|it| Relation {
            oid: it.oid,
            schema_name: it.schema_name,
            name: it.name.to_owned(),
            kind: if it.schema_name == PG_CATALOG { "r" } else { "v" },
            topic: None,
            columns: Arc::clone(&it.schema),
            query: None,
        })
        .collect();
    for (name, first_oid) in topic_oids(viewer) {
        if viewer.may(Operation::Describe, &name) {
            add_topic(viewer, (&name, first_oid), &mut found);
        }
    }
    for table in TypedTable::all(&*viewer.host) {
        if viewer.may(Operation::Describe, &table.topic) {
            found.push(Relation {
                oid: typed_oid(&table.name),
                schema_name: SCHEMA,
                kind: "r",
                topic: Some(table.topic.as_str().into()),
                columns: typed_view::schema(&table.live(), &|it| table.is_jsonb(it)),
                name: table.name,
                query: None,
            });
        }
    }
    found
}

/// Adds the tables of a topic.
fn add_topic(viewer: &Viewer, (name, first_oid): (&Arc<str>, u32), found: &mut Vec<Relation>) {
    let records = schema_of(&LogColumn::ALL, Form::Text);
    let mut add = |(number, suffix, kind): (u32, &str, &'static str), columns, query| {
        found.push(Relation {
            oid: first_oid + number,
            schema_name: SCHEMA,
            name: format!("{name}{suffix}"),
            kind,
            topic: Some(Arc::clone(name)),
            columns,
            query,
        });
    };
    let view = MaterializedView::find(&*viewer.host, name);
    let log = match &view {
        Some(_) => quoted(&format!("{name}{LOG_SUFFIX}")),
        None => quoted(name),
    };
    match view {
        Some(view) => {
            let query = format!(" {};", view.query);
            add((0, "", "m"), typed_view::schema(&view.table, &|_| false), Some(query));
            let query = format!(" SELECT *\n   FROM {log};");
            add((2, LOG_SUFFIX, "v"), Arc::clone(&records), Some(query));
        }
        None => add((0, "", "r"), Arc::clone(&records), None),
    }
    if viewer.host.keeps_values(&viewer.host.values_topic(name)) {
        let query = format!(
            " SELECT DISTINCT ON (partition, key) *\n   FROM {log}\n  ORDER BY partition, key, \
             \"offset\" DESC;"
        );
        add((1, CURRENT_SUFFIX, "v"), records, Some(query));
    }
}

/// Returns the oid of a typed table, derived from its name, above those of topics.
fn typed_oid(name: &str) -> u32 {
    const FIRST: u32 = 3 << 30;
    FIRST + number_of(name.as_bytes()) % (1 << 30)
}

/// Returns the name and first oid of each topic. The oid is derived from the topic's id. On a
/// collision, one of the topics takes the next block.
fn topic_oids(viewer: &Viewer) -> Vec<(Arc<str>, u32)> {
    let names = viewer.host.topic_names();
    let mut topics: Vec<_> =
        names.into_iter().filter_map(|it| Some((viewer.host.topic(&it)?.id(), it))).collect();
    topics.sort();
    let mut taken = BTreeSet::new();
    let oids = topics.into_iter().map(|(id, name)| {
        let mut block = number_of(&id) % BLOCK_COUNT;
        while !taken.insert(block) {
            block = (block + 1) % BLOCK_COUNT;
        }
        (name, FIRST_OID + block * BLOCK_OIDS)
    });
    oids.collect()
}

/// Finds a table by its name, qualified or not, quoted or not.
pub(super) fn find<'a>(relations: &'a [Relation], name: &str) -> Option<&'a Relation> {
    let parts = parts_of(name);
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name),
        [.., schema, name] => (Some(schema), name),
        [] => return None,
    };
    relations.iter().find(|it| it.name == *name && schema.is_none_or(|s| s == it.schema_name))
}

/// Splits a name into its parts. Unquoted parts are folded to lower case.
pub(super) fn parts_of(name: &str) -> Vec<String> {
    let (mut parts, mut part, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = name.trim().chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                part.push('"');
            }
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(std::mem::take(&mut part)),
            _ if is_quoted => part.push(letter),
            _ => part.extend(letter.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}

/// Quotes an identifier if necessary.
pub(super) fn quoted(name: &str) -> String {
    let mut bytes = name.bytes();
    let is_plain = bytes.next().is_some_and(|it| it.is_ascii_lowercase() || it == b'_')
        && bytes.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"_$".contains(&it));
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_as_sql_does() {
        for (text, parts) in [
            ("orders", vec!["orders"]),
            ("Public.Orders", vec!["public", "orders"]),
            ("\"Odd.Name\"", vec!["Odd.Name"]),
            ("public.\"a\"\"b\"", vec!["public", "a\"b"]),
            ("", vec![""]),
        ] {
            assert_eq!(parts_of(text), parts, "{text}");
        }
        for (name, text) in [("a_1", "a_1"), ("Odd", "\"Odd\""), ("a\"b", "\"a\"\"b\"")] {
            assert_eq!(quoted(name), text);
        }
    }
}
