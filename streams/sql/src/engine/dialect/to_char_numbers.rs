//! `to_char` of numbers, with PostgreSQL's template patterns for digits, separators and signs.

use super::refusal::refused;
use crate::error::SqlError;

/// Place of the sign in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// A minus before the first digit.
    Plain,
    /// `S` at the start: a plus or minus before the first digit.
    First,
    /// `S` at the end.
    Last,
    /// `MI` at the end.
    Minus,
    /// `PR` at the end: angle brackets.
    Brackets,
}

/// A template: a number's positions between texts that are written as they are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    before: String,
    after: String,
    is_filled: bool,
    sign: Sign,
    /// `9`, `0` and commas before the point.
    whole: Vec<u8>,
    /// `9` and `0` after the point.
    fraction: Vec<u8>,
}

impl Template {
    pub(super) fn of(pattern: &str) -> Result<Self, SqlError> {
        let unknown = || refused(&format!("to_char of a number with the template {pattern:?}"));
        let is_sign = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | ',');
        let (before, rest) = literal(pattern, is_sign).ok_or_else(unknown)?;
        let end = rest.find(|it| !is_sign(it)).unwrap_or(rest.len());
        let (signs, rest) = rest.split_at(end);
        let (after, rest) = literal(rest, is_sign).ok_or_else(unknown)?;
        let signs = signs.to_ascii_uppercase();
        let mut signs = signs.as_str();
        let is_filled = !signs.starts_with("FM");
        signs = signs.strip_prefix("FM").unwrap_or(signs);
        let ends = [("S", Sign::Last), ("MI", Sign::Minus), ("PR", Sign::Brackets)];
        let end = ends.into_iter().find_map(|(name, sign)| Some((signs.strip_suffix(name)?, sign)));
        let (digits, sign) = match (signs.strip_prefix('S'), end) {
            (Some(digits), None) => (digits, Sign::First),
            (None, Some(end)) => end,
            (None, None) => (signs, Sign::Plain),
            (Some(_), Some(_)) => return Err(unknown()),
        };
        let digits = digits.replace('D', ".").replace('G', ",");
        let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
        let is_whole = whole.starts_with(['9', '0']) && whole.ends_with(['9', '0']);
        let is_known = is_whole
            && whole.bytes().all(|it| matches!(it, b'9' | b'0' | b','))
            && fraction.bytes().all(|it| matches!(it, b'9' | b'0'))
            && digits.ends_with(['9', '0'])
            && rest.is_empty();
        match is_known {
            true => Ok(Self {
                before,
                after,
                is_filled,
                sign,
                whole: whole.into(),
                fraction: fraction.into(),
            }),
            false => Err(unknown()),
        }
    }

    /// Number of digits after the point.
    pub(super) fn scale(&self) -> usize {
        self.fraction.len()
    }

    /// Writes a number, which is given with its sign and without an exponent.
    pub(super) fn written(&self, number: &str) -> String {
        let (is_negative, number) = match number.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, number),
        };
        let digits = rounded(number, self.scale());
        let (digits, decimals) = digits.split_at(digits.len() - self.scale());
        let digits = digits.trim_start_matches('0');
        let is_negative = is_negative && !(digits.is_empty() && is_zero(decimals));
        let places = self.whole.iter().filter(|it| **it != b',').count();
        let is_too_long = digits.len() > places;
        let decimals = match is_too_long {
            true => "#".repeat(self.scale()),
            false => self.shown_decimals(decimals).to_owned(),
        };
        let digits = match is_too_long {
            true => "#".repeat(places),
            // A zero is written where no digit follows.
            false if digits.is_empty() && decimals.is_empty() => "0".to_owned(),
            false => digits.to_owned(),
        };
        let mut out = self.before.clone();
        self.put_whole(&digits, is_negative, &mut out);
        if !self.fraction.is_empty() {
            out.push('.');
            out.push_str(&decimals);
        }
        match (self.sign, is_negative) {
            (Sign::Last, true) | (Sign::Minus, true) => out.push('-'),
            (Sign::Last, false) => out.push('+'),
            (Sign::Brackets, true) => out.push('>'),
            (Sign::Minus | Sign::Brackets, false) if self.is_filled => out.push(' '),
            _ => {}
        }
        out.push_str(&self.after);
        out
    }

    /// Without filling, zeros at the end are left out, as far as the template allows.
    fn shown_decimals<'a>(&self, decimals: &'a str) -> &'a str {
        if self.is_filled {
            return decimals;
        }
        let kept = self.fraction.iter().rposition(|it| *it == b'0').map_or(0, |it| it + 1);
        let end = decimals.trim_end_matches('0').len();
        &decimals[..end.max(kept)]
    }

    fn put_whole(&self, digits: &str, is_negative: bool, out: &mut String) {
        let places = self.whole.iter().filter(|it| **it != b',').count();
        let mut zeros = places - digits.len();
        let (mut digits, mut is_begun) = (digits.chars(), false);
        for sign in self.whole.iter().copied() {
            let is_digit = sign != b',';
            let begins = !is_begun && is_digit && (sign == b'0' || zeros == 0);
            if begins {
                self.put_sign(is_negative, out);
                is_begun = true;
            }
            match (is_begun, is_digit) {
                (true, true) if zeros > 0 => out.push('0'),
                (true, true) => out.extend(digits.next()),
                (true, false) => out.push(','),
                (false, _) if self.is_filled => out.push(' '),
                (false, _) => {}
            }
            zeros = zeros.saturating_sub(usize::from(is_digit));
        }
        if !is_begun {
            self.put_sign(is_negative, out);
        }
    }

    fn put_sign(&self, is_negative: bool, out: &mut String) {
        match (self.sign, is_negative) {
            (Sign::Plain | Sign::First, true) => out.push('-'),
            (Sign::First, false) => out.push('+'),
            (Sign::Brackets, true) => out.push('<'),
            (Sign::Plain | Sign::Brackets, false) if self.is_filled => out.push(' '),
            _ => {}
        }
    }
}

/// Splits off the text that is written as it is.
fn literal(pattern: &str, is_sign: impl Fn(char) -> bool) -> Option<(String, &str)> {
    let (mut text, mut rest) = (String::new(), pattern);
    while let Some(first) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (inside, after) = quoted.split_once('"')?;
            text.push_str(inside);
            rest = after;
        } else if is_sign(first) {
            break;
        } else if !matches!(first, ' ' | '%' | '$' | '/' | '(' | ')' | ':' | '€') {
            return None;
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    (!text.contains('\\')).then_some((text, rest))
}

fn is_zero(digits: &str) -> bool {
    digits.bytes().all(|it| it == b'0')
}

/// Returns the digits of a number that is rounded, half away from zero, without a point.
fn rounded(number: &str, scale: usize) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let kept = &fraction[..fraction.len().min(scale)];
    let mut digits = format!("0{whole}{kept:0<scale$}").into_bytes();
    if fraction.as_bytes().get(scale).is_some_and(|it| *it >= b'5') {
        for digit in digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
    }
    String::from_utf8(digits).expect("digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_postgresql() {
        for (pattern, number, expected) in [
            ("999.99", "0.04", "    .04"),
            ("999.99", "-12.346", " -12.35"),
            ("999.99", "1234.5", " ###.##"),
            ("9,999", "-1234.5", "-1,235"),
            ("FM9,999.90", "0", ".00"),
            ("FM9.9", "0", "0."),
            ("FM999.99", "12", "12."),
            ("9.9", "0", "  .0"),
            ("99", "-0.4", "  0"),
            ("S999", "12", " +12"),
            ("999S", "-12", " 12-"),
            ("FM999MI", "1", "1"),
            ("999PR", "-12", " <12>"),
            ("0,000", "-1", "-0,001"),
            ("$99%", "9.5", "$ 10%"),
        ] {
            let template = Template::of(pattern).expect(pattern);
            assert_eq!(template.written(number), expected, "{pattern} {number}");
        }
        for pattern in ["RN", "9EEEE", "99V9", "L9", ".9", "9.", "9 9", "9TH", "SG9", ""] {
            assert!(Template::of(pattern).is_err(), "{pattern}");
        }
    }
}
