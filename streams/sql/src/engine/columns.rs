//! The columns of tables that show records.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::pushdown::{KEY, OFFSET, PARTITION, TIME};
use crate::wire::json_field;

/// What follows a topic's name in that of the table whose keys and values are bytes. Names of
/// topics have no such sign.
pub(crate) const BYTES_SUFFIX: &str = "$bytes";

/// What follows a topic's name in that of the table of its current values; before the sign above
/// where the table has both.
pub(crate) const CURRENT_SUFFIX: &str = "$current";

/// Whether keys and values are texts, which is checked, or any bytes.
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

/// What a record has.
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

/// The fields of these columns.
pub(crate) fn schema_of(columns: &[LogColumn], form: Form) -> SchemaRef {
    let fields: Vec<_> = columns.iter().map(|column| column.field(form)).collect();
    Arc::new(Schema::new(fields))
}
