//! Byte patterns in JSON that a condition on a field implies: a text, or a number after a key.
//! Searching for them is much faster than parsing the JSON.

use std::fmt::{self, Display};

use memchr::memchr;
use memchr::memmem::{self, Finder};

use crate::types::Type;

/// Prefix of numeric character escapes. A contained text has no characters that JSON writes with
/// other escapes.
const NUMBERED: &[u8] = b"\\u";

/// Characters that, besides space, may stand between a string and the key after it.
const BEFORE_KEYS: [char; 2] = ['{', ','];

/// Maximum digits of a number parsed here: such integers are exact in each of SQL's types.
const DIGITS_MAX: usize = 15;

/// Maximum fractional digits. Together with the integer digits they fit into `numeric`.
const FRACTION_DIGITS_MAX: usize = 13;

/// Bytes contained in every value for which a condition holds. The check may have false positives,
/// including values for which the condition fails with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contained {
    Text(ContainedText),
    Number(ContainedNumber),
}

/// A text contained in every value in which a field equals it, as it is or with numeric character
/// escapes.
#[derive(Clone, Debug)]
pub struct ContainedText {
    text: String,
    plain: Finder<'static>,
}

/// A number after a key, contained in every value in which a field is in a range. The key is the
/// last one of the field's path.
#[derive(Clone, Debug)]
pub struct ContainedNumber {
    /// The key as written in JSON, including its quotes.
    key: String,
    plain: Finder<'static>,
    number_type: NumberType,
    /// Inclusive range of the number.
    low: i64,
    high: i64,
}

/// Range and kind of the type that the text is converted to. A number that does not fit may cause
/// an error, so the condition must be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberType {
    low: i64,
    high: i64,
    has_fractions: bool,
}

/// Result of parsing the bytes after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// No comparison holds: JSON's null, or the string was not a key.
    Nothing,
    /// A number within these bounds.
    Number(i64, i64),
    /// Unknown: the condition must be evaluated.
    Unknown,
}

impl Contained {
    /// Returns whether the condition may hold or fail for a value in these bytes.
    #[inline]
    pub fn may_be_in(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Text(text) => text.may_be_in(bytes),
            Self::Number(number) => number.may_be_in(bytes),
        }
    }
}

impl Display for Contained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{:?}", text.text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl ContainedText {
    /// Returns `None` if the text is empty or contains a character for which JSON has a short
    /// escape.
    pub fn new(text: &str) -> Option<Self> {
        is_plain(text).then(|| {
            let plain = Finder::new(text).into_owned();
            Self { text: text.to_owned(), plain }
        })
    }

    fn may_be_in(&self, bytes: &[u8]) -> bool {
        self.plain.find(bytes).is_some() || has_numbered(bytes)
    }
}

impl PartialEq for ContainedText {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ContainedText {}

impl NumberType {
    pub const INT2: Self =
        Self { low: i16::MIN as i64, high: i16::MAX as i64, has_fractions: false };
    pub const INT4: Self =
        Self { low: i32::MIN as i64, high: i32::MAX as i64, has_fractions: false };
    pub const INT8: Self = Self { low: i64::MIN, high: i64::MAX, has_fractions: false };
    /// `numeric` and `float8`.
    pub const FRACTIONS: Self = Self { low: i64::MIN, high: i64::MAX, has_fractions: true };

    pub(crate) fn of(data_type: Type) -> Option<Self> {
        match data_type {
            Type::Int4 => Some(Self::INT4),
            Type::Int8 => Some(Self::INT8),
            Type::Numeric | Type::Float8 => Some(Self::FRACTIONS),
            _ => None,
        }
    }

    pub fn has_fractions(self) -> bool {
        self.has_fractions
    }
}

impl ContainedNumber {
    /// `low` and `high` bound the field. Returns `None` if the key is empty, contains a character
    /// with a short escape in JSON, or contains a character that may stand between a string and a
    /// key: then the quoted key could also match between two other strings.
    pub fn new(key: &str, number_type: NumberType, (low, high): (i64, i64)) -> Option<Self> {
        (is_plain(key) && !key.contains(BEFORE_KEYS)).then(|| {
            let key = format!("\"{key}\"");
            let plain = Finder::new(&key).into_owned();
            Self { key, plain, number_type, low, high }
        })
    }

    /// Returns the integers next to a number, or `None` if they may be inexact.
    #[expect(clippy::cast_possible_truncation, reason = "the bounds are looked at before")]
    pub fn whole_around(value: f64) -> Option<(i64, i64)> {
        const END: f64 = 1e15;
        (-END..END).contains(&value).then(|| (value.floor() as i64, value.ceil() as i64))
    }

    /// Intersects with another condition on the same field. The caller must have compared the paths
    /// up to the key. Returns `false` if key or type differ.
    pub fn narrow(&mut self, other: &Self) -> bool {
        let is_same = self.key == other.key && self.number_type == other.number_type;
        if is_same {
            self.low = self.low.max(other.low);
            self.high = self.high.min(other.high);
        }
        is_same
    }

    fn may_be_in(&self, bytes: &[u8]) -> bool {
        let mut keys = self.plain.find_iter(bytes);
        keys.any(|at| self.fits(&bytes[at + self.key.len()..])) || has_numbered(bytes)
    }

    #[inline]
    fn fits(&self, behind_key: &[u8]) -> bool {
        let of = self.number_type;
        match found(behind_key) {
            Found::Nothing => false,
            Found::Unknown => true,
            Found::Number(low, high) if low < high && !of.has_fractions => true,
            Found::Number(low, high) if low < of.low || high > of.high => true,
            Found::Number(low, high) => low <= self.high && high >= self.low,
        }
    }
}

impl PartialEq for ContainedNumber {
    fn eq(&self, other: &Self) -> bool {
        let all = |it: &Self| (it.number_type, it.low, it.high);
        self.key == other.key && all(self) == all(other)
    }
}

impl Eq for ContainedNumber {}

impl Display for ContainedNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.key)?;
        match (self.low, self.high) {
            (low, i64::MAX) => write!(f, "{low}.."),
            (i64::MIN, high) => write!(f, "..{high}"),
            (low, high) => write!(f, "{low}..{high}"),
        }
    }
}

/// Returns whether the bytes contain a numeric character escape.
fn has_numbered(bytes: &[u8]) -> bool {
    // Fast path: most JSON contains no escapes.
    memchr(b'\\', bytes).is_some_and(|at| memmem::find(&bytes[at..], NUMBERED).is_some())
}

/// Returns whether JSON writes a text as it is or with numeric escapes: none of its characters has
/// a short escape.
fn is_plain(text: &str) -> bool {
    let has_short_escape = |it: char| it.is_control() || matches!(it, '"' | '\\' | '/');
    !text.is_empty() && !text.contains(has_short_escape)
}

/// Parses the bytes after a key, from the colon on.
#[inline]
fn found(bytes: &[u8]) -> Found {
    let Some((b':', rest)) = after_space(bytes) else { return Found::Nothing };
    let Some((first, rest)) = after_space(rest) else { return Found::Nothing };
    let (is_negative, first, rest) = match (first, rest.split_first()) {
        (b'-', Some((first, rest))) => (true, *first, rest),
        _ => (false, first, rest),
    };
    match first {
        b'0'..=b'9' => number(is_negative, first, rest),
        b'n' if !is_negative => Found::Nothing,
        _ => Found::Unknown,
    }
}

#[inline]
fn number(is_negative: bool, first: u8, rest: &[u8]) -> Found {
    let mut whole = i64::from(first - b'0');
    let digits = rest.iter().take_while(|it| it.is_ascii_digit());
    let mut count = 0;
    for digit in digits.take(DIGITS_MAX) {
        whole = whole * 10 + i64::from(digit - b'0');
        count += 1;
    }
    if count == DIGITS_MAX {
        return Found::Unknown;
    }
    let signed = if is_negative { -whole } else { whole };
    let rest = &rest[count..];
    match rest.first() {
        Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r') => Found::Number(signed, signed),
        Some(b'.') => {
            let fraction = rest[1..].iter().take_while(|it| it.is_ascii_digit()).count();
            match rest.get(1 + fraction) {
                _ if fraction > FRACTION_DIGITS_MAX => Found::Unknown,
                None | Some(b'e' | b'E') => Found::Unknown,
                _ if is_negative => Found::Number(signed - 1, signed),
                _ => Found::Number(signed, signed + 1),
            }
        }
        _ => Found::Unknown,
    }
}

/// Returns the first byte that is not space, and the bytes after it.
#[inline]
fn after_space(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let mut rest = bytes;
    loop {
        let (first, behind) = rest.split_first()?;
        if !matches!(first, b' ' | b'\t' | b'\n' | b'\r') {
            return Some((*first, behind));
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_cannot_match_are_told_by_their_bytes() {
        let whole = ContainedNumber::new("qty", NumberType::INT4, (100, i64::MAX));
        let fraction = ContainedNumber::new("qty", NumberType::FRACTIONS, (i64::MIN, -1));
        let (whole, fraction) = (whole.expect("a range"), fraction.expect("a range"));
        for (value, of_whole, of_fraction) in [
            (r#"{"qty":100}"#, true, false),
            (r#"{"qty" : 99 }"#, false, false),
            (r#"{"a":"qty","b":7}"#, false, false),
            (r#"{"qty":null}"#, false, false),
            (r#"{"qty":9,"x":{"qty":101}}"#, true, false),
            (r#"{"\u0071ty":1}"#, true, true),
            // A value that is not a number of the type is an error, which the engine reports.
            (r#"{"qty":"7"}"#, true, true),
            (r#"{"qty":true}"#, true, true),
            (r#"{"qty":1.5}"#, true, false),
            (r#"{"qty":-1.25}"#, true, true),
            (r#"{"qty":-0.5}"#, true, true),
            (r#"{"qty":1e3}"#, true, true),
            (r#"{"qty":0.1234567890123}"#, true, false),
            (r#"{"qty":0.12345678901234567890123456789}"#, true, true),
            (r#"{"qty":-1.5e3}"#, true, true),
            (r#"{"qty":-3000000000}"#, true, true),
            (r#"{"qty":1234567890123456}"#, true, true),
            (r#"{"qty":-123456789012345}"#, true, true),
            (r#"{"qty":12"#, true, true),
            (r#"{"qty":-"#, true, true),
            (r#"{"qty""#, false, false),
            ("", false, false),
        ] {
            assert_eq!(whole.may_be_in(value.as_bytes()), of_whole, "{value}");
            assert_eq!(fraction.may_be_in(value.as_bytes()), of_fraction, "{value}");
        }
    }

    #[test]
    fn a_text_is_looked_for_as_it_is_and_by_numbers() {
        let text = ContainedText::new("S17").expect("a plain text");
        for (value, expected) in [
            (r#"{"a":"S17"}"#, true),
            (r#"{"a":"\u005317"}"#, true),
            (r#"{"a":"S\\17"}"#, false),
            (r#"{"a":"S1"}"#, false),
            ("", false),
        ] {
            assert_eq!(text.may_be_in(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn what_json_may_write_in_another_way_is_not_looked_for() {
        for text in ["", "a\"", "a/b", "\\", "\n"] {
            assert_eq!(ContainedText::new(text), None, "{text:?}");
            assert_eq!(ContainedNumber::new(text, NumberType::INT8, (0, 1)), None, "{text:?}");
        }
        assert!(ContainedText::new("\u{e9}").is_some());
    }

    #[test]
    fn a_key_is_not_looked_for_where_other_strings_end_with_its_bytes() {
        // All of these, including quotes, occur between strings before the actual keys.
        let value = r#"{"a":"b",",":5,"c":{":{":6},"d":1,":1,":7,"e": "f" , " , ":8}"#;
        for key in [",", ":{", ":1,", " , "] {
            assert!(value.matches(&format!("\"{key}\"")).count() == 1, "{key}");
            assert_eq!(ContainedNumber::new(key, NumberType::INT8, (0, 9)), None, "{key}");
        }
        for key in ["", "a", "a:", "}", " "] {
            let number = ContainedNumber::new(key, NumberType::INT8, (0, 9));
            assert_eq!(number.is_some(), !key.is_empty(), "{key}");
        }
    }
}
