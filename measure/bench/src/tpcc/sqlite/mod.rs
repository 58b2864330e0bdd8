//! The suite's database in an SQLite file, for machines without a server: the library is part of
//! this program.
//!
//! Decimals are whole cents, because SQLite has no decimals. Commits are on storage when they
//! return. Only one user writes at a time. Readers see the state at their start.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ToSql, params_from_iter};

use super::database::{Database, Fill, Observe, Session, Way};
use super::plain::{Cell, Dialect, Intent, PlainSession, Statement, Statements, Value, texts};
use super::schema::{KEYS, SCHEMA};

const FILE: &str = "tpcc.db";

/// Page cache per connection, besides the kernel's.
const CACHE_KIB: u32 = 16 << 10;

/// Polling interval of a writer that waits for another.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const LOOKS_MAX: i32 = 60_000;

const DIALECT: Dialect = Dialect { hundred: "1", lock: "" };

/// Decimal types in the common schema, and their replacements.
const DECIMALS: [&str; 3] = ["numeric(12, 2)", "numeric(6, 2)", "numeric(5, 2)"];
const CENTS: &str = "cents int";
const SHARE: &str = "numeric(4, 4)";

/// Returns the settings of each connection, for rows.
pub(crate) fn settings() -> Vec<String> {
    vec![
        "journal_mode=WAL".to_owned(),
        "synchronous=FULL".to_owned(),
        format!("cache_size=-{CACHE_KIB}"),
        "temp_store=FILE".to_owned(),
    ]
}

/// Location of a database.
#[derive(Clone, Debug)]
pub(crate) struct Sqlite {
    folder: PathBuf,
}

impl Sqlite {
    /// Returns the suite's database in a folder, which may not exist yet.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Writes all committed changes to the main file.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let own = self.connect()?;
        let done = own.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        let is_busy = done.context("cannot checkpoint the write-ahead log of SQLite")?;
        ensure!(is_busy == 0, "another process still uses {}", self.file().display());
        Ok(())
    }

    fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    fn open(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(self.file(), flags);
        opened.with_context(|| format!("cannot open {}", self.file().display()))
    }

    fn connect(&self) -> Result<Connection> {
        let mut own = self.open()?;
        let wait = |looks: i32| {
            std::thread::sleep(LOOK_INTERVAL);
            looks < LOOKS_MAX
        };
        own.busy_handler(Some(wait)).context("cannot set the busy handler of SQLite")?;
        for setting in settings() {
            batch(&own, &format!("PRAGMA {setting}"))?;
        }
        own.set_prepared_statement_cache_capacity(Statement::COUNT);
        Ok(own)
    }
}

impl Database for Sqlite {
    fn create(&self) -> Result<()> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let path = self.folder.join(format!("{FILE}{suffix}"));
            if path.exists() {
                std::fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        batch(&self.open()?, &schema())
    }

    fn fillers_max(&self) -> u32 {
        1
    }

    fn filler(&self) -> Result<Box<dyn Fill>> {
        let own = self.open()?;
        // A failed load is discarded, so no rollback is needed.
        batch(&own, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536")?;
        Ok(Box::new(Filler { own, insertion: String::new() }))
    }

    fn complete(&self) -> Result<()> {
        batch(&self.open()?, &keys())?;
        batch(&self.connect()?, "ANALYZE")?;
        self.checkpoint()?;
        let file = std::fs::File::open(self.file()).context("cannot open what was just loaded")?;
        file.sync_all().context("cannot sync the loaded database file")
    }

    fn observer(&self) -> Result<Box<dyn Observe>> {
        Ok(Box::new(Observer(self.connect()?)))
    }

    fn user(&self, way: Way) -> Result<Box<dyn Session>> {
        ensure!(way == Way::Statements, "stored procedures are supported for PostgreSQL only");
        Ok(Box::new(PlainSession(User { own: self.connect()?, texts: texts(DIALECT).collect() })))
    }
}

fn schema() -> String {
    let cents = |schema: String, decimal: &&str| schema.replace(decimal, CENTS);
    DECIMALS.iter().fold(SCHEMA.replace(SHARE, "real"), cents).replace("timestamptz", "text")
}

/// Returns primary keys as unique indexes, because SQLite cannot add keys to existing tables.
fn keys() -> String {
    let key = |statement: &str| match statement.trim().strip_prefix("ALTER TABLE ") {
        None => format!("{statement};"),
        Some(rest) => {
            let (table, columns) = rest.split_once(" ADD PRIMARY KEY ").unwrap_or((rest, ""));
            format!("CREATE UNIQUE INDEX {table}_key ON {table} {columns};")
        }
    };
    KEYS.split(';').filter(|it| !it.trim().is_empty()).map(key).collect()
}

fn batch(own: &Connection, statements: &str) -> Result<()> {
    let done = own.execute_batch(statements);
    let first = statements.lines().next().unwrap_or_default();
    done.with_context(|| format!("SQLite cannot run {first}"))
}

struct Observer(Connection);

impl Observe for Observer {
    fn number(&mut self, query: &str) -> Result<i64> {
        let number = self.0.query_row(query, [], |row| row.get(0));
        number.with_context(|| format!("{query} returned no number"))
    }

    fn transactions(&mut self) -> Result<Option<i64>> {
        Ok(None)
    }

    /// Sessions end with their threads.
    fn user_count(&mut self) -> Result<i64> {
        Ok(0)
    }
}

/// A loader of rows into a table.
struct Filler {
    own: Connection,
    insertion: String,
}

impl Fill for Filler {
    fn begin(&mut self, table: &'static str) -> Result<()> {
        let mut columns = self.own.prepare(&format!("PRAGMA table_info({table})"))?;
        let kinds = columns.query_map([], |row| row.get::<_, String>("type"))?;
        let marks = kinds.map(|kind| {
            let is_cents = kind?.eq_ignore_ascii_case(CENTS);
            Ok(if is_cents { "CAST(round(? * 100) AS INTEGER)" } else { "?" })
        });
        let marks = marks.collect::<Result<Vec<_>>>()?;
        self.insertion = format!("INSERT INTO {table} VALUES ({})", marks.join(", "));
        batch(&self.own, "BEGIN")
    }

    fn take(&mut self, rows: &str) -> Result<()> {
        let mut insertion = self.own.prepare_cached(&self.insertion)?;
        for row in rows.lines() {
            let fields = row.split('\t').map(|field| (field != "\\N").then_some(field));
            let added = insertion.execute(params_from_iter(fields));
            added.with_context(|| format!("SQLite cannot run {}", self.insertion))?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        batch(&self.own, "COMMIT")
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// A virtual user's connection.
struct User {
    own: Connection,
    /// In the order of [`Statement`].
    texts: Vec<String>,
}

impl User {
    fn run(&self, statement: Statement, values: &[Value<'_>]) -> rusqlite::Result<Vec<Vec<Cell>>> {
        let mut prepared = self.own.prepare_cached(&self.texts[statement as usize])?;
        let columns = prepared.column_count();
        if columns == 0 {
            prepared.execute(params_from_iter(values))?;
            return Ok(Vec::new());
        }
        take_rows(&mut prepared, columns, values)
    }
}

fn take_rows(
    prepared: &mut CachedStatement<'_>,
    columns: usize,
    values: &[Value<'_>],
) -> rusqlite::Result<Vec<Vec<Cell>>> {
    let mut found = prepared.query(params_from_iter(values))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let cell = |column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => Cell::Nothing,
                ValueRef::Integer(number) => Cell::Number(number),
                ValueRef::Real(real) => Cell::Real(real),
                ValueRef::Text(text) | ValueRef::Blob(text) => {
                    Cell::Text(String::from_utf8_lossy(text).into_owned())
                }
            })
        };
        rows.push((0..columns).map(cell).collect::<rusqlite::Result<_>>()?);
    }
    Ok(rows)
}

impl Statements for User {
    /// Begins a transaction. Writers take the lock immediately, because upgrading a read
    /// transaction may fail.
    fn begin(&mut self, intent: Intent) -> Result<()> {
        batch(
            &self.own,
            match intent {
                Intent::Read => "BEGIN",
                Intent::Change => "BEGIN IMMEDIATE",
            },
        )
    }

    fn commit(&mut self) -> Result<()> {
        batch(&self.own, "COMMIT")
    }

    fn roll_back(&mut self) -> Result<()> {
        batch(&self.own, "ROLLBACK")
    }

    fn rows(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<Vec<Vec<Cell>>> {
        let rows = self.run(statement, values);
        rows.with_context(|| format!("the statement {statement:?} failed"))
    }

    fn is_conflict(error: &anyhow::Error) -> bool {
        let cause = error.chain().find_map(|cause| cause.downcast_ref::<rusqlite::Error>());
        let code = cause.and_then(rusqlite::Error::sqlite_error_code);
        matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_cents_and_keys_are_indexes() {
        assert!(schema().contains("w_tax real NOT NULL, w_ytd cents int NOT NULL"), "{}", schema());
        assert!(!schema().contains("numeric"), "{}", schema());
        assert!(keys().contains("CREATE UNIQUE INDEX warehouse_key ON warehouse (w_id);"));
        assert!(!keys().contains("ALTER"), "{}", keys());
    }

    #[test]
    fn rows_are_filled_in_cents() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let database = Sqlite::in_folder(folder.path().to_owned());
        database.create().expect("it is created");
        let mut filler = database.filler().expect("it is opened");
        filler.begin("item").expect("the table is there");
        filler.take("1\t7\tabc\t12.34\txyz\n2\t8\tabc\t0.29\txyz\n").expect("rows are taken");
        filler.end().expect("they are kept");
        drop(filler);
        database.complete().expect("keys are made");
        let mut observer = database.observer().expect("it is opened");
        assert_eq!(observer.number("SELECT sum(i_price) FROM item").ok(), Some(1_234 + 29));
    }
}
