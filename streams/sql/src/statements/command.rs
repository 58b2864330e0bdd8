//! Kinds of statements.

use datafusion::sql::sqlparser::ast::{CloseCursor, Ident, Insert, Statement};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::as_of;
use super::copy::{Copy, read_copy};
use super::extension::Extension;
use super::insert::table_name;
use super::parser::parse_statement;
use super::text::Words;
use super::transaction::{
    Access, Chain, Savepoint, read_begin, read_end, read_release, read_rollback_to, read_savepoint,
};
use super::variables::Assignment;
use crate::engine::Analyze;
use crate::error::{SqlError, SqlState};
use crate::typed::TypedTable;
use crate::wire::{CopyForm, Format};

/// A statement, classified without resolving names.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Query(Box<Statement>),
    Explain {
        query: Box<Statement>,
        analyze: Analyze,
    },
    Insert(Box<Insert>),
    /// `COPY … TO STDOUT`.
    CopyOut {
        source: CursorSource,
        form: CopyForm,
    },
    /// `COPY … FROM STDIN`, with the INSERT that its rows belong to.
    CopyIn {
        insert: Box<Insert>,
        columns: Vec<String>,
        form: CopyForm,
    },
    Set(Assignment),
    Show(String),
    Reset(String),
    /// Access mode of the transaction, if given, and the command tag.
    Begin(Option<Access>, &'static str),
    Commit(Chain),
    Rollback(Chain),
    Savepoint(Savepoint),
    Declare {
        name: String,
        source: CursorSource,
        format: Format,
        has_hold: bool,
    },
    Fetch {
        name: String,
        rows_max: usize,
        /// Timeout for rows of a live query. `None` waits for the first row.
        timeout_ms: Option<u64>,
    },
    Move {
        name: String,
        rows_max: usize,
    },
    CloseCursor(Option<String>),
    Deallocate(Option<String>),
    Discard(Discarded),
    /// `CREATE TABLE`, with its text.
    CreateTable {
        table: Box<TypedTable>,
        statement: String,
        /// `IF NOT EXISTS`.
        may_be_there: bool,
    },
    DropTable {
        names: Vec<String>,
        /// `IF EXISTS`.
        may_be_gone: bool,
    },
    Extension(Extension),
}

impl Command {
    /// Returns the command's name in errors if it changes data or definitions.
    pub(crate) fn change(&self) -> Option<&'static str> {
        match self {
            Self::Insert(_) => Some("INSERT"),
            Self::CopyIn { .. } => Some("COPY FROM"),
            Self::CreateTable { .. }
            | Self::Extension(Extension::CreateTopic(_) | Extension::CreateView(_)) => {
                Some("CREATE")
            }
            Self::DropTable { .. } | Self::Extension(Extension::Drop(_)) => Some("DROP"),
            Self::Query(_)
            | Self::Explain { .. }
            | Self::CopyOut { .. }
            | Self::Set(_)
            | Self::Show(_)
            | Self::Reset(_)
            | Self::Begin(..)
            | Self::Commit(_)
            | Self::Rollback(_)
            | Self::Savepoint(_)
            | Self::Declare { .. }
            | Self::Fetch { .. }
            | Self::Move { .. }
            | Self::CloseCursor(_)
            | Self::Deallocate(_)
            | Self::Discard(_)
            | Self::Extension(Extension::Subscribe(_)) => None,
        }
    }
}

/// State reset by DISCARD and UNLISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    All,
    /// State that does not exist in this server, with its command tag.
    Nothing(&'static str),
}

/// Source of the rows of a cursor or a COPY.
#[derive(Clone, Debug)]
pub(crate) enum CursorSource {
    Query(Box<Statement>),
    Extension(Extension),
}

/// Determines the kind of a statement.
pub(crate) fn read_command(words: &Words) -> Result<Command, SqlError> {
    let keyword = |index| words.keyword(index);
    if let Some(what) = unsupported(words) {
        return Err(SqlError::unsupported(format!("{what} is not supported")));
    }
    Ok(match keyword(0).as_str() {
        "EXPLAIN" => explain(words)?,
        "SET" => Command::Set(Assignment::read(words)?),
        "SHOW" => Command::Show(variable_name(&words.after(1))),
        "RESET" => Command::Reset(variable_name(&words.after(1))),
        "BEGIN" => Command::Begin(read_begin(words)?, "BEGIN"),
        "START" => Command::Begin(read_begin(words)?, "START TRANSACTION"),
        "COMMIT" | "END" => Command::Commit(read_end(words)?),
        "ROLLBACK" | "ABORT" => match read_rollback_to(words)? {
            Some(savepoint) => Command::Savepoint(savepoint),
            None => Command::Rollback(read_end(words)?),
        },
        "SAVEPOINT" => Command::Savepoint(read_savepoint(words)?),
        "RELEASE" => Command::Savepoint(read_release(words)?),
        "DISCARD" => discard(words)?,
        // LISTEN is not supported, so there is never a channel.
        "UNLISTEN" if words.iter().count() == 2 => Command::Discard(Discarded::Nothing("UNLISTEN")),
        "DEALLOCATE" => {
            let at = if keyword(1) == "PREPARE" { 2 } else { 1 };
            let is_all = keyword(at) == "ALL";
            Command::Deallocate((!is_all).then(|| words.name(at)).transpose()?)
        }
        "DECLARE" => declare(words)?,
        "FETCH" | "MOVE" => fetch(words)?,
        "CLOSE" => match parse(words)? {
            Statement::Close { cursor: CloseCursor::Specific { name } } => {
                Command::CloseCursor(Some(folded(&name)))
            }
            _ => Command::CloseCursor(None),
        },
        "COPY" => copy(words)?,
        "SUBSCRIBE" => Command::Extension(Extension::Subscribe(words.clone())),
        "CREATE" if keyword(1) == "TABLE" => {
            let statement = words.source(&|name| name.to_owned());
            let table = TypedTable::parse(&statement).map_err(|error| of_form(words, error))?;
            let table = Box::new(table);
            Command::CreateTable { table, statement, may_be_there: keyword(2) == "IF" }
        }
        "DROP" if keyword(1) == "TABLE" => drop_table(words)?,
        "CREATE" if keyword(1) == "TOPIC" => {
            Command::Extension(Extension::CreateTopic(words.clone()))
        }
        "CREATE" if keyword(1) == "MATERIALIZED" => {
            Command::Extension(Extension::CreateView(words.clone()))
        }
        "DROP" if matches!(keyword(1).as_str(), "TOPIC" | "MATERIALIZED") => {
            Command::Extension(Extension::Drop(words.clone()))
        }
        _ => match parse(words)? {
            query @ Statement::Query(_) => Command::Query(Box::new(query)),
            Statement::Insert(insert) => Command::Insert(Box::new(insert)),
            _ => {
                let what = format!("{} is not supported", keyword(0));
                return Err(SqlError::unsupported(what));
            }
        },
    })
}

/// Parses one complete statement.
pub(crate) fn parse(words: &Words) -> Result<Statement, SqlError> {
    parse_statement(as_of::named(words)?.0)
}

fn parse_query(words: &Words) -> Result<Box<Statement>, SqlError> {
    match parse(words)? {
        query @ Statement::Query(_) => Ok(Box::new(query)),
        _ => Err(SqlError::unsupported(format!("{} is not a query", words.keyword(0)))),
    }
}

fn source(words: &Words) -> Result<CursorSource, SqlError> {
    match words.keyword(0).as_str() {
        "SUBSCRIBE" => Ok(CursorSource::Extension(Extension::Subscribe(words.clone()))),
        _ => parse_query(words).map(CursorSource::Query),
    }
}

/// Replaces a syntax error in a CREATE TABLE that is one of PostgreSQL.
fn of_form(words: &Words, error: SqlError) -> SqlError {
    let is_other = matches!(parse(words), Ok(Statement::CreateTable(_)));
    match error.state == SqlState::SYNTAX && is_other {
        true => SqlError::unsupported("constraints and other types of columns are not supported")
            .with_hint("CREATE TABLE … (…) WITH (topic = 'orders', format = 'json')"),
        false => error,
    }
}

/// Parses `EXPLAIN [ANALYZE] [VERBOSE] query`, or the form with options in parentheses.
fn explain(words: &Words) -> Result<Command, SqlError> {
    let mut at = 1;
    let mut analyze = Analyze::No;
    if words.iter().nth(1) == Some(&Token::LParen) {
        let end = words.iter().position(|it| *it == Token::RParen);
        let end = end
            .ok_or_else(|| SqlError::new(SqlState::SYNTAX, "syntax error: missing parenthesis"))?;
        for option in
            words.after(2).iter().take(end - 2).collect::<Vec<_>>().split(|it| **it == Token::Comma)
        {
            if let Some(Analyze::Yes) = read_explain_option(option)? {
                analyze = Analyze::Yes;
            }
        }
        at = end + 1;
    }
    for word in words.keywords().skip(at) {
        match word.as_str() {
            "ANALYZE" => analyze = Analyze::Yes,
            "VERBOSE" => {}
            _ => break,
        }
        at += 1;
    }
    Ok(Command::Explain { query: parse_query(&words.after(at))?, analyze })
}

/// Parses an option of EXPLAIN: a name, with or without a value. Most select details that plans
/// here do not have.
fn read_explain_option(option: &[&Token]) -> Result<Option<Analyze>, SqlError> {
    let text = |index: usize| {
        option.get(index).map_or_else(String::new, |it| match it {
            Token::SingleQuotedString(text) => text.to_ascii_uppercase(),
            other => other.to_string().to_ascii_uppercase(),
        })
    };
    let (name, value) = (text(0), text(1));
    let is_on = !matches!(value.as_str(), "FALSE" | "OFF" | "0");
    match name.as_str() {
        "ANALYZE" if is_on => Ok(Some(Analyze::Yes)),
        "FORMAT" if value != "TEXT" => {
            Err(SqlError::unsupported(format!("EXPLAIN with the format {value} is not supported")))
        }
        "ANALYZE" | "VERBOSE" | "COSTS" | "SETTINGS" | "BUFFERS" | "WAL" | "TIMING" | "SUMMARY"
        | "FORMAT" => Ok(None),
        _ => {
            let what = format!("unrecognized EXPLAIN option {:?}", name.to_ascii_lowercase());
            Err(SqlError::new(SqlState::SYNTAX, what))
        }
    }
}

/// Statements of PostgreSQL that are never supported.
const NEVER: &[&str] = &[
    "ALTER",
    "ANALYZE",
    "CALL",
    "CHECKPOINT",
    "CLUSTER",
    "COMMENT",
    "DELETE",
    "DO",
    "EXECUTE",
    "GRANT",
    "IMPORT",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MERGE",
    "NOTIFY",
    "PREPARE",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "REVOKE",
    "SECURITY",
    "TRUNCATE",
    "UPDATE",
    "VACUUM",
];

/// Objects of CREATE, ALTER and DROP, and words before them.
const OBJECTS: &[&str] = &[
    "ACCESS",
    "AGGREGATE",
    "CAST",
    "COLLATION",
    "CONVERSION",
    "DATABASE",
    "DOMAIN",
    "EVENT",
    "EXTENSION",
    "FOREIGN",
    "FUNCTION",
    "GROUP",
    "INDEX",
    "LANGUAGE",
    "OPERATOR",
    "POLICY",
    "PROCEDURE",
    "PUBLICATION",
    "ROLE",
    "RULE",
    "SCHEMA",
    "SEQUENCE",
    "SERVER",
    "STATISTICS",
    "SUBSCRIPTION",
    "TABLESPACE",
    "TEMP",
    "TEMPORARY",
    "TEXT",
    "TRANSFORM",
    "TRIGGER",
    "TYPE",
    "UNIQUE",
    "UNLOGGED",
    "USER",
    "VIEW",
];

/// Returns the name of a statement that PostgreSQL has and this server never supports.
fn unsupported(words: &Words) -> Option<String> {
    let (first, second) = (words.keyword(0), words.keyword(1));
    let is_of_object = matches!(first.as_str(), "CREATE" | "ALTER" | "DROP");
    match (is_of_object, second.as_str()) {
        (true, "OR") if words.keyword(2) == "REPLACE" => Some(format!("{first} OR REPLACE")),
        (true, other) if OBJECTS.contains(&other) => Some(format!("{first} {other}")),
        _ if NEVER.contains(&first.as_str()) => Some(first),
        _ => None,
    }
}

/// Parses `DECLARE name [BINARY] [NO SCROLL] CURSOR [WITH HOLD] FOR query`.
fn declare(words: &Words) -> Result<Command, SqlError> {
    let at = words.keywords().skip(1).position(|it| it == "FOR").map(|it| it + 1);
    let at = at.ok_or_else(|| {
        SqlError::new(SqlState::SYNTAX, "syntax error: DECLARE requires FOR and a query")
    })?;
    let before: Vec<String> = words.keywords().take(at).skip(2).collect();
    let has = |word: &str| before.iter().any(|it| it == word);
    if !has("CURSOR") {
        return Err(SqlError::new(SqlState::SYNTAX, "syntax error: DECLARE requires CURSOR"));
    }
    if has("SCROLL") && !has("NO") {
        return Err(SqlError::unsupported(
            "scrollable cursors are not supported: declare it NO SCROLL",
        ));
    }
    Ok(Command::Declare {
        name: words.name(1)?,
        source: source(&words.after(at + 1))?,
        format: if has("BINARY") { Format::Binary } else { Format::TEXT },
        has_hold: has("HOLD") && !has("WITHOUT"),
    })
}

/// Parses `FETCH [direction] [FROM | IN] name`, and MOVE.
fn fetch(words: &Words) -> Result<Command, SqlError> {
    let count = words.iter().count();
    let syntax = |what: &str| SqlError::new(SqlState::SYNTAX, what);
    // The name is last, or before WITH and its options.
    let end = words.keywords().skip(1).position(|it| it == "WITH").map_or(count, |it| it + 1);
    if end < 2 {
        return Err(syntax("syntax error: FETCH requires a cursor name"));
    }
    let name = words.name(end - 1)?;
    let mut rows_max = 1;
    for (keyword, token) in words.keywords().zip(words.iter()).take(end - 1).skip(1) {
        match (keyword.as_str(), token) {
            ("ALL", _) => rows_max = usize::MAX,
            ("NEXT" | "FORWARD" | "FROM" | "IN", _) => {}
            ("RELATIVE" | "ABSOLUTE" | "PRIOR" | "LAST" | "FIRST" | "BACKWARD", _)
            | (_, Token::Minus) => {
                let what = "cursor can only scan forward";
                return Err(SqlError::unsupported(what));
            }
            (_, Token::Number(number, _)) => {
                rows_max = number
                    .parse()
                    .map_err(|_| syntax("syntax error: invalid row count of FETCH"))?;
            }
            _ => return Err(syntax("syntax error: FETCH requires a direction and a cursor name")),
        }
    }
    Ok(match words.keyword(0).as_str() {
        "MOVE" => Command::Move { name, rows_max },
        _ => Command::Fetch { name, rows_max, timeout_ms: timeout(words, end)? },
    })
}

/// Parses `DROP TABLE [IF EXISTS] name, … [CASCADE | RESTRICT]`.
fn drop_table(words: &Words) -> Result<Command, SqlError> {
    let Statement::Drop { if_exists, names, .. } = parse(words)? else {
        return Err(SqlError::new(
            SqlState::SYNTAX,
            "syntax error: DROP TABLE requires table names",
        ));
    };
    let names = names.iter().map(table_name).collect::<Result<_, _>>()?;
    Ok(Command::DropTable { names, may_be_gone: if_exists })
}

/// Parses `WITH (TIMEOUT = '1 s')` of FETCH, after the first `end` words.
fn timeout(words: &Words, end: usize) -> Result<Option<u64>, SqlError> {
    if words.iter().count() == end {
        return Ok(None);
    }
    let options = words.after(end).source(&|name| name.to_owned());
    match live_queries::parse_statement(&format!("FETCH 1 cursor {options}"))? {
        Some(live_queries::Statement::Fetch(fetch)) => Ok(fetch.timeout_ms),
        _ => Err(SqlError::new(
            SqlState::SYNTAX,
            "syntax error: FETCH supports only WITH (TIMEOUT = '1 s')",
        )),
    }
}

fn discard(words: &Words) -> Result<Command, SqlError> {
    let what = match words.keyword(1).as_str() {
        "ALL" => Discarded::All,
        "PLANS" => Discarded::Nothing("DISCARD PLANS"),
        "SEQUENCES" => Discarded::Nothing("DISCARD SEQUENCES"),
        "TEMP" | "TEMPORARY" => Discarded::Nothing("DISCARD TEMP"),
        _ => {
            let what = "syntax error: DISCARD requires ALL, PLANS, SEQUENCES or TEMP";
            return Err(SqlError::new(SqlState::SYNTAX, what));
        }
    };
    Ok(Command::Discard(what))
}

fn copy(words: &Words) -> Result<Command, SqlError> {
    match read_copy(words)? {
        Copy::Out { rows, form } => Ok(Command::CopyOut { source: source(&rows)?, form }),
        Copy::In { insert, columns, form } => match parse(&insert)? {
            Statement::Insert(insert) => {
                Ok(Command::CopyIn { insert: Box::new(insert), columns, form })
            }
            _ => Err(SqlError::new(SqlState::SYNTAX, "syntax error: COPY FROM requires a table")),
        },
    }
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// Parses a parameter's name, including `TRANSACTION ISOLATION LEVEL` and `TIME ZONE`.
fn variable_name(words: &Words) -> String {
    let text: Vec<String> = words.iter().map(|it| it.to_string().to_ascii_lowercase()).collect();
    match text.join(" ").as_str() {
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "time zone" => "timezone".to_owned(),
        "session authorization" => "session_authorization".to_owned(),
        other => other.replace(" . ", ".").trim_matches('"').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::text::split;

    fn read(text: &str) -> Result<Command, SqlError> {
        read_command(&split(text)?[0])
    }

    #[test]
    fn cursors_are_declared_fetched_and_closed() {
        let declared = read("declare \"C\" no scroll cursor with hold for select 1").expect("good");
        let Command::Declare { name, source: CursorSource::Query(_), has_hold: true, .. } =
            declared
        else {
            panic!("{declared:?}")
        };
        assert_eq!(name, "C");
        for (text, expected) in [
            ("fetch c", 1),
            ("fetch next from c", 1),
            ("fetch forward 10 from \"c\"", 10),
            ("FETCH 5 IN C", 5),
            ("fetch all c with (timeout = '1s')", usize::MAX),
            ("fetch forward all from c", usize::MAX),
        ] {
            let Ok(Command::Fetch { name, rows_max, .. }) = read(text) else { panic!("{text}") };
            assert_eq!((name.as_str(), rows_max), ("c", expected), "{text}");
        }
        assert!(matches!(read("close all"), Ok(Command::CloseCursor(None))));
        assert!(matches!(read("close c"), Ok(Command::CloseCursor(Some(_)))));
        for text in
            ["fetch backward 1 from c", "fetch -1 from c", "declare c scroll cursor for select 1"]
        {
            assert_eq!(read(text).expect_err("no way back").state, SqlState::NOT_SUPPORTED);
        }
    }

    #[test]
    fn statements_that_are_not_supported_are_named() {
        for (text, expected) in [
            ("create temp table t (a int)", "CREATE TEMP is not supported"),
            ("drop index i", "DROP INDEX is not supported"),
            ("refresh materialized view v", "REFRESH is not supported"),
        ] {
            assert_eq!(read(text).expect_err(text).message, expected);
        }
    }

    #[test]
    fn options_of_explain_are_read() {
        for (text, expected) in [
            ("explain (analyze, buffers) select 1", Analyze::Yes),
            ("explain (verbose true, analyze off, format text) select 1", Analyze::No),
            ("explain (costs off, analyze on) select 1", Analyze::Yes),
        ] {
            let Ok(Command::Explain { analyze, .. }) = read(text) else { panic!("{text}") };
            assert_eq!(analyze, expected, "{text}");
        }
    }

    #[test]
    fn subscriptions_are_handed_over_wherever_they_stand() {
        assert!(matches!(read("subscribe to t"), Ok(Command::Extension(_))));
        let copied = read("COPY (SUBSCRIBE TO (SELECT 1)) TO STDOUT").expect("good");
        let Command::CopyOut {
            source: CursorSource::Extension(Extension::Subscribe(words)), ..
        } = copied
        else {
            panic!("{copied:?}")
        };
        assert_eq!(words.to_string(), "SUBSCRIBE TO (SELECT 1)");
        let declared = read("DECLARE c CURSOR FOR SUBSCRIBE TO t").expect("good");
        assert!(matches!(declared, Command::Declare { source: CursorSource::Extension(_), .. }));
        let copied = read("copy t (a, b) from stdin").expect("good");
        assert_eq!(copied.change(), Some("COPY FROM"));
    }

    #[test]
    fn what_is_no_statement_is_an_error() {
        for (text, state) in [
            ("selec 1", SqlState::SYNTAX),
            ("select 1 1 1", SqlState::SYNTAX),
            ("update t set a = 1", SqlState::NOT_SUPPORTED),
            ("drop index t", SqlState::NOT_SUPPORTED),
            ("fetch", SqlState::SYNTAX),
            ("listen a", SqlState::NOT_SUPPORTED),
            ("create table t (id bigint primary key)", SqlState::NOT_SUPPORTED),
            ("create table t (id bigint", SqlState::SYNTAX),
            ("do $$ begin end $$", SqlState::NOT_SUPPORTED),
            ("create publication p for all tables", SqlState::NOT_SUPPORTED),
            ("create or replace view v as select 1", SqlState::NOT_SUPPORTED),
            ("explain (format json) select 1", SqlState::NOT_SUPPORTED),
            ("explain (analyze, format 'xml') select 1", SqlState::NOT_SUPPORTED),
            ("explain (nothing) select 1", SqlState::SYNTAX),
            ("unlisten", SqlState::SYNTAX),
            ("unlisten a b", SqlState::SYNTAX),
            ("declare c", SqlState::SYNTAX),
        ] {
            assert_eq!(read(text).expect_err(text).state, state, "{text}");
        }
    }
}
