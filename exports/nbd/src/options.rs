//! Parsing of option payloads, and encoding of option replies.

use crate::buffer::Output;
use crate::exports::ExportInfo;
use crate::wire::{OPTION_REPLY_MAGIC, Reader, STRING_BYTES_MAX, cut, info, reply};

/// Payload of `INFO` and `GO`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExportQuery<'payload> {
    pub(crate) name: &'payload str,
    /// Optional information that the client requested.
    pub(crate) wants: Wants,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) name: bool,
    pub(crate) description: bool,
    pub(crate) block_size: bool,
}

impl<'payload> ExportQuery<'payload> {
    /// Returns `None` if the payload is malformed.
    pub(crate) fn parse(payload: &'payload [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let name = reader.string()?;
        let mut wants = Wants::default();
        for _ in 0..reader.u16()? {
            match reader.u16()? {
                info::NAME => wants.name = true,
                info::DESCRIPTION => wants.description = true,
                info::BLOCK_SIZE => wants.block_size = true,
                _ => {}
            }
        }
        reader.is_empty().then_some(Self { name, wants })
    }
}

/// Payload of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContextQuery<'payload> {
    pub(crate) export_name: &'payload str,
    pub(crate) queries: Vec<&'payload str>,
}

impl<'payload> ContextQuery<'payload> {
    /// Returns `None` if the payload is malformed.
    pub(crate) fn parse(payload: &'payload [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let export_name = reader.string()?;
        let mut queries = Vec::new();
        for _ in 0..reader.u32()? {
            queries.push(reader.string()?);
        }
        reader.is_empty().then_some(Self { export_name, queries })
    }
}

/// Writes one reply to `option`. Its payload is the concatenation of `parts`.
pub(crate) fn put_reply(option: u32, kind: u32, parts: &[&[u8]], output: &mut Output) {
    let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
    let payload_bytes = u32::try_from(payload_bytes).expect("replies fit the output");
    output.put(&OPTION_REPLY_MAGIC.to_be_bytes());
    output.put(&option.to_be_bytes());
    output.put(&kind.to_be_bytes());
    output.put(&payload_bytes.to_be_bytes());
    for part in parts {
        output.put(part);
    }
}

/// Writes one entry of the reply to `LIST`, cut to the protocol's limit. An export whose name
/// exceeds the limit cannot be selected and is left out.
pub(crate) fn put_list_entry(option: u32, export: &ExportInfo, output: &mut Output) {
    if export.name.len() > STRING_BYTES_MAX {
        return;
    }
    let name_bytes = u32::try_from(export.name.len()).expect("checked above");
    let description = cut(&export.description, STRING_BYTES_MAX);
    let parts = [&name_bytes.to_be_bytes()[..], export.name.as_bytes(), description.as_bytes()];
    put_reply(option, reply::SERVER, &parts, output);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_query_names_an_export_and_facts() {
        assert_eq!(
            ExportQuery::parse(b"\0\0\0\x02ab\0\x03\0\x01\0\x03\x77\x77"),
            Some(ExportQuery {
                name: "ab",
                wants: Wants { name: true, description: false, block_size: true },
            })
        );
    }

    #[test]
    fn malformed_export_queries_are_refused() {
        for payload in [
            &b""[..],
            b"\0\0\0\x05ab\0\0",
            b"\0\0\0\x02ab",
            b"\0\0\0\x02ab\0\x01",
            b"\0\0\0\x02ab\0\0x",
            b"\0\0\0\x01\xff\0\0",
        ] {
            assert_eq!(ExportQuery::parse(payload), None, "{payload:?}");
        }
    }

    #[test]
    fn a_context_query_names_an_export_and_contexts() {
        assert_eq!(
            ContextQuery::parse(b"\0\0\0\x01v\0\0\0\x02\0\0\0\x05base:\0\0\0\0"),
            Some(ContextQuery { export_name: "v", queries: vec!["base:", ""] })
        );
    }

    #[test]
    fn malformed_context_queries_are_refused() {
        for payload in [
            &b""[..],
            b"\0\0\0\x01v",
            b"\0\0\0\x01v\0\0\0\x01",
            b"\0\0\0\x01v\0\0\0\x01\0\0\0\x09base:",
            b"\0\0\0\x01v\xff\xff\xff\xff",
            b"\0\0\0\x01v\0\0\0\0x",
        ] {
            assert_eq!(ContextQuery::parse(payload), None, "{payload:?}");
        }
    }
}
