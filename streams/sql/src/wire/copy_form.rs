//! Options of a COPY's format, for both directions.

use live_queries::CopyFormat;

use super::types::Format;

/// Header line of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyHeader {
    None,
    /// Column names.
    Names,
    /// Column names, which are verified on input.
    Match,
}

/// Format options of a COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyForm {
    pub(crate) format: CopyFormat,
    pub(crate) header: CopyHeader,
    pub(crate) delimiter: u8,
    /// Text of NULL.
    pub(crate) null: String,
    /// Quote character of CSV.
    pub(crate) quote: u8,
    /// Character before a quote character, or before itself, within quoted CSV values.
    pub(crate) escape: u8,
}

impl CopyForm {
    /// Returns the format of values.
    pub(crate) fn value_format(&self) -> Format {
        match self.format {
            CopyFormat::Text | CopyFormat::Csv => Format::TEXT,
            CopyFormat::Binary => Format::Binary,
        }
    }

    /// Returns a format with default options.
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
