//! Columns of system tables.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, RecordBatch, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::{Result, ScalarValue};

pub(crate) const PG_CATALOG: &str = "pg_catalog";
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// Lines with `schema.table oid`, followed by indented lines with columns `column:type[=value]`.
/// The value is the default for rows that do not specify one.
const TEXT: &str = include_str!("tables.txt");

/// A system table: its columns and their defaults.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) schema_name: &'static str,
    pub(super) name: &'static str,
    pub(super) oid: u32,
    pub(super) schema: SchemaRef,
    defaults: Vec<ScalarValue>,
}

/// Values of some columns of a row. Others have their defaults.
pub(super) type Row = Vec<(&'static str, ScalarValue)>;

static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let mut tables: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in TEXT.lines() {
        match (line.strip_prefix(' '), tables.last_mut()) {
            (Some(columns), Some(table)) => table.1.extend(columns.split_whitespace()),
            _ => tables.push((line, Vec::new())),
        }
    }
    tables.into_iter().map(|(head, columns)| Definition::new(head, &columns)).collect()
});

impl Definition {
    pub(super) fn all() -> &'static [Self] {
        &DEFINITIONS
    }

    pub(super) fn find(schema_name: &str, name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|it| it.name == name && it.schema_name == schema_name)
    }

    fn new(head: &'static str, columns: &[&'static str]) -> Self {
        const FORM: &str = "tables.txt has the form that is said above";
        let (path, oid) = head.split_once(' ').expect(FORM);
        let (schema_name, name) = path.split_once('.').expect(FORM);
        let mut fields = Vec::new();
        let mut defaults = Vec::new();
        for column in columns {
            let (name, kind) = column.split_once(':').expect(FORM);
            let (kind, value) = match kind.split_once('=') {
                Some((kind, value)) => (kind, Some(value.trim_matches('\''))),
                None => (kind, None),
            };
            let data_type = data_type(kind);
            let text = ScalarValue::Utf8(value.map(str::to_owned));
            defaults.push(match (&data_type, value) {
                (_, Some(_)) => text.cast_to(&data_type).expect(FORM),
                (DataType::Utf8 | DataType::List(_) | DataType::Timestamp(..), None) => {
                    ScalarValue::try_from(&data_type).expect(FORM)
                }
                (_, None) => {
                    ScalarValue::new_zero(&data_type).unwrap_or(ScalarValue::Boolean(Some(false)))
                }
            });
            fields.push(Field::new(name, data_type, true));
        }
        let schema = Arc::new(Schema::new(fields));
        Self { schema_name, name, oid: oid.parse().expect(FORM), schema, defaults }
    }

    pub(super) fn batch(&self, rows: &[Row]) -> Result<RecordBatch> {
        let columns = self.schema.fields().iter().zip(&self.defaults).map(|(field, default)| {
            let values = rows.iter().map(|row| {
                let said = row.iter().find(|(name, _)| name == field.name());
                said.map_or(default, |(_, value)| value).cast_to(field.data_type())
            });
            let values: Vec<_> = values.collect::<Result<_>>()?;
            match values.is_empty() {
                true => Ok(new_empty_array(field.data_type())),
                false => ScalarValue::iter_to_array(values),
            }
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        for row in rows {
            for (name, _) in row {
                debug_assert!(self.schema.index_of(name).is_ok(), "{} has no {name}", self.name);
            }
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

fn data_type(kind: &str) -> DataType {
    match kind {
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" => DataType::Int64,
        "oid" => DataType::UInt32,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "int2s" => DataType::new_list(DataType::Int16, true),
        "oids" => DataType::new_list(DataType::UInt32, true),
        "texts" => DataType::new_list(DataType::Utf8, true),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => DataType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_columns_and_defaults_that_their_text_says() {
        let class = Definition::find(PG_CATALOG, "pg_class").expect("it is there");
        assert_eq!((class.oid, class.schema.fields().len()), (1259, 33));
        let row: Row = vec![("relname", ScalarValue::from("orders"))];
        let batch = class.batch(&[row]).expect("a good row");
        let value = |name: &str| {
            let column = batch.column_by_name(name).expect("it is there");
            ScalarValue::try_from_array(column, 0).expect("a value").to_string()
        };
        let found = ["relname", "relpersistence", "relchecks", "relpartbound"].map(value);
        assert_eq!(found, ["orders", "p", "0", "NULL"]);
        assert!(Definition::find(INFORMATION_SCHEMA, "pg_class").is_none());
    }
}
