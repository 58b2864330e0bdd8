//! Tokenizes the text of statements, and enforces limits before parsing.

use std::collections::HashSet;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::operators::with_operators;
use crate::error::{SqlError, SqlState};

/// Maximum bytes of the text in one message.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Maximum nesting of brackets, and maximum number of operators of an expression with those of one
/// part in brackets at each level, and of set operations: both determine the depth of the plan.
const NESTING_MAX: usize = 50;
const OPERATOR_DEPTH_MAX: usize = 500;

/// Maximum number of operators of a statement. WITH queries that build on each other add up, so
/// that all operators of a statement with them count as nested.
const OPERATOR_COUNT_MAX: usize = 2_000;

/// Keyword operators, each of which can follow another one without parentheses.
const OPERATORS: &[&str] = &[
    "AND", "AT", "BETWEEN", "CASE", "COLLATE", "ILIKE", "IN", "IS", "ISNULL", "JOIN", "LIKE",
    "MEMBER", "NOT", "NOTNULL", "OR", "OVERLAPS", "REGEXP", "RLIKE", "SIMILAR", "XOR",
];

/// Operators that nest although commas may stand between them.
const SET_OPERATORS: &[&str] = &["EXCEPT", "INTERSECT", "MINUS", "UNION"];

/// The words of one statement, including white space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(pub(crate) Vec<TokenWithSpan>);

impl Words {
    /// Iterates over the words, without white space and comments.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter().map(|it| &it.token).filter(|it| !matches!(it, Token::Whitespace(_)))
    }

    /// Iterates over [`Words::iter`] in upper case; an empty string for quoted words and symbols.
    /// To be traversed once only: a text of the maximum length has many words.
    pub(crate) fn keywords(&self) -> impl Iterator<Item = String> {
        self.iter().map(keyword_of)
    }

    /// Returns the item of [`Words::keywords`] at an index, or an empty string past the end.
    pub(crate) fn keyword(&self, index: usize) -> String {
        self.iter().nth(index).map(keyword_of).unwrap_or_default()
    }

    /// Returns the identifier at an index of [`Words::iter`], in lower case unless quoted.
    ///
    /// # Errors
    /// The word is not an identifier.
    pub(crate) fn name(&self, index: usize) -> Result<String, SqlError> {
        name_of(self.iter().nth(index))
    }

    /// Number of parameters: the largest number in `$1`, `$2`….
    ///
    /// # Errors
    /// A number exceeds what clients can send.
    pub(crate) fn parameter_count(&self) -> Result<usize, SqlError> {
        let names = self.iter().filter_map(|it| match it {
            Token::Placeholder(name) => Some(name),
            _ => None,
        });
        let mut count = 0;
        for name in names {
            let number = name.strip_prefix('$').and_then(|it| it.parse::<u16>().ok());
            let number = number.filter(|it| *it > 0).ok_or_else(|| {
                SqlError::new(SqlState::SYNTAX, format!("there is no parameter {name}"))
            })?;
            count = count.max(usize::from(number));
        }
        Ok(count)
    }

    /// Returns the first parameter without an occurrence and a declared type, such as `$1`.
    pub(crate) fn unused_parameter(&self, declared: &[u32]) -> Result<Option<String>, SqlError> {
        let names = self.iter().filter_map(|it| match it {
            Token::Placeholder(name) => Some(name.clone()),
            _ => None,
        });
        let names: HashSet<String> = names.collect();
        let untyped = (0..self.parameter_count()?)
            .filter(|index| declared.get(*index).is_none_or(|oid| *oid == 0));
        Ok(untyped.map(|index| format!("${}", index + 1)).find(|it| !names.contains(it)))
    }

    /// Formats the words as a text that can be parsed, and replaces each `$1` by `parameter`.
    pub(crate) fn source(&self, parameter: &dyn Fn(&str) -> String) -> String {
        let double = |text: &str, quote: char| text.replace(quote, &format!("{quote}{quote}"));
        let words = self.0.iter().map(|it| match &it.token {
            // The tokenizer keeps the contents of these strings, not their notation.
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::UnicodeStringLiteral(text)
            | Token::NationalStringLiteral(text) => format!("'{}'", double(text, '\'')),
            Token::Word(word) if word.quote_style == Some('"') => {
                format!("\"{}\"", double(&word.value, '"'))
            }
            Token::Placeholder(name) => parameter(name),
            other => other.to_string(),
        });
        words.collect()
    }

    /// Returns the rest after `count` words.
    pub(crate) fn after(&self, count: usize) -> Self {
        let mut left = count;
        let rest = self.0.iter().skip_while(|it| {
            let is_space = matches!(it.token, Token::Whitespace(_));
            let is_skipped = is_space || left > 0;
            left = left.saturating_sub(usize::from(!is_space));
            is_skipped
        });
        Self(rest.cloned().collect())
    }
}

fn keyword_of(word: &Token) -> String {
    match word {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
        _ => String::new(),
    }
}

/// Returns the identifier in a word.
///
/// # Errors
/// The word is not an identifier.
pub(super) fn name_of(word: Option<&Token>) -> Result<String, SqlError> {
    match word {
        Some(Token::Word(word)) => Ok(match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_ascii_lowercase(),
        }),
        _ => Err(SqlError::new(SqlState::SYNTAX, "syntax error: a name is missing")),
    }
}

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|it| write!(f, "{}", it.token))
    }
}

/// Splits a text into statements, without empty ones.
pub(crate) fn split(text: &str) -> Result<Vec<Words>, SqlError> {
    if text.len() > TEXT_BYTES_MAX {
        let length = text.len();
        let what = format!("query string of {length} bytes exceeds the limit of {TEXT_BYTES_MAX}");
        return Err(SqlError::new(SqlState::TOO_LARGE, what));
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    let tokens =
        tokens.map_err(|error| SqlError::from(ParserError::TokenizerError(error.to_string())))?;
    let mut statements = Vec::new();
    let mut current = Words::default();
    for token in with_operators(tokens, text)? {
        let token_span = token.span;
        match token.token {
            Token::SemiColon => statements.push(std::mem::take(&mut current)),
            // These mean the same, and the parser recognizes only this kind.
            Token::UnicodeStringLiteral(text) | Token::NationalStringLiteral(text) => {
                let token = Token::SingleQuotedString(text);
                current.0.push(TokenWithSpan { token, span: token_span });
            }
            _ => current.0.push(token),
        }
    }
    statements.push(current);
    statements.retain(|words| words.iter().next().is_some());
    statements.iter().try_for_each(check)?;
    Ok(statements)
}

/// Rejects statements whose plans would be too deep.
fn check(words: &Words) -> Result<(), SqlError> {
    let too_complex = |what: String| Err(SqlError::new(SqlState::TOO_COMPLEX, what));
    check_numbers(words)?;
    let (mut operators, mut has_with) = (Operators::default(), false);
    for token in words.iter() {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => operators.open(),
            Token::RParen | Token::RBracket | Token::RBrace => operators.close(),
            Token::Comma => operators.level.next_item(),
            Token::Word(word) if word.quote_style.is_none() => {
                let name = word.value.to_ascii_uppercase();
                has_with |= name == "WITH";
                match SET_OPERATORS.contains(&&*name) {
                    true => operators.add_set_operation(),
                    false => operators.add(usize::from(OPERATORS.contains(&&*name))),
                }
            }
            Token::DoubleQuotedByteStringLiteral(_)
            | Token::TripleSingleQuotedString(_)
            | Token::TripleDoubleQuotedString(_)
            | Token::TripleSingleQuotedByteStringLiteral(_)
            | Token::TripleDoubleQuotedByteStringLiteral(_)
            | Token::SingleQuotedRawStringLiteral(_)
            | Token::DoubleQuotedRawStringLiteral(_)
            | Token::TripleSingleQuotedRawStringLiteral(_)
            | Token::TripleDoubleQuotedRawStringLiteral(_) => {
                let what = format!("syntax error: {token} is not a PostgreSQL literal");
                return Err(SqlError::new(SqlState::SYNTAX, what));
            }
            Token::Period
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_)
            | Token::Word(_) => {}
            _ => operators.add(1),
        }
        if operators.around.len() > NESTING_MAX {
            return too_complex(format!(
                "parentheses are nested more than {NESTING_MAX} levels deep"
            ));
        }
    }
    let count = operators.count;
    if count > OPERATOR_COUNT_MAX {
        return too_complex(format!(
            "statement too complex: {count} operators exceed the limit of {OPERATOR_COUNT_MAX}"
        ));
    }
    let depth = if has_with { count } else { operators.depth() };
    match depth > OPERATOR_DEPTH_MAX {
        true => too_complex(format!(
            "statement too complex: {depth} nested operators exceed the limit of \
             {OPERATOR_DEPTH_MAX}"
        )),
        false => Ok(()),
    }
}

/// Operators of a statement, in the brackets around the current word.
#[derive(Default)]
struct Operators {
    count: usize,
    level: Level,
    /// The levels outside of the current brackets, outermost first.
    around: Vec<Level>,
}

/// Operators in one pair of brackets.
#[derive(Default)]
struct Level {
    /// Operators of the current item of a list, and the most of an item before.
    own: usize,
    most: usize,
    /// The most operators in brackets in an item. A subquery behind FROM is nested in all of them.
    nested: usize,
    /// Set operations of all items.
    sets: usize,
}

impl Level {
    fn next_item(&mut self) {
        self.most = self.most.max(self.own);
        self.own = 0;
    }

    fn depth(&self) -> usize {
        self.sets + self.most.max(self.own) + self.nested
    }
}

impl Operators {
    fn add(&mut self, count: usize) {
        self.count += count;
        self.level.own += count;
    }

    fn add_set_operation(&mut self) {
        self.count += 1;
        self.level.sets += 1;
    }

    fn open(&mut self) {
        self.around.push(std::mem::take(&mut self.level));
    }

    fn close(&mut self) {
        let Some(outer) = self.around.pop() else { return };
        let inner = std::mem::replace(&mut self.level, outer);
        self.level.nested = self.level.nested.max(inner.depth());
    }

    /// Returns the depth of the statement, at its end.
    fn depth(mut self) -> usize {
        while !self.around.is_empty() {
            self.close();
        }
        self.level.depth()
    }
}

/// Rejects numbers and operators that PostgreSQL does not accept.
fn check_numbers(words: &Words) -> Result<(), SqlError> {
    for (index, word) in words.0.iter().enumerate() {
        let what = match &word.token {
            Token::DoubleEq => {
                let what = "operator does not exist: ==";
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what));
            }
            Token::Number(digits, is_long) => {
                let next = words.0.get(index + 1).map(|it| &it.token);
                let is_junk = matches!(next, Some(Token::Word(it)) if it.quote_style.is_none());
                (*is_long || is_junk || digits.contains('_')).then_some(digits)
            }
            _ => None,
        };
        if let Some(digits) = what {
            let what = format!("trailing junk after numeric literal at or near {digits:?}");
            return Err(SqlError::new(SqlState::SYNTAX, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_semicolons_outside_of_quotes() {
        let statements = split("select ';' ; -- a; b\n ; begin;").expect("good texts");
        let texts: Vec<_> = statements.iter().map(|it| it.to_string().trim().to_owned()).collect();
        assert_eq!(texts.len(), 2);
        assert_eq!(texts[0], "select ';'");
        assert_eq!(statements[1].keyword(0), "BEGIN");
        assert_eq!(statements[0].after(1).to_string().trim(), "';'");
    }

    #[test]
    fn texts_are_the_same_however_they_were_written() {
        let words = split(r"select E'a\'b\n', U&'d\0061t', 'it''s', $$x'$$, $1").expect("good");
        let source = words[0].source(&|_| "'p'".to_owned());
        assert_eq!(source, "select 'a''b\n', 'dat', 'it''s', $$x'$$, 'p'");
    }

    #[test]
    fn what_nests_too_deeply_or_is_too_long_is_refused() {
        let deep = format!("select {}1{}", "(".repeat(51), ")".repeat(51));
        let wide = format!("select 1{}", "+1".repeat(1_001));
        let tests = format!("select 1{}", " is null".repeat(501));
        let sets = format!("select 1{}", " intersect select 1".repeat(501));
        let sets_of_two = format!("select 1, 2{}", " union select 1, 2".repeat(501));
        let rows = |count: usize| format!("select 1{}", " or (a = 1 and b = 2)".repeat(count));
        let with = format!("with q as (select 1) {}", rows(126));
        let deep_rows = format!("select ({}){}", &rows(250)[7..], "+1".repeat(251));
        let from = format!("select 1{0}, 0 from (select 1{0}, 0) t", "+1".repeat(251));
        let long = format!("select '{}'", "x".repeat(TEXT_BYTES_MAX));
        for (text, state) in [
            (deep, SqlState::TOO_COMPLEX),
            (wide, SqlState::TOO_COMPLEX),
            (tests, SqlState::TOO_COMPLEX),
            (sets, SqlState::TOO_COMPLEX),
            (sets_of_two, SqlState::TOO_COMPLEX),
            (rows(498), SqlState::TOO_COMPLEX),
            (with, SqlState::TOO_COMPLEX),
            (deep_rows, SqlState::TOO_COMPLEX),
            (from, SqlState::TOO_COMPLEX),
            (format!("select {}", vec!["1+1"; 2_001].join(",")), SqlState::TOO_COMPLEX),
            (long, SqlState::TOO_LARGE),
            ("select 'open".to_owned(), SqlState::SYNTAX),
        ] {
            assert_eq!(split(&text).expect_err("refused").state, state);
        }
        let list = vec!["1"; 10_000].join(",");
        split(&format!("select 1 in ({list})")).expect("lists may be long");
        split(&rows(497)).expect("parts beside each other do not nest");
    }
}
