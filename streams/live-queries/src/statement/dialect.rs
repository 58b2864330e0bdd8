//! Dialect for parsing in a number of steps linear in the number of words.
//!
//! The parser backtracks: where the syntax is ambiguous, it tries several readings, and nested
//! trials repeat each other. [`Postgres`] disables the trial that every nested function call would
//! cause, and limits the steps of the others, so that no text takes exponential time.

use std::cell::Cell;

use sqlparser::ast::{BinaryOperator, Expr};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Maximum number of expressions that the parser starts: for each word, and in addition. Nested
/// syntax that clients typically write is retried a few times.
const STEPS_PER_WORD_MAX: usize = 16;
const STEPS_BESIDE_MAX: usize = 20_000;

/// Bytes of an operand that is written twice that count as a step.
const BYTES_PER_STEP: usize = 8;

/// PostgreSQL's dialect of the parser, without named arguments whose name is an expression: with
/// them, each argument would be parsed twice, as a name and as a value.
#[derive(Debug)]
pub struct Postgres {
    steps: Cell<usize>,
    steps_max: usize,
    is_given_up: fn() -> bool,
}

const INNER: PostgreSqlDialect = PostgreSqlDialect {};

impl Postgres {
    /// Creates the dialect for a statement of `word_count` words. `is_given_up` tells whether
    /// parsing is to end early.
    pub fn new(word_count: usize, is_given_up: fn() -> bool) -> Self {
        let steps_max = STEPS_BESIDE_MAX + STEPS_PER_WORD_MAX * word_count;
        Self { steps: Cell::new(0), steps_max, is_given_up }
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> usize {
        self.steps.get()
    }

    /// Returns whether the parser has ended because of the number of its steps.
    pub fn has_ended(&self) -> bool {
        self.steps.get() > self.steps_max
    }

    /// Also accepts the bounds of BETWEEN in the opposite order. The operands are repeated, so
    /// their length counts as steps.
    fn in_either_order(&self, between: Result<Expr, ParserError>) -> Result<Expr, ParserError> {
        let between = between?;
        self.steps.set(self.steps.get() + between.to_string().len() / BYTES_PER_STEP);
        if self.has_ended() {
            return Err(ParserError::RecursionLimitExceeded);
        }
        let mut other = between.clone();
        let mut op = BinaryOperator::Or;
        if let Expr::Between { negated, low, high, .. } = &mut other {
            std::mem::swap(low, high);
            op = if *negated { BinaryOperator::And } else { op };
        }
        let (left, right) = (Box::new(between), Box::new(other));
        Ok(Expr::Nested(Box::new(Expr::BinaryOp { left, op, right })))
    }
}

impl Dialect for Postgres {
    /// Makes checks for PostgreSQL's dialect succeed.
    fn dialect(&self) -> std::any::TypeId {
        INNER.dialect()
    }

    /// Counts expressions and leaves the parsing to the parser. This error is the only one that
    /// also ends the parser's trials.
    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.steps.set(self.steps.get() + 1);
        let ends = self.has_ended() || (self.is_given_up)();
        ends.then_some(Err(ParserError::RecursionLimitExceeded))
    }

    /// Parses BETWEEN SYMMETRIC and `x IS DISTINCT FROM y`, whose right operand ends before AND and
    /// OR: the parser would take all that follows. Rejects `x NOT NULL`: PostgreSQL supports only
    /// `x IS NOT NULL`.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        _: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let is_negated = !parser.parse_keywords(&[Keyword::BETWEEN, Keyword::SYMMETRIC]);
        let not = [Keyword::NOT, Keyword::BETWEEN, Keyword::SYMMETRIC];
        if !is_negated || parser.parse_keywords(&not) {
            return Some(self.in_either_order(parser.parse_between(left.clone(), is_negated)));
        }
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
