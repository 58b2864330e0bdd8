//! Records as lines of JSON, for `consume` and `produce`.
//!
//! Keys and values are text. If they are not valid UTF-8, `key_base64` and `value_base64` are used
//! instead.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use kafka_client::{Header, NewRecord, Record};
use serde::{Deserialize, Deserializer, Serialize};

/// A record. `produce` ignores the fields of `consume` that it does not use, and refuses others: a
/// misspelt one would be a record without a value, which deletes those of its key.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) partition: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp_ms: Option<i64>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// `None`: the field is missing.
    #[serde(default, deserialize_with = "present")]
    value: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<JsonHeader>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonHeader {
    name: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// Reads a field that is there, also `null`.
fn present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// Text, or other bytes in Base64.
#[derive(Default)]
struct Words {
    text: Option<String>,
    base64: Option<String>,
}

impl Words {
    fn of(bytes: Option<&Bytes>) -> Self {
        let Some(bytes) = bytes else { return Self::default() };
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { text: Some(text.to_owned()), base64: None },
            Err(_) => Self { text: None, base64: Some(BASE64.encode(bytes)) },
        }
    }

    fn bytes(self) -> Result<Option<Bytes>, String> {
        match (self.text, self.base64) {
            (Some(_), Some(_)) => {
                Err("a key or value has both text and base64; use one of them".to_owned())
            }
            (Some(text), None) => Ok(Some(text.into())),
            (None, Some(base64)) => {
                let bytes =
                    BASE64.decode(base64).map_err(|error| format!("invalid base64: {error}"))?;
                Ok(Some(bytes.into()))
            }
            (None, None) => Ok(None),
        }
    }
}

impl JsonRecord {
    /// Parses a line.
    pub(super) fn read(line: &[u8]) -> Result<Self, String> {
        if !line.trim_ascii_start().starts_with(b"{") {
            return Err("it is not a JSON object".to_owned());
        }
        let read = serde_json::from_slice(line);
        let record: Self = read.map_err(|error| {
            // The line of the input is reported by the caller.
            error.to_string().replace(" at line 1 column ", " at column ")
        })?;
        if record.value.is_none() && record.value_base64.is_none() {
            return Err("the field value is missing; null is a record without a value".to_owned());
        }
        Ok(record)
    }

    pub(super) fn of(topic: &str, partition: i32, record: &Record) -> Self {
        let key = Words::of(record.key.as_ref());
        let value = Words::of(record.value.as_ref());
        let header = |it: &Header| {
            let value = Words::of(it.value.as_ref());
            JsonHeader { name: it.name.clone(), value: value.text, value_base64: value.base64 }
        };
        Self {
            topic: Some(topic.to_owned()),
            partition: Some(partition),
            offset: Some(record.offset),
            timestamp_ms: Some(record.timestamp_ms),
            key: key.text,
            key_base64: key.base64,
            value: Some(value.text),
            value_base64: value.base64,
            headers: record.headers.iter().map(header).collect(),
        }
    }

    /// Converts to a record to produce, with timestamp `now_ms` if it has none.
    pub(super) fn into_new(self, now_ms: i64) -> Result<NewRecord, String> {
        let header = |it: JsonHeader| {
            let value = Words { text: it.value, base64: it.value_base64 }.bytes()?;
            Ok::<_, String>(Header { name: it.name, value })
        };
        Ok(NewRecord {
            key: Words { text: self.key, base64: self.key_base64 }.bytes()?,
            value: Words { text: self.value.flatten(), base64: self.value_base64 }.bytes()?,
            headers: self.headers.into_iter().map(header).collect::<Result<_, _>>()?,
            timestamp_ms: self.timestamp_ms.unwrap_or(now_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_consume_prints_produce_reads() {
        let record = Record {
            offset: 7,
            timestamp_ms: 1000,
            key: Some(Bytes::from_static(b"\xFF\0")),
            value: Some("text".into()),
            headers: vec![Header { name: "h".to_owned(), value: None }],
        };
        let line = serde_json::to_string(&JsonRecord::of("t", 1, &record)).expect("plain data");
        let read = JsonRecord::read(line.as_bytes()).expect("its own form");
        assert_eq!(read.partition, Some(1));
        let new = read.into_new(5).expect("a record");
        assert_eq!((new.key, new.value), (record.key, record.value));
        assert_eq!((new.headers, new.timestamp_ms), (record.headers, 1000));
    }

    #[test]
    fn a_record_may_be_little_more_than_a_value() {
        let read = JsonRecord::read(br#"{"value":"a"}"#).expect("a record");
        let new = read.into_new(5).expect("a record");
        assert_eq!((new.key, new.value, new.timestamp_ms), (None, Some("a".into()), 5));
    }

    #[test]
    fn two_values_in_one_are_refused() {
        for line in [r#"{"value":"a","value_base64":"YQ=="}"#, r#"{"value":"a","key_base64":"!"}"#]
        {
            let read = JsonRecord::read(line.as_bytes()).expect("the fields are known");
            read.into_new(5).expect_err(line);
        }
    }

    #[test]
    fn a_line_that_is_no_record_says_why() {
        for (line, why) in [
            (r#"{"key":"k"}"#, "the field value is missing; null is a record without a value"),
            (r#"{"vlaue":"a"}"#, "unknown field `vlaue`"),
            (r#"{"value":"a","timestamp":1}"#, "unknown field `timestamp`"),
            (r#"{"value":"a","headers":[{"name":"h","text":"a"}]}"#, "unknown field `text`"),
            (r#"{"value":"a","value":"b"}"#, "duplicate field `value` at column 20"),
            (r#"["t",0,1,2,"k"]"#, "it is not a JSON object"),
            ("a", "it is not a JSON object"),
            ("", "it is not a JSON object"),
        ] {
            let error = JsonRecord::read(line.as_bytes()).expect_err(line);
            assert!(error.starts_with(why), "{line}: {error}");
        }
        let empty = JsonRecord::read(br#" {"value":null}"#).expect("it has no value");
        assert_eq!(empty.into_new(5).expect("a record").value, None);
    }
}
