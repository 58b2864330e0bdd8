//! Mapping between the engine's types and PostgreSQL's.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use live_queries::Type;

use super::numbers::IntervalStyle;

/// Format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text, in which intervals have this style.
    Text(IntervalStyle),
    Binary,
}

impl Format {
    pub(crate) const TEXT: Self = Self::Text(IntervalStyle::Postgres);

    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Text(_) => 0,
            Self::Binary => 1,
        }
    }

    /// Returns the format with this style of intervals in text.
    pub(crate) fn in_style(self, style: IntervalStyle) -> Self {
        match self {
            Self::Text(_) => Self::Text(style),
            Self::Binary => Self::Binary,
        }
    }
}

impl Default for Format {
    fn default() -> Self {
        Self::TEXT
    }
}

/// Formats of a row's columns: an empty list means text, and a single item applies to all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Formats(pub(crate) Vec<Format>);

impl Formats {
    pub(crate) fn of(&self, column: usize) -> Format {
        match self.0.as_slice() {
            [] => Format::TEXT,
            [one] => *one,
            many => many.get(column).copied().unwrap_or_default(),
        }
    }

    /// Returns the formats with this style of intervals in text.
    pub(crate) fn in_style(&self, style: IntervalStyle) -> Self {
        match self.0.as_slice() {
            [] => Self(vec![Format::Text(style)]),
            some => Self(some.iter().map(|it| it.in_style(style)).collect()),
        }
    }
}

/// A type: object id, and size of its values in bytes, or -1 if that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PgType {
    pub(crate) oid: u32,
    pub(crate) size: i16,
}

/// Metadata that marks a field as JSON.
const JSON_KEY: &str = "memlane.type";
const JSON_VALUE: &str = "json";
const JSONB_VALUE: &str = "jsonb";

/// A field of type json: JSON text as it was written.
pub(crate) fn json_field(name: &str, data_type: DataType) -> Field {
    field_of(JSON_VALUE, name, data_type)
}

/// A field of type jsonb: JSON text in the form in which PostgreSQL shows jsonb.
pub(crate) fn jsonb_field(name: &str, data_type: DataType) -> Field {
    field_of(JSONB_VALUE, name, data_type)
}

fn field_of(json: &str, name: &str, data_type: DataType) -> Field {
    let metadata = HashMap::from([(JSON_KEY.to_owned(), json.to_owned())]);
    Field::new(name, data_type, true).with_metadata(metadata)
}

/// Metadata of a column that is described with a type and a modifier that its values do not have.
const DESCRIBED_KEY: &str = "memlane.described";

/// A field that is described to clients by `oid` and `modifier`, such as a length. Its values have
/// the same form as those of its own type.
pub(crate) fn described_field(field: &Field, oid: u32, modifier: i32) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(DESCRIBED_KEY.to_owned(), format!("{oid} {modifier}"));
    field.clone().with_metadata(metadata)
}

/// Object ids of types whose binary form is not that of their text.
pub(crate) const JSONB: u32 = PgType::JSONB.oid;
pub(crate) const UUID: u32 = 2950;

/// Size of the type `name`.
const NAME_SIZE: i16 = 64;

/// Size of a uuid.
const UUID_SIZE: i16 = 16;

fn described_size(oid: u32, of_values: PgType) -> i16 {
    match oid {
        PgType::NAME => NAME_SIZE,
        UUID => UUID_SIZE,
        PgType::REGTYPE => PgType::OID.size,
        _ => of_values.size,
    }
}

fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}

impl PgType {
    pub(crate) const BOOL: Self = Self { oid: 16, size: 1 };
    pub(crate) const BYTEA: Self = Self { oid: 17, size: -1 };
    pub(crate) const INT8: Self = Self { oid: 20, size: 8 };
    pub(crate) const INT2: Self = Self { oid: 21, size: 2 };
    pub(crate) const INT4: Self = Self { oid: 23, size: 4 };
    pub(crate) const TEXT: Self = Self { oid: 25, size: -1 };
    pub(crate) const OID: Self = Self { oid: 26, size: 4 };
    pub(crate) const JSON: Self = Self { oid: 114, size: -1 };
    /// Types of texts that only columns of results have.
    pub(crate) const NAME: u32 = 19;
    pub(crate) const VARCHAR: u32 = 1043;
    /// Types of texts that only parameters have.
    pub(crate) const BPCHAR: u32 = 1042;
    pub(crate) const CHAR: u32 = 18;
    /// Type of the names of tables. Handled as text, and sent as an object id.
    pub(crate) const REGCLASS: u32 = 2205;
    /// Type of the names of types.
    pub(crate) const REGTYPE: u32 = 2206;
    /// Type of an untyped literal.
    pub(crate) const UNKNOWN: u32 = 705;
    pub(crate) const FLOAT4: Self = Self { oid: 700, size: 4 };
    pub(crate) const FLOAT8: Self = Self { oid: 701, size: 8 };
    pub(crate) const DATE: Self = Self { oid: 1082, size: 4 };
    pub(crate) const TIME: Self = Self { oid: 1083, size: 8 };
    pub(crate) const TIMESTAMP: Self = Self { oid: 1114, size: 8 };
    pub(crate) const TIMESTAMPTZ: Self = Self { oid: 1184, size: 8 };
    pub(crate) const INTERVAL: Self = Self { oid: 1186, size: 16 };
    pub(crate) const NUMERIC: Self = Self { oid: 1700, size: -1 };
    pub(crate) const JSONB: Self = Self { oid: 3802, size: -1 };
    /// Type of arrays of uuids, which are texts.
    pub(crate) const UUIDS: u32 = 2951;
    /// Type of arrays of numerics.
    pub(crate) const NUMERICS: u32 = 1231;

    /// Returns whether values of both are sent in the same way: json is text, and the binary form
    /// of jsonb begins with its version.
    pub(crate) fn is_sent_as(self, other: Self) -> bool {
        let plain = |it: Self| if it == Self::JSON { Self::TEXT } else { it };
        plain(self) == plain(other)
    }

    /// Returns whether the type is json or jsonb.
    pub(crate) fn is_json(self) -> bool {
        self == Self::JSON || self == Self::JSONB
    }

    /// Returns the type of a column that is reported to clients.
    pub(crate) fn of(field: &Field) -> Self {
        // Casts keep the metadata of their operand, so it counts only for texts.
        let json = field.metadata().get(JSON_KEY).map(String::as_str);
        match (Self::of_data(field.data_type()), json) {
            (Self::TEXT, Some(JSON_VALUE)) => Self::JSON,
            (Self::TEXT, Some(JSONB_VALUE)) => Self::JSONB,
            (other, _) => other,
        }
    }

    /// Returns the type and the modifier with which a column is described to clients.
    pub(crate) fn described(field: &Field) -> (Self, i32) {
        let pg_type = Self::of(field);
        let given = field.metadata().get(DESCRIBED_KEY).and_then(|it| it.split_once(' '));
        match given.map(|(oid, modifier)| (oid.parse(), modifier.parse())) {
            Some((Ok(oid), Ok(modifier))) => {
                (Self { oid, size: described_size(oid, pg_type) }, modifier)
            }
            _ => (pg_type, -1),
        }
    }

    pub(crate) fn of_data(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::BOOL,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => Self::INT2,
            DataType::UInt16 | DataType::Int32 => Self::INT4,
            DataType::Int64 => Self::INT8,
            // Only object ids are unsigned with 32 bits.
            DataType::UInt32 => Self::OID,
            DataType::UInt64 | DataType::Decimal128(..) | DataType::Decimal256(..) => Self::NUMERIC,
            DataType::Float16 | DataType::Float32 => Self::FLOAT4,
            DataType::Float64 => Self::FLOAT8,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Self::BYTEA,
            DataType::FixedSizeBinary(_) => Self::BYTEA,
            DataType::Date32 | DataType::Date64 => Self::DATE,
            DataType::Time32(_) | DataType::Time64(_) => Self::TIME,
            DataType::Timestamp(_, None) => Self::TIMESTAMP,
            DataType::Timestamp(_, Some(_)) => Self::TIMESTAMPTZ,
            DataType::Interval(_) | DataType::Duration(_) => Self::INTERVAL,
            DataType::Dictionary(_, values) => Self::of_data(values),
            DataType::List(of) | DataType::LargeList(of) => match of.data_type() {
                // A nested array is an array with more dimensions.
                inner @ (DataType::List(_) | DataType::LargeList(_)) => Self::of_data(inner),
                element => Self::array_of(Self::of_data(element)),
            },
            _ => Self::TEXT,
        }
    }

    const fn array_of(element: Self) -> Self {
        let oid = match element.oid {
            Self::VARCHAR => 1015,
            UUID => Self::UUIDS,
            16 => 1000,
            17 => 1001,
            20 => 1016,
            21 => 1005,
            23 => 1007,
            26 => 1028,
            700 => 1021,
            701 => 1022,
            1082 => 1182,
            1083 => 1183,
            1114 => 1115,
            1184 => 1185,
            1186 => 1187,
            1700 => 1231,
            _ => 1009,
        };
        Self { oid, size: -1 }
    }

    /// Returns the object id of arrays of a type, or `None` if parameters cannot be such arrays.
    pub(crate) fn array_oid(element: u32) -> Option<u32> {
        let is_text = matches!(element, 25 | Self::VARCHAR);
        let array = Self::array_of(Self { oid: element, size: -1 }).oid;
        let is_known = is_text || array != Self::array_of(Self::TEXT).oid;
        (is_known && Self::data_type_of(array).is_some()).then_some(array)
    }

    /// Returns the type of a record's column or a typed table's column.
    pub(crate) const fn of_live(data_type: Type) -> Self {
        match data_type {
            Type::Unknown | Type::Text => Self::TEXT,
            Type::Bool => Self::BOOL,
            Type::Int4 => Self::INT4,
            Type::Int8 => Self::INT8,
            Type::Numeric => Self::NUMERIC,
            Type::Float8 => Self::FLOAT8,
            Type::Bytea => Self::BYTEA,
            Type::Timestamptz => Self::TIMESTAMPTZ,
            Type::Interval => Self::INTERVAL,
            Type::Json => Self::JSON,
        }
    }

    /// Name in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self.oid {
            16 => "boolean",
            17 => "bytea",
            20 => "bigint",
            21 => "smallint",
            23 => "integer",
            25 => "text",
            26 => "oid",
            114 => "json",
            700 => "real",
            701 => "double precision",
            1082 => "date",
            1083 => "time without time zone",
            1114 => "timestamp without time zone",
            1184 => "timestamp with time zone",
            1186 => "interval",
            1700 => "numeric",
            3802 => "jsonb",
            19 => "name",
            1000 => "boolean[]",
            1001 => "bytea[]",
            1005 => "smallint[]",
            1007 => "integer[]",
            1009 => "text[]",
            1016 => "bigint[]",
            1021 => "real[]",
            1022 => "double precision[]",
            1028 => "oid[]",
            1043 => "character varying",
            1182 => "date[]",
            1183 => "time without time zone[]",
            1115 => "timestamp without time zone[]",
            1185 => "timestamp with time zone[]",
            1187 => "interval[]",
            1231 => "numeric[]",
            2950 => "uuid",
            _ => "another type",
        }
    }

    /// Returns the object id of a type by its name in messages, or 0.
    pub(crate) fn oid_of(name: &str) -> u32 {
        const ALL: &[PgType] = &[
            PgType::BOOL,
            PgType::BYTEA,
            PgType::INT8,
            PgType::INT2,
            PgType::INT4,
            PgType::TEXT,
            PgType::OID,
            PgType::JSON,
            PgType::FLOAT4,
            PgType::FLOAT8,
            PgType::DATE,
            PgType::TIME,
            PgType::TIMESTAMP,
            PgType::TIMESTAMPTZ,
            PgType::INTERVAL,
            PgType::NUMERIC,
            PgType::JSONB,
        ];
        let (element, is_array) = match name.strip_suffix("[]") {
            Some(element) => (element, true),
            None => (name, false),
        };
        let found = ALL.iter().find(|it| it.name() == element);
        match (found, is_array) {
            (Some(found), false) => found.oid,
            (Some(found), true) => Self::array_of(*found).oid,
            (None, _) if name == "unknown" => Self::UNKNOWN,
            (None, _) => 0,
        }
    }

    /// Returns the engine's type for a declared parameter type, or `None` if the type is
    /// unspecified or unknown.
    pub(crate) fn data_type_of(oid: u32) -> Option<DataType> {
        Some(match oid {
            16 => DataType::Boolean,
            17 => DataType::Binary,
            20 => DataType::Int64,
            21 => DataType::Int16,
            23 => DataType::Int32,
            26 => DataType::UInt32,
            // text, bpchar, varchar, name, json, jsonb, and "char".
            25 | Self::BPCHAR | Self::VARCHAR | Self::NAME | 114 | JSONB | Self::CHAR => {
                DataType::Utf8
            }
            700 => DataType::Float32,
            701 => DataType::Float64,
            1082 => DataType::Date32,
            1083 => DataType::Time64(TimeUnit::Microsecond),
            1114 => DataType::Timestamp(TimeUnit::Microsecond, None),
            1184 => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            1186 => DataType::Interval(IntervalUnit::MonthDayNano),
            1700 => DataType::Decimal128(38, 10),
            // Handled as text internally, and sent as 16 bytes and as an object id.
            UUID | Self::REGCLASS => DataType::Utf8,
            1000 => list_of(DataType::Boolean),
            1005 => list_of(DataType::Int16),
            1007 => list_of(DataType::Int32),
            1016 => list_of(DataType::Int64),
            1009 | 1015 | Self::UUIDS => list_of(DataType::Utf8),
            1001 => list_of(DataType::Binary),
            1183 => list_of(DataType::Time64(TimeUnit::Microsecond)),
            1187 => list_of(DataType::Interval(IntervalUnit::MonthDayNano)),
            1021 => list_of(DataType::Float32),
            1022 => list_of(DataType::Float64),
            1231 => list_of(DataType::Decimal128(38, 10)),
            1182 => list_of(DataType::Date32),
            1115 => list_of(DataType::Timestamp(TimeUnit::Microsecond, None)),
            1185 => list_of(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            _ => return None,
        })
    }
}
