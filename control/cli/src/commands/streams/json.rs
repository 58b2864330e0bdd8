//! Records as lines of JSON, for `consume` and `produce`.
//!
//! Keys and values are text. If they are not valid UTF-8, `key_base64` and `value_base64` are used
//! instead.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use kafka_client::{Header, NewRecord, Record};
use serde::{Deserialize, Serialize};

/// A record. `produce` ignores the fields that it does not use.
#[derive(Debug, Default, Serialize, Deserialize)]
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
    #[serde(default)]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<JsonHeader>,
}

#[derive(Debug, Serialize, Deserialize)]
struct JsonHeader {
    name: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
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
            value: value.text,
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
            value: Words { text: self.value, base64: self.value_base64 }.bytes()?,
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
        let read: JsonRecord = serde_json::from_str(&line).expect("its own form");
        assert_eq!(read.partition, Some(1));
        let new = read.into_new(5).expect("a record");
        assert_eq!((new.key, new.value), (record.key, record.value));
        assert_eq!((new.headers, new.timestamp_ms), (record.headers, 1000));
    }

    #[test]
    fn a_record_may_be_little_more_than_a_value() {
        let read: JsonRecord = serde_json::from_str(r#"{"value":"a"}"#).expect("a record");
        let new = read.into_new(5).expect("a record");
        assert_eq!((new.key, new.value, new.timestamp_ms), (None, Some("a".into()), 5));
    }

    #[test]
    fn two_values_in_one_are_refused() {
        for line in [r#"{"value":"a","value_base64":"YQ=="}"#, r#"{"key_base64":"!"}"#] {
            let read: JsonRecord = serde_json::from_str(line).expect("the fields are known");
            read.into_new(5).expect_err(line);
        }
    }
}
