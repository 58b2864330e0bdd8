//! Rows of system tables.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;

use super::super::names::DATABASE;
use super::definitions::{Definition, INFORMATION_SCHEMA, Row};
use super::privileges;
use super::relations::{NAMESPACES, Relation, relations};
use super::types::{ARRAY_RECEIVE_OID, RECEIVE, TYPES, sql_name};
use super::viewer::{StatementTotals, Viewer, number_of};
use crate::wire::PgType;

/// Owner of all tables.
pub(super) const OWNER: &str = "memlane";
pub(super) const OWNER_OID: u32 = 10;
const DATABASE_OID: u32 = 5;
const UTF8: i32 = 6;

/// Range of user oids, which are derived from names.
const USER_OIDS: std::ops::Range<u32> = 1 << 30..1 << 31;

/// Returns the function that generates the rows of a table, or `None` if the table is always empty.
pub(super) fn rows_of(definition: &Definition) -> Option<fn(&Viewer) -> Vec<Row>> {
    let rows: fn(&Viewer) -> Vec<Row> = match (definition.schema_name, definition.name) {
        (INFORMATION_SCHEMA, "columns") => columns,
        (INFORMATION_SCHEMA, "enabled_roles" | "applicable_roles") => return None,
        (INFORMATION_SCHEMA, "information_schema_catalog_name") => catalog_name,
        (INFORMATION_SCHEMA, "schemata") => schemata,
        (INFORMATION_SCHEMA, "table_privileges" | "role_table_grants") => table_privileges,
        (INFORMATION_SCHEMA, "tables") => tables,
        (INFORMATION_SCHEMA, "views") => views,
        (_, "pg_am") => access_methods,
        (_, "pg_attribute") => attributes,
        (_, "pg_class") => classes,
        (_, "pg_database") => databases,
        (_, "pg_get_keywords") => keywords,
        (_, "pg_matviews") => pg_matviews,
        (_, "pg_namespace") => namespaces,
        (_, "pg_proc") => procedures,
        (_, "pg_roles") => roles,
        (_, "pg_settings") => settings,
        (_, "pg_stat_activity") => activity,
        (_, "pg_stat_statements") => statements,
        (_, "pg_stat_user_tables" | "pg_stat_all_tables") => table_statistics,
        (_, "pg_tables") => pg_tables,
        (_, "pg_tablespace") => tablespaces,
        (_, "pg_type") => types,
        (_, "pg_user") => users,
        (_, "pg_views") => pg_views,
        _ => return None,
    };
    Some(rows)
}

fn text(value: impl Into<String>) -> ScalarValue {
    ScalarValue::Utf8(Some(value.into()))
}

fn oid(value: u32) -> ScalarValue {
    ScalarValue::UInt32(Some(value))
}

fn truth(value: bool) -> ScalarValue {
    ScalarValue::Boolean(Some(value))
}

fn number(value: usize) -> ScalarValue {
    ScalarValue::Int64(i64::try_from(value).ok())
}

fn time(value: SystemTime) -> ScalarValue {
    let since = value.duration_since(UNIX_EPOCH).unwrap_or_default();
    ScalarValue::TimestampMicrosecond(i64::try_from(since.as_micros()).ok(), Some("UTC".into()))
}

pub(super) fn role_oid(name: &str) -> u32 {
    match name {
        OWNER => OWNER_OID,
        other => USER_OIDS.start + number_of(other.as_bytes()) % (USER_OIDS.end - USER_OIDS.start),
    }
}

/// Returns the oid of a schema.
pub(super) fn namespace_oid(name: &str) -> Option<u32> {
    NAMESPACES.iter().find(|it| it.1 == name).map(|it| it.0)
}

fn catalog_name(_: &Viewer) -> Vec<Row> {
    vec![vec![("catalog_name", text(DATABASE))]]
}

fn schemata(_: &Viewer) -> Vec<Row> {
    let row = |(_, name): &(u32, &str)| {
        vec![
            ("catalog_name", text(DATABASE)),
            ("schema_name", text(*name)),
            ("schema_owner", text(OWNER)),
        ]
    };
    NAMESPACES.iter().map(row).collect()
}

fn tables(viewer: &Viewer) -> Vec<Row> {
    let row = |it: &Relation| {
        let kind = if it.kind == "r" { "BASE TABLE" } else { "VIEW" };
        let takes = if it.kind == "r" && it.topic.is_some() { "YES" } else { "NO" };
        vec![
            ("table_catalog", text(DATABASE)),
            ("table_schema", text(it.schema_name)),
            ("table_name", text(&it.name)),
            ("table_type", text(kind)),
            ("is_insertable_into", text(takes)),
        ]
    };
    relations(viewer).iter().map(row).collect()
}

fn views(viewer: &Viewer) -> Vec<Row> {
    let row = |it: &Relation| {
        vec![
            ("table_catalog", text(DATABASE)),
            ("table_schema", text(it.schema_name)),
            ("table_name", text(&it.name)),
            ("view_definition", ScalarValue::Utf8(it.query.clone())),
        ]
    };
    relations(viewer).iter().filter(|it| it.kind != "r").map(row).collect()
}

fn table_privileges(viewer: &Viewer) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in relations(viewer) {
        for privilege in ["SELECT", "INSERT"] {
            if privileges::has(viewer, &relation, privilege) {
                rows.push(vec![
                    ("grantor", text(OWNER)),
                    ("grantee", text(viewer.client.name())),
                    ("table_catalog", text(DATABASE)),
                    ("table_schema", text(relation.schema_name)),
                    ("table_name", text(&relation.name)),
                    ("privilege_type", text(privilege)),
                ]);
            }
        }
    }
    rows
}

/// Generates a row for each column of each table, with column numbers from 1.
fn all_columns(viewer: &Viewer, row: impl Fn(&Relation, &Field, usize) -> Row) -> Vec<Row> {
    let relations = relations(viewer);
    let rows = relations.iter().flat_map(|relation| {
        let fields = relation.columns.fields().iter().enumerate();
        fields.map(|(index, field)| row(relation, field, index + 1)).collect::<Vec<_>>()
    });
    rows.collect()
}

fn columns(viewer: &Viewer) -> Vec<Row> {
    all_columns(viewer, |relation, field, position| {
        let found = PgType::of(field);
        let name = TYPES.iter().find(|it| it.oid == found.oid).map_or("text", |it| it.name);
        let bits = match field.data_type() {
            DataType::Int16 => Some(16),
            DataType::Int32 => Some(32),
            DataType::Int64 => Some(64),
            DataType::Float64 => Some(53),
            _ => None,
        };
        let is_whole = matches!(name, "int2" | "int4" | "int8");
        let int = ScalarValue::Int32;
        let is_time = matches!(name, "timestamptz" | "timestamp" | "time");
        let is_insertable = relation.kind == "r" && relation.topic.is_some();
        vec![
            ("table_catalog", text(DATABASE)),
            ("table_schema", text(relation.schema_name)),
            ("table_name", text(&relation.name)),
            ("column_name", text(field.name())),
            ("ordinal_position", number(position)),
            ("is_nullable", text(if field.is_nullable() { "YES" } else { "NO" })),
            ("data_type", text(sql_name(found.oid, None))),
            ("character_maximum_length", int(None)),
            ("character_octet_length", int((name == "text").then_some(1 << 30))),
            ("numeric_precision", int(bits)),
            ("numeric_precision_radix", int(bits.map(|_| 2))),
            ("numeric_scale", int(is_whole.then_some(0))),
            ("datetime_precision", int(is_time.then_some(6))),
            ("interval_precision", int(None)),
            ("character_set_name", ScalarValue::Null),
            ("maximum_cardinality", int(None)),
            ("udt_catalog", text(DATABASE)),
            ("udt_schema", text("pg_catalog")),
            ("udt_name", text(name)),
            ("dtd_identifier", text(position.to_string())),
            ("is_updatable", text(if is_insertable { "YES" } else { "NO" })),
        ]
    })
}

fn access_methods(_: &Viewer) -> Vec<Row> {
    vec![vec![
        ("oid", oid(2)),
        ("amname", text("heap")),
        ("amhandler", text("heap_tableam_handler")),
        ("amtype", text("t")),
    ]]
}

fn attributes(viewer: &Viewer) -> Vec<Row> {
    all_columns(viewer, |relation, field, position| {
        let found = PgType::of(field);
        vec![
            ("attrelid", oid(relation.oid)),
            ("attname", text(field.name())),
            ("atttypid", oid(found.oid)),
            ("attlen", ScalarValue::Int16(Some(found.size))),
            ("attnum", number(position)),
            ("attbyval", truth((1..=8).contains(&found.size))),
            ("attstorage", text(if found.size < 0 { "x" } else { "p" })),
            ("attnotnull", truth(!field.is_nullable())),
        ]
    })
}

fn classes(viewer: &Viewer) -> Vec<Row> {
    let row = |it: &Relation| {
        let (records, _) = it.size(viewer);
        vec![
            ("oid", oid(it.oid)),
            ("relname", text(&it.name)),
            ("relnamespace", oid(it.namespace_oid())),
            ("relowner", oid(OWNER_OID)),
            ("relam", oid(if it.is_stored() { 2 } else { 0 })),
            ("relkind", text(it.kind)),
            ("relnatts", number(it.columns.fields().len())),
            // A topic has no pages: clients such as DuckDB would read ranges of `ctid`.
            ("relpages", number(0)),
            ("reltuples", ScalarValue::Int64(Some(records))),
            ("relhasrules", truth(it.kind == "v")),
        ]
    };
    relations(viewer).iter().map(row).collect()
}

/// Functions by which clients recognize types.
fn procedures(_: &Viewer) -> Vec<Row> {
    let row = |(_, number, name): &(u32, u32, &str)| {
        vec![
            ("oid", oid(*number)),
            ("proname", text(*name)),
            ("pronamespace", oid(11)),
            ("proowner", oid(OWNER_OID)),
            ("prokind", text("f")),
        ]
    };
    RECEIVE.iter().map(row).collect()
}

fn keywords(_: &Viewer) -> Vec<Row> {
    let row = |word: &&str| vec![("word", text(word.to_ascii_lowercase()))];
    ALL_KEYWORDS.iter().map(row).collect()
}

fn databases(_: &Viewer) -> Vec<Row> {
    vec![vec![
        ("oid", oid(DATABASE_OID)),
        ("datname", text(DATABASE)),
        ("datdba", oid(OWNER_OID)),
        ("encoding", ScalarValue::Int32(Some(UTF8))),
        ("dattablespace", oid(1663)),
    ]]
}

fn tablespaces(_: &Viewer) -> Vec<Row> {
    vec![vec![("oid", oid(1663)), ("spcname", text("pg_default")), ("spcowner", oid(OWNER_OID))]]
}

fn namespaces(_: &Viewer) -> Vec<Row> {
    let row = |(number, name): &(u32, &str)| {
        vec![("oid", oid(*number)), ("nspname", text(*name)), ("nspowner", oid(OWNER_OID))]
    };
    NAMESPACES.iter().map(row).collect()
}

fn roles(viewer: &Viewer) -> Vec<Row> {
    let owner = vec![
        ("oid", oid(OWNER_OID)),
        ("rolname", text(OWNER)),
        ("rolsuper", truth(true)),
        ("rolcanlogin", truth(false)),
    ];
    let names = viewer.role_names().into_iter().filter(|name| name != OWNER);
    let users = names.map(|name| vec![("oid", oid(role_oid(&name))), ("rolname", text(name))]);
    std::iter::once(owner).chain(users).collect()
}

fn users(viewer: &Viewer) -> Vec<Row> {
    let names = viewer.role_names().into_iter();
    names.map(|name| vec![("usesysid", oid(role_oid(&name))), ("usename", text(name))]).collect()
}

fn settings(viewer: &Viewer) -> Vec<Row> {
    let row = |(name, value): (String, String)| {
        vec![("name", text(name)), ("setting", text(&value)), ("boot_val", text(value))]
    };
    viewer.settings().into_iter().map(row).collect()
}

fn activity(viewer: &Viewer) -> Vec<Row> {
    let connected = viewer.connected().into_iter().map(|it| {
        let name = it.client.name();
        let address = it.client.address;
        let since = it.running.as_ref().map(|(_, since)| time(*since));
        let none = || ScalarValue::TimestampMicrosecond(None, Some("UTC".into()));
        let since = since.unwrap_or_else(none);
        vec![
            ("datid", oid(DATABASE_OID)),
            ("datname", text(DATABASE)),
            ("pid", ScalarValue::Int32(Some(it.id))),
            ("leader_pid", ScalarValue::Int32(None)),
            ("usesysid", oid(role_oid(name))),
            ("usename", text(name)),
            ("application_name", text("")),
            ("client_addr", text(address.ip().to_string())),
            ("client_port", ScalarValue::Int32(Some(address.port().into()))),
            ("backend_start", time(it.since)),
            ("xact_start", since.clone()),
            ("query_start", since),
            ("state", text(if it.running.is_some() { "active" } else { "idle" })),
            ("query_id", ScalarValue::Int64(None)),
            ("query", text(it.running.map_or_else(String::new, |(text, _)| text))),
            ("backend_type", text("client backend")),
            ("rows", ScalarValue::Int64(i64::try_from(it.rows).ok())),
        ]
    });
    connected.collect()
}

fn statements(viewer: &Viewer) -> Vec<Row> {
    let count = |value: u64| ScalarValue::Int64(i64::try_from(value).ok());
    let ms = |value: Duration| ScalarValue::Float64(Some(value.as_secs_f64() * 1e3));
    let row = |it: StatementTotals| {
        let mean = it.total.div_f64(it.calls.max(1) as f64);
        vec![
            ("userid", oid(role_oid(it.on_behalf_of.unwrap_or(it.principal).name()))),
            ("dbid", oid(DATABASE_OID)),
            ("toplevel", truth(true)),
            ("queryid", ScalarValue::Int64(Some(it.id))),
            ("query", text(it.text)),
            ("calls", count(it.calls)),
            ("total_exec_time", ms(it.total)),
            ("min_exec_time", ms(it.least)),
            ("max_exec_time", ms(it.most)),
            ("mean_exec_time", ms(mean)),
            ("rows", count(it.rows)),
        ]
    };
    viewer.statements().into_iter().map(row).collect()
}

/// Returns the tables of topics.
fn of_topics(viewer: &Viewer) -> Vec<Relation> {
    relations(viewer).into_iter().filter(|it| it.topic.is_some()).collect()
}

fn table_statistics(viewer: &Viewer) -> Vec<Row> {
    let row = |it: &Relation| {
        vec![
            ("relid", oid(it.oid)),
            ("schemaname", text(it.schema_name)),
            ("relname", text(&it.name)),
            ("n_live_tup", ScalarValue::Int64(Some(it.size(viewer).0))),
        ]
    };
    of_topics(viewer).iter().filter(|it| it.is_stored()).map(row).collect()
}

fn pg_tables(viewer: &Viewer) -> Vec<Row> {
    let row = |it: &Relation| {
        vec![
            ("schemaname", text(it.schema_name)),
            ("tablename", text(&it.name)),
            ("tableowner", text(OWNER)),
        ]
    };
    relations(viewer).iter().filter(|it| it.kind == "r").map(row).collect()
}

fn pg_views(viewer: &Viewer) -> Vec<Row> {
    let row = |it: &Relation| {
        vec![
            ("schemaname", text(it.schema_name)),
            ("viewname", text(&it.name)),
            ("viewowner", text(OWNER)),
            ("definition", ScalarValue::Utf8(it.query.clone())),
        ]
    };
    relations(viewer).iter().filter(|it| it.kind == "v").map(row).collect()
}

fn pg_matviews(viewer: &Viewer) -> Vec<Row> {
    let row = |it: &Relation| {
        vec![
            ("schemaname", text(it.schema_name)),
            ("matviewname", text(&it.name)),
            ("matviewowner", text(OWNER)),
            ("ispopulated", truth(true)),
            ("definition", ScalarValue::Utf8(it.query.clone())),
        ]
    };
    relations(viewer).iter().filter(|it| it.kind == "m").map(row).collect()
}

fn types(_: &Viewer) -> Vec<Row> {
    let mut rows = Vec::new();
    for it in TYPES {
        let row = |number: u32, name: String, (size, category): (i16, &str)| {
            vec![
                ("oid", oid(number)),
                ("typname", text(name)),
                ("typnamespace", oid(11)),
                ("typowner", oid(OWNER_OID)),
                ("typlen", ScalarValue::Int16(Some(size))),
                ("typbyval", truth((1..=8).contains(&size))),
                ("typcategory", text(category)),
                ("typispreferred", truth(matches!(it.name, "bool" | "text" | "oid" | "float8"))),
            ]
        };
        let mut plain = row(it.oid, it.name.to_owned(), (it.size, it.category));
        plain.push(("typarray", oid(it.array)));
        plain.push(("typtype", text(if matches!(it.category, "P" | "X") { "p" } else { "b" })));
        if let Some((_, number, name)) = RECEIVE.iter().find(|receive| receive.0 == it.oid) {
            plain.push(("typreceive", oid(*number)));
            plain.push(("typinput", text(name.replace("recv", "in"))));
        }
        rows.push(plain);
        if it.array > 0 {
            let mut array = row(it.array, format!("_{}", it.name), (-1, "A"));
            if it.category == "P" {
                array.push(("typtype", text("p")));
            }
            array.push(("typelem", oid(it.oid)));
            array.push(("typinput", text("array_in")));
            array.push(("typreceive", oid(ARRAY_RECEIVE_OID)));
            rows.push(array);
        }
    }
    rows
}
