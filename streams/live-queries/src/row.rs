//! Record and row types on which expressions are evaluated.

use std::borrow::Cow;
use std::str;

use crate::error::RowError;
use crate::json::{self, Fields, PathId, Paths};
use crate::scalar::Value;

/// A record of a topic, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub partition: i32,
    pub offset: i64,
    /// Unix milliseconds.
    pub timestamp_ms: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

/// A header of a record.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    pub name: &'a str,
    pub value: Option<&'a [u8]>,
}

/// A record with the positions of requested JSON values.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub(crate) record: Record<'a>,
    /// The value as text, if it is JSON and any path is requested.
    json: Option<&'a str>,
    fields: &'a Fields,
    /// Results that expressions above aggregates refer to.
    results: &'a [Value<'static>],
    /// The joined row.
    joined: Option<&'a Row<'a>>,
}

impl<'a> Row<'a> {
    /// Reads the values of `paths` in `record`. `fields` is a buffer of the caller.
    pub fn read(record: Record<'a>, paths: &Paths, fields: &'a mut Fields) -> Self {
        let json = paths.read(record.value.unwrap_or_default(), fields);
        Self { record, json, fields, results: &[], joined: None }
    }

    /// Returns the row with a joined row.
    pub fn with_joined(self, joined: Option<&'a Row<'a>>) -> Self {
        Self { joined, ..self }
    }

    pub fn record(&self) -> &Record<'a> {
        &self.record
    }

    /// Returns the record's value as text.
    pub(crate) fn value_text(&self) -> Result<Value<'a>, RowError> {
        match self.json {
            // Already validated as UTF-8.
            Some(text) => Ok(Value::Text(Cow::Borrowed(text))),
            None => text_of(self.record.value),
        }
    }

    pub(crate) fn joined(&self) -> Option<&'a Row<'a>> {
        self.joined
    }

    /// Creates a row that only has results: keys and aggregates of a group.
    pub(crate) fn of_results(results: &'a [Value<'static>], fields: &'a Fields) -> Self {
        let record = Record {
            partition: 0,
            offset: 0,
            timestamp_ms: 0,
            key: None,
            value: None,
            headers: &[],
        };
        Self { record, json: None, fields, results, joined: None }
    }

    pub(crate) fn result(&self, index: usize) -> Value<'a> {
        self.results[index].borrowed()
    }

    /// Returns the JSON at `path`, as written.
    pub(crate) fn field(&self, path: PathId) -> Option<&'a str> {
        self.fields.get(path, self.json?)
    }

    /// Returns the last header with this name.
    pub(crate) fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.record.headers.iter().rev().find(|it| it.name == name)?.value
    }

    /// Returns all headers as a JSON object with string values, including duplicate names; NULL
    /// without headers.
    pub(crate) fn headers_json(&self) -> Result<Value<'a>, RowError> {
        if self.record.headers.is_empty() {
            return Ok(Value::Null);
        }
        let mut text = String::from("{");
        for (index, header) in self.record.headers.iter().enumerate() {
            if index > 0 {
                text.push_str(", ");
            }
            json::quote(header.name, &mut text);
            text.push_str(": ");
            match header.value {
                Some(value) => {
                    json::quote(str::from_utf8(value).map_err(|_| RowError::NotText)?, &mut text);
                }
                None => text.push_str("null"),
            }
        }
        text.push('}');
        Ok(Value::Json(Cow::Owned(text)))
    }
}

/// Converts bytes of a record to text; absent ones to NULL.
pub(crate) fn text_of(bytes: Option<&[u8]>) -> Result<Value<'_>, RowError> {
    match bytes.map(str::from_utf8) {
        None => Ok(Value::Null),
        Some(Ok(text)) => Ok(Value::Text(Cow::Borrowed(text))),
        Some(Err(_)) => Err(RowError::NotText),
    }
}
