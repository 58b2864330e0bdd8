//! Access to the parts of JSON texts, without conversion.

use serde::de::IgnoredAny;

use super::jsonb::unescaped;
use crate::error::SqlError;

/// Returns the kind of a value, as `json_typeof` does.
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

/// Trims the text if it is valid JSON.
pub(super) fn valid(text: &str) -> Option<&str> {
    let is_valid = serde_json::from_str::<IgnoredAny>(text).is_ok();
    is_valid.then(|| text.trim_matches([' ', '\t', '\n', '\r']))
}

/// Splits a valid array or object at its top-level commas.
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

/// Passes each byte outside of strings to `look` until that returns true.
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

/// Iterates over the elements of a valid array.
pub(super) fn elements(text: &str) -> impl Iterator<Item = &str> {
    parts(text).into_iter().map(trimmed)
}

/// Iterates over the members of a valid object: quoted names and values.
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

/// Returns the members of an object in jsonb's order: by length and bytes of their names, with the
/// last one of duplicates.
pub(super) fn sorted_members(text: &str) -> Result<Vec<(String, &str)>, SqlError> {
    let mut found: Vec<(String, &str)> = Vec::new();
    for (name, value) in members(text) {
        found.push((unescaped(name)?, value));
    }
    found.reverse();
    found.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
    found.dedup_by(|later, kept| later.0 == kept.0);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_not_taken_for_it() {
        assert_eq!(valid("x"), None);
        assert_eq!(valid(" [1] "), Some("[1]"));
    }
}
