//! SQL types.

use std::fmt;

/// A type of PostgreSQL. `Unknown` is that of a literal whose context determines its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Unknown,
    Bool,
    Int4,
    Int8,
    Numeric,
    Float8,
    Text,
    Bytea,
    Timestamptz,
    Interval,
    Json,
}

impl Type {
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int4 | Self::Int8 | Self::Numeric | Self::Float8)
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int4 | Self::Int8)
    }

    /// Returns the name of the type in PostgreSQL's messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Bool => "boolean",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Numeric => "numeric",
            Self::Float8 => "double precision",
            Self::Text => "text",
            Self::Bytea => "bytea",
            Self::Timestamptz => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Json => "json",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
