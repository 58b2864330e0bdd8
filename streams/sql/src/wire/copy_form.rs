//! Form of the rows of a copy, in both directions.

use live_queries::CopyFormat;

use super::types::Format;

/// First row of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyHeader {
    None,
    /// It has the names of the columns.
    Names,
    /// The same, and what comes in is refused where they are others.
    Match,
}

/// Form of a copy's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyForm {
    pub(crate) format: CopyFormat,
    pub(crate) header: CopyHeader,
    pub(crate) delimiter: u8,
    /// Text of NULL.
    pub(crate) null: String,
    /// Quotes of CSV.
    pub(crate) quote: u8,
    /// Byte before a quote, and before itself, in quotes of CSV.
    pub(crate) escape: u8,
}

impl CopyForm {
    /// In what format its values are.
    pub(crate) fn value_format(&self) -> Format {
        match self.format {
            CopyFormat::Text | CopyFormat::Csv => Format::Text,
            CopyFormat::Binary => Format::Binary,
        }
    }

    /// The form of a format whose options are not given.
    pub(crate) fn of(format: CopyFormat) -> Self {
        let is_csv = format == CopyFormat::Csv;
        Self {
            format,
            header: CopyHeader::None,
            delimiter: if is_csv { b',' } else { b'\t' },
            null: if is_csv { String::new() } else { "\\N".to_owned() },
            quote: b'"',
            escape: b'"',
        }
    }
}
