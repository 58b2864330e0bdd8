//! Rows of a copy: text, CSV, or binary.

use bytes::{BufMut, BytesMut};
use live_queries::CopyFormat;

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
    let mut value = BytesMut::new();
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
            value.clear();
            let is_there = put(column, &mut value);
            match format {
                CopyFormat::Binary if is_there => {
                    out.put_i32(i32::try_from(value.len()).expect("values are bounded"));
                    out.put_slice(&value);
                }
                CopyFormat::Binary => out.put_i32(-1),
                CopyFormat::Text if is_there => put_escaped(&value, out),
                CopyFormat::Text => out.put_slice(b"\\N"),
                CopyFormat::Csv if is_there => put_quoted(&value, out),
                CopyFormat::Csv => {}
            }
        }
        if format != CopyFormat::Binary {
            out.put_u8(b'\n');
        }
    });
}

fn put_escaped(value: &[u8], out: &mut BytesMut) {
    let mut rest = value;
    while let Some(at) = rest.iter().position(|it| matches!(it, b'\\' | b'\n' | b'\r' | b'\t')) {
        let (plain, special) = rest.split_at(at);
        out.put_slice(plain);
        out.put_slice(match special[0] {
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            _ => b"\\\\",
        });
        rest = &special[1..];
    }
    out.put_slice(rest);
}

/// In quotes where it could be mistaken: an empty text, unlike NULL, and `\.`, the old end.
fn put_quoted(value: &[u8], out: &mut BytesMut) {
    let needs_quotes = value.is_empty()
        || value == b"\\."
        || value.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    if !needs_quotes {
        return out.put_slice(value);
    }
    out.put_u8(b'"');
    for (index, part) in value.split(|it| *it == b'"').enumerate() {
        if index > 0 {
            out.put_slice(b"\"\"");
        }
        out.put_slice(part);
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
