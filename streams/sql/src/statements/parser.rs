//! Parsing of words into syntax trees, in a number of steps linear in the number of words.
//!
//! The engine's parser backtracks: where the syntax is ambiguous, it tries several readings, and
//! nested trials repeat each other. [`Postgres`] disables the trial that every nested function call
//! would cause, and limits the steps of the others, so that no text takes exponential time. It also
//! checks whether the statement was cancelled.

use std::cell::Cell;

use datafusion::sql::sqlparser::ast::{Expr, Statement};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{SqlError, SqlState};
use crate::giving_up::is_given_up;

/// Maximum nesting depth that the parser follows.
const RECURSION_MAX: usize = 200;

/// Maximum number of expressions that the parser starts: for each word, and in addition. Nested
/// syntax that clients typically write is retried a few times.
const STEPS_PER_WORD_MAX: usize = 16;
const STEPS_BESIDE_MAX: usize = 20_000;

/// Parses one complete statement.
pub(super) fn parse_statement(tokens: Vec<TokenWithSpan>) -> Result<Statement, SqlError> {
    parse_counting(tokens).0
}

/// The statement, and how many expressions the parser began for it.
fn parse_counting(mut tokens: Vec<TokenWithSpan>) -> (Result<Statement, SqlError>, usize) {
    trim_blanks(&mut tokens);
    spell_null_tests(&mut tokens);
    leave_out_only(&mut tokens);
    if let Some(error) = refused_words(&tokens) {
        return (Err(error), 0);
    }
    let steps_max = STEPS_BESIDE_MAX + STEPS_PER_WORD_MAX * tokens.len();
    let dialect = Postgres { steps: Cell::new(0), steps_max };
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(RECURSION_MAX)
        .with_tokens_with_locations(tokens);
    let parsed = parser.parse_statement().map_err(|error| match error {
        ParserError::RecursionLimitExceeded if dialect.steps.get() > steps_max => {
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
    (crate::giving_up::check().and(statement), dialect.steps.get())
}

/// Sequences of words whose syntax the parser does not support.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("BETWEEN", &["SYMMETRIC", "ASYMMETRIC"], "BETWEEN SYMMETRIC"),
    ("EXCLUDE", &["CURRENT", "GROUP", "TIES", "NO"], "EXCLUDE in the frame of a window"),
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
    let found: Vec<_> = found.map(|it| it[3]).collect();
    for at in found.into_iter().rev() {
        let (token, span) = (Token::SingleQuotedString(" ".to_owned()), tokens[at].span);
        tokens.insert(at, TokenWithSpan { token, span });
    }
}

/// Replaces ISNULL and NOTNULL, which the parser takes for aliases.
fn spell_null_tests(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    let mut before = Token::EOF;
    while at < tokens.len() {
        let words: &[&str] = match &tokens[at].token {
            Token::Word(word) if word.quote_style.is_some() => &[],
            Token::Word(word) if word.value.eq_ignore_ascii_case("ISNULL") => &["IS", "NULL"],
            Token::Word(word) if word.value.eq_ignore_ascii_case("NOTNULL") => {
                &["IS", "NOT", "NULL"]
            }
            _ => &[],
        };
        let is_name = match &before {
            Token::Period => true,
            Token::Word(word) => word.keyword == Keyword::AS,
            _ => false,
        };
        if !words.is_empty() && !is_name {
            let span = tokens[at].span;
            let token = |word: &&str| TokenWithSpan { token: Token::make_keyword(word), span };
            tokens.splice(at..=at, words.iter().map(token));
            at += words.len() - 1;
        }
        if !matches!(tokens[at].token, Token::Whitespace(_)) {
            before = tokens[at].token.clone();
        }
        at += 1;
    }
}

/// Removes ONLY before the name of a table: no table inherits from another one.
fn leave_out_only(tokens: &mut Vec<TokenWithSpan>) {
    let mut is_table = false;
    tokens.retain(|it| {
        let Token::Word(word) = &it.token else {
            is_table &= matches!(it.token, Token::Whitespace(_));
            return true;
        };
        let is_plain = word.quote_style.is_none();
        let is_only = is_plain && is_table && word.keyword == Keyword::ONLY;
        is_table = is_plain && matches!(word.keyword, Keyword::FROM | Keyword::JOIN);
        !is_only
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
        let word = match &token.token {
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

/// PostgreSQL's dialect of the parser, without named arguments whose name is an expression: with
/// them, each argument would be parsed twice, as a name and as a value.
#[derive(Debug)]
struct Postgres {
    steps: Cell<usize>,
    steps_max: usize,
}

const INNER: PostgreSqlDialect = PostgreSqlDialect {};

impl Dialect for Postgres {
    /// Makes checks for PostgreSQL's dialect succeed.
    fn dialect(&self) -> std::any::TypeId {
        INNER.dialect()
    }

    /// Counts expressions and leaves the parsing to the parser. This error is the only one that
    /// also ends the parser's trials.
    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.steps.set(self.steps.get() + 1);
        let ends = self.steps.get() > self.steps_max || is_given_up();
        ends.then_some(Err(ParserError::RecursionLimitExceeded))
    }

    /// Parses `x IS DISTINCT FROM y`, whose right operand ends before AND and OR: the parser would
    /// take all that follows. Rejects `x NOT NULL`: PostgreSQL supports only `x IS NOT NULL`.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        _: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let words = [Keyword::IS, Keyword::DISTINCT, Keyword::FROM];
        let not = [Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM];
        let is_distinct = parser.parse_keywords(&words);
        if is_distinct || parser.parse_keywords(&not) {
            let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
            return Some(right.map(|right| {
                let (left, right) = (Box::new(left.clone()), Box::new(right));
                match is_distinct {
                    true => Expr::IsDistinctFrom(left, right),
                    false => Expr::IsNotDistinctFrom(left, right),
                }
            }));
        }
        let [not, null] = parser.peek_tokens_ref();
        let is = |it: &TokenWithSpan, keyword: Keyword| match &it.token {
            Token::Word(word) => word.keyword == keyword,
            _ => false,
        };
        let is_test = is(not, Keyword::NOT) && is(null, Keyword::NULL);
        let what = || "NOT NULL after an expression: use IS NOT NULL".to_owned();
        is_test.then(|| Err(ParserError::ParserError(what())))
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        INNER.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, letter: char) -> bool {
        INNER.is_delimited_identifier_start(letter)
    }

    fn is_identifier_start(&self, letter: char) -> bool {
        INNER.is_identifier_start(letter)
    }

    fn is_identifier_part(&self, letter: char) -> bool {
        INNER.is_identifier_part(letter)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        INNER.is_reserved_for_identifier(keyword)
    }

    fn is_custom_operator_part(&self, letter: char) -> bool {
        INNER.is_custom_operator_part(letter)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        INNER.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        INNER.prec_value(precedence)
    }

    fn supports_unicode_string_literal(&self) -> bool {
        INNER.supports_unicode_string_literal()
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        INNER.supports_filter_during_aggregation()
    }

    fn supports_group_by_expr(&self) -> bool {
        INNER.supports_group_by_expr()
    }

    fn allow_extract_custom(&self) -> bool {
        INNER.allow_extract_custom()
    }

    fn allow_extract_single_quotes(&self) -> bool {
        INNER.allow_extract_single_quotes()
    }

    fn supports_create_index_with_clause(&self) -> bool {
        INNER.supports_create_index_with_clause()
    }

    fn supports_explain_with_utility_options(&self) -> bool {
        INNER.supports_explain_with_utility_options()
    }

    fn supports_listen_notify(&self) -> bool {
        INNER.supports_listen_notify()
    }

    fn supports_factorial_operator(&self) -> bool {
        INNER.supports_factorial_operator()
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        INNER.supports_bitwise_shift_operators()
    }

    fn supports_comment_on(&self) -> bool {
        INNER.supports_comment_on()
    }

    fn supports_load_extension(&self) -> bool {
        INNER.supports_load_extension()
    }

    fn supports_named_fn_args_with_colon_operator(&self) -> bool {
        INNER.supports_named_fn_args_with_colon_operator()
    }

    fn supports_empty_projections(&self) -> bool {
        INNER.supports_empty_projections()
    }

    fn supports_nested_comments(&self) -> bool {
        INNER.supports_nested_comments()
    }

    fn supports_string_escape_constant(&self) -> bool {
        INNER.supports_string_escape_constant()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        INNER.supports_numeric_literal_underscores()
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        INNER.supports_array_typedef_with_brackets()
    }

    fn supports_geometric_types(&self) -> bool {
        INNER.supports_geometric_types()
    }

    fn supports_set_names(&self) -> bool {
        INNER.supports_set_names()
    }

    fn supports_alter_column_type_using(&self) -> bool {
        INNER.supports_alter_column_type_using()
    }

    fn supports_notnull_operator(&self) -> bool {
        INNER.supports_notnull_operator()
    }

    fn supports_interval_options(&self) -> bool {
        INNER.supports_interval_options()
    }

    fn supports_insert_table_alias(&self) -> bool {
        INNER.supports_insert_table_alias()
    }

    fn supports_create_table_like_parenthesized(&self) -> bool {
        INNER.supports_create_table_like_parenthesized()
    }

    fn supports_select_wildcard_with_alias(&self) -> bool {
        INNER.supports_select_wildcard_with_alias()
    }

    fn supports_comma_separated_trim(&self) -> bool {
        INNER.supports_comma_separated_trim()
    }

    fn supports_xml_expressions(&self) -> bool {
        INNER.supports_xml_expressions()
    }

    fn supports_comment_optimizer_hint(&self) -> bool {
        INNER.supports_comment_optimizer_hint()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    /// Parses on a thread with the same stack size as in the server.
    fn parse(text: &str) -> (Result<Statement, SqlError>, usize) {
        let tokens = Tokenizer::new(&INNER, text).tokenize_with_location().expect("good words");
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
            assert!(steps <= STEPS_BESIDE_MAX + STEPS_PER_WORD_MAX * text.len() + 1, "{text}");
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
