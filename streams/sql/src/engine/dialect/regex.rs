//! Conversion of PostgreSQL's regular expressions to the engine's: `.` matches every character,
//! character classes and escapes differ, and case-insensitive characters become sets of both cases.
//! Rejects constructs whose meaning would differ.

use live_queries::letters::{lower, upper};

use crate::error::{SqlError, SqlState};

/// Maximum repetition count of a bound.
const BOUND_MAX: u32 = 255;

/// White space and its complement. Non-breaking spaces do not count as white space.
const SPACE: &str = "[\\t-\\r \\u1680\\u2000-\\u2006\\u2008-\\u200A\\u2028\\u2029\\u205F\\u3000]";
const NO_SPACE: &str =
    "[^\\t-\\r \\u1680\\u2000-\\u2006\\u2008-\\u200A\\u2028\\u2029\\u205F\\u3000]";

/// Maximum size of a range that is expanded to both cases.
const RANGE_LETTERS_MAX: usize = 4096;

/// Makes `.` match every character, including line ends.
const OPTIONS: &str = "(?s)";

/// Strips the case-insensitivity option at the start of a pattern. Returns the rest, and whether it
/// ignores case.
pub(super) fn without_option(pattern: &str, is_folded: bool) -> (&str, bool) {
    pattern.strip_prefix("(?i)").map_or((pattern, is_folded), |rest| (rest, true))
}

/// Converts a pattern for testing whether a text matches.
pub(super) fn regex_of(pattern: &str, is_folded: bool) -> Result<String, SqlError> {
    written(pattern, is_folded).map(|(regex, _)| regex)
}

/// Converts a pattern for extracting matches. Also returns whether it matches the shortest text.
pub(super) fn finding_regex(pattern: &str, is_folded: bool) -> Result<(String, bool), SqlError> {
    match written(pattern, is_folded)? {
        (_, [true, true]) => Err(unsupported("mixing greedy and non-greedy quantifiers")),
        (regex, [_, is_lazy]) => Ok((regex, is_lazy)),
    }
}

/// Converts a pattern. Also returns whether it has greedy and non-greedy quantifiers.
fn written(pattern: &str, is_folded: bool) -> Result<(String, [bool; 2]), SqlError> {
    let (rest, is_folded) = without_option(pattern, is_folded);
    if pattern.starts_with("***") {
        return Err(unsupported("***"));
    }
    let mut writer = Writer {
        out: OPTIONS.to_owned(),
        signs: rest.chars().collect(),
        at: 0,
        quantified: false,
        is_folded,
    };
    let mut greeds = [false; 2];
    while let Some(sign) = writer.next() {
        let is_atom = match sign {
            '\\' => writer.escape()?,
            '[' => {
                writer.set()?;
                true
            }
            '(' => {
                writer.open()?;
                continue;
            }
            '*' | '+' | '?' => {
                writer.quantify(sign.to_string(), &mut greeds)?;
                continue;
            }
            '{' if writer.peek().is_some_and(|it| it.is_ascii_digit()) => {
                let bound = writer.bound()?;
                writer.quantify(bound, &mut greeds)?;
                continue;
            }
            '{' | '}' | ']' => {
                writer.out.push('\\');
                writer.out.push(sign);
                true
            }
            '|' | '^' | '$' => {
                writer.out.push(sign);
                false
            }
            other => {
                writer.letter(other);
                true
            }
        };
        writer.quantified = !is_atom;
    }
    Ok((writer.out, greeds))
}

fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(format!("regular expressions: {what} is not supported"))
}

fn invalid(what: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_REGEX, format!("invalid regular expression: {what}"))
}

struct Writer {
    out: String,
    signs: Vec<char>,
    at: usize,
    /// True if a quantifier would have no atom to apply to.
    quantified: bool,
    is_folded: bool,
}

impl Writer {
    /// Writes a character, as a set of both cases if case is ignored.
    fn letter(&mut self, letter: char) {
        let (small, capital) = (lower(letter), upper(letter));
        match self.is_folded && (small, capital) != (letter, letter) {
            true => self.out.extend(['[', small, capital, ']']),
            false => self.out.push(letter),
        }
    }

    fn next(&mut self) -> Option<char> {
        let sign = self.peek()?;
        self.at += 1;
        Some(sign)
    }

    fn peek(&self) -> Option<char> {
        self.signs.get(self.at).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        self.signs[self.at..].iter().copied().take(text.chars().count()).eq(text.chars())
    }

    /// Converts an escape. Returns whether it matches a character and can therefore be quantified.
    fn escape(&mut self) -> Result<bool, SqlError> {
        let Some(sign) = self.next() else { return Err(invalid("\\ at the end")) };
        let (text, is_atom) = match sign {
            'd' => ("[0-9]", true),
            'D' => ("[^0-9]", true),
            's' => (SPACE, true),
            'S' => (NO_SPACE, true),
            'w' => ("[\\p{Alphabetic}\\p{Nd}_]", true),
            'W' => ("[^\\p{Alphabetic}\\p{Nd}_]", true),
            'f' | 'n' | 'r' | 't' | 'v' => {
                self.out.push('\\');
                self.out.push(sign);
                return Ok(true);
            }
            'a' => ("\\x07", true),
            'b' => ("\\x08", true),
            'e' => ("\\x1B", true),
            'y' => ("\\b", false),
            'Y' => ("\\B", false),
            'm' => ("\\b{start}", false),
            'M' => ("\\b{end}", false),
            'A' => ("\\A", false),
            'Z' => ("\\z", false),
            'u' => {
                let digits: String = self.signs[self.at..].iter().take(4).collect();
                if digits.len() != 4 || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
                    return Err(invalid("invalid escape \\ sequence"));
                }
                self.at += 4;
                let letter = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                match letter.filter(|it| it.is_alphanumeric()) {
                    Some(letter) => self.letter(letter),
                    None => self.out.push_str(&format!("\\u{digits}")),
                }
                return Ok(true);
            }
            'x' | 'c' | 'U' | 'B' | '0'..='9' => return Err(unsupported(&format!("\\{sign}"))),
            it if it.is_alphanumeric() => return Err(invalid("invalid escape \\ sequence")),
            other => {
                push_literal(&mut self.out, other);
                return Ok(true);
            }
        };
        self.out.push_str(text);
        Ok(is_atom)
    }

    fn open(&mut self) -> Result<(), SqlError> {
        self.out.push('(');
        self.quantified = true;
        if self.peek() != Some('?') {
            return Ok(());
        }
        if !self.starts_with("?:") {
            return Err(unsupported("(? other than (?: in a pattern"));
        }
        self.at += 2;
        self.out.push_str("?:");
        Ok(())
    }

    /// Reads `{m}`, `{m,}` or `{m,n}` after its `{`.
    fn bound(&mut self) -> Result<String, SqlError> {
        let mut text = String::from("{");
        loop {
            match self.next() {
                Some('}') => break,
                Some(it @ ('0'..='9' | ',')) => text.push(it),
                _ => return Err(invalid("invalid repetition count(s)")),
            }
        }
        let numbers: Vec<&str> = text[1..].split(',').collect();
        let is_good = |it: &&str| it.parse::<u32>().is_ok_and(|it| it <= BOUND_MAX);
        let is_bound = match numbers.as_slice() {
            [low] | [low, ""] => is_good(low),
            [low, high] => is_good(low) && is_good(high),
            _ => false,
        };
        if !is_bound {
            return Err(invalid("invalid repetition count(s)"));
        }
        text.push('}');
        Ok(text)
    }

    fn quantify(&mut self, text: String, greeds: &mut [bool; 2]) -> Result<(), SqlError> {
        if self.quantified || self.out == OPTIONS {
            return Err(invalid("quantifier operand invalid"));
        }
        self.out.push_str(&text);
        let is_lazy = self.peek() == Some('?');
        if is_lazy {
            self.at += 1;
            self.out.push('?');
        }
        greeds[usize::from(is_lazy)] = true;
        self.quantified = true;
        Ok(())
    }

    /// Converts a bracket expression after its `[`.
    fn set(&mut self) -> Result<(), SqlError> {
        self.out.push('[');
        if self.peek() == Some('^') {
            self.at += 1;
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let Some(sign) = self.next() else { return Err(invalid("brackets [] not balanced")) };
            match sign {
                ']' if !is_first => break,
                '[' if matches!(self.peek(), Some('.' | '=')) => {
                    return Err(unsupported("[. and [= in brackets"));
                }
                '[' if self.peek() == Some(':') => self.class()?,
                '\\' => {
                    let is_atom = self.escape_in_set()?;
                    debug_assert!(is_atom, "others are refused");
                }
                '-' if self.peek() == Some('-') => return Err(unsupported("-- in brackets")),
                '-' => self.out.push('-'),
                other if self.is_folded => self.folded_in_set(other)?,
                other => push_literal(&mut self.out, other),
            }
            is_first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// Writes a character, or the range that it starts, in both cases. A range is also written as
    /// it is.
    fn folded_in_set(&mut self, first: char) -> Result<(), SqlError> {
        let last = self.signs.get(self.at + 1).copied().filter(|it| *it != ']');
        let (Some('-'), Some(last)) = (self.peek(), last) else {
            push_literal(&mut self.out, lower(first));
            push_literal(&mut self.out, upper(first));
            return Ok(());
        };
        if matches!(last, '[' | '\\') {
            return Err(unsupported("a range in brackets that ends with [ or \\"));
        }
        self.at += 2;
        if last < first {
            return Err(invalid("invalid character range"));
        }
        push_literal(&mut self.out, first);
        self.out.push('-');
        push_literal(&mut self.out, last);
        if (first..=last).count() > RANGE_LETTERS_MAX {
            return Err(unsupported("a case-insensitive range in brackets with so many letters"));
        }
        let both = (first..=last).flat_map(|it| [lower(it), upper(it)]);
        both.filter(|it| !(first..=last).contains(it))
            .for_each(|it| push_literal(&mut self.out, it));
        Ok(())
    }

    fn escape_in_set(&mut self) -> Result<bool, SqlError> {
        match self.peek() {
            Some('u') if self.is_folded => {
                Err(unsupported("\\u in brackets of a case-insensitive pattern"))
            }
            Some('d') => {
                self.at += 1;
                self.out.push_str("0-9");
                Ok(true)
            }
            Some(it @ ('D' | 'S' | 'W' | 'y' | 'Y' | 'm' | 'M' | 'A' | 'Z')) => {
                Err(unsupported(&format!("\\{it} in brackets")))
            }
            _ => self.escape(),
        }
    }

    fn class(&mut self) -> Result<(), SqlError> {
        const CLASSES: &[(&str, &str)] = &[
            (":alpha:]", "\\p{Alphabetic}"),
            (":digit:]", "0-9"),
            (":alnum:]", "\\p{Alphabetic}\\p{Nd}"),
            (":upper:]", "\\p{Uppercase}"),
            (":lower:]", "\\p{Lowercase}"),
            (":space:]", SPACE),
            (":blank:]", " \\t"),
            (":xdigit:]", "0-9A-Fa-f"),
        ];
        const BOTH: &str = CLASSES[0].1;
        let found = CLASSES.iter().find(|(name, _)| self.starts_with(name));
        let found = found.map(|(name, class)| match *name {
            ":upper:]" | ":lower:]" if self.is_folded => (*name, BOTH),
            name => (name, *class),
        });
        let Some((name, class)) = found else {
            return Err(unsupported("this character class"));
        };
        self.at += name.len();
        self.out.push_str(class);
        Ok(())
    }
}

fn push_literal(out: &mut String, sign: char) {
    if sign.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(sign);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_keep_their_meaning_or_are_refused() {
        for (pattern, expected) in [
            ("a.b", Some("(?s)a.b")),
            ("(?i)a.1-[1-9]", Some("(?s)[aA].1-[1-9]")),
            ("(?i)sſK\u{212A}", Some("(?s)[sS][ſS][kK][k\u{212A}]")),
            ("(?i)[^a-cX.-]", Some("(?s)[^a-cABCxX\\.\\.-]")),
            ("(?i)[[:upper:]]", Some("(?s)[\\p{Alphabetic}]")),
            ("(?i)[c-a]", None),
            ("\\d\\ma\\M\\Z", Some("(?s)[0-9]\\b{start}a\\b{end}\\z")),
            ("a{2,3}?{x}", Some("(?s)a{2,3}?\\{x\\}")),
            ("[]a&&b[:alpha:]\\d-]", Some("(?s)[\\]a\\&\\&b\\p{Alphabetic}0-9-]")),
            ("(?:a|b)*", Some("(?s)(?:a|b)*")),
            ("a\\.b", Some("(?s)a\\.b")),
            ("(?=a)", None),
            ("(a)\\1", None),
            ("***=a", None),
            ("*a", None),
            ("a**", None),
            ("(*a)", None),
            ("[a", None),
            ("a\\", None),
            ("a{300}", None),
            ("[[:<:]]a", None),
        ] {
            assert_eq!(regex_of(pattern, false).ok().as_deref(), expected, "{pattern}");
        }
        assert!(finding_regex("a+b+?", true).is_err(), "one kind of quantifiers alone");
        let escaped = finding_regex("\\*?[*?]", false).map(|(_, is_lazy)| is_lazy);
        assert_eq!(escaped, Ok(false), "what is in brackets and behind a backslash is a letter");
    }
}
