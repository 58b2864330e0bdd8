//! LIKE and ILIKE: `%` for any text, `_` for one character, with an escape character.

use std::borrow::Cow;

use crate::error::RowError;
use crate::letters::{lower, lowercase};

/// A pattern, cut at each `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// What stands between `%`: at least one part, the first at the beginning of the text and the
    /// last at its end.
    parts: Vec<Vec<Symbol>>,
    folds: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Symbol {
    Text(String),
    AnyCharacter,
}

impl Pattern {
    /// `escape` is `None` where no character escapes; `folds` for ILIKE.
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

    /// Prefix of every text that matches, and a mark of whether that alone makes it match.
    pub(crate) fn prefix(&self) -> Option<(&str, bool)> {
        let [Symbol::Text(prefix), rest @ ..] = &*self.parts[0] else { return None };
        if self.folds {
            return None;
        }
        let is_all = rest.is_empty() && self.parts.len() == 2 && self.parts[1].is_empty();
        Some((prefix, is_all))
    }

    /// Work grows with the length of the text times that of the pattern, at most.
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

/// The rest of `text` behind `part` at its beginning.
fn strip<'a>(text: &'a str, part: &[Symbol]) -> Option<&'a str> {
    part.iter().try_fold(text, |rest, symbol| match symbol {
        Symbol::Text(text) => rest.strip_prefix(text.as_str()),
        Symbol::AnyCharacter => {
            let mut letters = rest.chars();
            letters.next().map(|_| letters.as_str())
        }
    })
}

/// The rest of `text` behind the first place of `part` in it.
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
