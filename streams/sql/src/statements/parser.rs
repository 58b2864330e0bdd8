//! Parsing of words into syntax trees, in a number of steps linear in the number of words.
//!
//! It is cancelled if nobody waits for the statement.

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use live_queries::Postgres;

use crate::error::{SqlError, SqlState};
use crate::giving_up::is_given_up;

/// Maximum nesting depth that the parser follows.
const RECURSION_MAX: usize = 200;

/// Parses one complete statement.
pub(super) fn parse_statement(tokens: Vec<TokenWithSpan>) -> Result<Statement, SqlError> {
    parse_counting(tokens).0
}

/// The statement, and how many expressions the parser began for it.
fn parse_counting(mut tokens: Vec<TokenWithSpan>) -> (Result<Statement, SqlError>, usize) {
    trim_blanks(&mut tokens);
    spell_null_tests(&mut tokens);
    leave_out_words(&mut tokens);
    leave_out_no_exclusion(&mut tokens);
    if let Some(error) = refused_words(&tokens) {
        return (Err(error), 0);
    }
    let dialect = Postgres::new(tokens.len(), is_given_up);
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(RECURSION_MAX)
        .with_tokens_with_locations(tokens);
    let parsed = parser.parse_statement().map_err(|error| match error {
        ParserError::RecursionLimitExceeded if dialect.has_ended() => {
            let what = "statement too complex: too many nested ambiguous expressions";
            SqlError::new(SqlState::TOO_COMPLEX, what)
        }
        error => error.into(),
    });
    let statement = parsed.and_then(|statement| match parser.peek_token().token {
        Token::EOF => Ok(statement),
        other => {
            let what = format!("syntax error at or near {:?}", other.to_string());
            Err(SqlError::new(SqlState::SYNTAX, what))
        }
    });
    (crate::giving_up::check().and(statement), dialect.steps())
}

/// Sequences of words whose syntax the parser does not support.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("EXCLUDE", &["CURRENT", "GROUP", "TIES"], "EXCLUDE in the frame of a window"),
    ("ROWS", &["FROM"], "ROWS FROM"),
    ("SELECT", &["WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", ";", ""], "SELECT without columns"),
    ("USING", &["<", ">", "<=", ">="], "ORDER BY … USING an operator"),
    ("ANY(", &["VALUES"], "a comparison with ANY of VALUES"),
    ("SOME(", &["VALUES"], "a comparison with SOME of VALUES"),
    ("ALL(", &["VALUES"], "a comparison with ALL of VALUES"),
    ("'", &["UESCAPE"], "UESCAPE"),
    ("SIMILAR", &["'"], "substring with SIMILAR"),
    ("", &["TABLE"], "the command TABLE"),
    ("SEARCH", &["DEPTH", "BREADTH"], "SEARCH in a recursive query"),
    (")", &["CYCLE"], "CYCLE in a recursive query"),
    ("BY", &["DISTINCT"], "GROUP BY DISTINCT"),
];

/// Adds the default characters, a blank, to `trim(both from x)`, because the parser requires them.
fn trim_blanks(tokens: &mut Vec<TokenWithSpan>) {
    let places: Vec<_> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let is = |at: usize, words: &[Keyword]| match &tokens[at].token {
        Token::Word(word) => word.quote_style.is_none() && words.contains(&word.keyword),
        _ => false,
    };
    let sides = [Keyword::BOTH, Keyword::LEADING, Keyword::TRAILING];
    let found = places.windows(4).filter(|it| {
        is(it[0], &[Keyword::TRIM])
            && tokens[it[1]].token == Token::LParen
            && is(it[2], &sides)
            && is(it[3], &[Keyword::FROM])
    });
    let mut found = found.map(|it| it[3]).collect::<Vec<_>>().into_iter().peekable();
    let with_blank = |(at, it): (usize, TokenWithSpan)| {
        let blank = || Token::SingleQuotedString(" ".to_owned());
        let blank = found.next_if_eq(&at).map(|_| TokenWithSpan { token: blank(), span: it.span });
        blank.into_iter().chain([it])
    };
    *tokens = std::mem::take(tokens).into_iter().enumerate().flat_map(with_blank).collect();
}

/// Replaces ISNULL and NOTNULL, which the parser takes for aliases.
fn spell_null_tests(tokens: &mut Vec<TokenWithSpan>) {
    let mut spelled = Vec::with_capacity(tokens.len());
    let mut is_name = false;
    for it in std::mem::take(tokens) {
        let words: &[&str] = match &it.token {
            Token::Word(word) if word.quote_style.is_some() || is_name => &[],
            Token::Word(word) if word.value.eq_ignore_ascii_case("ISNULL") => &["IS", "NULL"],
            Token::Word(word) if word.value.eq_ignore_ascii_case("NOTNULL") => {
                &["IS", "NOT", "NULL"]
            }
            _ => &[],
        };
        is_name = match &it.token {
            Token::Whitespace(_) => is_name,
            Token::Period => true,
            Token::Word(word) => word.keyword == Keyword::AS,
            _ => false,
        };
        let span = it.span;
        let token = |word: &&str| TokenWithSpan { token: Token::make_keyword(word), span };
        match words.is_empty() {
            true => spelled.push(it),
            false => spelled.extend(words.iter().map(token)),
        }
    }
    *tokens = spelled;
}

/// Removes words without an effect: ONLY before the name of a table, because no table inherits from
/// another one, and ASYMMETRIC behind BETWEEN.
fn leave_out_words(tokens: &mut Vec<TokenWithSpan>) {
    let (mut is_table, mut is_between) = (false, false);
    tokens.retain(|it| {
        let Token::Word(word) = &it.token else {
            is_table &= matches!(it.token, Token::Whitespace(_));
            is_between &= matches!(it.token, Token::Whitespace(_));
            return true;
        };
        let is = |keyword| word.quote_style.is_none() && word.keyword == keyword;
        let is_left_out = is_table && is(Keyword::ONLY) || is_between && is(Keyword::ASYMMETRIC);
        is_table = is(Keyword::FROM) || is(Keyword::JOIN);
        is_between = is(Keyword::BETWEEN);
        !is_left_out
    });
}

/// Removes EXCLUDE NO OTHERS from frames, which is the default.
fn leave_out_no_exclusion(tokens: &mut Vec<TokenWithSpan>) {
    let is_word = |at: usize, word: &str| match &tokens[at].token {
        Token::Word(it) => it.quote_style.is_none() && it.value.eq_ignore_ascii_case(word),
        _ => false,
    };
    let places: Vec<_> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let words = ["EXCLUDE", "NO", "OTHERS"];
    let found =
        places.windows(3).filter(|it| it.iter().zip(words).all(|(at, it)| is_word(*at, it)));
    let mut found = found.flatten().copied().collect::<Vec<_>>().into_iter().peekable();
    let mut at = 0;
    tokens.retain(|_| {
        let is_left_out = found.next_if_eq(&at).is_some();
        at += 1;
        !is_left_out
    });
}

fn refused_words(tokens: &[TokenWithSpan]) -> Option<SqlError> {
    let words = tokens.iter().filter(|it| !matches!(it.token, Token::Whitespace(_)));
    let (mut last, mut before) = (String::new(), [&Token::EOF; 2]);
    for token in words {
        if let Some(what) = refused_token(before, &token.token) {
            return Some(SqlError::unsupported(format!("{what} is not supported")));
        }
        before = [before[1], &token.token];
        let is_set_operation =
            ["UNION", "EXCEPT", "INTERSECT"].iter().any(|it| it.eq_ignore_ascii_case(&last));
        let word = match &token.token {
            // Not a comparison with ALL.
            Token::Word(word) if word.keyword == Keyword::ALL && is_set_operation => "?".to_owned(),
            Token::Word(word) if word.quote_style.is_none() => word.value.clone(),
            // Appended to the preceding word.
            Token::LParen if !last.is_empty() => format!("{last}("),
            Token::RParen => ")".to_owned(),
            Token::SingleQuotedString(_) | Token::UnicodeStringLiteral(_) => "'".to_owned(),
            Token::Lt | Token::Gt | Token::LtEq | Token::GtEq | Token::SemiColon | Token::EOF => {
                token.token.to_string()
            }
            _ => "?".to_owned(),
        };
        let word = word.as_str();
        let is = |it: &&str| it.eq_ignore_ascii_case(word);
        let found = REFUSED
            .iter()
            .find(|(before, after, _)| before.eq_ignore_ascii_case(&last) && after.iter().any(is));
        if let Some((_, _, what)) = found {
            return Some(SqlError::unsupported(format!("{what} is not supported")));
        }
        last = word.to_owned();
    }
    let is_bare = last.eq_ignore_ascii_case("SELECT");
    is_bare.then(|| SqlError::unsupported("SELECT without columns is not supported"))
}

/// Returns the construct to which a token belongs that the parser does not support.
fn refused_token(before: [&Token; 2], token: &Token) -> Option<&'static str> {
    match (before, token) {
        (_, Token::SingleQuotedByteStringLiteral(_)) => Some("a bit-string literal"),
        (_, Token::Word(word)) if word.quote_style.is_none() => {
            word.value.eq_ignore_ascii_case("VARIADIC").then_some("VARIADIC")
        }
        ([Token::RParen, Token::Period], Token::Mul) => Some("(…).*, the columns of a row,"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    /// Parses on a thread with the same stack size as in the server.
    fn parse(text: &str) -> (Result<Statement, SqlError>, usize) {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text)
            .tokenize_with_location()
            .expect("good words");
        crate::runtime().expect("threads").block_on(async move {
            let parse = tokio::task::spawn_blocking(move || parse_counting(tokens));
            parse.await.expect("it does not panic")
        })
    }

    /// Nests `inner` `depth` times between `before` and `after`.
    fn nested(before: &str, inner: &str, after: &str, depth: usize) -> String {
        format!("select {}{inner}{}", before.repeat(depth), after.repeat(depth))
    }

    #[test]
    fn what_nests_twice_as_deep_is_parsed_in_twice_the_steps() {
        for (before, inner, after) in [
            ("upper(", "'x'", ")"),
            ("(", "1", ")"),
            ("coalesce(1, ", "2", ")"),
            ("cast(", "1", " as text)"),
            ("case when true then ", "1", " end"),
            ("(select ", "1", ")"),
            ("1 in (", "1", ")"),
            ("array[", "1", "]"),
            ("exists (select ", "1", ")"),
            ("substring(", "'x'", " from 1)"),
            ("extract(year from ", "now()", ")"),
            ("trim(", "'x'", ")"),
            ("not ", "true", ""),
            ("- ", "1", ""),
            ("a.f(", "1", ")"),
            ("f(x => ", "1", ")"),
        ] {
            let steps = |depth| {
                let (parsed, steps) = parse(&nested(before, inner, after, depth));
                parsed.unwrap_or_else(|error| panic!("{before} {depth}: {error}"));
                steps
            };
            let (once, twice) = (steps(25), steps(50));
            assert!(twice <= 2 * once + 10, "{before}: {once} and {twice} steps");
        }
    }

    #[test]
    fn what_could_be_read_in_many_ways_ends_by_its_steps() {
        let query = |depth: usize| {
            let open = "(select 1 from (".repeat(depth);
            format!(
                "select 1 from ({open}select 1) a join t on true{}",
                ") b join t)".repeat(depth)
            )
        };
        for text in [
            nested("position(", "'a', 'b'", ", 'b')", 45),
            nested("cast(", "", "", 45),
            nested("interval(", "1", "", 45),
            nested("1 in ((select 1 where 1 in (", "1 1", ")))", 15),
            query(20),
        ] {
            let (parsed, steps) = parse(&text);
            parsed.expect_err(&text);
            assert!(steps <= 20_001 + 16 * text.len(), "{text}");
        }
    }

    #[test]
    fn a_tree_that_nobody_waits_for_is_not_made() {
        let waiting = crate::giving_up::Waiting::default();
        let _working = waiting.work()();
        drop(waiting);
        let error = parse_counting(Vec::new()).0.expect_err("nobody waits");
        assert_eq!(error.state, SqlState::CANCELLED);
    }
}
