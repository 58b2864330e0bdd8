//! PostgreSQL's regular expressions as the engine's: `.` matches every letter, classes and escapes
//! have their own names. What means something else here is refused.

use crate::error::{SqlError, SqlState};

/// Use of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Use {
    /// Whether it matches anywhere.
    Test,
    /// What it matches: PostgreSQL takes the longest of alternatives, the engine the first.
    Find,
}

/// The largest number of a bound.
const BOUND_MAX: u32 = 255;

/// The same pattern for the engine.
pub(super) fn regex_of(pattern: &str, used: Use) -> Result<String, SqlError> {
    let (rest, options) = match pattern.strip_prefix("(?i)") {
        Some(rest) => (rest, "(?si)"),
        None => (pattern, "(?s)"),
    };
    if pattern.starts_with("***") {
        return Err(unsupported("***"));
    }
    let mut writer =
        Writer { out: options.to_owned(), signs: rest.chars().collect(), at: 0, quantified: false };
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
            '|' if used == Use::Find => return Err(unsupported("| in what is found")),
            '|' | '^' | '$' => {
                writer.out.push(sign);
                false
            }
            other => {
                writer.out.push(other);
                true
            }
        };
        writer.quantified = !is_atom;
    }
    if used == Use::Find && greeds == [true; 2] {
        return Err(unsupported("greedy and other quantifiers in one pattern"));
    }
    Ok(writer.out)
}

/// Replacement of a match, as the engine writes it.
pub(super) fn replacement_of(text: &str) -> Result<String, SqlError> {
    let mut out = String::new();
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '$' => out.push_str("$$"),
            '\\' => match signs.next() {
                Some('&') => out.push_str("${0}"),
                Some(digit @ '1'..='9') => {
                    out.push('\\');
                    out.push(digit);
                    // The engine would read all digits that follow.
                    if signs.clone().next().is_some_and(|it| it.is_ascii_digit()) {
                        return Err(unsupported("a digit behind a group in a replacement"));
                    }
                }
                _ => return Err(unsupported("\\ in a replacement")),
            },
            other => out.push(other),
        }
    }
    Ok(out)
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
    /// Whether what comes next has nothing before it that could be repeated.
    quantified: bool,
}

impl Writer {
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

    /// Whether it stands for a letter, so that it can be repeated.
    fn escape(&mut self) -> Result<bool, SqlError> {
        let Some(sign) = self.next() else { return Err(invalid("\\ at the end")) };
        let (text, is_atom) = match sign {
            'd' => ("[0-9]", true),
            'D' => ("[^0-9]", true),
            's' | 'S' | 'w' | 'W' | 'f' | 'n' | 'r' | 't' | 'v' => {
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
                self.out.push_str(&format!("\\u{digits}"));
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
            return Err(unsupported("(? other than (?:"));
        }
        self.at += 2;
        self.out.push_str("?:");
        Ok(())
    }

    /// `{m}`, `{m,}` or `{m,n}`, of which `{` was read.
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
        if self.quantified || self.out == "(?s)" || self.out == "(?si)" {
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

    /// A set of letters, of which `[` was read.
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
                other => push_literal(&mut self.out, other),
            }
            is_first = false;
        }
        self.out.push(']');
        Ok(())
    }

    fn escape_in_set(&mut self) -> Result<bool, SqlError> {
        match self.peek() {
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
            (":alnum:]", "\\p{Alphabetic}0-9"),
            (":upper:]", "\\p{Uppercase}"),
            (":lower:]", "\\p{Lowercase}"),
            (":space:]", "\\s"),
            (":blank:]", " \\t"),
            (":xdigit:]", "0-9A-Fa-f"),
        ];
        let found = CLASSES.iter().find(|(name, _)| self.starts_with(name));
        let Some((name, class)) = found else {
            return Err(unsupported("this class of characters"));
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
            ("(?i)a", Some("(?si)a")),
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
            assert_eq!(regex_of(pattern, Use::Test).ok().as_deref(), expected, "{pattern}");
        }
        assert!(regex_of("a|ab", Use::Find).is_err(), "the longest is found");
        assert!(regex_of("a+b+?", Use::Find).is_err(), "one kind of quantifiers alone");
        let replaced = [("$1", "$$1"), ("[\\&]\\1", "[${0}]\\1")];
        for (text, expected) in replaced {
            assert_eq!(replacement_of(text).as_deref(), Ok(expected));
        }
        assert!(replacement_of("\\\\").is_err(), "the engine reads it in another way");
    }
}
