//! Conversion between JSON strings and text.

use std::borrow::Cow;
use std::fmt::Write;

/// Maximum digits of an integer that always fits into 64 bits.
const DIGITS_MAX: usize = 18;

/// Returns the text of a JSON value as `->>` does: a string without quotes and escapes, or the
/// value as written. Returns `Ok(None)` for JSON's null, and an error for escapes that denote no
/// valid character.
pub fn scalar_text(raw: &str) -> Result<Option<Cow<'_, str>>, InvalidEscape> {
    match raw.strip_prefix('"') {
        Some(rest) => unescape(rest.strip_suffix('"').unwrap_or(rest)).map(Some),
        None if raw == "null" => Ok(None),
        None => Ok(Some(Cow::Borrowed(raw))),
    }
}

/// Returns the number of a JSON value if it is an integer of at most [`DIGITS_MAX`] digits.
pub(crate) fn whole_number(raw: &str) -> Option<i64> {
    let (digits, is_negative) = match raw.strip_prefix('-') {
        Some(digits) => (digits.as_bytes(), true),
        None => (raw.as_bytes(), false),
    };
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if is_negative { -number } else { number })
}

/// An escape of NUL or of an unpaired surrogate, which text cannot contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEscape;

/// Decodes the contents of a string, whose escapes are syntactically valid.
pub(super) fn unescape(inside: &str) -> Result<Cow<'_, str>, InvalidEscape> {
    if !inside.contains('\\') {
        return Ok(Cow::Borrowed(inside));
    }
    let mut text = String::with_capacity(inside.len());
    let mut parts = inside.split('\\');
    text.push_str(parts.next().unwrap_or_default());
    let mut high: Option<u32> = None;
    while let Some(part) = parts.next() {
        let Some(letter) = part.chars().next() else {
            // An empty part results from an escaped backslash: the next part follows it.
            check_no_half(high)?;
            text.push('\\');
            text.push_str(parts.next().unwrap_or_default());
            continue;
        };
        if letter == 'u' {
            let unit = part.get(1..5).and_then(|it| u32::from_str_radix(it, 16).ok());
            let unit = unit.ok_or(InvalidEscape)?;
            high = push_unit(&mut text, high, unit)?;
            let rest = &part[5..];
            if !rest.is_empty() {
                check_no_half(high)?;
            }
            text.push_str(rest);
            continue;
        }
        check_no_half(high)?;
        text.push(match letter {
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            other => other,
        });
        text.push_str(&part[letter.len_utf8()..]);
    }
    check_no_half(high)?;
    Ok(Cow::Owned(text))
}

fn check_no_half(high: Option<u32>) -> Result<(), InvalidEscape> {
    if high.is_some() { Err(InvalidEscape) } else { Ok(()) }
}

/// Appends a UTF-16 code unit, or returns it if it is the first of a surrogate pair.
fn push_unit(
    text: &mut String,
    high: Option<u32>,
    unit: u32,
) -> Result<Option<u32>, InvalidEscape> {
    match (high, unit) {
        (None, 0xd800..=0xdbff) => Ok(Some(unit)),
        (Some(high), 0xdc00..=0xdfff) => {
            let code = 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
            text.push(char::from_u32(code).ok_or(InvalidEscape)?);
            Ok(None)
        }
        (None, 1..) => {
            text.push(char::from_u32(unit).ok_or(InvalidEscape)?);
            Ok(None)
        }
        _ => Err(InvalidEscape),
    }
}

/// Appends `text` as a JSON string.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            '\0'..='\x1f' => {
                write!(out, "\\u{:04x}", u32::from(letter)).expect("a String takes all");
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_told_from_all_else() {
        for number in [0, 7, -7, 10_203, 999_999_999_999_999_999, -999_999_999_999_999_999] {
            assert_eq!(whole_number(&number.to_string()), Some(number));
        }
        for other in ["", "-", "\"7\"", "1.0", "1e3", "null", "+1", "1234567890123456789"] {
            assert_eq!(whole_number(other), None, "{other}");
        }
    }
}
