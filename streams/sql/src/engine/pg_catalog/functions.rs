//! System catalogue functions. Each is evaluated row by row, because catalogues are short.

use std::cell::OnceCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use access::Operation;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::super::dialect::each_row;
use super::super::names::SCHEMA;
use super::privileges;
use super::relations::{NAMESPACES, Relation, find, parts_of, quoted, relations};
use super::rows::{OWNER, OWNER_OID, namespace_oid, role_oid};
use super::types;
use super::viewer::{Assigned, Viewer};
use crate::error::{SqlError, SqlState};

/// Arguments of a call, and the client's view.
struct Call<'a> {
    viewer: &'a Viewer,
    relations: &'a OnceCell<Vec<Relation>>,
    values: &'a [ScalarValue],
}

type Body = fn(&Call<'_>) -> Result<ScalarValue>;

impl Call<'_> {
    fn relations(&self) -> &[Relation] {
        self.relations.get_or_init(|| relations(self.viewer))
    }

    fn text(&self, index: usize) -> Option<&str> {
        self.values.get(index)?.try_as_str().flatten()
    }

    fn number(&self, index: usize) -> Option<i64> {
        match self.values.get(index)?.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        }
    }

    fn oid(&self, index: usize) -> Option<u32> {
        u32::try_from(self.number(index)?).ok()
    }

    /// Returns the table that an argument identifies by oid or name.
    fn relation(&self, index: usize) -> Option<&Relation> {
        match (self.text(index), self.oid(index)) {
            (_, Some(oid)) => self.relations().iter().find(|it| it.oid == oid),
            (Some(name), None) => find(self.relations(), name),
            (None, None) => None,
        }
    }

    /// Same as [`Self::relation`].
    ///
    /// # Errors
    /// The table does not exist.
    fn relation_of_name(&self, index: usize) -> Result<&Relation> {
        self.relation(index).ok_or_else(|| {
            let what = format!("relation {:?} does not exist", self.text(index).unwrap_or(""));
            SqlError::new(SqlState::UNDEFINED_TABLE, what).into_engine()
        })
    }
}

fn text(value: impl Into<String>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(Some(value.into())))
}

fn no_text(_: &Call<'_>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(None))
}

fn truth(value: bool) -> Result<ScalarValue> {
    Ok(ScalarValue::Boolean(Some(value)))
}

fn yes(_: &Call<'_>) -> Result<ScalarValue> {
    truth(true)
}

fn no(_: &Call<'_>) -> Result<ScalarValue> {
    truth(false)
}

fn whole(value: Option<i64>) -> Result<ScalarValue> {
    Ok(ScalarValue::Int64(value))
}

fn oid(value: Option<u32>) -> Result<ScalarValue> {
    Ok(ScalarValue::UInt32(value))
}

/// Functions that return descriptions and definitions, which do not exist in this server.
const WITHOUT_TEXT: &[&str] = &[
    "col_description",
    "obj_description",
    "pg_get_constraintdef",
    "pg_get_expr",
    "pg_get_function_arguments",
    "pg_get_function_identity_arguments",
    "pg_get_function_result",
    "pg_get_indexdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_triggerdef",
    "pg_tablespace_location",
    "shobj_description",
];

/// Functions that always return true, because all that exists is visible.
const ALWAYS_TRUE: &[&str] = &[
    "has_database_privilege",
    "has_function_privilege",
    "has_language_privilege",
    "has_schema_privilege",
    "has_type_privilege",
    "pg_collation_is_visible",
    "pg_function_is_visible",
    "pg_type_is_visible",
];

const ALWAYS_FALSE: &[&str] = &[
    "has_sequence_privilege",
    "pg_is_in_recovery",
    "pg_is_other_temp_schema",
    "pg_relation_is_publishable",
    "row_security_active",
];

/// Functions that depend on their arguments, with their result types.
const OWN: &[(&str, DataType, Body)] = &[
    ("_pg_char_max_length", DataType::Int32, |_| Ok(ScalarValue::Int32(None))),
    ("_pg_datetime_precision", DataType::Int32, |call| {
        digits(call, &[(1082, 0), (1083, 6), (1114, 6), (1184, 6), (1186, 6)])
    }),
    ("_pg_numeric_precision", DataType::Int32, |call| {
        digits(call, &[(20, 64), (21, 16), (23, 32), (700, 24), (701, 53)])
    }),
    ("_pg_numeric_scale", DataType::Int32, |call| digits(call, &[(20, 0), (21, 0), (23, 0)])),
    ("current_setting", DataType::Utf8, current_setting),
    ("format_type", DataType::Utf8, format_type),
    ("getdatabaseencoding", DataType::Utf8, |_| text("UTF8")),
    ("has_any_column_privilege", DataType::Boolean, has_table_privilege),
    ("has_column_privilege", DataType::Boolean, has_column_privilege),
    ("has_table_privilege", DataType::Boolean, has_table_privilege),
    ("inet_server_addr", DataType::Utf8, no_text),
    // There are no locks of this kind, so a session never has one.
    ("pg_advisory_unlock_all", DataType::Utf8, |_| text("")),
    ("pg_backend_pid", DataType::Int32, |call| Ok(ScalarValue::Int32(Some(call.viewer.id)))),
    ("pg_cancel_backend", DataType::Boolean, |it| end(it, Ended::Statement)),
    ("pg_char_to_encoding", DataType::Int32, char_to_encoding),
    ("pg_database_size", DataType::Int64, database_size),
    ("pg_encoding_to_char", DataType::Utf8, encoding_to_char),
    ("pg_has_role", DataType::Boolean, has_role),
    ("pg_get_userbyid", DataType::Utf8, user_by_id),
    ("pg_get_viewdef", DataType::Utf8, view_definition),
    ("pg_my_temp_schema", DataType::UInt32, |_| oid(Some(0))),
    ("pg_relation_size", DataType::Int64, table_size),
    ("pg_size_pretty", DataType::Utf8, size_pretty),
    ("pg_table_size", DataType::Int64, table_size),
    ("pg_table_is_visible", DataType::Boolean, table_is_visible),
    ("pg_terminate_backend", DataType::Boolean, |it| end(it, Ended::Connection)),
    ("pg_total_relation_size", DataType::Int64, table_size),
    ("regclass_oid", DataType::UInt32, |call| match call.values.first() {
        Some(value) if value.is_null() => oid(None),
        _ if call.oid(0).is_some() => oid(call.oid(0)),
        _ => oid(Some(call.relation_of_name(0)?.oid)),
    }),
    ("regclass_text", DataType::Utf8, regclass_text),
    ("regnamespace_oid", DataType::UInt32, |call| match (call.oid(0), call.text(0)) {
        (None, Some(name)) => oid(Some(namespace_oid(name).ok_or_else(|| no_schema(name))?)),
        (found, _) => oid(found),
    }),
    ("regnamespace_text", DataType::Utf8, namespace_text),
    ("regproc_text", DataType::Utf8, |call| {
        if let Some(number) = call.oid(0) {
            let found = types::RECEIVE.iter().find(|it| it.1 == number);
            return match found {
                Some((_, _, name)) => text(*name),
                None if number == 0 => text("-"),
                None => text(number.to_string()),
            };
        }
        let name = call.text(0).map(|it| it.strip_prefix("pg_catalog.").unwrap_or(it));
        Ok(ScalarValue::Utf8(name.map(str::to_owned)))
    }),
    ("regrole_text", DataType::Utf8, user_by_id),
    ("regtype_oid", DataType::UInt32, |call| match (call.oid(0), call.text(0)) {
        (Some(number), _) => oid(Some(number)),
        (None, Some(name)) => match types::oid_of(name) {
            Some(found) => oid(Some(found)),
            None => Err(no_type(name)),
        },
        (None, None) => oid(None),
    }),
    ("regtype_text", DataType::Utf8, |call| {
        let found = match (call.oid(0), call.text(0)) {
            (None, Some(name)) => Some(types::oid_of(name).ok_or_else(|| no_type(name))?),
            (found, _) => found,
        };
        found.map_or(no_text(call), |it| text(types::sql_name(it, None)))
    }),
    ("set_config", DataType::Utf8, set_config),
    ("to_regclass", DataType::UInt32, |call| oid(call.relation(0).map(|it| it.oid))),
    ("to_regnamespace", DataType::UInt32, |call| oid(call.text(0).and_then(namespace_oid))),
    ("to_regtype", DataType::UInt32, |call| oid(call.text(0).and_then(types::oid_of))),
];

/// Returns the functions for one connection.
pub(crate) fn functions(viewer: &Arc<Viewer>) -> Vec<Arc<ScalarUDF>> {
    let constant = |names: &[&'static str], returns: DataType, body: Body| {
        names.iter().map(|name| (*name, returns.clone(), body)).collect::<Vec<_>>()
    };
    let mut all = OWN.to_vec();
    all.extend(constant(WITHOUT_TEXT, DataType::Utf8, no_text));
    all.extend(constant(ALWAYS_TRUE, DataType::Boolean, yes));
    all.extend(constant(ALWAYS_FALSE, DataType::Boolean, no));
    let texts = DataType::new_list(DataType::Utf8, true);
    all.push(("parse_ident", texts, |call| {
        let parts = call.text(0).map(|it| parts_of(it).into_iter().map(ScalarValue::from));
        Ok(match parts {
            Some(parts) => {
                let parts: Vec<_> = parts.collect();
                ScalarValue::List(ScalarValue::new_list(&parts, &DataType::Utf8, true))
            }
            None => ScalarValue::new_null_list(DataType::Utf8, true, 1),
        })
    }));
    let made = all.into_iter().map(|(name, returns, body)| {
        let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        // Volatile, because functions that cancel a statement must not be evaluated before the
        // query runs.
        let signature = Signature::one_of(any, Volatility::Volatile);
        let viewer = Arc::clone(viewer);
        let function = CatalogFunction { name, returns, body, viewer, signature };
        Arc::new(ScalarUDF::new_from_impl(function))
    });
    made.collect()
}

#[derive(Debug)]
struct CatalogFunction {
    name: &'static str,
    returns: DataType,
    body: Body,
    viewer: Arc<Viewer>,
    signature: Signature,
}

/// Within a connection, functions are identified by name.
impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.viewer, &other.viewer)
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let relations = OnceCell::new();
        let call = |values: &[ScalarValue]| {
            let call = Call { viewer: &self.viewer, relations: &relations, values };
            (self.body)(&call)?.cast_to(&self.returns)
        };
        each_row(&args, &self.returns, call)
    }
}

fn current_setting(call: &Call<'_>) -> Result<ScalarValue> {
    let Some(name) = call.text(0) else { return no_text(call) };
    let is_lenient = matches!(call.values.get(1), Some(ScalarValue::Boolean(Some(true))));
    match call.viewer.setting(&name.to_ascii_lowercase()) {
        Some(value) => text(value),
        None if is_lenient => no_text(call),
        None => {
            let what = format!("unrecognized configuration parameter {name:?}");
            Err(SqlError::new(SqlState::UNDEFINED_OBJECT, what).into_engine())
        }
    }
}

/// Returns the digits of a type without a modifier. No column has one.
fn digits(call: &Call<'_>, known: &[(u32, i32)]) -> Result<ScalarValue> {
    let found = known.iter().find(|it| call.oid(0) == Some(it.0));
    Ok(ScalarValue::Int32(found.map(|it| it.1)))
}

/// `set_config(name, value, is_local)`.
fn set_config(call: &Call<'_>) -> Result<ScalarValue> {
    if call.values.len() != 3 {
        let what = "function set_config requires a name, a value and is_local";
        return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what).into_engine());
    }
    let Some(name) = call.text(0) else {
        let what = "SET requires parameter name";
        return Err(SqlError::new(SqlState("22004"), what).into_engine());
    };
    let Some(value) = call.text(1) else {
        let what = "set_config with NULL is not supported: use RESET";
        return Err(SqlError::unsupported(what).into_engine());
    };
    let is_local = call.values[2] == ScalarValue::Boolean(Some(true));
    let (name, value) = (name.to_ascii_lowercase(), value.to_owned());
    let assigned = Assigned { name, value, is_local };
    text(call.viewer.assign(assigned).map_err(SqlError::into_engine)?)
}

fn format_type(call: &Call<'_>) -> Result<ScalarValue> {
    match call.oid(0) {
        Some(oid) => text(types::sql_name(oid, call.number(1))),
        None => no_text(call),
    }
}

/// `has_table_privilege([user,] table, privileges)`. Privileges of other users are not disclosed.
fn has_table_privilege(call: &Call<'_>) -> Result<ScalarValue> {
    has_privilege(call, call.values.len().checked_sub(2))
}

/// `has_column_privilege([user,] table, column, privileges)`.
fn has_column_privilege(call: &Call<'_>) -> Result<ScalarValue> {
    has_privilege(call, call.values.len().checked_sub(3))
}

fn has_privilege(call: &Call<'_>, table: Option<usize>) -> Result<ScalarValue> {
    let (Some(table), Some(privileges)) = (table, call.text(call.values.len() - 1)) else {
        return Ok(ScalarValue::Boolean(None));
    };
    let own = call.viewer.client.name();
    let is_own = table == 0
        || call.text(0).is_some_and(|name| name == own)
        || call.oid(0).is_some_and(|oid| oid == role_oid(own));
    match call.relation(table) {
        Some(relation) => truth(is_own && privileges::has(call.viewer, relation, privileges)),
        None => Ok(ScalarValue::Boolean(None)),
    }
}

/// `pg_has_role([user,] role, privileges)`: users are members of no role but their own.
fn has_role(call: &Call<'_>) -> Result<ScalarValue> {
    let Some(role) = call.values.len().checked_sub(2) else {
        return Ok(ScalarValue::Boolean(None));
    };
    let own = call.viewer.client.name();
    let is_own = |index: usize| {
        call.text(index).is_some_and(|name| name == own)
            || call.oid(index).is_some_and(|oid| oid == role_oid(own))
    };
    truth(is_own(role) && (role == 0 || is_own(0)))
}

/// Target of `pg_cancel_backend` and `pg_terminate_backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Statement,
    Connection,
}

fn end(call: &Call<'_>, what: Ended) -> Result<ScalarValue> {
    let id = call.number(0).and_then(|it| i32::try_from(it).ok());
    let Some(id) = id else { return Ok(ScalarValue::Boolean(None)) };
    if call.viewer.only_reads() {
        let what = "cannot cancel queries or terminate connections in a read-only transaction";
        return Err(SqlError::new(SqlState::READ_ONLY, what).into_engine());
    }
    match call.viewer.may_end(id) {
        Some(true) => truth(match what {
            Ended::Statement => call.viewer.activity.cancel(id),
            Ended::Connection => call.viewer.activity.terminate(id),
        }),
        Some(false) => {
            let what = "permission denied to cancel or terminate another user's query: requires \
                        Alter on the cluster";
            Err(SqlError::new(SqlState::PERMISSION, what).into_engine())
        }
        None => truth(false),
    }
}

fn char_to_encoding(call: &Call<'_>) -> Result<ScalarValue> {
    let name = call.text(0).map(|it| it.replace('-', "").to_ascii_uppercase());
    Ok(ScalarValue::Int32(name.map(|it| if it == "UTF8" { 6 } else { -1 })))
}

fn encoding_to_char(call: &Call<'_>) -> Result<ScalarValue> {
    text(if call.number(0) == Some(6) { "UTF8" } else { "" })
}

fn user_by_id(call: &Call<'_>) -> Result<ScalarValue> {
    let Some(wanted) = call.oid(0) else { return no_text(call) };
    if wanted == OWNER_OID {
        return text(OWNER);
    }
    let mut names = call.viewer.role_names().into_iter();
    let found = names.find(|name| role_oid(name) == wanted);
    text(found.unwrap_or_else(|| format!("unknown (OID={wanted})")))
}

fn view_definition(call: &Call<'_>) -> Result<ScalarValue> {
    match call.relation(0).and_then(|it| it.query.as_deref()) {
        Some(query) => text(query),
        None => no_text(call),
    }
}

/// Returns whether the table's schema is in the search path.
fn table_is_visible(call: &Call<'_>) -> Result<ScalarValue> {
    let found = call.relation(0).map(|it| it.schema_name != super::definitions::INFORMATION_SCHEMA);
    Ok(ScalarValue::Boolean(found))
}

fn table_size(call: &Call<'_>) -> Result<ScalarValue> {
    let relation = call.relation(0);
    // Current values share the records of the log.
    let size = relation.map(|it| if it.is_stored() { it.size(call.viewer).1 } else { 0 });
    whole(size)
}

fn database_size(call: &Call<'_>) -> Result<ScalarValue> {
    let tables = call.relations().iter().filter(|it| it.is_stored());
    let may_read = |it: &&Relation| {
        it.topic.as_ref().is_some_and(|topic| call.viewer.may(Operation::Describe, topic))
    };
    whole(Some(tables.filter(may_read).map(|it| it.size(call.viewer).1).sum()))
}

/// Formats as PostgreSQL does, in the largest unit in which the number is at least 10.
fn size_pretty(call: &Call<'_>) -> Result<ScalarValue> {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let Some(mut size) = call.number(0) else { return no_text(call) };
    let mut unit = 0;
    while size.unsigned_abs() >= 10_240 && unit + 1 < UNITS.len() {
        size = (size + 512 * size.signum()) / 1_024;
        unit += 1;
    }
    text(format!("{size} {}", UNITS[unit]))
}

/// Returns the name of a table, qualified if its schema is not in the search path.
fn regclass_text(call: &Call<'_>) -> Result<ScalarValue> {
    let relation = match (call.oid(0), call.text(0)) {
        (Some(_), _) => call.relation(0),
        (None, Some(_)) => Some(call.relation_of_name(0)?),
        (None, None) => return no_text(call),
    };
    match (relation, call.oid(0)) {
        (Some(it), _) if it.schema_name == super::definitions::INFORMATION_SCHEMA => {
            text(format!("{}.{}", it.schema_name, quoted(&it.name)))
        }
        (Some(it), _) => text(quoted(&it.name)),
        (None, Some(0)) => text("-"),
        (None, number) => text(number.map_or_else(String::new, |it| it.to_string())),
    }
}

fn no_type(name: &str) -> datafusion::common::DataFusionError {
    let what = format!("type {name:?} does not exist");
    SqlError::new(SqlState::UNDEFINED_OBJECT, what).into_engine()
}

fn no_schema(name: &str) -> datafusion::common::DataFusionError {
    SqlError::new(SqlState("3F000"), format!("schema {name:?} does not exist")).into_engine()
}

fn namespace_text(call: &Call<'_>) -> Result<ScalarValue> {
    if let Some(name) = call.text(0) {
        namespace_oid(name).ok_or_else(|| no_schema(name))?;
        return text(quoted(name));
    }
    let found = NAMESPACES.iter().find(|it| Some(it.0) == call.oid(0));
    match (found, call.oid(0)) {
        (Some((_, name)), _) => text(*name),
        (None, Some(number)) => text(number.to_string()),
        (None, None) => no_text(call),
    }
}

/// Returns the search path.
pub(super) fn searched(with_system: bool) -> Vec<&'static str> {
    match with_system {
        true => vec![super::definitions::PG_CATALOG, SCHEMA],
        false => vec![SCHEMA],
    }
}
