//! Rows of a copy: text, CSV, or binary.

use bytes::{BufMut, BytesMut};
use live_queries::CopyFormat;
use memchr::{memchr, memchr3};

use super::answers::Answers;
use super::types::Format;

/// What a binary copy begins with: a signature, no flags, and nothing more.
const BINARY_START: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// A copy that goes out.
#[derive(Debug)]
pub(crate) struct CopyOut {
    format: CopyFormat,
    /// What stands before the first row, in one message with it: clients look for it there.
    start: &'static [u8],
}

impl CopyOut {
    /// Says that a copy comes.
    pub(crate) fn begin(answers: &mut Answers, column_count: usize, format: CopyFormat) -> Self {
        let start = if format == CopyFormat::Binary { BINARY_START } else { &[] };
        let copy = Self { format, start };
        answers.copy_out(column_count, copy.value_format());
        copy
    }

    /// In what format its values are.
    pub(crate) fn value_format(&self) -> Format {
        match self.format {
            CopyFormat::Text | CopyFormat::Csv => Format::Text,
            CopyFormat::Binary => Format::Binary,
        }
    }

    /// Says that it is over.
    pub(crate) fn end(mut self, answers: &mut Answers) {
        if self.format == CopyFormat::Binary {
            let start = std::mem::take(&mut self.start);
            answers.copy_data(|out| {
                out.put_slice(start);
                out.put_i16(-1);
            });
        }
        answers.copy_done();
    }
}

/// Appends a row; `put` appends the value of a column, or says that it is NULL by `false`.
pub(crate) fn put_copy_row(
    answers: &mut Answers,
    column_count: usize,
    copy: &mut CopyOut,
    put: &dyn Fn(usize, &mut BytesMut) -> bool,
) {
    let (format, start) = (copy.format, std::mem::take(&mut copy.start));
    answers.copy_data(|out| {
        out.put_slice(start);
        if format == CopyFormat::Binary {
            out.put_u16(u16::try_from(column_count).expect("columns are bounded"));
        }
        for column in 0..column_count {
            if column > 0 && format != CopyFormat::Binary {
                out.put_u8(if format == CopyFormat::Csv { b',' } else { b'\t' });
            }
            match format {
                CopyFormat::Binary => put_binary(column, put, out),
                CopyFormat::Text => {
                    let begin = out.len();
                    match put(column, out) {
                        true => escape(out, begin),
                        false => out.put_slice(b"\\N"),
                    }
                }
                CopyFormat::Csv => {
                    let begin = out.len();
                    if put(column, out) {
                        quote(out, begin);
                    }
                }
            }
        }
        if format != CopyFormat::Binary {
            out.put_u8(b'\n');
        }
    });
}

/// A value behind its length, which is -1 for NULL.
fn put_binary(column: usize, put: &dyn Fn(usize, &mut BytesMut) -> bool, out: &mut BytesMut) {
    let begin = out.len();
    out.put_i32(-1);
    if put(column, out) {
        let length = i32::try_from(out.len() - begin - 4).expect("values are bounded");
        out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// Escapes the value that begins at `begin` and ends `out`.
fn escape(out: &mut BytesMut, begin: usize) {
    let value = &out[begin..];
    if memchr3(b'\\', b'\n', b'\r', value).is_none() && memchr(b'\t', value).is_none() {
        return;
    }
    let value = out[begin..].to_vec();
    out.truncate(begin);
    for &byte in &value {
        match byte {
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            b'\\' => out.put_slice(b"\\\\"),
            plain => out.put_u8(plain),
        }
    }
}

/// Puts the value that begins at `begin` and ends `out` in quotes where it could be mistaken: an
/// empty text, unlike NULL, and `\.`, the old end.
fn quote(out: &mut BytesMut, begin: usize) {
    let value = &out[begin..];
    let needs_quotes = value.is_empty()
        || value == b"\\."
        || memchr3(b',', b'"', b'\n', value).is_some()
        || memchr(b'\r', value).is_some();
    if !needs_quotes {
        return;
    }
    let value = out[begin..].to_vec();
    out.truncate(begin);
    out.put_u8(b'"');
    for &byte in &value {
        if byte == b'"' {
            out.put_u8(b'"');
        }
        out.put_u8(byte);
    }
    out.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: CopyFormat, values: &[Option<&str>], expected: &[u8]) {
        let mut answers = Answers::default();
        let mut copy = CopyOut { format, start: &[] };
        put_copy_row(&mut answers, values.len(), &mut copy, &|column, out| {
            values[column].inspect(|it| out.put_slice(it.as_bytes())).is_some()
        });
        // Kind and length.
        assert_eq!(&answers.0[5..], expected);
    }

    #[test]
    fn values_are_escaped_as_their_format_asks() {
        let values = [Some("a"), None, Some(""), Some("b\tc\\"), Some("\"d\",\n")];
        check(CopyFormat::Text, &values, b"a\t\\N\t\tb\\tc\\\\\t\"d\",\\n\n");
        check(CopyFormat::Csv, &values, b"a,,\"\",b\tc\\,\"\"\"d\"\",\n\"\n");
        check(CopyFormat::Binary, &[Some("a"), None], b"\0\x02\0\0\0\x01a\xff\xff\xff\xff");
    }
}
