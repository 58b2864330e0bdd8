//! Operators as PostgreSQL reads them: signs that stand together are one operator, however the
//! engine's tokenizer splits them. A `+` or `-` at the end belongs to the next operand, unless the
//! operator contains a sign that no operator of standard SQL has.

use std::str::Chars;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer};

use crate::error::{SqlError, SqlState};

/// Signs that an operator consists of.
const SIGNS: &str = "+-*/<>=~!@#%^&|`?";

/// Signs that keep a final `+` or `-` within the operator.
const KEEPING: &str = "~!@#%^&|`?";

/// PostgreSQL's operators on types that this server may have.
const OPERATORS: &[&str] = &[
    "+", "-", "*", "/", "%", "^", "=", "<>", "!=", "<", ">", "<=", ">=", "||", "&", "|", "#", "~",
    "<<", ">>", "@", "|/", "||/", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*", "->", "->>", "#>",
    "#>>", "@>", "<@", "?", "?|", "?&", "#-", "@?", "@@", "&&", "^@", "=>", "<->", "-|-", "&<",
    "&>", "<<|", "|>>", "&<|", "|&>", "<^", ">^", "?#", "?-", "?||", "?-|", "##", "@-@", "~=",
    "<<=", ">>=", "~>~", "~<~", "~>=~", "~<=~", "!!", "@@@", "*<>", "*=", "*<", "*>", "*<=", "*>=",
];

/// Splits runs of signs into PostgreSQL's operators.
///
/// # Errors
/// A run is no operator of PostgreSQL.
pub(super) fn with_operators(
    tokens: Vec<TokenWithSpan>,
    text: &str,
) -> Result<Vec<TokenWithSpan>, SqlError> {
    let mut source = Source { rest: text.chars(), line: 1, column: 1 };
    let mut found = Vec::with_capacity(tokens.len());
    let mut run = Vec::new();
    for token in tokens {
        if is_of_signs(&token.token) {
            run.push(token);
            continue;
        }
        found.extend(operators(std::mem::take(&mut run), &mut source)?);
        found.push(token);
    }
    found.extend(operators(run, &mut source)?);
    Ok(found)
}

fn is_of_signs(token: &Token) -> bool {
    let text = match token {
        Token::Word(_)
        | Token::Number(..)
        | Token::Whitespace(_)
        | Token::SingleQuotedString(_)
        | Token::DollarQuotedString(_)
        | Token::Placeholder(_)
        | Token::EOF => return false,
        other => other.to_string(),
    };
    !text.is_empty() && text.chars().all(|it| SIGNS.contains(it))
}

/// Returns the operators of a run of adjacent tokens.
fn operators(
    run: Vec<TokenWithSpan>,
    source: &mut Source<'_>,
) -> Result<Vec<TokenWithSpan>, SqlError> {
    let [_, _, ..] = run.as_slice() else {
        let is_new = |it: &TokenWithSpan| matches!(it.token, Token::CustomBinaryOperator(_));
        return match run.first().filter(|it| is_new(it)) {
            None => Ok(run),
            Some(token) => tokens_of(&token.token.to_string(), token.span),
        };
    };
    let text: String = run.iter().map(|it| written(it, source)).collect();
    tokens_of(&text, run[0].span)
}

/// Returns a token as the statement has it: the tokenizer reads `!=` as `<>`.
fn written(token: &TokenWithSpan, source: &mut Source<'_>) -> String {
    let start = token.span.start;
    match token.token == Token::Neq && source.sign_at(start.line, start.column) == Some('!') {
        true => "!=".to_owned(),
        false => token.token.to_string(),
    }
}

/// The text of the statements, read once from its start.
struct Source<'a> {
    rest: Chars<'a>,
    line: u64,
    column: u64,
}

impl Source<'_> {
    /// Returns the sign at a place behind all that were asked for before.
    fn sign_at(&mut self, line: u64, column: u64) -> Option<char> {
        loop {
            let sign = self.rest.next()?;
            let is_it = (self.line, self.column) == (line, column);
            match sign {
                '\n' => (self.line, self.column) = (self.line + 1, 1),
                _ => self.column += 1,
            }
            if is_it {
                return Some(sign);
            }
        }
    }
}

fn tokens_of(run: &str, span: Span) -> Result<Vec<TokenWithSpan>, SqlError> {
    let mut found = Vec::new();
    for operator in split(run) {
        if !OPERATORS.contains(&operator) {
            let what = format!("operator does not exist: {operator}");
            let error = SqlError::new(SqlState::UNDEFINED_FUNCTION, what);
            return Err(error.with_hint("Write blanks between two operators."));
        }
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, operator).tokenize();
        let tokens = tokens
            .map_err(|error| SqlError::new(SqlState::SYNTAX, format!("syntax error: {error}")))?;
        found.extend(tokens.into_iter().map(|token| TokenWithSpan { token, span }));
    }
    Ok(found)
}

/// Splits a run of signs into operators.
fn split(run: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), run);
    while !rest.is_empty() {
        let mut length = rest.len();
        while length > 1
            && rest[..length].ends_with(['+', '-'])
            && !rest[..length - 1].contains(|it| KEEPING.contains(it))
        {
            length -= 1;
        }
        found.push(&rest[..length]);
        rest = &rest[length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_at_the_end_belongs_to_the_operand() {
        for (run, operators) in [
            ("*-", vec!["*", "-"]),
            (">=-", vec![">=", "-"]),
            ("+-+", vec!["+", "-", "+"]),
            ("^-", vec!["^-"]),
            ("!=-", vec!["!=-"]),
            ("->-", vec!["->", "-"]),
            ("@-", vec!["@-"]),
            ("||", vec!["||"]),
        ] {
            assert_eq!(split(run), operators, "{run}");
        }
    }
}
