//! Grammar of the statements.

use sqlparser::ast::Query;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::error::{SqlError, SqlState};
use crate::statement::options::{milliseconds, options, point, subscribe_options};
use crate::statement::syntax::{
    AsOf, CopyFormat, CreateAs, CreateKind, Envelope, Fetch, FetchCount, Reach, Statement,
    Subscribe,
};
use crate::statement::text::{
    expect, expect_word, first_word, is_word, name, parsed, rest_of, syntax_error, take_word,
    take_words, unexpected,
};

const UPSERT_KEY_MAX: usize = 256;

/// Parses `sql` if it is a live-query statement, optionally followed by `;`. Returns `None` for any
/// other text.
pub fn parse_statement(sql: &str) -> Result<Option<Statement>, SqlError> {
    let Some(word) = first_word(sql) else { return Ok(None) };
    let is_candidate =
        matches!(word.as_str(), "SUBSCRIBE" | "COPY" | "DECLARE" | "FETCH" | "CREATE" | "DROP");
    if !is_candidate || !is_ours(&word, sql) {
        return Ok(None);
    }
    parsed(sql, |parser| {
        let statement = statement(parser, &word, sql)?;
        end(parser)?;
        Ok(Some(statement))
    })
}

/// Parses a single query, as after AS or in SUBSCRIBE.
pub fn parse_query(sql: &str) -> Result<Box<Query>, SqlError> {
    parsed(sql, |parser| {
        let query = parser.parse_query().map_err(syntax_error)?;
        end(parser)?;
        Ok(query)
    })
}

/// Examines only the first words, so that other statements are not parsed twice.
fn is_ours(word: &str, sql: &str) -> bool {
    let is_ours = parsed(sql, |parser| {
        let is = |at: usize, word: &str| is_word(&parser.peek_nth_token(at).token, word);
        Ok(match word {
            "COPY" => parser.peek_nth_token(1).token == Token::LParen && is(2, "SUBSCRIBE"),
            "DECLARE" => (3..8).any(|at| is(at, "FOR") && is(at + 1, "SUBSCRIBE")),
            "CREATE" | "DROP" => is(1, "TOPIC") || (is(1, "MATERIALIZED") && is(2, "VIEW")),
            _ => true,
        })
    });
    // Too large or not tokenizable: the first word decides.
    is_ours.unwrap_or(matches!(word, "SUBSCRIBE" | "FETCH"))
}

fn statement(parser: &mut Parser<'_>, word: &str, sql: &str) -> Result<Statement, SqlError> {
    parser.advance_token();
    match word {
        "SUBSCRIBE" => Ok(Statement::Subscribe(subscribe(parser)?)),
        "COPY" => copy(parser),
        "DECLARE" => declare(parser),
        "FETCH" => Ok(Statement::Fetch(fetch(parser)?)),
        "CREATE" => Ok(Statement::Create(create(parser, sql)?)),
        _ => {
            let kind = create_kind(parser)?;
            let if_exists = take_words(parser, &["IF", "EXISTS"]);
            Ok(Statement::Drop { kind, name: name(parser)?, if_exists })
        }
    }
}

/// Parses the part after SUBSCRIBE.
fn subscribe(parser: &mut Parser<'_>) -> Result<Subscribe, SqlError> {
    take_word(parser, "TO");
    let query = if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query().map_err(syntax_error)?;
        expect(parser, &Token::RParen)?;
        query
    } else {
        let name = name(parser)?;
        parse_query(&format!("SELECT * FROM \"{}\"", name.replace('"', "\"\"")))?
    };
    let envelope = envelope(parser)?;
    if take_words(parser, &["WITHIN", "TIMESTAMP"]) {
        return Err(SqlError::not_supported("WITHIN TIMESTAMP ORDER BY"));
    }
    let options = subscribe_options(options(parser)?)?;
    let as_of = match take_words(parser, &["AS", "OF"]) {
        true => {
            let is_least = take_words(parser, &["AT", "LEAST"]);
            let reach = if is_least { Reach::AtLeast } else { Reach::Exactly };
            Some(AsOf { point: point(parser)?, reach })
        }
        false => None,
    };
    let up_to = take_words(parser, &["UP", "TO"]).then(|| point(parser)).transpose()?;
    Ok(Subscribe { query, envelope, options, as_of, up_to })
}

fn envelope(parser: &mut Parser<'_>) -> Result<Envelope, SqlError> {
    if !take_word(parser, "ENVELOPE") {
        return Ok(Envelope::Diff);
    }
    if !take_word(parser, "UPSERT") {
        return Err(SqlError::not_supported("envelopes other than UPSERT (KEY (…))"));
    }
    expect(parser, &Token::LParen)?;
    expect_word(parser, "KEY")?;
    expect(parser, &Token::LParen)?;
    let mut key = Vec::new();
    loop {
        key.push(name(parser)?);
        if !parser.consume_token(&Token::Comma) || key.len() == UPSERT_KEY_MAX {
            break;
        }
    }
    expect(parser, &Token::RParen)?;
    expect(parser, &Token::RParen)?;
    Ok(Envelope::Upsert { key })
}

fn copy(parser: &mut Parser<'_>) -> Result<Statement, SqlError> {
    expect(parser, &Token::LParen)?;
    expect_word(parser, "SUBSCRIBE")?;
    let subscribe = subscribe(parser)?;
    expect(parser, &Token::RParen)?;
    expect_word(parser, "TO")?;
    expect_word(parser, "STDOUT")?;
    let format = match parser.peek_token().token {
        Token::LParen => parenthesized_format(parser)?,
        _ if take_word(parser, "WITH") => parenthesized_format(parser)?,
        _ => CopyFormat::default(),
    };
    Ok(Statement::Copy { subscribe, format })
}

fn parenthesized_format(parser: &mut Parser<'_>) -> Result<CopyFormat, SqlError> {
    expect(parser, &Token::LParen)?;
    expect_word(parser, "FORMAT")?;
    let format = match name(parser)?.as_str() {
        "text" => CopyFormat::Text,
        "csv" => CopyFormat::Csv,
        "binary" => CopyFormat::Binary,
        other => {
            let message = format!("COPY format \"{other}\" not recognized");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
        }
    };
    expect(parser, &Token::RParen)?;
    Ok(format)
}

fn declare(parser: &mut Parser<'_>) -> Result<Statement, SqlError> {
    let cursor = name(parser)?;
    // A cursor of a subscription is always asensitive and never scrolls, so these words have no
    // effect.
    let _ = take_word(parser, "INSENSITIVE") || take_word(parser, "ASENSITIVE");
    take_words(parser, &["NO", "SCROLL"]);
    expect_word(parser, "CURSOR")?;
    take_words(parser, &["WITHOUT", "HOLD"]);
    expect_word(parser, "FOR")?;
    expect_word(parser, "SUBSCRIBE")?;
    Ok(Statement::Declare { cursor, subscribe: subscribe(parser)? })
}

fn fetch(parser: &mut Parser<'_>) -> Result<Fetch, SqlError> {
    let _ = take_word(parser, "FORWARD") || take_word(parser, "NEXT");
    let count = match parser.peek_token().token {
        Token::Number(digits, _) => {
            let count = digits.parse().map_err(|_| unexpected(parser, "a number of rows"))?;
            parser.advance_token();
            FetchCount::Rows(count)
        }
        _ if take_word(parser, "ALL") => FetchCount::All,
        _ => FetchCount::Rows(1),
    };
    let _ = take_word(parser, "FROM") || take_word(parser, "IN");
    let cursor = name(parser)?;
    let mut timeout_ms = None;
    for (option, value) in options(parser)? {
        timeout_ms = milliseconds(&value).filter(|_| option == "timeout");
        if timeout_ms.is_none() {
            let message = format!("invalid option of FETCH: {option} = '{value}'");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, message)
                .with_hint("FETCH supports TIMEOUT = '1 s'"));
        }
    }
    Ok(Fetch { cursor, count, timeout_ms })
}

fn create(parser: &mut Parser<'_>, sql: &str) -> Result<CreateAs, SqlError> {
    let kind = create_kind(parser)?;
    let if_not_exists = take_words(parser, &["IF", "NOT", "EXISTS"]);
    let name = name(parser)?;
    let options = options(parser)?;
    expect_word(parser, "AS")?;
    let query_text = rest_of(sql, parser).to_owned();
    let query = parser.parse_query().map_err(syntax_error)?;
    Ok(CreateAs { kind, name, if_not_exists, options, query, query_text })
}

fn create_kind(parser: &mut Parser<'_>) -> Result<CreateKind, SqlError> {
    if take_word(parser, "TOPIC") {
        return Ok(CreateKind::Topic);
    }
    match take_words(parser, &["MATERIALIZED", "VIEW"]) {
        true => Ok(CreateKind::MaterializedView),
        false => Err(unexpected(parser, "TOPIC or MATERIALIZED VIEW")),
    }
}

fn end(parser: &mut Parser<'_>) -> Result<(), SqlError> {
    // Optional.
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.peek_token().token {
        Token::EOF => Ok(()),
        _ => Err(unexpected(parser, "the end of the statement")),
    }
}
