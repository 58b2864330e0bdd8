//! SQL queries over topics. Each query has its own connection.
//!
//! Queries are read-only. The console accepts only SELECT, SUBSCRIBE and EXPLAIN, and the broker
//! accepts only one statement. The session is started with `default_transaction_read_only=on`, so
//! that functions cannot write either. A broker that does not know a startup parameter ignores it;
//! therefore the console checks that it is in effect before it sends a query. The broker's ACLs
//! determine which topics can be read: those of the broker user that the console logs in as and, if
//! the console states on whose behalf it asks, also those of the broker user with the console
//! user's name. Rows are read from the broker no faster than the browser reads them.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::{FutureExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::{
    CancelToken, Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow, SimpleQueryStream,
};

use crate::broker::place::check_host;
use crate::shares::{Full, Place, Shares};

/// The broker's only database.
const DATABASE: &str = "memlane";

/// User name for brokers without authentication.
const USER_DEFAULT: &str = "console";

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const PLAN_TIME_MAX: Duration = Duration::from_secs(30);
const CANCEL_TIME_MAX: Duration = Duration::from_secs(5);

/// Limits on finite queries. Live queries run as long as they are read.
const QUERY_TIME_MAX: Duration = Duration::from_secs(60);
const ROWS_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 << 20;

/// Maximum number of concurrent queries, in total and per console user.
const QUERIES_MAX: usize = 32;
const QUERIES_OF_USER_MAX: usize = 4;

/// Limits on the text of a query, and on a displayed cell, which is truncated.
const TEXT_BYTES_MAX: usize = 64 << 10;
const CELL_CHARS_MAX: usize = 4_096;

/// Maximum number of rows per message.
const ROWS_TOGETHER: usize = 200;

/// Interval of keepalive messages, which detect disconnected browsers.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Startup option that makes the session read-only. Later statements cannot undo it.
const READS_ONLY: &str = "-c default_transaction_read_only=on";

/// Query that reads back the effective settings and the current user.
const IN_FORCE: &str = "SELECT current_user, current_setting('default_transaction_read_only')";

/// Identity on whose behalf queries run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedFor {
    /// The console. All users see the same topics.
    Console,
    /// The console user: the broker also applies the ACLs of its user with that name.
    User,
}

/// Type of access of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read-only.
    Reads,
    /// One record is written.
    Writes,
}

/// Address and login of the broker's SQL interface.
#[derive(Clone, Debug)]
pub(crate) struct SqlPlace {
    config: Config,
    asked_for: AskedFor,
}

impl SqlPlace {
    /// `login` is the broker user and the file with its password.
    ///
    /// # Errors
    /// The address is on another host, or the file is unusable.
    pub(crate) fn new(
        address: SocketAddr,
        login: Option<(&str, &Path)>,
        asked_for: AskedFor,
    ) -> anyhow::Result<Self> {
        check_host(address).map_err(anyhow::Error::msg)?;
        let mut config = Config::new();
        config.host(address.ip().to_string()).port(address.port()).dbname(DATABASE);
        config.application_name("memlane-console").connect_timeout(CONNECT_TIME_MAX);
        match login {
            Some((user, file)) => config.user(user).password(password(file)?),
            None => config.user(USER_DEFAULT),
        };
        Ok(Self { config, asked_for })
    }

    fn config_for(&self, user: &str, access: Access) -> Config {
        let mut options = Vec::new();
        if access == Access::Reads {
            options.push(READS_ONLY.to_owned());
        }
        if self.asked_for == AskedFor::User {
            // User names contain neither spaces nor backslashes.
            options.push(format!("-c memlane.on_behalf_of={user}"));
        }
        let mut config = self.config.clone();
        config.options(options.join(" "));
        config
    }

    /// Opens a connection for a user. It closes when the returned line is dropped.
    pub(super) async fn connect(
        &self,
        user: &str,
        access: Access,
    ) -> Result<(Client, Line), QueryError> {
        let config = self.config_for(user, access);
        let (client, connection) = config.connect(NoTls).await.map_err(|error| broken(&error))?;
        let connection = tokio::spawn(async move {
            // Connection errors are reported by the statement that waits.
            let _ended = connection.await;
        });
        let line = Line { cancel: client.cancel_token(), connection: connection.abort_handle() };
        Ok((client, line))
    }

    /// Checks that the startup parameters are in effect.
    pub(super) async fn check_in_force(
        &self,
        client: &Client,
        user: &str,
        access: Access,
    ) -> Result<(), QueryError> {
        let told = client.simple_query(IN_FORCE).await.map_err(|error| broken(&error))?;
        let row = told.iter().find_map(|it| match it {
            SimpleQueryMessage::Row(row) => Some((row.get(0), row.get(1))),
            _ => None,
        });
        let (name, only_reads) = row.unwrap_or_default();
        let ignored = match self.asked_for {
            AskedFor::User if name != Some(user) => format!("memlane.on_behalf_of={user}"),
            _ if access == Access::Reads && only_reads != Some("on") => {
                "default_transaction_read_only=on".to_owned()
            }
            _ => return Ok(()),
        };
        Err(QueryError::Broken(format!(
            "the broker ignored a login parameter ({ignored}), so no query was sent; use a \
             memlane-broker of the console's version, without a connection pooler in between"
        )))
    }
}

pub(super) fn password(file: &Path) -> anyhow::Result<String> {
    let unusable = || format!("cannot use the password file {}", file.display());
    let mode = fs::metadata(file).with_context(unusable)?.permissions().mode();
    ensure!(
        mode & 0o007 == 0,
        "{}: other users can access it (mode {:o}); run chmod 600",
        unusable(),
        mode & 0o777
    );
    let text = fs::read_to_string(file).with_context(unusable)?;
    let password = text.trim_end_matches(['\r', '\n']);
    ensure!(!password.is_empty(), "{}: the file is empty", unusable());
    Ok(password.to_owned())
}

/// Reason for which a query fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryError {
    /// Invalid query, or rejected by the broker.
    Refused(String),
    /// Too many concurrent queries.
    Busy(String),
    /// No response, or an unexpected one.
    Broken(String),
}

/// All running queries.
#[derive(Debug)]
pub(crate) struct Queries {
    pub(super) place: SqlPlace,
    running: Arc<Shares<String>>,
}

impl Queries {
    pub(crate) fn of(place: SqlPlace) -> Self {
        Self { place, running: Shares::new(QUERIES_MAX, QUERIES_OF_USER_MAX) }
    }

    /// Starts a query of a user. Dropping the result cancels it, also in the broker.
    pub(crate) async fn begin(&self, user: &str, text: &str) -> Result<Running, QueryError> {
        let kind = Kind::of(text)?;
        let turn = self.enter(user)?;
        let (client, line) = self.place.connect(user, Access::Reads).await?;
        let begun = async {
            self.place.check_in_force(&client, user, Access::Reads).await?;
            start(&client, kind, text).await
        };
        let begun = tokio::time::timeout(PLAN_TIME_MAX, begun).await;
        let late = || format!("planning the query timed out after {} s", PLAN_TIME_MAX.as_secs());
        let (columns, messages) = begun.map_err(|_| QueryError::Broken(late()))??;
        Ok(Running {
            columns: Some(columns),
            kind,
            messages,
            until: Instant::now() + QUERY_TIME_MAX,
            row_count: 0,
            byte_count: 0,
            is_over: false,
            _line: line,
            _client: client,
            turn,
        })
    }

    /// Reserves a slot for another statement of a user.
    pub(super) fn enter(&self, user: &str) -> Result<Place<String>, QueryError> {
        self.running.enter(&user.to_owned()).map_err(|full| {
            QueryError::Busy(match full {
                Full::OfOne(count) => {
                    format!("too many queries of {user}: {count} are running; end one first")
                }
                Full::OfAll(count) => format!("too many queries: {count} are running"),
            })
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Finite.
    Select,
    /// Returns changes until it is cancelled.
    Live,
}

impl Kind {
    fn of(text: &str) -> Result<Self, QueryError> {
        if text.len() > TEXT_BYTES_MAX {
            let what = format!("the query is too long; the maximum is {TEXT_BYTES_MAX} bytes");
            return Err(QueryError::Refused(what));
        }
        let is_letter = |letter: char| letter.is_ascii_alphabetic();
        let word: String = text.trim_start().chars().take_while(|it| is_letter(*it)).collect();
        match word.to_ascii_uppercase().as_str() {
            // EXPLAIN is only valid for SELECT, which the broker checks.
            "SELECT" | "EXPLAIN" => Ok(Self::Select),
            "SUBSCRIBE" => Ok(Self::Live),
            _ => {
                let what = "unsupported statement: the console only reads topics; use SELECT, \
                            SUBSCRIBE or EXPLAIN";
                Err(QueryError::Refused(what.to_owned()))
            }
        }
    }
}

/// Starts a query. Returns names and types of the columns, and the stream of rows.
async fn start(
    client: &Client,
    kind: Kind,
    text: &str,
) -> Result<(Value, Pin<Box<SimpleQueryStream>>), QueryError> {
    let refused = |error: tokio_postgres::Error| match error.as_db_error() {
        Some(it) => QueryError::Refused(format!("{} ({})", it.message(), it.code().code())),
        None => broken(&error),
    };
    // Only a single statement can be prepared. Only preparing returns the column types.
    let prepared = client.prepare(text).await.map_err(refused)?;
    if !prepared.params().is_empty() {
        let what = "parameters such as $1 are not supported; write the values into the query";
        return Err(QueryError::Refused(what.to_owned()));
    }
    let column =
        |it: &tokio_postgres::Column| json!({"name": it.name(), "type": it.type_().name()});
    let columns = prepared.columns().iter().map(column).collect();
    if kind == Kind::Select {
        let limit = format!("SET statement_timeout = {}", QUERY_TIME_MAX.as_millis());
        client.simple_query(&limit).await.map_err(refused)?;
    }
    let messages = client.simple_query_raw(text).await.map_err(refused)?;
    Ok((columns, Box::pin(messages)))
}

pub(super) fn broken(error: &tokio_postgres::Error) -> QueryError {
    let source = std::error::Error::source(error);
    let why = source.map(|it| format!(": {it}")).unwrap_or_default();
    QueryError::Broken(format!("cannot query the broker by SQL: {error}{why}"))
}

/// Connection of a query. Dropping it cancels the query, then closes the connection.
pub(super) struct Line {
    cancel: CancelToken,
    connection: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        let (cancel, connection) = (self.cancel.clone(), self.connection.clone());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return connection.abort();
        };
        runtime.spawn(async move {
            // If cancelling fails, closing the connection ends the query.
            let _told = tokio::time::timeout(CANCEL_TIME_MAX, cancel.cancel_query(NoTls)).await;
            connection.abort();
        });
    }
}

/// A running query.
pub(crate) struct Running {
    /// Columns, until they are sent.
    columns: Option<Value>,
    kind: Kind,
    messages: Pin<Box<SimpleQueryStream>>,
    until: Instant,
    row_count: usize,
    byte_count: usize,
    is_over: bool,
    _line: Line,
    /// Keeps the connection open.
    _client: Client,
    turn: Place<String>,
}

impl Running {
    /// Returns the next message, or `None` after the end. The order is: `columns` with `live`; then
    /// `rows` repeatedly, or `alive` if there were none; then `end` with a reason, or `error`.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        if let Some(columns) = self.columns.take() {
            return Some(json!({"columns": columns, "live": self.kind == Kind::Live}));
        }
        if self.is_over {
            return None;
        }
        let mut rows = Vec::new();
        let wait = match self.kind {
            Kind::Live => SILENCE_MAX,
            Kind::Select => self.until.duration_since(Instant::now()).min(SILENCE_MAX),
        };
        let mut message = tokio::select! {
            message = tokio::time::timeout(wait, self.messages.try_next()) => message.ok(),
            () = self.turn.taken() => return Some(self.end(rows, "busy")),
        };
        while let Some(found) = message {
            match found {
                Ok(Some(SimpleQueryMessage::Row(row))) => rows.push(self.cells(&row)),
                Ok(Some(_)) => {}
                Ok(None) => return Some(self.end(rows, "done")),
                Err(error) => return Some(self.fail(rows, &error)),
            }
            if rows.len() >= ROWS_TOGETHER || self.is_full() {
                break;
            }
            message = self.messages.try_next().now_or_never();
        }
        if self.is_full() {
            return Some(self.end(rows, "size"));
        }
        if self.kind == Kind::Select && Instant::now() >= self.until {
            return Some(self.end(rows, "time"));
        }
        Some(if rows.is_empty() { json!({"alive": true}) } else { json!({"rows": rows}) })
    }

    fn is_full(&self) -> bool {
        self.kind == Kind::Select && (self.row_count >= ROWS_MAX || self.byte_count >= BYTES_MAX)
    }

    fn cells(&mut self, row: &SimpleQueryRow) -> Value {
        self.row_count += 1;
        let cell = |at: usize| {
            row.get(at).map(|text| match text.char_indices().nth(CELL_CHARS_MAX) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text.to_owned(),
            })
        };
        let cells: Vec<_> = (0..row.len()).map(cell).collect();
        self.byte_count += cells.iter().flatten().map(String::len).sum::<usize>();
        json!(cells)
    }

    fn end(&mut self, rows: Vec<Value>, reason: &str) -> Value {
        self.is_over = true;
        json!({"rows": rows, "end": reason})
    }

    fn fail(&mut self, rows: Vec<Value>, error: &tokio_postgres::Error) -> Value {
        self.is_over = true;
        let message = match error.as_db_error() {
            Some(it) => format!("{} ({})", it.message(), it.code().code()),
            None => error.to_string(),
        };
        json!({"rows": rows, "error": message})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reads_is_a_query() {
        assert_eq!(Kind::of("\n select 1"), Ok(Kind::Select));
        assert_eq!(Kind::of("SELECT(1)"), Ok(Kind::Select));
        assert_eq!(Kind::of("explain SELECT 1"), Ok(Kind::Select));
        assert_eq!(Kind::of("Subscribe to orders"), Ok(Kind::Live));
        let changing = "INSERT INTO orders VALUES (1)|CREATE TOPIC a AS SELECT 1|DROP TOPIC a|COPY \
                        (SELECT 1) TO STDOUT|SET a = 1|WITH a AS (INSERT …) SELECT 1|SELECTED| |-- \
                        x\nDROP TOPIC a|/* */ SELECT 1";
        for text in changing.split('|') {
            assert!(matches!(Kind::of(text), Err(QueryError::Refused(_))), "{text}");
        }
        let long = format!("SELECT '{}'", "x".repeat(TEXT_BYTES_MAX));
        assert!(Kind::of(&long).is_err());
    }

    #[test]
    fn a_user_has_few_queries_and_leaves_room_for_others() {
        let address = "127.0.0.1:1".parse().expect("an address");
        let queries =
            Queries::of(SqlPlace::new(address, None, AskedFor::Console).expect("a place"));
        let enter = |user: &str| queries.enter(user);
        let turns: Vec<_> = (0..QUERIES_OF_USER_MAX).map(|_| enter("ann")).collect();
        assert!(turns.iter().all(Result::is_ok));
        assert!(matches!(enter("ann"), Err(QueryError::Busy(_))));
        assert!(enter("bob").is_ok());
        drop(turns);
        assert!(enter("ann").is_ok());
        let users = (0..QUERIES_MAX).map(|number| enter(&number.to_string()));
        let turns: Vec<_> = users.collect();
        assert!(turns.iter().all(Result::is_ok));
        assert!(matches!(enter("ann"), Err(QueryError::Busy(_))));
    }

    #[test]
    fn a_password_that_everybody_can_read_is_refused_and_so_is_another_host() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("password");
        fs::write(&file, "secret\n").expect("there is room");
        let here = "127.0.0.1:5433".parse().expect("an address");
        let place = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
            SqlPlace::new(here, Some(("console", &file)), AskedFor::User)
        };
        let config = place(0o640).expect("it can be used").config_for("ann", Access::Reads);
        assert_eq!(
            (config.get_user(), config.get_password()),
            (Some("console"), Some(&b"secret"[..]))
        );
        let options = "-c default_transaction_read_only=on -c memlane.on_behalf_of=ann";
        assert_eq!(config.get_options(), Some(options));
        let writing = place(0o640).expect("it can be used").config_for("ann", Access::Writes);
        assert_eq!(writing.get_options(), Some("-c memlane.on_behalf_of=ann"));
        assert!(place(0o644).is_err());
        let elsewhere = "192.0.2.1:5433".parse().expect("an address");
        assert!(SqlPlace::new(elsewhere, None, AskedFor::Console).is_err());
    }
}
