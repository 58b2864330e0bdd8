//! Text functions of PostgreSQL that the engine lacks: `format`, `md5`, quoting, LIKE escapes.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ScalarUDF};
use md5::{Digest, Md5};

use super::by_row::{
    Body, RESULT_BYTES_MAX, Returns, Row, function, is_text, text_field, text_value, too_much,
};
use super::patterns::{escape_sign, with_backslashes};
use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, UUID as UUID_OID, described_field};

/// Function that converts the escape character of a LIKE pattern to backslash.
pub(super) const LIKE_ESCAPE: &str = "like_escape";

/// Cast to uuid, whose values are texts in their standard form.
pub(super) const UUID: &str = "uuid";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        ("format", of_format, format_text),
        (LIKE_ESCAPE, of_two_texts, with_escape),
        ("md5", of_bytes, hash),
        ("quote_ident", of_one, |row| {
            Ok(ScalarValue::Utf8(row.output(0)?.map(|it| identifier(&it))))
        }),
        ("quote_literal", of_one, |row| quoted_or(row, None)),
        ("quote_nullable", of_one, |row| quoted_or(row, Some("NULL"))),
    ];
    let all = ALL.iter().map(|(name, returns, body)| function(name, *returns, *body));
    all.chain([uuid_function()]).collect()
}

fn uuid_function() -> Arc<ScalarUDF> {
    function(UUID, of_uuid, |row| {
        Ok(ScalarValue::Utf8(row.text(0).map(standard_uuid).transpose()?))
    })
}

fn of_format(fields: &[FieldRef]) -> Result<Field, String> {
    match fields.first() {
        Some(first) if is_text(first) => Ok(text_field()),
        _ => Err(String::new()),
    }
}

fn of_one(fields: &[FieldRef]) -> Result<Field, String> {
    if fields.len() == 1 { Ok(text_field()) } else { Err(String::new()) }
}

fn of_bytes(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one] if is_text(one) || one.data_type().is_binary() => Ok(text_field()),
        _ => Err(String::new()),
    }
}

fn of_two_texts(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one, other] if is_text(one) && is_text(other) => Ok(text_field()),
        _ => Err(String::new()),
    }
}

/// Casts an expression to uuid.
pub(super) fn uuid(of: Expr) -> Expr {
    uuid_function().call(vec![of])
}

/// Returns whether the values of a field are uuids.
pub(super) fn is_uuid(field: &Field) -> bool {
    PgType::described(field).0.oid == UUID_OID
}

fn of_uuid(fields: &[FieldRef]) -> Result<Field, String> {
    match fields {
        [one] if is_text(one) || one.data_type().is_null() => {
            Ok(described_field(&text_field(), UUID_OID, -1))
        }
        _ => Err(String::new()),
    }
}

/// Returns a uuid in its standard form: lower case, with hyphens after 8, 12, 16 and 20 digits.
pub(super) fn standard_uuid(text: &str) -> Result<String, SqlError> {
    const DIGIT_COUNT: usize = 32;
    let digits = || -> Option<String> {
        let inner = match text.strip_prefix('{') {
            Some(rest) => rest.strip_suffix('}')?,
            None => text,
        };
        let mut digits = String::with_capacity(DIGIT_COUNT);
        let mut is_behind_digit = false;
        for letter in inner.chars() {
            let is_hyphen = letter == '-' && is_behind_digit && digits.len().is_multiple_of(4);
            match letter {
                it if it.is_ascii_hexdigit() => digits.push(it.to_ascii_lowercase()),
                _ if is_hyphen && digits.len() < DIGIT_COUNT => {}
                _ => return None,
            }
            is_behind_digit = !is_hyphen;
        }
        (digits.len() == DIGIT_COUNT).then_some(digits)
    };
    let digits = digits().ok_or_else(|| {
        let what = format!("invalid input syntax for type uuid: {text:?}");
        SqlError::new(SqlState::INVALID_TEXT, what)
    })?;
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|it| &digits[it]);
    Ok(parts.join("-"))
}

fn with_escape(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(pattern), Some(escape)) = (row.text(0), row.text(1)) else {
        return Ok(ScalarValue::Utf8(None));
    };
    let pattern = with_backslashes(pattern, escape_sign(escape)?);
    Ok(ScalarValue::Utf8(Some(pattern)))
}

fn hash(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let bytes = match &row.values[0] {
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes) => bytes.as_deref(),
        _ => row.text(0).map(str::as_bytes),
    };
    let digits = |bytes: &[u8]| {
        Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    Ok(ScalarValue::Utf8(bytes.map(digits)))
}

/// Keywords that are reserved as table or column names, at least in some contexts.
const RESERVED: &str = "\
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit \
    boolean both case cast char character check coalesce collate collation column concurrently \
    constraint create cross current_catalog current_date current_role current_schema \
    current_time current_timestamp current_user dec decimal default deferrable desc distinct do \
    else end except exists extract false fetch float for foreign freeze from full grant greatest \
    group grouping having ilike in initially inner inout int integer intersect interval into is \
    isnull join lateral leading least left like limit localtime localtimestamp national natural \
    nchar none normalize not notnull null nullif numeric offset on only or order out outer \
    overlaps overlay placing position precision primary real references returning right row \
    select session_user setof similar smallint some substring symmetric table tablesample then \
    time timestamp to trailing treat trim true union unique user using values varchar variadic \
    verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest \
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable";

/// Quotes an identifier if necessary.
fn identifier(text: &str) -> String {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
    let is_name = text.bytes().all(is_plain)
        && !text.is_empty()
        && !text.as_bytes()[0].is_ascii_digit()
        && !RESERVED.split_whitespace().any(|it| it == text);
    match is_name {
        true => text.to_owned(),
        false => format!("\"{}\"", text.replace('"', "\"\"")),
    }
}

/// Quotes a text as an SQL literal.
fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!(" E'{}'", doubled.replace('\\', "\\\\")).trim_start().to_owned(),
        false => format!("'{doubled}'"),
    }
}

fn quoted_or(row: &Row<'_>, null: Option<&str>) -> Result<ScalarValue, SqlError> {
    // A boolean is quoted as a word, not in its one-letter output format.
    let text = match row.values.first() {
        Some(ScalarValue::Boolean(Some(it))) => Some(it.to_string()),
        _ => row.output(0)?,
    };
    let text = text.map(|it| literal(&it));
    Ok(ScalarValue::Utf8(text.or_else(|| null.map(str::to_owned))))
}

fn invalid(what: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, what)
}

fn too_few() -> SqlError {
    invalid("too few arguments for format()")
}

/// State of formatting. A format specifier is `%[number$][-][width]letter`.
struct Place<'a> {
    row: &'a Row<'a>,
    /// Index of the last argument used.
    argument: usize,
}

impl Place<'_> {
    /// Returns the index of a numbered argument, or of the next one.
    fn take(&mut self, number: Option<usize>) -> Result<usize, SqlError> {
        let index = number.unwrap_or(self.argument + 1);
        if index == 0 {
            return Err(invalid("format specifies argument 0, but arguments are numbered from 1"));
        }
        if index >= self.row.values.len() {
            return Err(too_few());
        }
        self.argument = index;
        Ok(index)
    }

    fn width(&mut self, number: Option<usize>) -> Result<i64, SqlError> {
        let index = self.take(number)?;
        let text = self.row.output(index)?.unwrap_or_else(|| "0".to_owned());
        text.trim().parse::<i32>().map(i64::from).map_err(|_| {
            let what = format!("invalid input syntax for type integer: {text:?}");
            SqlError::new(SqlState::INVALID_TEXT, what)
        })
    }

    fn shown(&self, index: usize, letter: char) -> Result<String, SqlError> {
        let text = self.row.output(index)?;
        match (letter, text) {
            ('s', text) => Ok(text.unwrap_or_default()),
            ('I', Some(text)) => Ok(identifier(&text)),
            ('I', None) => {
                let what = "null values cannot be formatted as an SQL identifier";
                Err(SqlError::new(SqlState("22004"), what))
            }
            (_, text) => Ok(text.map_or_else(|| "NULL".to_owned(), |it| literal(&it))),
        }
    }
}

fn format_text(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some(pattern) = row.text(0) else { return Ok(ScalarValue::Utf8(None)) };
    let mut place = Place { row, argument: 0 };
    let (mut out, mut rest) = (String::new(), pattern);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        rest = put_argument(&mut place, rest, &mut out)?;
        if out.len() > RESULT_BYTES_MAX {
            return Err(too_much("format"));
        }
    }
    out.push_str(rest);
    Ok(text_value(out))
}

/// Parses leading digits. Returns the number and the rest.
fn digits(text: &str) -> Result<(Option<usize>, &str), SqlError> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Ok((None, rest));
    }
    match digits.parse::<i32>().ok().and_then(|it| usize::try_from(it).ok()) {
        Some(number) => Ok((Some(number), rest)),
        None => Err(SqlError::new(SqlState::OUT_OF_RANGE, "number is out of range")),
    }
}

/// Appends the argument of a specifier, given after its `%`. Returns the rest.
fn put_argument<'a>(
    place: &mut Place<'_>,
    text: &'a str,
    out: &mut String,
) -> Result<&'a str, SqlError> {
    let (first, after) = digits(text)?;
    let (number, mut rest) = match (first, after.strip_prefix('$')) {
        (Some(number), Some(rest)) => (Some(number), rest),
        _ => (None, text),
    };
    let mut is_left = false;
    while let Some(after) = rest.strip_prefix('-') {
        (is_left, rest) = (true, after);
    }
    let mut width = 0;
    if let Some(after) = rest.strip_prefix('*') {
        let (of, behind) = digits(after)?;
        (width, rest) = match (of, behind.strip_prefix('$')) {
            (Some(number), Some(behind)) => (place.width(Some(number))?, behind),
            _ => (place.width(None)?, after),
        };
    } else if let (Some(number), behind) = digits(rest)? {
        (width, rest) = (i64::try_from(number).unwrap_or(i64::MAX), behind);
    }
    let Some(letter) = rest.chars().next() else {
        return Err(invalid("unterminated format() type specifier"));
    };
    if !matches!(letter, 's' | 'I' | 'L') {
        let what = format!("unrecognized format() type specifier {letter:?}");
        return Err(invalid(what));
    }
    let index = place.take(number)?;
    let shown = place.shown(index, letter)?;
    is_left |= width < 0;
    let width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
    let missing = width.saturating_sub(shown.chars().count());
    if missing > RESULT_BYTES_MAX {
        return Err(too_much("format"));
    }
    let blanks = " ".repeat(missing);
    match is_left {
        true => out.extend([shown.as_str(), &blanks]),
        false => out.extend([blanks.as_str(), &shown]),
    }
    Ok(&rest[letter.len_utf8()..])
}
