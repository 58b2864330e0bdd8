//! Splits the data of a COPY FROM into rows: text, CSV, or binary.
//!
//! Each byte is scanned once, regardless of message boundaries.

use bytes::{Buf, Bytes, BytesMut};
use live_queries::CopyFormat;

use super::copy_form::{CopyForm, CopyHeader};
use super::types::Format;
use crate::error::{SqlError, SqlState};

/// Maximum bytes of one row, and of buffered data.
const ROW_BYTES_MAX: usize = 64 << 20;

/// Signature of a binary copy.
const BINARY_SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

const BAD_FORMAT: SqlState = SqlState("22P04");

/// The fields of a row, in UTF-8 except in the binary format. `None` is NULL.
pub(crate) type CopiedRow = Vec<Option<Bytes>>;

/// Line terminator. A copy must use a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Newline,
    Return,
    Both,
}

/// End of a line, and the number of bytes before the next line.
#[derive(Clone, Copy, Debug)]
struct Cut {
    end: usize,
    skipped: usize,
    /// True at the end of the data.
    is_last: bool,
}

/// Decoder of a COPY FROM.
#[derive(Debug)]
pub(crate) struct CopyIn {
    form: CopyForm,
    columns: Vec<String>,
    rest: BytesMut,
    /// Number of buffered bytes that were scanned and contain no line end.
    looked_at: usize,
    is_quoted: bool,
    is_behind_escape: bool,
    line_end: Option<LineEnd>,
    /// Line number of the last returned row, from 1.
    line: u64,
    has_header: bool,
    has_ended: bool,
}

impl CopyIn {
    /// Creates a decoder for rows with these columns.
    pub(crate) fn new(form: CopyForm, columns: Vec<String>) -> Self {
        let has_header = form.header != CopyHeader::None;
        Self {
            form,
            columns,
            rest: BytesMut::new(),
            looked_at: 0,
            is_quoted: false,
            is_behind_escape: false,
            line_end: None,
            line: 0,
            has_header,
            has_ended: false,
        }
    }

    /// Returns the format of values.
    pub(crate) fn value_format(&self) -> Format {
        self.form.value_format()
    }

    /// Returns the columns of each row.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the line number of the last row, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Buffers data.
    ///
    /// # Errors
    /// A row is too long.
    pub(crate) fn push(&mut self, bytes: &Bytes) -> Result<(), SqlError> {
        // Ignore everything after the end marker of the text formats.
        if self.has_ended && self.form.format != CopyFormat::Binary {
            return Ok(());
        }
        if self.rest.len() + bytes.len() > ROW_BYTES_MAX {
            let what = format!("COPY row exceeds the limit of {ROW_BYTES_MAX} bytes");
            return Err(SqlError::new(SqlState::TOO_LARGE, what));
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the next row, or `None` if it is incomplete. `is_end` means that no more data
    /// follows.
    pub(crate) fn row(&mut self, is_end: bool) -> Result<Option<CopiedRow>, SqlError> {
        if self.form.format == CopyFormat::Binary {
            return self.binary_row(is_end);
        }
        loop {
            let Some(line) = self.next_line(is_end)? else { return Ok(None) };
            if std::mem::take(&mut self.has_header) {
                if self.form.header == CopyHeader::Match {
                    self.check_header(&line)?;
                }
                continue;
            }
            let row = self.fields(&line)?;
            return match (row.len(), self.columns.len()) {
                (found, wanted) if found > wanted => {
                    Err(bad("extra data after last expected column"))
                }
                (found, wanted) if found < wanted => {
                    Err(bad(format!("missing data for column {:?}", self.columns[found])))
                }
                _ => Ok(Some(row)),
            };
        }
    }

    fn check_header(&self, line: &[u8]) -> Result<(), SqlError> {
        let names = self.fields(line)?;
        if names.len() != self.columns.len() {
            let (found, wanted) = (names.len(), self.columns.len());
            return Err(bad(format!(
                "wrong number of fields in header line: {found}, not {wanted}"
            )));
        }
        for (index, (name, wanted)) in names.iter().zip(&self.columns).enumerate() {
            let name = name.as_deref().unwrap_or(self.form.null.as_bytes());
            if name != wanted.as_bytes() {
                let name = String::from_utf8_lossy(name);
                let what = format!(
                    "column name mismatch in header line field {}: got {name:?}, expected \
                     {wanted:?}",
                    index + 1
                );
                return Err(bad(what));
            }
        }
        Ok(())
    }

    fn binary_row(&mut self, is_end: bool) -> Result<Option<CopiedRow>, SqlError> {
        if self.has_ended {
            return match self.rest.is_empty() {
                true => Ok(None),
                false => Err(bad("received copy data after EOF marker")),
            };
        }
        let mut rest = &self.rest[..];
        let row = match self.line {
            0 => take_start(&mut rest)?.map(|()| None),
            _ => take_row(&mut rest, self.columns.len())?,
        };
        let Some(row) = row else {
            // As in PostgreSQL, the end of the data may take the place of the trailer.
            let is_whole = self.line > 0 && self.rest.is_empty();
            return match is_end && !is_whole {
                true => Err(bad("unexpected EOF in COPY data")),
                false => Ok(None),
            };
        };
        let is_start = self.line == 0;
        let taken = self.rest.len() - rest.len();
        self.rest.advance(taken);
        self.line += 1;
        self.has_ended = row.is_none() && !is_start;
        match row {
            Some(row) => Ok(Some(row)),
            None => self.binary_row(is_end),
        }
    }

    fn next_line(&mut self, is_end: bool) -> Result<Option<Bytes>, SqlError> {
        if self.has_ended {
            return Ok(None);
        }
        let cut = match self.find_cut(is_end)? {
            Some(cut) => cut,
            None if is_end && !self.rest.is_empty() => {
                Cut { end: self.rest.len(), skipped: 0, is_last: true }
            }
            None => return Ok(None),
        };
        self.line += 1;
        let line = self.rest.split_to(cut.end).freeze();
        self.rest.advance(cut.skipped.min(self.rest.len()));
        (self.looked_at, self.is_behind_escape) = (0, false);
        self.has_ended = cut.is_last;
        if cut.is_last {
            self.rest.clear();
            if std::mem::take(&mut self.is_quoted) {
                return Err(bad("unterminated CSV quoted field"));
            }
            // The line consists of the end marker alone.
            if line.is_empty() && cut.skipped > 0 {
                return Ok(None);
            }
        }
        Ok(Some(line))
    }

    /// Finds the end of the first buffered line.
    fn find_cut(&mut self, is_end: bool) -> Result<Option<Cut>, SqlError> {
        let is_csv = self.form.format == CopyFormat::Csv;
        // In most CSV, quote and escape are the same character: a doubled one then closes and
        // reopens the quotes.
        let escape = (self.form.escape != self.form.quote).then_some(self.form.escape);
        while let Some(&byte) = self.rest.get(self.looked_at) {
            let at = self.looked_at;
            let next = self.rest.get(at + 1).copied();
            if next.is_none() && !is_end && matches!(byte, b'\\' | b'\r') {
                return Ok(None);
            }
            if byte == b'\\' && next == Some(b'.') && (!is_csv || at == 0) {
                let behind = self.rest.get(at + 2).copied();
                match behind {
                    None if !is_end => return Ok(None),
                    None | Some(b'\n' | b'\r') => {
                        return Ok(Some(Cut { end: at, skipped: 2, is_last: true }));
                    }
                    Some(_) if !is_csv => return Err(bad("end-of-copy marker corrupt")),
                    Some(_) => {}
                }
            }
            if is_csv {
                if self.is_quoted && escape == Some(byte) {
                    self.is_behind_escape = !self.is_behind_escape;
                }
                if byte == self.form.quote && !self.is_behind_escape {
                    self.is_quoted = !self.is_quoted;
                }
                if escape != Some(byte) {
                    self.is_behind_escape = false;
                }
            } else if byte == b'\\' {
                self.looked_at += 2;
                continue;
            }
            if matches!(byte, b'\n' | b'\r') && !self.is_quoted {
                let length = self.line_end(byte, next)?;
                return Ok(Some(Cut { end: at, skipped: length, is_last: false }));
            }
            self.looked_at += 1;
        }
        Ok(None)
    }

    /// Returns the length of a line terminator.
    fn line_end(&mut self, byte: u8, next: Option<u8>) -> Result<usize, SqlError> {
        let found = match (byte, next) {
            (b'\n', _) => LineEnd::Newline,
            (_, Some(b'\n')) if self.line_end != Some(LineEnd::Return) => LineEnd::Both,
            _ => LineEnd::Return,
        };
        if *self.line_end.get_or_insert(found) != found {
            let (kind, letter) = match byte {
                b'\n' => ("newline", 'n'),
                _ => ("carriage return", 'r'),
            };
            return Err(match self.form.format {
                CopyFormat::Csv => bad(format!("unquoted {kind} found in data"))
                    .with_hint(format!("Use quoted CSV field to represent {kind}.")),
                _ => bad(format!("literal {kind} found in data"))
                    .with_hint(format!("Use \"\\{letter}\" to represent {kind}.")),
            });
        }
        Ok(if found == LineEnd::Both { 2 } else { 1 })
    }

    fn fields(&self, line: &[u8]) -> Result<CopiedRow, SqlError> {
        match self.form.format {
            CopyFormat::Csv => self.csv_fields(line),
            _ => self.text_fields(line),
        }
    }

    fn text_fields(&self, line: &[u8]) -> Result<CopiedRow, SqlError> {
        let mut fields = Vec::with_capacity(self.columns.len());
        let (mut begin, mut at) = (0, 0);
        loop {
            match line.get(at) {
                Some(b'\\') => at = (at + 2).min(line.len()),
                Some(byte) if *byte != self.form.delimiter => at += 1,
                end => {
                    let raw = &line[begin..at];
                    let is_null = raw == self.form.null.as_bytes();
                    fields.push((!is_null).then(|| text(unescaped(raw))).transpose()?);
                    if end.is_none() || fields.len() > self.columns.len() {
                        return Ok(fields);
                    }
                    at += 1;
                    begin = at;
                }
            }
        }
    }

    fn csv_fields(&self, line: &[u8]) -> Result<CopiedRow, SqlError> {
        let CopyForm { delimiter, quote, escape, .. } = self.form;
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut at = 0;
        loop {
            let (begin, mut field, mut was_quoted) = (at, Vec::new(), false);
            let mut is_quoted = false;
            while let Some(&byte) = line.get(at) {
                if !is_quoted && byte == delimiter {
                    break;
                }
                let next = line.get(at + 1);
                let is_escape = is_quoted
                    && byte == escape
                    && next.is_some_and(|it| *it == quote || *it == escape);
                if is_escape {
                    field.extend(next);
                    at += 1;
                } else if byte == quote {
                    (is_quoted, was_quoted) = (!is_quoted, true);
                } else {
                    field.push(byte);
                }
                at += 1;
            }
            let is_null = !was_quoted && line[begin..at] == *self.form.null.as_bytes();
            fields.push((!is_null).then(|| text(field)).transpose()?);
            if at >= line.len() || fields.len() > self.columns.len() {
                return Ok(fields);
            }
            at += 1;
        }
    }
}

fn bad(what: impl Into<String>) -> SqlError {
    SqlError::new(BAD_FORMAT, what)
}

/// Consumes the signature, flags and header extension. Returns `None` if they are incomplete.
fn take_start(rest: &mut &[u8]) -> Result<Option<()>, SqlError> {
    let Some((signature, behind)) = rest.split_at_checked(BINARY_SIGNATURE.len()) else {
        return Ok(None);
    };
    if signature != BINARY_SIGNATURE {
        return Err(bad("COPY file signature not recognized"));
    }
    let mut behind = behind;
    let (Some(flags), Some(length)) = (take_i32(&mut behind), take_i32(&mut behind)) else {
        return Ok(None);
    };
    // The upper 16 bits are critical flags, which a reader must understand.
    if flags >> 16 != 0 {
        return Err(bad("unrecognized critical flags in COPY file header"));
    }
    let length = usize::try_from(length).map_err(|_| bad("invalid COPY file header"))?;
    let Some(behind) = behind.get(length..) else { return Ok(None) };
    *rest = behind;
    Ok(Some(()))
}

/// Consumes a row. Returns `Some(None)` at the trailer, and `None` if the row is incomplete.
fn take_row(rest: &mut &[u8], count: usize) -> Result<Option<Option<CopiedRow>>, SqlError> {
    let Some((found, mut behind)) = rest.split_first_chunk() else { return Ok(None) };
    let found = i16::from_be_bytes(*found);
    if found == -1 {
        *rest = behind;
        return Ok(Some(None));
    }
    if usize::try_from(found) != Ok(count) {
        return Err(bad(format!("row field count is {found}, expected {count}")));
    }
    let mut fields = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(length) = take_i32(&mut behind) else { return Ok(None) };
        let length = match length {
            -1 => {
                fields.push(None);
                continue;
            }
            length => usize::try_from(length).map_err(|_| bad("invalid field size"))?,
        };
        let Some((field, more)) = behind.split_at_checked(length) else { return Ok(None) };
        fields.push(Some(Bytes::copy_from_slice(field)));
        behind = more;
    }
    *rest = behind;
    Ok(Some(Some(fields)))
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (number, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(i32::from_be_bytes(*number))
}

fn text(bytes: Vec<u8>) -> Result<Bytes, SqlError> {
    let wrong = |at: usize, bytes: &[u8]| {
        let byte = bytes.get(at).copied().unwrap_or_default();
        let what = format!("invalid byte sequence for encoding \"UTF8\": 0x{byte:02x}");
        SqlError::new(SqlState::INVALID_ENCODING, what)
    };
    if let Some(at) = memchr::memchr(0, &bytes) {
        return Err(wrong(at, &bytes));
    }
    match std::str::from_utf8(&bytes) {
        Ok(_) => Ok(bytes.into()),
        Err(error) => Err(wrong(error.valid_up_to(), &bytes)),
    }
}

/// Decodes the escapes of a field in the text format.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    /// Parses the leading digits. Returns the number and how many digits it has.
    fn number(digits: &[u8], radix: u32, count_max: usize) -> (u8, usize) {
        let digit = |it: &u8| char::from(*it).to_digit(radix);
        let values: Vec<_> = digits.iter().take(count_max).map_while(digit).collect();
        let number = values.iter().fold(0_u32, |sum, it| sum * radix + it);
        // The largest numbers of three octal digits exceed a byte: the low 8 bits count.
        ((number & 0xFF) as u8, values.len())
    }
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        let Some((&letter, behind)) = behind.split_first().filter(|_| first == b'\\') else {
            bytes.push(first);
            continue;
        };
        rest = behind;
        bytes.push(match letter {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let (byte, count) = number(&raw[raw.len() - behind.len() - 1..], 8, 3);
                rest = &behind[count - 1..];
                byte
            }
            b'x' => match number(behind, 16, 2) {
                (_, 0) => b'x',
                (byte, count) => {
                    rest = &behind[count..];
                    byte
                }
            },
            other => other,
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 2] = ["key", "value"];

    fn rows_of(form: &CopyForm, pieces: &[&[u8]]) -> Result<Vec<CopiedRow>, SqlError> {
        let mut copy = CopyIn::new(form.clone(), COLUMNS.map(str::to_owned).to_vec());
        let mut rows = Vec::new();
        for piece in pieces {
            copy.push(&Bytes::copy_from_slice(piece))?;
            while let Some(row) = copy.row(false)? {
                rows.push(row);
            }
        }
        while let Some(row) = copy.row(true)? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn field(text: &'static [u8]) -> Option<Bytes> {
        Some(Bytes::from_static(text))
    }

    #[test]
    fn rows_are_the_same_however_their_bytes_are_cut() {
        let text = CopyForm::of(CopyFormat::Text);
        let csv = CopyForm { header: CopyHeader::Match, ..CopyForm::of(CopyFormat::Csv) };
        let binary = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01a\xff\xff\xff\xff\xff\xff";
        for (form, bytes, rows) in [
            (
                text,
                &b"a\tx\\ty\\\nz\nb\t\\N\n\\.\nrest"[..],
                vec![vec![field(b"a"), field(b"x\ty\nz")], vec![field(b"b"), None]],
            ),
            (
                csv,
                b"key,value\r\na,\"x\"\"\r\ny\"\r\nb,",
                vec![vec![field(b"a"), field(b"x\"\r\ny")], vec![field(b"b"), None]],
            ),
            (CopyForm::of(CopyFormat::Binary), binary, vec![vec![field(b"a"), None]]),
            // Without the trailer.
            (
                CopyForm::of(CopyFormat::Binary),
                &binary[..binary.len() - 2],
                vec![vec![field(b"a"), None]],
            ),
        ] {
            for cut in 0..=bytes.len() {
                let (left, right) = bytes.split_at(cut);
                let found = rows_of(&form, &[left, right]).expect("good bytes");
                assert_eq!(found, rows, "{form:?} cut at {cut}");
            }
            let single: Vec<_> = bytes.chunks(1).collect();
            assert_eq!(rows_of(&form, &single).expect("good bytes"), rows, "{form:?}");
        }
    }

    #[test]
    fn bad_bytes_are_refused() {
        let binary = CopyForm::of(CopyFormat::Binary);
        for (form, bytes, what) in [
            (&binary, &b"PGCOPY\n\xff\r\n\x01"[..], "signature"),
            (&binary, b"PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0", "flags"),
            (&binary, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01", "field count"),
            (&binary, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0", "EOF"),
            (&binary, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xffx", "after EOF"),
            (&binary, b"", "EOF"),
            (&CopyForm::of(CopyFormat::Text), b"a\tb\\.c\n\\.x\n", "marker"),
            (&CopyForm::of(CopyFormat::Csv), b"a,\"b\n", "unterminated"),
        ] {
            let error = rows_of(form, &[bytes]).expect_err("bad bytes");
            assert_eq!(error.state, BAD_FORMAT, "{error}");
            assert!(error.message.contains(what), "{error} instead of {what}");
        }
    }
}
