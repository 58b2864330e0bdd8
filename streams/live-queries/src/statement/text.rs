//! Bounded tokens of the SQL parser, and words that it does not know as keywords.

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};

use crate::error::{SqlError, SqlState};
use crate::expr::folded;
use crate::limits::{STATEMENT_BYTES_MAX, STATEMENT_DEPTH_MAX, STATEMENT_OPERATORS_MAX};
use crate::statement::dialect::Postgres;

static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

/// Returns the first word of a statement in upper case, after spaces and comments.
pub(super) fn first_word(sql: &str) -> Option<String> {
    let mut rest = sql.trim_start();
    loop {
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n')?.1.trim_start()
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/")?.1.trim_start()
        } else {
            break;
        };
    }
    let end = rest.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(rest.len());
    Some(rest[..end].to_ascii_uppercase())
}

/// Reads `sql` with a parser, after its size and nesting were checked.
pub(super) fn parsed<T>(
    sql: &str,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    if sql.len() > STATEMENT_BYTES_MAX {
        let message = format!("a statement has more than {STATEMENT_BYTES_MAX} bytes");
        return Err(SqlError::new(SqlState::TOO_LARGE, message));
    }
    let tokens = Tokenizer::new(&DIALECT, sql).tokenize_with_location();
    let tokens = tokens.map_err(|error| SqlError::new(SqlState::SYNTAX, error.to_string()))?;
    let operator_count = tokens.iter().filter(|it| can_nest(it)).count();
    if operator_count > STATEMENT_OPERATORS_MAX {
        let message =
            format!("a statement has more than {STATEMENT_OPERATORS_MAX} operators and keywords");
        return Err(SqlError::new(SqlState::TOO_COMPLEX, message));
    }
    let dialect = Postgres::new(tokens.len(), || false);
    let parser = Parser::new(&dialect).with_recursion_limit(STATEMENT_DEPTH_MAX);
    read(&mut parser.with_tokens_with_locations(tokens))
}

fn can_nest(token: &TokenWithSpan) -> bool {
    match &token.token {
        Token::Word(word) => word.keyword != Keyword::NoKeyword && !is_column(word),
        Token::Whitespace(_)
        | Token::Comma
        | Token::Period
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EOF => false,
        _ => true,
    }
}

/// Returns whether a word is a column name, including some that are keywords elsewhere.
fn is_column(word: &Word) -> bool {
    use Keyword::{KEY, OFFSET, PARTITION, TIME, VALUE};
    word.quote_style.is_some() || matches!(word.keyword, KEY | OFFSET | PARTITION | TIME | VALUE)
}

pub(super) fn syntax_error(error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => {
            let message = format!("a statement has more than {STATEMENT_DEPTH_MAX} levels");
            SqlError::new(SqlState::TOO_COMPLEX, message)
        }
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
            SqlError::new(SqlState::SYNTAX, text)
        }
    }
}

pub(super) fn unexpected(parser: &Parser<'_>, wanted: &str) -> SqlError {
    let token = parser.peek_token();
    let message = format!("syntax error at or near \"{}\": expected {wanted}", token.token);
    SqlError::new(SqlState::SYNTAX, message)
}

/// Returns the part of `sql` from the next token on, without a trailing `;`.
pub(super) fn rest_of<'a>(sql: &'a str, parser: &Parser<'_>) -> &'a str {
    let start = parser.peek_token().span.start;
    let number = |it: u64| usize::try_from(it.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = sql.split_inclusive('\n').take(number(start.line)).map(str::len).sum::<usize>();
    let rest = sql.get(line..).unwrap_or_default();
    let column = rest.char_indices().nth(number(start.column)).map_or(rest.len(), |(at, _)| at);
    rest[column..].trim_end().trim_end_matches(';')
}

/// Consumes the next token if it is `word` without quotes. Returns whether it was.
pub(super) fn take_word(parser: &mut Parser<'_>, word: &str) -> bool {
    let is_next = is_word(&parser.peek_token().token, word);
    if is_next {
        parser.advance_token();
    }
    is_next
}

/// Consumes all of `words`, or nothing.
pub(super) fn take_words(parser: &mut Parser<'_>, words: &[&str]) -> bool {
    let are_next =
        words.iter().enumerate().all(|(at, it)| is_word(&parser.peek_nth_token(at).token, it));
    if are_next {
        words.iter().for_each(|_| parser.advance_token());
    }
    are_next
}

pub(super) fn is_word(token: &Token, word: &str) -> bool {
    let Token::Word(it) = token else { return false };
    it.quote_style.is_none() && it.value.eq_ignore_ascii_case(word)
}

pub(super) fn expect_word(parser: &mut Parser<'_>, word: &str) -> Result<(), SqlError> {
    if take_word(parser, word) { Ok(()) } else { Err(unexpected(parser, word)) }
}

pub(super) fn expect(parser: &mut Parser<'_>, token: &Token) -> Result<(), SqlError> {
    match parser.consume_token(token) {
        true => Ok(()),
        false => Err(unexpected(parser, &token.to_string())),
    }
}

/// Parses a name, folded to lower case unless it is quoted.
pub(super) fn name(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    Ok(folded(&parser.parse_identifier().map_err(syntax_error)?))
}
