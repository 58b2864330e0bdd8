//! Functions that extract matches of regular expressions with PostgreSQL's semantics: of the
//! matches that start first, the longest, or the shortest if the pattern is not greedy. The search
//! continues where a match ended, or one character after an empty match.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;
use regex::{Regex, RegexBuilder};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input, MatchKind};

use super::by_row::{
    Body, RESULT_BYTES_MAX, Returns, Row, function, is_text, text_field, text_value, too_much,
};
use super::regex::{finding_regex, without_option};
use crate::engine::errors::reason_of_regex;
use crate::error::{SqlError, SqlState};

/// Functions that return all results as a list, for set-returning functions.
pub(super) const MATCHES: &str = "regexp_matches_of";
pub(super) const PIECES: &str = "regexp_pieces_of";

/// Maximum memory of a compiled expression.
const REGEX_BYTES_MAX: usize = 4 << 20;

/// Flags that change the meaning of a pattern. They are rejected.
const OTHER_FLAGS: &str = "bemnpqtwx";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        ("regexp_replace", of_replacement, replaced),
        ("regexp_match", of_pattern_as_list, first_match),
        ("regexp_substr", of_part, substring),
        ("regexp_instr", of_place, place),
        ("regexp_count", of_counted, count),
        ("regexp_split_to_array", of_pattern_as_list, pieces),
        (PIECES, of_pattern_as_list, pieces),
        (MATCHES, of_pattern_as_lists, all_matches),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

/// Returns whether an argument is an integer other than bigint.
fn is_number(field: &FieldRef) -> bool {
    let is_narrow = |it: &DataType| it.is_integer() && !matches!(it, DataType::Int64);
    is_narrow(field.data_type()) || field.data_type().is_null()
}

/// Result type for text, pattern and replacement, followed by flags, or by start, occurrence and
/// flags.
fn of_replacement(fields: &[FieldRef]) -> Result<Field, String> {
    let is_known = match fields {
        [texts @ .., flags] if texts.len() == 3 && is_text(flags) => texts.iter().all(is_text),
        [text, pattern, replacement, rest @ ..] if rest.len() <= 3 => {
            let (numbers, flags) = rest.split_at(rest.len().min(2));
            [text, pattern, replacement].into_iter().all(is_text)
                && numbers.iter().all(is_number)
                && flags.iter().all(is_text)
        }
        _ => false,
    };
    if is_known { Ok(text_field()) } else { Err(String::new()) }
}

/// Checks the arguments text, pattern and optional flags.
fn has_pattern(fields: &[FieldRef]) -> Result<(), String> {
    match (2..=3).contains(&fields.len()) && fields.iter().all(is_text) {
        true => Ok(()),
        false => Err(String::new()),
    }
}

/// Checks the arguments text and pattern, up to `number_count` numbers, flags, and a group number.
fn has_places(fields: &[FieldRef], number_count: usize, has_group: bool) -> Result<(), String> {
    let is_known = match fields {
        [text, pattern, rest @ ..] if is_text(text) && is_text(pattern) => {
            let (numbers, rest) = rest.split_at(rest.len().min(number_count));
            let (flags, rest) = rest.split_at(rest.len().min(1));
            numbers.iter().all(is_number)
                && flags.iter().all(is_text)
                && rest.len() <= usize::from(has_group)
                && rest.iter().all(is_number)
        }
        _ => false,
    };
    if is_known { Ok(()) } else { Err(String::new()) }
}

fn of_counted(fields: &[FieldRef]) -> Result<Field, String> {
    has_places(fields, 1, false).map(|()| Field::new("", DataType::Int32, true))
}

fn of_place(fields: &[FieldRef]) -> Result<Field, String> {
    has_places(fields, 3, true).map(|()| Field::new("", DataType::Int32, true))
}

fn of_part(fields: &[FieldRef]) -> Result<Field, String> {
    has_places(fields, 2, true).map(|()| text_field())
}

fn of_pattern_as_list(fields: &[FieldRef]) -> Result<Field, String> {
    has_pattern(fields).map(|()| Field::new("", list_type(DataType::Utf8), true))
}

fn of_pattern_as_lists(fields: &[FieldRef]) -> Result<Field, String> {
    has_pattern(fields).map(|()| Field::new("", list_type(list_type(DataType::Utf8)), true))
}

fn list_type(of: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(of, true)))
}

/// Start and end of a match and of each group.
type Found = Vec<Option<(usize, usize)>>;

/// Compiled pattern: finds the first match and its extent.
struct Finder {
    regex: Regex,
    /// Finds the last end of the matches from a position, or the first if non-greedy.
    ends: DFA,
    cache: RefCell<Cache>,
    is_lazy: bool,
    /// True if the form of the pattern allows only one end for each match.
    is_plain: bool,
}

impl Finder {
    fn of(pattern: &str, is_folded: bool) -> Result<Self, SqlError> {
        let (rest, is_folded) = without_option(pattern, is_folded);
        let (text, is_lazy) = finding_regex(rest, is_folded)?;
        let has_bar = has_bar(rest);
        if has_bar && is_lazy {
            let what =
                "regular expressions: alternation (|) with non-greedy quantifiers is not supported";
            return Err(SqlError::unsupported(what));
        }
        let invalid = |error: &dyn Error| {
            let reason = error.to_string();
            let what = format!("invalid regular expression: {}", reason_of_regex(&reason));
            SqlError::new(SqlState::INVALID_REGEX, what)
        };
        let regex = RegexBuilder::new(&text).size_limit(REGEX_BYTES_MAX).build();
        let regex = regex.map_err(|error| invalid(&error))?;
        if has_bar && regex.captures_len() > 1 {
            return Err(SqlError::unsupported(
                "regular expressions: capturing groups in a pattern with alternation (|) are not \
                 supported",
            )
            .with_hint("Use non-capturing groups (?:…)."));
        }
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .unicode_word_boundary(true)
            .skip_cache_capacity_check(true);
        let limit = thompson::Config::new().nfa_size_limit(Some(REGEX_BYTES_MAX));
        let ends = DFA::builder().configure(config).thompson(limit).build(&text);
        let ends = ends.map_err(|error| invalid(&error))?;
        let is_plain = !has_bar && ![")?", ")*", ")+", "){"].iter().any(|it| rest.contains(it));
        let cache = RefCell::new(ends.create_cache());
        Ok(Self { regex, ends, cache, is_lazy, is_plain })
    }

    /// Returns the first match at or after a position.
    fn find(&self, text: &str, from: usize) -> Result<Option<Found>, SqlError> {
        let Some(captures) = self.regex.captures_at(text, from) else { return Ok(None) };
        let mut found: Found =
            captures.iter().map(|it| it.map(|it| (it.start(), it.end()))).collect();
        let Some((start, end)) = found[0] else { return Ok(None) };
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let input = input.earliest(self.is_lazy);
        let real_end = match self.ends.try_search_fwd(&mut self.cache.borrow_mut(), &input) {
            Ok(Some(found)) => found.offset(),
            Ok(None) => end,
            // The DFA does not support Unicode word boundaries.
            Err(_) if self.is_plain => end,
            Err(_) => {
                let what = "regular expressions: word boundaries next to non-ASCII letters are \
                            not supported";
                return Err(SqlError::unsupported(what));
            }
        };
        if real_end != end && found.len() > 1 {
            let what =
                "regular expressions: capturing groups in an ambiguous match are not supported";
            return Err(SqlError::unsupported(what));
        }
        found[0] = Some((start, real_end));
        Ok(Some(found))
    }

    /// Passes all matches to `take` until it returns `false`.
    fn each(
        &self,
        text: &str,
        mut from: usize,
        mut take: impl FnMut(Found) -> bool,
    ) -> Result<(), SqlError> {
        while let Some(found) = self.find(text, from)? {
            let Some((start, end)) = found[0] else { return Ok(()) };
            if !take(found) {
                return Ok(());
            }
            from = match (start == end, text[end..].chars().next()) {
                (false, _) => end,
                (true, Some(letter)) => end + letter.len_utf8(),
                (true, None) => return Ok(()),
            };
        }
        Ok(())
    }
}

/// Returns whether a pattern contains an alternation, outside of bracket expressions and escapes.
fn has_bar(pattern: &str) -> bool {
    let mut signs = pattern.char_indices();
    while let Some((_, sign)) = signs.next() {
        match sign {
            '\\' => {
                signs.next();
            }
            '[' => pass_set(&mut signs),
            '|' => return true,
            _ => {}
        }
    }
    false
}

/// Skips a bracket expression after its `[`. A leading `]` is a member of the set.
fn pass_set(signs: &mut std::str::CharIndices<'_>) {
    let mut rest = signs.clone().map(|(_, it)| it).peekable();
    let mut length = 0;
    for sign in ['^', ']'] {
        length += usize::from(rest.next_if_eq(&sign).is_some());
    }
    let mut class = None;
    while let Some(sign) = rest.next() {
        length += 1;
        match (class, sign) {
            (None, '[') => class = rest.peek().copied().filter(|it| matches!(it, ':' | '.' | '=')),
            (Some(of), it) if it == of && rest.peek() == Some(&']') => {
                length += 1;
                rest.next();
                class = None;
            }
            (None, '\\') => length += usize::from(rest.next().is_some()),
            (None, ']') => break,
            _ => {}
        }
    }
    for _ in 0..length {
        signs.next();
    }
}

/// Flags of a pattern.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    pub(super) is_global: bool,
    pub(super) is_folded: bool,
}

impl Flags {
    pub(super) fn of(text: &str) -> Result<Self, SqlError> {
        let mut flags = Self::default();
        for sign in text.chars() {
            match sign {
                'g' => flags.is_global = true,
                'i' => flags.is_folded = true,
                'c' => flags.is_folded = false,
                's' => {}
                it if OTHER_FLAGS.contains(it) => {
                    let what = "regular expression flags other than 'g', 'i', 'c' and 's' are not \
                                supported";
                    return Err(SqlError::unsupported(what));
                }
                other => {
                    let what = format!("invalid regular expression option: \"{other}\"");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
                }
            }
        }
        Ok(flags)
    }

    /// Error: a function does not support the global flag.
    pub(super) fn no_global(name: &str) -> SqlError {
        let what = format!("{name}() does not support the \"global\" option");
        SqlError::new(SqlState::INVALID_PARAMETER, what)
    }
}

thread_local! {
    /// Last pattern used, because most calls have the same one.
    static LAST: RefCell<Option<(String, bool, Rc<Finder>)>> = const { RefCell::new(None) };
}

fn finder(pattern: &str, is_folded: bool) -> Result<Rc<Finder>, SqlError> {
    LAST.with_borrow_mut(|last| {
        if let Some((text, folded, finder)) = last
            && text == pattern
            && *folded == is_folded
        {
            return Ok(Rc::clone(finder));
        }
        let finder = Rc::new(Finder::of(pattern, is_folded)?);
        *last = Some((pattern.to_owned(), is_folded, Rc::clone(&finder)));
        Ok(finder)
    })
}

/// Text, compiled pattern and flags.
type Given<'a> = (&'a str, Rc<Finder>, Flags);

/// Returns the text, pattern and flags of a call, or `None` if an argument is NULL.
fn given<'a>(row: &'a Row<'_>) -> Result<Option<Given<'a>>, SqlError> {
    if row.values.iter().any(ScalarValue::is_null) {
        return Ok(None);
    }
    let (Some(text), Some(pattern)) = (row.text(0), row.text(1)) else { return Ok(None) };
    let flags = Flags::of(row.text(2).unwrap_or_default())?;
    Ok(Some((text, finder(pattern, flags.is_folded)?, flags)))
}

/// Same as [`given`], for a function without the global flag.
fn given_without_g<'a>(
    row: &'a Row<'_>,
    name: &str,
) -> Result<Option<(&'a str, Rc<Finder>)>, SqlError> {
    match given(row)? {
        Some((_, _, Flags { is_global: true, .. })) => Err(Flags::no_global(name)),
        given => Ok(given.map(|(text, finder, _)| (text, finder))),
    }
}

fn texts(values: Vec<Option<&str>>) -> ScalarValue {
    let values: Vec<_> =
        values.into_iter().map(|it| ScalarValue::Utf8(it.map(str::to_owned))).collect();
    ScalarValue::List(ScalarValue::new_list(&values, &DataType::Utf8, true))
}

fn no_texts() -> ScalarValue {
    ScalarValue::new_null_list(DataType::Utf8, true, 1)
}

/// Returns the groups of a match, or the whole match without groups.
fn groups(text: &str, found: &Found) -> ScalarValue {
    let groups = if found.len() > 1 { &found[1..] } else { found.as_slice() };
    texts(groups.iter().map(|it| it.map(|(start, end)| &text[start..end])).collect())
}

fn first_match(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some((text, finder)) = given_without_g(row, "regexp_match")? else { return Ok(no_texts()) };
    Ok(finder.find(text, 0)?.map_or_else(no_texts, |found| groups(text, &found)))
}

fn all_matches(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let of = list_type(DataType::Utf8);
    let Some((text, finder, flags)) = given(row)? else {
        return Ok(ScalarValue::new_null_list(of, true, 1));
    };
    let (mut all, mut bytes) = (Vec::new(), 0_usize);
    finder.each(text, 0, |found| {
        let groups = groups(text, &found);
        bytes = bytes.saturating_add(groups.size());
        all.push(groups);
        flags.is_global && bytes <= RESULT_BYTES_MAX
    })?;
    match bytes > RESULT_BYTES_MAX {
        true => Err(too_much("regexp_matches")),
        false => Ok(ScalarValue::List(ScalarValue::new_list(&all, &of, true))),
    }
}

/// Returns a numeric argument, or its default. Fails below `least`.
fn number_of(
    row: &Row<'_>,
    (index, name): (usize, &str),
    default: i64,
    least: i64,
) -> Result<i64, SqlError> {
    let Some(value) = row.values.get(index) else { return Ok(default) };
    match value.cast_to(&DataType::Int64)? {
        ScalarValue::Int64(Some(number)) if number < least => {
            let what = format!("invalid value for parameter \"{name}\": {number}");
            Err(SqlError::new(SqlState::INVALID_PARAMETER, what))
        }
        ScalarValue::Int64(Some(number)) => Ok(number),
        _ => Ok(default),
    }
}

/// Converts a character position from 1 to a byte offset, or an offset past the end.
fn from_letter(text: &str, start: i64) -> usize {
    let skipped = usize::try_from(start - 1).unwrap_or(usize::MAX);
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.nth(skipped).unwrap_or(text.len() + 1)
}

/// Returns the pattern of a call with flags at the given argument index, which must not be global.
fn finder_of(row: &Row<'_>, flags: usize, name: &str) -> Result<Rc<Finder>, SqlError> {
    let flags = Flags::of(row.text(flags).unwrap_or_default())?;
    if flags.is_global {
        return Err(Flags::no_global(name));
    }
    finder(row.text(1).unwrap_or_default(), flags.is_folded)
}

/// Returns the n-th match, or one of its groups, if it exists.
fn nth_match(
    row: &Row<'_>,
    (flags, name): (usize, &str),
) -> Result<Option<(usize, usize)>, SqlError> {
    let text = row.text(0).unwrap_or_default();
    let start = number_of(row, (2, "start"), 1, 1)?;
    let number = number_of(row, (3, "n"), 1, 1)?;
    let group = number_of(row, (flags + 1, "subexpr"), 0, 0)?;
    let finder = finder_of(row, flags, name)?;
    let (mut count, mut found) = (0, None);
    let from = from_letter(text, start);
    if from <= text.len() {
        finder.each(text, from, |it| {
            count += 1;
            if count == number {
                found = Some(it);
            }
            count < number
        })?;
    }
    let Some(found) = found else { return Ok(None) };
    // Without groups, group 1 is the whole match.
    let group = if found.len() == 1 && group == 1 { 0 } else { group };
    Ok(usize::try_from(group).ok().and_then(|it| found.get(it).copied().flatten()))
}

fn substring(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(text), false) = (row.text(0), row.values.iter().any(ScalarValue::is_null)) else {
        return Ok(ScalarValue::Utf8(None));
    };
    let found = nth_match(row, (4, "regexp_substr"))?;
    Ok(ScalarValue::Utf8(found.map(|(start, end)| text[start..end].to_owned())))
}

fn place(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(text), false) = (row.text(0), row.values.iter().any(ScalarValue::is_null)) else {
        return Ok(ScalarValue::Int32(None));
    };
    let end = number_of(row, (4, "endoption"), 0, 0)?;
    if end > 1 {
        let what = format!("invalid value for parameter \"endoption\": {end}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
    }
    let found = nth_match(row, (5, "regexp_instr"))?;
    let found = found.map(|(start, behind)| if end == 1 { behind } else { start });
    let place = found.map_or(0, |at| text[..at].chars().count() + 1);
    Ok(ScalarValue::Int32(i32::try_from(place).ok()))
}

fn count(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(text), false) = (row.text(0), row.values.iter().any(ScalarValue::is_null)) else {
        return Ok(ScalarValue::Int32(None));
    };
    let from = from_letter(text, number_of(row, (2, "start"), 1, 1)?);
    let finder = finder_of(row, 3, "regexp_count")?;
    let mut count = 0_usize;
    if from <= text.len() {
        finder.each(text, from, |_| {
            count += 1;
            true
        })?;
    }
    Ok(ScalarValue::Int32(i32::try_from(count).ok()))
}

/// Returns the parts between matches, without empty matches at the ends or after another match.
fn pieces(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let Some((text, finder)) = given_without_g(row, "regexp_split_to_array")? else {
        return Ok(no_texts());
    };
    let (mut pieces, mut first, mut last_end) = (Vec::new(), 0, 0);
    finder.each(text, 0, |found| {
        if let Some((start, end)) = found[0] {
            if start < text.len() && end > last_end {
                pieces.push(Some(&text[first..start]));
                first = end;
            }
            last_end = end;
        }
        pieces.len() <= RESULT_BYTES_MAX / size_of::<ScalarValue>()
    })?;
    if pieces.len() > RESULT_BYTES_MAX / size_of::<ScalarValue>() {
        return Err(too_much("regexp_split_to_array"));
    }
    pieces.push(Some(&text[first..]));
    Ok(texts(pieces))
}

/// Matches to replace.
struct Replaced {
    from: usize,
    /// Number of the match, from 1. 0 means all.
    number: i64,
    is_folded: bool,
}

fn replaced_ones(row: &Row<'_>, text: &str) -> Result<Replaced, SqlError> {
    if let Some(given) = row.text(3) {
        let flags = Flags::of(given)?;
        let number = i64::from(!flags.is_global);
        return Ok(Replaced { from: 0, number, is_folded: flags.is_folded });
    }
    let start = number_of(row, (3, "start"), 1, 1)?;
    // Without a number, the flags decide whether all are replaced.
    let number = number_of(row, (4, "n"), 1, 0)?;
    let flags = Flags::of(row.text(5).unwrap_or_default())?;
    Ok(Replaced { from: from_letter(text, start), number, is_folded: flags.is_folded })
}

fn replaced(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    if row.values.iter().any(ScalarValue::is_null) {
        return Ok(ScalarValue::Utf8(None));
    }
    let (Some(text), Some(pattern), Some(replacement)) = (row.text(0), row.text(1), row.text(2))
    else {
        return Ok(ScalarValue::Utf8(None));
    };
    let ones = replaced_ones(row, text)?;
    let finder = finder(pattern, ones.is_folded)?;
    let (mut out, mut copied, mut count) = (String::new(), 0, 0_i64);
    if ones.from <= text.len() {
        finder.each(text, ones.from, |found| {
            let Some((start, end)) = found[0] else { return false };
            count += 1;
            if ones.number > 0 && count != ones.number {
                return true;
            }
            out.push_str(&text[copied..start]);
            put_replacement(replacement, text, &found, &mut out);
            copied = end;
            ones.number == 0 && out.len() <= RESULT_BYTES_MAX
        })?;
    }
    if out.len() > RESULT_BYTES_MAX {
        return Err(too_much("regexp_replace"));
    }
    out.push_str(&text[copied..]);
    Ok(text_value(out))
}

/// Appends a replacement: `\&` is the match, and `\1` its first group. Before any other character,
/// a backslash is literal.
fn put_replacement(replacement: &str, text: &str, found: &Found, out: &mut String) {
    let mut signs = replacement.chars().peekable();
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            out.push(sign);
            continue;
        }
        let group = match signs.peek() {
            Some('&') => Some(0),
            Some(digit @ '1'..='9') => digit.to_digit(10).and_then(|it| usize::try_from(it).ok()),
            Some('\\') => {
                signs.next();
                out.push('\\');
                continue;
            }
            _ => None,
        };
        match group {
            Some(group) => {
                signs.next();
                if let Some((start, end)) = found.get(group).copied().flatten() {
                    out.push_str(&text[start..end]);
                }
            }
            None => out.push('\\'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_in_sets_and_behind_a_backslash_part_nothing() {
        for (pattern, expected) in [
            ("a|b", true),
            ("(?:a|b)", true),
            ("a\\|b", false),
            ("[|]|x", true),
            ("[|][]|][^]|[:alpha:]|]", false),
        ] {
            assert_eq!(has_bar(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn the_longest_of_the_first_matches_is_found_or_the_shortest() -> Result<(), SqlError> {
        for (pattern, expected) in [
            ("b|ab|abc", (1, 4)),
            ("(?:a|ab)(?:c|bcd)?", (1, 5)),
            ("a?(?:ab)?", (0, 0)),
            ("x(?:a|ab)?", (0, 3)),
            ("a.*?c", (1, 4)),
        ] {
            let found = Finder::of(pattern, false)?.find("xabcd", 0)?;
            assert_eq!(found, Some(vec![Some(expected)]), "{pattern}");
        }
        assert!(Finder::of("(a)|b", false).is_err(), "groups are not told of alternatives");
        let ambiguous = Finder::of("(a)?(?:ab)?", false)?.find("ab", 0);
        assert!(ambiguous.is_err(), "the longest match has other groups");
        Ok(())
    }
}
