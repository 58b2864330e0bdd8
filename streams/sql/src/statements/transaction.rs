//! Parsing of statements that start and end transactions, set their modes, and manage savepoints.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::text::Words;
use crate::error::{SqlError, SqlState};

/// Access mode of a transaction. Isolation levels are accepted too, but only one exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

impl Access {
    /// Returns the value of the parameter `transaction_read_only`.
    pub(crate) const fn as_switch(self) -> &'static str {
        match self {
            Self::ReadOnly => "on",
            Self::ReadWrite => "off",
        }
    }
}

/// AND CHAIN: whether a new transaction with the same modes starts after the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    Yes,
    No,
}

/// A savepoint command, with the savepoint's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Savepoint {
    Set(String),
    Release(String),
    RollBackTo(String),
}

/// Parses `BEGIN [WORK | TRANSACTION] [mode, …]`, and `START TRANSACTION`.
pub(super) fn read_begin(words: &Words) -> Result<Option<Access>, SqlError> {
    let at = match (words.keyword(0).as_str(), words.keyword(1).as_str()) {
        ("START", "TRANSACTION") | ("BEGIN", "TRANSACTION" | "WORK") => 2,
        ("START", _) => return Err(wrong(words, 1)),
        _ => 1,
    };
    read_modes(words, at)
}

/// Parses transaction modes, with or without commas between them.
pub(super) fn read_modes(words: &Words, from: usize) -> Result<Option<Access>, SqlError> {
    let (mut at, mut access) = (from, None);
    let tokens: Vec<&Token> = words.iter().collect();
    let keywords: Vec<String> = words.keywords().collect();
    while at < tokens.len() {
        let word = |index: usize| keywords.get(at + index).map_or("", String::as_str);
        at += match [word(0), word(1), word(2)] {
            ["READ", "ONLY", _] => {
                access = Some(Access::ReadOnly);
                2
            }
            ["READ", "WRITE", _] => {
                access = Some(Access::ReadWrite);
                2
            }
            ["ISOLATION", "LEVEL", "SERIALIZABLE"] => 3,
            ["ISOLATION", "LEVEL", "REPEATABLE" | "READ"]
                if matches!(word(3), "READ" | "COMMITTED" | "UNCOMMITTED") =>
            {
                4
            }
            ["NOT", "DEFERRABLE", _] => 2,
            ["DEFERRABLE", ..] => 1,
            _ => return Err(wrong(words, at)),
        };
        let is_comma = tokens.get(at) == Some(&&Token::Comma);
        at += usize::from(is_comma && at + 1 < tokens.len());
    }
    Ok(access)
}

/// Parses the words after COMMIT or ROLLBACK: `[WORK | TRANSACTION] [AND [NO] CHAIN]`.
pub(super) fn read_end(words: &Words) -> Result<Chain, SqlError> {
    let mut at = behind_noise(words);
    let chain = match [&*words.keyword(at), &*words.keyword(at + 1), &*words.keyword(at + 2)] {
        ["AND", "CHAIN", _] => {
            at += 2;
            Chain::Yes
        }
        ["AND", "NO", "CHAIN"] => {
            at += 3;
            Chain::No
        }
        _ => Chain::No,
    };
    end_at(words, at).map(|()| chain)
}

/// Parses `ROLLBACK [WORK | TRANSACTION] TO [SAVEPOINT] name`. Returns `None` for a full ROLLBACK.
pub(super) fn read_rollback_to(words: &Words) -> Result<Option<Savepoint>, SqlError> {
    let at = behind_noise(words);
    if words.keyword(at) != "TO" {
        return Ok(None);
    }
    named(words, at + 1).map(|name| Some(Savepoint::RollBackTo(name)))
}

/// Parses `SAVEPOINT name`.
pub(super) fn read_savepoint(words: &Words) -> Result<Savepoint, SqlError> {
    let name = words.name(1)?;
    end_at(words, 2).map(|()| Savepoint::Set(name))
}

/// Parses `RELEASE [SAVEPOINT] name`.
pub(super) fn read_release(words: &Words) -> Result<Savepoint, SqlError> {
    named(words, 1).map(Savepoint::Release)
}

/// Parses `[SAVEPOINT] name` at the end of a statement.
fn named(words: &Words, at: usize) -> Result<String, SqlError> {
    let has_more = words.iter().nth(at + 1).is_some();
    let at = at + usize::from(words.keyword(at) == "SAVEPOINT" && has_more);
    let name = words.name(at)?;
    end_at(words, at + 1).map(|()| name)
}

fn behind_noise(words: &Words) -> usize {
    1 + usize::from(matches!(&*words.keyword(1), "WORK" | "TRANSACTION"))
}

fn end_at(words: &Words, at: usize) -> Result<(), SqlError> {
    match words.iter().nth(at) {
        None => Ok(()),
        Some(_) => Err(wrong(words, at)),
    }
}

fn wrong(words: &Words, at: usize) -> SqlError {
    let what = match words.iter().nth(at) {
        Some(token) => format!("syntax error at or near {:?}", token.to_string()),
        None => "syntax error at end of input".to_owned(),
    };
    SqlError::new(SqlState::SYNTAX, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::text::split;

    fn words(text: &str) -> Words {
        split(text).expect("a good text").remove(0)
    }

    #[test]
    fn transactions_say_whether_they_only_read() {
        for (text, expected) in [
            ("begin", None),
            ("begin work", None),
            ("start transaction read only", Some(Access::ReadOnly)),
            ("begin transaction isolation level serializable, read only", Some(Access::ReadOnly)),
            ("begin read only, isolation level repeatable read", Some(Access::ReadOnly)),
            ("begin isolation level read committed read write", Some(Access::ReadWrite)),
            ("begin read only read write not deferrable", Some(Access::ReadWrite)),
        ] {
            assert_eq!(read_begin(&words(text)), Ok(expected), "{text}");
        }
        for text in [
            "begin reading",
            "start",
            "begin read",
            "begin read only,",
            "begin isolation level high",
            "begin transaction 1",
        ] {
            assert_eq!(read_begin(&words(text)).expect_err(text).state, SqlState::SYNTAX);
        }
    }

    #[test]
    fn transactions_end_alone_or_in_a_chain() {
        for (text, expected) in [
            ("commit", Chain::No),
            ("rollback work", Chain::No),
            ("end transaction and no chain", Chain::No),
            ("commit and chain", Chain::Yes),
        ] {
            assert_eq!(read_end(&words(text)), Ok(expected), "{text}");
        }
        for text in ["commit prepared 'a'", "rollback and", "commit work work"] {
            assert_eq!(read_end(&words(text)).expect_err(text).state, SqlState::SYNTAX);
        }
    }

    #[test]
    fn savepoints_have_names() {
        let name = |name: &str| name.to_owned();
        assert_eq!(read_savepoint(&words("savepoint A")), Ok(Savepoint::Set(name("a"))));
        assert_eq!(
            read_release(&words("release savepoint \"A\"")),
            Ok(Savepoint::Release("A".into()))
        );
        assert_eq!(
            read_release(&words("release savepoint")),
            Ok(Savepoint::Release(name("savepoint")))
        );
        let to = |text: &str| read_rollback_to(&words(text));
        assert_eq!(to("rollback"), Ok(None));
        assert_eq!(to("rollback work to a"), Ok(Some(Savepoint::RollBackTo(name("a")))));
        assert_eq!(to("rollback to savepoint a"), Ok(Some(Savepoint::RollBackTo(name("a")))));
        to("rollback to").expect_err("no name");
        to("rollback to a b").expect_err("more than a name");
        read_savepoint(&words("savepoint")).expect_err("no name");
    }
}
