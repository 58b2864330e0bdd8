//! Messages from the server.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::datatypes::Schema;

use crate::error::SqlError;
use crate::wire::types::{Format, Formats, PgType};

/// Transaction status in ReadyForQuery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TransactionState {
    #[default]
    Idle,
    Open,
    Failed,
}

impl TransactionState {
    const fn letter(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::Open => b'T',
            Self::Failed => b'E',
        }
    }
}

/// Messages not sent to the client yet.
#[derive(Debug, Default)]
pub(crate) struct Answers(pub(crate) BytesMut);

impl Answers {
    pub(crate) fn authentication_ok(&mut self) {
        self.message(b'R', |out| out.put_i32(0));
    }

    /// AuthenticationSASL: requests a login with one of these SASL mechanisms.
    pub(crate) fn authentication_sasl(&mut self, mechanisms: &[&str]) {
        self.message(b'R', |out| {
            out.put_i32(10);
            mechanisms.iter().for_each(|name| put_text(out, name));
            out.put_u8(0);
        });
    }

    pub(crate) fn authentication_sasl_continue(&mut self, bytes: &[u8]) {
        self.message(b'R', |out| {
            out.put_i32(11);
            out.put_slice(bytes);
        });
    }

    pub(crate) fn authentication_sasl_final(&mut self, bytes: &[u8]) {
        self.message(b'R', |out| {
            out.put_i32(12);
            out.put_slice(bytes);
        });
    }

    /// NegotiateProtocolVersion: only minor version 0 is supported.
    pub(crate) fn negotiate_protocol(&mut self) {
        self.message(b'v', |out| {
            out.put_i32(3 << 16);
            out.put_i32(0);
        });
    }

    pub(crate) fn parameter_status(&mut self, name: &str, value: &str) {
        self.message(b'S', |out| {
            put_text(out, name);
            put_text(out, value);
        });
    }

    pub(crate) fn key_data(&mut self, id: i32, secret: i32) {
        self.message(b'K', |out| {
            out.put_i32(id);
            out.put_i32(secret);
        });
    }

    pub(crate) fn ready(&mut self, state: TransactionState) {
        self.message(b'Z', |out| out.put_u8(state.letter()));
    }

    pub(crate) fn parse_complete(&mut self) {
        self.message(b'1', |_| ());
    }

    pub(crate) fn bind_complete(&mut self) {
        self.message(b'2', |_| ());
    }

    pub(crate) fn close_complete(&mut self) {
        self.message(b'3', |_| ());
    }

    pub(crate) fn no_data(&mut self) {
        self.message(b'n', |_| ());
    }

    pub(crate) fn portal_suspended(&mut self) {
        self.message(b's', |_| ());
    }

    pub(crate) fn empty_query(&mut self) {
        self.message(b'I', |_| ());
    }

    pub(crate) fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |out| put_text(out, tag));
    }

    pub(crate) fn parameter_description(&mut self, types: &[u32]) {
        self.message(b't', |out| {
            put_count(out, types.len());
            types.iter().for_each(|oid| out.put_u32(*oid));
        });
    }

    pub(crate) fn row_description(&mut self, schema: &Schema, formats: &Formats) {
        self.message(b'T', |out| {
            put_count(out, schema.fields().len());
            for (index, field) in schema.fields().iter().enumerate() {
                let (pg_type, modifier) = PgType::described(field);
                put_text(out, field.name());
                // Table OID and column number: none.
                out.put_i32(0);
                out.put_i16(0);
                out.put_u32(pg_type.oid);
                out.put_i16(pg_type.size);
                out.put_i32(modifier);
                out.put_i16(formats.of(index).code());
            }
        });
    }

    pub(crate) fn copy_out(&mut self, column_count: usize, format: Format) {
        self.copy_begins(b'H', column_count, format);
    }

    /// CopyInResponse.
    pub(crate) fn copy_in(&mut self, column_count: usize, format: Format) {
        self.copy_begins(b'G', column_count, format);
    }

    fn copy_begins(&mut self, kind: u8, column_count: usize, format: Format) {
        self.message(kind, |out| {
            out.put_i8(i8::from(format == Format::Binary));
            put_count(out, column_count);
            (0..column_count).for_each(|_| out.put_i16(format.code()));
        });
    }

    pub(crate) fn copy_data(&mut self, fill: impl FnOnce(&mut BytesMut)) {
        self.message(b'd', fill);
    }

    pub(crate) fn copy_done(&mut self) {
        self.message(b'c', |_| ());
    }

    pub(crate) fn error(&mut self, error: &SqlError, severity: &str) {
        self.report(b'E', error, severity);
    }

    pub(crate) fn notice(&mut self, error: &SqlError) {
        self.report(b'N', error, "WARNING");
    }

    fn report(&mut self, kind: u8, error: &SqlError, severity: &str) {
        self.message(kind, |out| {
            let mut field = |code: u8, text: &str| {
                out.put_u8(code);
                put_text(out, text);
            };
            field(b'S', severity);
            field(b'V', severity);
            field(b'C', error.state.0);
            field(b'M', &error.message);
            if let Some(hint) = &error.hint {
                field(b'H', hint);
            }
            if let Some(context) = &error.context {
                field(b'W', context);
            }
            out.put_u8(0);
        });
    }

    fn message(&mut self, kind: u8, fill: impl FnOnce(&mut BytesMut)) {
        put_message(&mut self.0, kind, fill);
    }
}

/// Appends a message: type byte, length, and the body that `fill` appends.
pub(crate) fn put_message(out: &mut BytesMut, kind: u8, fill: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    put_with_length(out, 4, fill);
}

/// Appends a length that includes `own` bytes of itself, and the body that `fill` appends.
pub(crate) fn put_with_length(out: &mut BytesMut, own: usize, fill: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_i32(0);
    fill(out);
    let length = i32::try_from(out.len() - at - 4 + own).expect("messages are bounded");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a zero-terminated text, truncated at the first zero byte.
fn put_text(out: &mut BytesMut, text: &str) {
    let end = text.bytes().position(|byte| byte == 0).unwrap_or(text.len());
    out.put_slice(&text.as_bytes()[..end]);
    out.put_u8(0);
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u16(u16::try_from(count).expect("columns and parameters are bounded"));
}
