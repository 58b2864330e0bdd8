//! LIKE and ILIKE: `%` matches any text, `_` one character, with an escape character.

use std::borrow::Cow;
use std::str::Chars;

use crate::error::RowError;
use crate::letters::{lower, lowercase};

/// A compiled pattern, split at each `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Parts between `%`, at least one. The first must match at the start of the text, and the last
    /// at its end.
    parts: Vec<Vec<Symbol>>,
    folds: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Symbol {
    Text(String),
    AnyCharacter,
}

impl Pattern {
    /// Compiles a pattern. `escape` is `None` without an escape character; `folds` is true for
    /// ILIKE.
    pub(crate) fn new(text: &str, escape: Option<char>, folds: bool) -> Result<Self, RowError> {
        let mut parts = vec![Vec::new()];
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            let part = parts.last_mut().expect("there is one from the beginning on");
            match letter {
                _ if Some(letter) == escape => {
                    push(part, letters.next().ok_or(RowError::InvalidEscape)?, folds);
                }
                '%' => parts.push(Vec::new()),
                '_' => part.push(Symbol::AnyCharacter),
                _ => push(part, letter, folds),
            }
        }
        Ok(Self { parts, folds })
    }

    /// Returns the literal prefix of all matching texts, and whether having it suffices to match.
    pub(crate) fn prefix(&self) -> Option<(&str, bool)> {
        let [Symbol::Text(prefix), rest @ ..] = &*self.parts[0] else { return None };
        if self.folds {
            return None;
        }
        let is_all = rest.is_empty() && self.parts.len() == 2 && self.parts[1].is_empty();
        Some((prefix, is_all))
    }

    /// Matches a text. Worst-case time is proportional to the product of the lengths of text and
    /// pattern.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let text = if self.folds { Cow::Owned(lowercase(text)) } else { Cow::Borrowed(text) };
        let Some(mut rest) = strip(&text, &self.parts[0]) else { return false };
        let [_, middle @ .., last] = &*self.parts else { return rest.is_empty() };
        for part in middle {
            match find(rest, part) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        ends_with(rest, last)
    }
}

/// Returns whether a text matches a LIKE pattern, compared from left to right. A pattern that ends
/// with its escape character is an error only if matching reaches its end.
///
/// Takes time up to the product of both lengths.
pub fn is_like(text: &str, pattern: &str) -> Result<bool, RowError> {
    compared(text, pattern, Some('\\'), |one, other| one == other)
}

/// Same as [`is_like`], with any escape character, and with `are_same` to compare characters.
pub(crate) fn compared(
    text: &str,
    pattern: &str,
    escape: Option<char>,
    are_same: impl Fn(char, char) -> bool,
) -> Result<bool, RowError> {
    let begins =
        |text: &mut Chars<'_>, letter: char| text.next().is_some_and(|it| are_same(it, letter));
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    // Backtracking point: the rest of the text and of the pattern after the last `%`.
    let mut last: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let is_over = text.as_str().is_empty();
        let sign = if is_over { None } else { pattern.next() };
        let is_same = match sign {
            None if is_over => return Ok(pattern.all(|it| it == '%')),
            None => false,
            Some(sign) if Some(sign) == escape => {
                let plain = pattern.next().ok_or(RowError::InvalidEscape)?;
                begins(&mut text, plain)
            }
            Some('%') => {
                if !skip_any(&mut text, &mut pattern) {
                    return Ok(false);
                }
                if pattern.as_str().is_empty() {
                    return Ok(true);
                }
                last = Some((text.clone(), pattern.clone()));
                check_letter(pattern.clone(), escape)?;
                true
            }
            Some('_') => text.next().is_some(),
            Some(sign) => begins(&mut text, sign),
        };
        if is_same {
            continue;
        }
        let Some((tried, behind)) = &mut last else { return Ok(false) };
        if tried.next().is_none() || tried.as_str().is_empty() {
            return Ok(false);
        }
        (text, pattern) = (tried.clone(), behind.clone());
    }
}

/// Skips `%` and `_` after a `%`. Each `_` consumes a character. Returns false if none is left.
fn skip_any(text: &mut Chars<'_>, pattern: &mut Chars<'_>) -> bool {
    loop {
        match pattern.clone().next() {
            Some('%') => {}
            Some('_') => {
                if text.next().is_none() {
                    return false;
                }
            }
            _ => return true,
        }
        pattern.next();
    }
}

/// Rejects a pattern that ends with the escape character.
fn check_letter(mut pattern: Chars<'_>, escape: Option<char>) -> Result<(), RowError> {
    match escape.is_some() && pattern.next() == escape && pattern.next().is_none() {
        true => Err(RowError::InvalidEscape),
        false => Ok(()),
    }
}

fn push(part: &mut Vec<Symbol>, letter: char, folds: bool) {
    if !matches!(part.last(), Some(Symbol::Text(_))) {
        part.push(Symbol::Text(String::new()));
    }
    let Some(Symbol::Text(text)) = part.last_mut() else { return };
    match folds {
        true => text.push(lower(letter)),
        false => text.push(letter),
    }
}

/// Matches `part` at the start of `text`. Returns the remaining text.
fn strip<'a>(text: &'a str, part: &[Symbol]) -> Option<&'a str> {
    part.iter().try_fold(text, |rest, symbol| match symbol {
        Symbol::Text(text) => rest.strip_prefix(text.as_str()),
        Symbol::AnyCharacter => {
            let mut letters = rest.chars();
            letters.next().map(|_| letters.as_str())
        }
    })
}

/// Finds the first match of `part` in `text`. Returns the text after it.
fn find<'a>(text: &'a str, part: &[Symbol]) -> Option<&'a str> {
    match part {
        [] => Some(text),
        [Symbol::Text(first), after @ ..] => {
            let mut from = text;
            loop {
                let at = from.find(first.as_str())?;
                if let Some(rest) = strip(&from[at + first.len()..], after) {
                    return Some(rest);
                }
                let next = from[at..].chars().next().map_or(1, char::len_utf8);
                from = &from[at + next..];
            }
        }
        _ => {
            let starts = text.char_indices().map(|(at, _)| at);
            starts.filter_map(|at| strip(&text[at..], part)).next()
        }
    }
}

fn ends_with(text: &str, part: &[Symbol]) -> bool {
    part.iter()
        .rev()
        .try_fold(text, |rest, symbol| match symbol {
            Symbol::Text(text) => rest.strip_suffix(text.as_str()),
            Symbol::AnyCharacter => {
                let mut letters = rest.chars();
                letters.next_back().map(|_| letters.as_str())
            }
        })
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_character_at_the_end_is_wrong_where_a_text_comes_to_it() {
        for (text, pattern, expected) in [
            ("a", "b\\", Some(false)),
            ("ab", "a\\", None),
            ("a", "a\\", Some(false)),
            ("", "\\", Some(false)),
            ("x", "\\", None),
            ("", "%\\", Some(false)),
            ("abc", "%\\", None),
            ("abc", "%c\\", Some(false)),
            ("abcd", "%c\\", None),
            ("a", "__\\", Some(false)),
            ("", "%_\\", Some(false)),
            ("a\\", "a\\\\", Some(true)),
            ("a%", "a\\%", Some(true)),
            ("aabaabaac", "%aab%aac", Some(true)),
            ("aabaabaac", "%aab%aab", Some(false)),
            ("äöü", "_ö%", Some(true)),
            ("abab", "%ab", Some(true)),
            ("", "%", Some(true)),
            ("ab", "a_%_", Some(false)),
        ] {
            assert_eq!(is_like(text, pattern).ok(), expected, "{text} LIKE {pattern}");
            if let (Some(expected), Ok(cut)) = (expected, Pattern::new(pattern, Some('\\'), false))
            {
                assert_eq!(cut.matches(text), expected, "{text} LIKE {pattern}");
            }
        }
    }
}
