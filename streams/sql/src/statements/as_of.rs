//! `FOR SYSTEM_TIME AS OF` after a table, which the parser's dialect lacks. It is moved into the
//! table's name before a statement is parsed.

use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};

use super::text::Words;
use crate::engine::AS_OF;
use crate::error::{SqlError, SqlState};

const WORDS: [&str; 4] = ["FOR", "SYSTEM_TIME", "AS", "OF"];

/// Renames each table with `FOR SYSTEM_TIME AS OF`. Without an alias, the table gets its original
/// name as one.
pub(super) fn named(words: &Words) -> Result<Words, SqlError> {
    let tokens: Vec<&TokenWithSpan> =
        words.0.iter().filter(|it| !matches!(it.token, Token::Whitespace(_))).collect();
    let has_keyword = |at: usize, keyword: &str| {
        matches!(tokens.get(at).map(|it| &it.token), Some(Token::Word(word))
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(keyword))
    };
    let begins =
        |at: usize| WORDS.iter().enumerate().all(|(index, it)| has_keyword(at + index, it));
    if !(0..tokens.len()).any(begins) {
        return Ok(words.clone());
    }
    let syntax = |what: &str| {
        SqlError::new(SqlState::SYNTAX, what)
            .with_hint("FROM \"orders$current\" FOR SYSTEM_TIME AS OF '2026-01-31 12:00:00+00'")
    };
    let mut output: Vec<TokenWithSpan> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !begins(at) {
            output.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += WORDS.len();
        at += usize::from(has_keyword(at, "TIMESTAMP") || has_keyword(at, "TIMESTAMPTZ"));
        let Some(Token::SingleQuotedString(when)) = tokens.get(at).map(|it| &it.token) else {
            return Err(syntax(
                "FOR SYSTEM_TIME AS OF requires a timestamp or offsets in single quotes",
            ));
        };
        at += 1;
        let Some(Token::Word(table)) = output.last_mut().map(|it| &mut it.token) else {
            return Err(syntax("FOR SYSTEM_TIME AS OF must follow a table name"));
        };
        let name = match table.quote_style {
            Some(_) => table.value.clone(),
            None => table.value.to_ascii_lowercase(),
        };
        *table = quoted(format!("{name}{AS_OF}{when}"));
        if !is_alias(tokens.get(at).map(|it| &it.token)) {
            let alias = [Token::make_keyword("AS"), Token::Word(quoted(name))];
            output.extend(alias.map(TokenWithSpan::wrap));
        }
    }
    // Separates tokens, because adjacent words would be parsed as one.
    let spaced = output.into_iter().flat_map(|it| {
        let space = Token::Whitespace(Whitespace::Space);
        [it, TokenWithSpan::wrap(space)]
    });
    Ok(Words(spaced.collect()))
}

fn quoted(value: String) -> Word {
    Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword }
}

/// Returns whether the token after a table starts an alias.
fn is_alias(token: Option<&Token>) -> bool {
    match token {
        Some(Token::Word(word)) => {
            word.keyword == Keyword::AS
                || word.quote_style.is_some()
                || !RESERVED_FOR_TABLE_ALIAS.contains(&word.keyword)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::text::split;

    fn named_text(text: &str) -> Result<String, SqlError> {
        let words = split(text)?.remove(0);
        let tokens: Vec<_> = named(&words)?.iter().map(ToString::to_string).collect();
        Ok(tokens.join(" "))
    }

    #[test]
    fn a_time_behind_a_table_becomes_part_of_its_name() {
        for (text, expected) in [
            (
                "select * from \"o$current\" for system_time as of '2026-01-01' where key = 'a'",
                "select * from \"o$current AS OF 2026-01-01\" AS \"o$current\" where key = 'a'",
            ),
            (
                "select x.key from T for system_time as of timestamptz '2026-01-01' x, u",
                "select x . key from \"t AS OF 2026-01-01\" x , u",
            ),
            (
                "select 1 from a for system_time as of '0:1,1:2' as b join c on true",
                "select 1 from \"a AS OF 0:1,1:2\" as b join c on true",
            ),
        ] {
            assert_eq!(named_text(text).expect("good"), expected);
        }
        let other = "select 'for system_time as of', a from b for update";
        assert_eq!(
            named_text(other).expect("good"),
            "select 'for system_time as of' , a from b for update"
        );
    }

    #[test]
    fn what_is_no_time_of_a_table_is_refused() {
        for text in [
            "select * from t for system_time as of now()",
            "select * from (select 1) for system_time as of '2026-01-01'",
            "select * from t for system_time as of",
        ] {
            assert_eq!(named_text(text).expect_err(text).state, SqlState::SYNTAX);
        }
    }
}
