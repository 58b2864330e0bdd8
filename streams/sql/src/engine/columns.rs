//! The columns of tables that show records.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;

pub(crate) use crate::definition::{CURRENT_SUFFIX, LOG_SUFFIX};
use crate::wire::json_field;

/// Names of columns that filters reach.
pub(crate) const PARTITION: &str = "partition";
pub(crate) const OFFSET: &str = "offset";
pub(crate) const TIME: &str = "time";
pub(crate) const KEY: &str = "key";

/// Suffix of a topic's name in that of the table whose keys and values are bytes; behind
/// [`CURRENT_SUFFIX`] where the table has both. Names of topics have no such sign.
pub(crate) const BYTES_SUFFIX: &str = "$bytes";

/// Form of keys and values: texts, which is checked, or any bytes.
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

/// Column of a record.
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

/// A column that is read of records: what they have, or a value that is found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadColumn {
    Record(LogColumn),
    /// By its place among the plan's [`JsonFields`](super::json_fields::JsonFields).
    Json(usize),
}

/// The fields of these columns.
pub(crate) fn schema_of(columns: &[LogColumn], form: Form) -> SchemaRef {
    let fields: Vec<_> = columns.iter().map(|column| column.field(form)).collect();
    Arc::new(Schema::new(fields))
}

/// The bytes of a literal that a column of texts or bytes is compared with.
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
