//! `jsonb`: JSON in PostgreSQL's canonical form, with unique keys in order, numbers as numerics,
//! and standard white space.

use std::collections::BTreeMap;
use std::fmt::Write;

use live_queries::{find_json, scalar_text};

use crate::error::{SqlError, SqlState};

/// Maximum number of zeros from expanding an exponent.
const ZERO_COUNT_MAX: usize = 1_000;

/// Rejects invalid JSON.
pub(super) fn check(text: &str) -> Result<(), SqlError> {
    match find_json(text, &[]) {
        Some(_) => Ok(()),
        None => {
            let shown: String = text.chars().take(60).collect();
            let what = format!("invalid input syntax for type json: {shown:?}");
            Err(SqlError::new(SqlState::INVALID_TEXT, what))
        }
    }
}

/// Validates JSON and formats it as jsonb.
pub(super) fn canonical(text: &str) -> Result<String, SqlError> {
    check(text)?;
    written(text)
}

/// Formats valid JSON as jsonb.
pub(super) fn written(text: &str) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len());
    let rest = value(text, &mut out)?;
    debug_assert!(rest.trim().is_empty(), "JSON is one value");
    Ok(out)
}

/// Formats the value at the start of a valid text. Returns the rest. The nesting depth was checked
/// by the validation.
fn value<'a>(text: &'a str, out: &mut String) -> Result<&'a str, SqlError> {
    let text = text.trim_start();
    match text.as_bytes().first() {
        Some(b'{') => object(text[1..].trim_start(), out),
        Some(b'[') => array(text[1..].trim_start(), out),
        Some(b'"') => {
            let (raw, rest) = string(text);
            put_string(&unescaped(raw)?, out);
            Ok(rest)
        }
        _ => {
            let ends = |it: char| matches!(it, ',' | ']' | '}') || it.is_ascii_whitespace();
            let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
            match word {
                "true" | "false" | "null" => out.push_str(word),
                number => put_number(number, out)?,
            }
            Ok(rest)
        }
    }
}

fn array<'a>(mut rest: &'a str, out: &mut String) -> Result<&'a str, SqlError> {
    out.push('[');
    let mut is_first = true;
    while !rest.starts_with(']') {
        rest = rest.strip_prefix(',').unwrap_or(rest);
        if !is_first {
            out.push_str(", ");
        }
        is_first = false;
        rest = value(rest, out)?.trim_start();
    }
    out.push(']');
    Ok(&rest[1..])
}

fn object<'a>(mut rest: &'a str, out: &mut String) -> Result<&'a str, SqlError> {
    // Keys are sorted by length first. Of duplicates, the last one counts.
    let mut members: BTreeMap<(usize, String), String> = BTreeMap::new();
    while !rest.starts_with('}') {
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        let (raw, behind) = string(rest);
        let key = unescaped(raw)?;
        let behind = behind.trim_start();
        let mut member = String::new();
        rest = value(behind.strip_prefix(':').unwrap_or(behind), &mut member)?.trim_start();
        members.insert((key.len(), key), member);
    }
    out.push('{');
    for (index, ((_, key), member)) in members.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        put_string(key, out);
        out.push_str(": ");
        out.push_str(member);
    }
    out.push('}');
    Ok(&rest[1..])
}

/// Splits off the string at the start of a text, including its quotes.
fn string(text: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|it| {
        let is_end = it == b'"' && !is_escaped;
        is_escaped = it == b'\\' && !is_escaped;
        is_end
    });
    text.split_at(end.map_or(text.len(), |it| it + 2))
}

/// Decodes a JSON string, including its quotes.
///
/// # Errors
/// It contains an escape that is not representable as text.
pub(super) fn unescaped(raw: &str) -> Result<String, SqlError> {
    let text = scalar_text(raw).map_err(|_| SqlError::untranslatable())?;
    Ok(text.unwrap_or_default().into_owned())
}

/// Appends a text as a JSON string in PostgreSQL's format.
pub(super) fn put_string(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            it if it < ' ' => {
                write!(out, "\\u{:04x}", u32::from(it)).expect("memory takes all");
            }
            it => out.push(it),
        }
    }
    out.push('"');
}

/// Appends a number in the format of numeric, without an exponent.
fn put_number(text: &str, out: &mut String) -> Result<(), SqlError> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent = exponent.trim_start_matches('+').parse::<i64>().ok();
    let zeros = exponent.and_then(|it| usize::try_from(it.unsigned_abs()).ok());
    let (Some(exponent), Some(zeros)) = (exponent, zeros.filter(|it| *it <= ZERO_COUNT_MAX)) else {
        return Err(SqlError::unsupported(format!(
            "number {text:.60} is out of the range that is supported for jsonb"
        )));
    };
    let zeros = "0".repeat(zeros);
    let (whole, fraction) = if exponent < 0 {
        let all = format!("{zeros}{whole}");
        let (whole, moved) = all.split_at(all.len() - zeros.len());
        (whole.to_owned(), format!("{moved}{fraction}"))
    } else {
        let moved = fraction.len().min(zeros.len());
        let whole = format!("{whole}{}{}", &fraction[..moved], &zeros[moved..]);
        (whole, fraction[moved..].to_owned())
    };
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let is_zero = whole == "0" && fraction.bytes().all(|it| it == b'0');
    if is_negative && !is_zero {
        out.push('-');
    }
    out.push_str(whole);
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(&fraction);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_kept_as_by_postgresql() {
        for (text, expected) in [
            (r#" {"b":1,  "a" : [1, 2], "b": {} } "#, r#"{"a": [1, 2], "b": {}}"#),
            (r#"{"aa":1,"b":[ ],"":"x"}"#, r#"{"": "x", "b": [], "aa": 1}"#),
            (r#""a\u0041\n\/\"\u0001""#, r#""aA\n/\"\u0001""#),
            (
                "[1e2, 1.50, -0, -0.0, 1.5e-3, 12E-1, 1.25e1, 1e0]",
                "[100, 1.50, 0, 0.0, 0.0015, 1.2, 12.5, 1]",
            ),
            ("[true,false , null]", "[true, false, null]"),
            (
                r#"{"b":1,"aa":2, "a":{"x" : [1,2 , "y,]"]},"b":3}"#,
                r#"{"a": {"x": [1, 2, "y,]"]}, "b": 3, "aa": 2}"#,
            ),
            ("[]", "[]"),
            ("{ }", "{}"),
            (r#""\u00e9\u0041\/\n\u0001""#, "\"éA/\\n\\u0001\""),
            ("1e2", "100"),
            ("1.50e1", "15.0"),
            ("1.5E-3", "0.0015"),
            ("-0", "0"),
            ("-0.0", "0.0"),
            ("-12.5e0", "-12.5"),
            ("0e5", "0"),
            ("12e-2", "0.12"),
            ("true", "true"),
        ] {
            assert_eq!(canonical(text).expect(text), expected);
            assert_eq!(canonical(expected).expect(text), expected);
        }
        for text in ["", "{", "{a:1}", "01", "1.", "[1,]", "\"a", "tru", "1 2", "\"\\x\""] {
            assert_eq!(canonical(text).expect_err(text).state, SqlState::INVALID_TEXT);
        }
        assert_eq!(canonical("\"\\u0000\"").expect_err("NUL").state, SqlState::UNTRANSLATABLE);
        assert!(canonical("1e999999999999").is_err());
        assert!(canonical("1e999999").is_err());
    }
}
