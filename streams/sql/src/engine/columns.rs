//! Columns of tables of records.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;

pub(crate) use crate::definition::{CURRENT_SUFFIX, LOG_SUFFIX};
use crate::wire::json_field;

/// Names of columns for which filters are pushed down to the log.
pub(crate) const PARTITION: &str = "partition";
pub(crate) const OFFSET: &str = "offset";
pub(crate) const TIME: &str = "time";
pub(crate) const KEY: &str = "key";

/// Suffix of a topic's name in the name of the table with keys and values as bytes. Follows
/// [`CURRENT_SUFFIX`] in the table of current values. Topic names cannot contain `$`.
pub(crate) const BYTES_SUFFIX: &str = "$bytes";

/// Type of keys and values: validated text, or arbitrary bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Bytes,
}

impl Form {
    fn text_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8View,
            Self::Bytes => DataType::BinaryView,
        }
    }
}

/// A column of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogColumn {
    Partition,
    Offset,
    Time,
    Key,
    Value,
    Headers,
}

impl LogColumn {
    pub(crate) const ALL: [Self; 6] =
        [Self::Partition, Self::Offset, Self::Time, Self::Key, Self::Value, Self::Headers];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Partition => PARTITION,
            Self::Offset => OFFSET,
            Self::Time => TIME,
            Self::Key => KEY,
            Self::Value => "value",
            Self::Headers => "headers",
        }
    }

    fn field(self, form: Form) -> Field {
        let name = self.name();
        match self {
            Self::Partition => Field::new(name, DataType::Int32, false),
            Self::Offset => Field::new(name, DataType::Int64, false),
            Self::Time => {
                let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                Field::new(name, time, true)
            }
            Self::Key | Self::Value => Field::new(name, form.text_type(), true),
            Self::Headers => json_field(name, DataType::Utf8View),
        }
    }
}

/// A column to read: one of the record, or a field of its JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadColumn {
    Record(LogColumn),
    /// Index into the plan's [`JsonFields`](super::json_fields::JsonFields).
    Json(usize),
}

/// Returns the schema of these columns.
pub(crate) fn schema_of(columns: &[LogColumn], form: Form) -> SchemaRef {
    let fields: Vec<_> = columns.iter().map(|column| column.field(form)).collect();
    Arc::new(Schema::new(fields))
}

/// Returns the bytes of a literal, for comparison with a text or bytea column.
pub(super) fn bytes_of(value: &ScalarValue) -> Option<Vec<u8>> {
    match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Some(text.clone().into_bytes()),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => Some(bytes.clone()),
        _ => None,
    }
}
