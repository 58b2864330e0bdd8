//! Encoding of COPY TO rows: text, CSV, or binary.

use bytes::{BufMut, BytesMut};
use live_queries::CopyFormat;

use super::answers::Answers;
use super::copy_form::{CopyForm, CopyHeader};
use super::numbers::IntervalStyle;
use super::types::Format;

/// Header of a binary copy: signature, no flags, no extension.
const BINARY_START: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Encoder of a COPY TO.
#[derive(Debug)]
pub(crate) struct CopyOut {
    form: CopyForm,
    intervals: IntervalStyle,
    /// Bytes sent in one message with the first row, where clients expect them.
    start: &'static [u8],
}

impl CopyOut {
    /// Starts a COPY TO with these column names.
    pub(crate) fn begin(
        answers: &mut Answers,
        names: &[&str],
        (form, intervals): (CopyForm, IntervalStyle),
    ) -> Self {
        let start = if form.format == CopyFormat::Binary { BINARY_START } else { &[] };
        let has_header = form.header != CopyHeader::None;
        let mut copy = Self { form, intervals, start };
        answers.copy_out(names.len(), copy.value_format());
        if has_header {
            put_copy_row(answers, names.len(), &mut copy, &|column, out| {
                out.put_slice(names[column].as_bytes());
                true
            });
        }
        copy
    }

    /// Returns the format of values.
    pub(crate) fn value_format(&self) -> Format {
        self.form.value_format().in_style(self.intervals)
    }

    /// Ends the COPY TO.
    pub(crate) fn end(mut self, answers: &mut Answers) {
        if self.form.format == CopyFormat::Binary {
            let start = std::mem::take(&mut self.start);
            answers.copy_data(|out| {
                out.put_slice(start);
                out.put_i16(-1);
            });
        }
        answers.copy_done();
    }
}

/// Appends a row. `put` appends the value of a column, or returns `false` for NULL.
pub(crate) fn put_copy_row(
    answers: &mut Answers,
    column_count: usize,
    copy: &mut CopyOut,
    put: &dyn Fn(usize, &mut BytesMut) -> bool,
) {
    let start = std::mem::take(&mut copy.start);
    let form = &copy.form;
    answers.copy_data(|out| {
        out.put_slice(start);
        if form.format == CopyFormat::Binary {
            out.put_u16(u16::try_from(column_count).expect("columns are bounded"));
            return (0..column_count).for_each(|column| put_binary(column, put, out));
        }
        for column in 0..column_count {
            if column > 0 {
                out.put_u8(form.delimiter);
            }
            let begin = out.len();
            match (put(column, out), form.format) {
                (false, _) => out.put_slice(form.null.as_bytes()),
                (true, CopyFormat::Csv) => quote(out, begin, (form, column_count)),
                (true, _) => escape(out, begin, form.delimiter),
            }
        }
        out.put_u8(b'\n');
    });
}

/// Appends a value after its length, which is -1 for NULL.
fn put_binary(column: usize, put: &dyn Fn(usize, &mut BytesMut) -> bool, out: &mut BytesMut) {
    let begin = out.len();
    out.put_i32(-1);
    if put(column, out) {
        let length = i32::try_from(out.len() - begin - 4).expect("values are bounded");
        out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// Returns whether a byte is escaped by a backslash in the text format.
const fn is_escaped(byte: u8, delimiter: u8) -> bool {
    // \b, \t, \n, \v, \f and \r are the bytes 8 to 13.
    matches!(byte, 8..=13) || byte == b'\\' || byte == delimiter
}

/// Escapes the value that starts at `begin` in `out`.
fn escape(out: &mut BytesMut, begin: usize, delimiter: u8) {
    let value = &out[begin..];
    // No early exit, so that the loop is vectorized.
    if !value.iter().fold(false, |found, &it| found | is_escaped(it, delimiter)) {
        return;
    }
    let value = value.to_vec();
    out.truncate(begin);
    for &byte in &value {
        if is_escaped(byte, delimiter) {
            out.put_u8(b'\\');
        }
        out.put_u8(match byte {
            8..=13 if byte != delimiter => b"btnvfr"[usize::from(byte - 8)],
            // A tab as the delimiter is escaped by its letter too.
            b'\t' => b't',
            plain => plain,
        });
    }
}

/// Quotes the value that starts at `begin` in `out` if it is ambiguous: it contains special
/// characters, equals the text of NULL, or, as the only column, is the end marker `\.`.
fn quote(out: &mut BytesMut, begin: usize, (form, column_count): (&CopyForm, usize)) {
    let value = &out[begin..];
    let is_special =
        |it: u8| matches!(it, b'\n' | b'\r') || it == form.delimiter || it == form.quote;
    let needs_quotes = value == form.null.as_bytes()
        || column_count == 1 && value == b"\\."
        || value.iter().fold(false, |found, &it| found | is_special(it));
    if !needs_quotes {
        return;
    }
    let value = value.to_vec();
    out.truncate(begin);
    out.put_u8(form.quote);
    for &byte in &value {
        if byte == form.quote || byte == form.escape {
            out.put_u8(form.escape);
        }
        out.put_u8(byte);
    }
    out.put_u8(form.quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(form: &CopyForm, values: &[Option<&str>], expected: &[u8]) {
        let mut answers = Answers::default();
        let mut copy =
            CopyOut { form: form.clone(), intervals: IntervalStyle::Postgres, start: &[] };
        put_copy_row(&mut answers, values.len(), &mut copy, &|column, out| {
            values[column].inspect(|it| out.put_slice(it.as_bytes())).is_some()
        });
        // Skip message type and length.
        assert_eq!(&answers.0[5..], expected);
    }

    #[test]
    fn values_are_escaped_as_their_format_asks() {
        let of = CopyForm::of;
        let values = [Some("a"), None, Some(""), Some("b\tc\\"), Some("\"d\",\n")];
        check(&of(CopyFormat::Text), &values, b"a\t\\N\t\tb\\tc\\\\\t\"d\",\\n\n");
        check(&of(CopyFormat::Csv), &values, b"a,,\"\",b\tc\\,\"\"\"d\"\",\n\"\n");
        check(&of(CopyFormat::Binary), &[Some("a"), None], b"\0\x02\0\0\0\x01a\xff\xff\xff\xff");
        let odd = [Some("\u{8}\u{b}\u{c}\r\u{1}")];
        check(&of(CopyFormat::Text), &odd, b"\\b\\v\\f\\r\x01\n");
        check(&of(CopyFormat::Csv), &[Some("\\.")], b"\"\\.\"\n");
        check(&of(CopyFormat::Csv), &[Some("\\."), None], b"\\.,\n");
    }

    #[test]
    fn options_change_what_is_escaped() {
        let semicolons =
            CopyForm { delimiter: b';', null: "-".to_owned(), ..CopyForm::of(CopyFormat::Text) };
        check(&semicolons, &[Some("a;b\tc"), None], b"a\\;b\\tc;-\n");
        let csv = CopyForm {
            delimiter: b';',
            null: "NULL".to_owned(),
            quote: b'\'',
            escape: b'\\',
            ..CopyForm::of(CopyFormat::Csv)
        };
        let values = [Some("it's\\"), Some("NULL"), None, Some("a;b"), Some("a,b"), Some("")];
        check(&csv, &values, b"'it\\'s\\\\';'NULL';NULL;'a;b';a,b;\n");
    }

    #[test]
    fn a_header_has_the_names_of_the_columns() {
        let form = CopyForm { header: CopyHeader::Names, ..CopyForm::of(CopyFormat::Csv) };
        let mut answers = Answers::default();
        CopyOut::begin(&mut answers, &["key", "a,b"], (form, IntervalStyle::Postgres));
        assert!(answers.0.ends_with(b"key,\"a,b\"\n"), "{answers:?}");
    }
}
