//! `CREATE TOPIC … AS`, `CREATE MATERIALIZED VIEW`, and DROP of both.

use access::Operation;
use datafusion::sql::sqlparser::tokenizer::Token;
use live_queries::{CreateKind, Statement, parse_statement};

use super::text::{Words, name_of};
use crate::definition::{DefinitionKind, NewDefinition};
use crate::engine::SCHEMA;
use crate::error::{SqlError, SqlState};
use crate::host::{Client, Host};
use crate::typed::TypedTable;

/// Runs one of these statements. Returns its command tag.
pub(crate) async fn run_derive(
    host: &dyn Host,
    client: &Client,
    words: &Words,
) -> Result<&'static str, SqlError> {
    check_sources(host, client, words)?;
    let text = text_of(words);
    let parsed = parse_statement(&text)?;
    let (tag, done, tolerated) = match parsed {
        Some(Statement::Create(create)) => {
            let (kind, tag) = match create.kind {
                CreateKind::Topic => (DefinitionKind::Topic, "CREATE TOPIC"),
                CreateKind::MaterializedView => (DefinitionKind::View, "CREATE MATERIALIZED VIEW"),
            };
            let new = NewDefinition { name: create.name, kind, statement: text };
            let tolerated = create.if_not_exists.then_some(SqlState::DUPLICATE_TABLE);
            (tag, host.define(client, new).await, tolerated)
        }
        Some(Statement::Drop { kind, name, if_exists }) => {
            let (kind, tag) = match kind {
                CreateKind::Topic => (DefinitionKind::Topic, "DROP TOPIC"),
                CreateKind::MaterializedView => (DefinitionKind::View, "DROP MATERIALIZED VIEW"),
            };
            let tolerated = if_exists.then_some(SqlState::UNDEFINED_TABLE);
            (tag, host.undefine(client, kind, &name).await, tolerated)
        }
        _ => return Err(SqlError::unsupported(format!("{} is not supported", words.keyword(0)))),
    };
    match done {
        Err(error) if Some(error.state) != tolerated => Err(error),
        _ => Ok(tag),
    }
}

/// Rejects a query over a typed table: queries that fill topics and views support only records.
fn check_sources(host: &dyn Host, client: &Client, words: &Words) -> Result<(), SqlError> {
    let tokens: Vec<&Token> = words.iter().collect();
    for (index, word) in words.keywords().enumerate() {
        if !matches!(word.as_str(), "FROM" | "JOIN") {
            continue;
        }
        let at = |offset: usize| tokens.get(index + offset).copied();
        let is_named = name_of(at(1)).is_ok_and(|it| it == SCHEMA) && at(2) == Some(&Token::Period);
        let Ok(name) = name_of(at(if is_named { 3 } else { 1 })) else { continue };
        let Some(table) = TypedTable::of_name(host, &name) else { continue };
        if client.check(host, Operation::Describe, &table.topic).is_err() {
            // It is refused later, like a name that does not exist.
            continue;
        }
        let what = format!("cannot derive a topic or view from typed table {name:?}");
        let hint = format!(
            "Select from its topic {:?}, with fields such as (value->>'qty')::bigint.",
            table.topic
        );
        return Err(SqlError::unsupported(what).with_hint(hint));
    }
    Ok(())
}

/// Formats words as a text that parses to the same words: doubles quotes within quotes, which the
/// parser's own formatting omits.
fn text_of(words: &Words) -> String {
    let mut text = String::new();
    for word in &words.0 {
        match &word.token {
            Token::SingleQuotedString(inner) | Token::EscapedStringLiteral(inner) => {
                text.push_str(&format!("'{}'", inner.replace('\'', "''")));
            }
            Token::Word(word) if word.quote_style == Some('"') => {
                text.push_str(&format!("\"{}\"", word.value.replace('"', "\"\"")));
            }
            other => text.push_str(&other.to_string()),
        }
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::text::split;

    #[test]
    fn a_text_reads_the_same_again() {
        for text in [
            "CREATE TOPIC \"a\"\"b\" AS SELECT value->>'it''s' FROM t WHERE 1 < 2",
            "CREATE TOPIC t AS SELECT '', 'ä''', $$x$$ FROM \"T\"",
        ] {
            let words = &split(text).expect("good words")[0];
            assert_eq!(text_of(words), text);
        }
        let escaped = &split("SELECT E'a\\'b\\n'").expect("good words")[0];
        assert_eq!(text_of(escaped), "SELECT 'a''b\n'");
    }
}
