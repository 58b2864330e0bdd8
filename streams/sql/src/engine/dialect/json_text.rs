//! JSON texts: their parts as they stand, and the form that PostgreSQL keeps as jsonb.

use live_queries::scalar_text;
use serde::de::IgnoredAny;

use crate::error::{SqlError, SqlState};

/// Zeros that an exponent may stand for.
const EXPONENT_MAX: i64 = 1_000;

/// Kind of a value, in PostgreSQL's words.
pub(super) fn kind(text: &str) -> &'static str {
    match text.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

/// The value without blanks around it, if the text is JSON.
pub(super) fn valid(text: &str) -> Option<&str> {
    let is_valid = serde_json::from_str::<IgnoredAny>(text).is_ok();
    is_valid.then(|| text.trim_matches([' ', '\t', '\n', '\r']))
}

/// The parts of a list or an object that is JSON: what commas stand between.
fn parts(text: &str) -> Vec<&str> {
    let inside = text[1..text.len() - 1].trim_matches([' ', '\t', '\n', '\r']);
    if inside.is_empty() {
        return Vec::new();
    }
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    scan(inside, |at, byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&inside[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
        true
    });
    parts.push(&inside[begin..]);
    parts
}

/// Shows each byte outside of strings until `look` says that it has enough.
fn scan(text: &str, mut look: impl FnMut(usize, u8) -> bool) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            other => {
                if !look(at, other) {
                    return;
                }
            }
        }
    }
}

fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r'])
}

/// The elements of a list that is JSON.
pub(super) fn elements(text: &str) -> impl Iterator<Item = &str> {
    parts(text).into_iter().map(trimmed)
}

/// The members of an object that is JSON: names in their quotes, and values.
pub(super) fn members(text: &str) -> impl Iterator<Item = (&str, &str)> {
    parts(text).into_iter().map(|part| {
        let mut colon = part.len();
        scan(part, |at, byte| {
            let is_it = byte == b':';
            if is_it {
                colon = at;
            }
            !is_it
        });
        (trimmed(&part[..colon]), trimmed(&part[colon + 1..]))
    })
}

/// The text of a string of JSON.
///
/// # Errors
/// It has what no text holds.
pub(super) fn string(quoted: &str) -> Result<String, SqlError> {
    match scalar_text(quoted) {
        Ok(text) => Ok(text.unwrap_or_default().into_owned()),
        Err(_) => {
            let what = "unsupported Unicode escape sequence";
            Err(SqlError::new(SqlState::UNTRANSLATABLE, what))
        }
    }
}

/// A text as a string of JSON, as PostgreSQL writes it.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            plain => out.push(plain),
        }
    }
    out.push('"');
}

/// The members of an object as jsonb has them: of one name the last one, sorted by the length of
/// their names and their bytes.
pub(super) fn sorted_members(text: &str) -> Result<Vec<(String, &str)>, SqlError> {
    let mut found: Vec<(String, &str)> = Vec::new();
    for (name, value) in members(text) {
        found.push((string(name)?, value));
    }
    found.reverse();
    found.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
    found.dedup_by(|later, kept| later.0 == kept.0);
    Ok(found)
}

/// Appends a value that is JSON as jsonb writes it.
pub(super) fn canonical(text: &str, out: &mut String) -> Result<(), SqlError> {
    match kind(text) {
        "object" => {
            out.push('{');
            for (index, (name, value)) in sorted_members(text)?.into_iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                quote(&name, out);
                out.push_str(": ");
                canonical(value, out)?;
            }
            out.push('}');
        }
        "array" => {
            out.push('[');
            for (index, element) in elements(text).enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                canonical(element, out)?;
            }
            out.push(']');
        }
        "string" => quote(&string(text)?, out),
        "number" => number(text, out)?,
        _ => out.push_str(text),
    }
    Ok(())
}

/// A number without its exponent.
fn number(text: &str, out: &mut String) -> Result<(), SqlError> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(i64::MAX);
    if exponent.abs() > EXPONENT_MAX {
        let what = format!("numbers with exponents beyond {EXPONENT_MAX} are not supported");
        return Err(SqlError::unsupported(what));
    }
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(exponent);
    let scale = i64::try_from(fraction.len()).unwrap_or(i64::MAX).saturating_sub(exponent).max(0);
    let digit = |at: i64| {
        usize::try_from(at).ok().and_then(|it| digits.as_bytes().get(it)).copied().unwrap_or(b'0')
    };
    if is_negative && digits.bytes().any(|it| it != b'0') {
        out.push('-');
    }
    let first = (0..point).find(|at| digit(*at) != b'0').unwrap_or(point - 1);
    (first.min(point - 1).max(0)..point).for_each(|at| out.push(char::from(digit(at))));
    if point <= 0 {
        out.push('0');
    }
    if scale > 0 {
        out.push('.');
        (point..point + scale).for_each(|at| out.push(char::from(digit(at))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_jsonb_has_them() {
        for (text, expected) in [
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
            let mut found = String::new();
            canonical(valid(text).expect(text), &mut found).expect(text);
            assert_eq!(found, expected, "{text}");
        }
        assert!(canonical("1e999999", &mut String::new()).is_err());
        assert!(canonical(r#""\u0000""#, &mut String::new()).is_err());
        assert_eq!(valid("x"), None);
    }
}
