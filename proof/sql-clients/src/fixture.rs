//! The two servers: a broker with SQL, and PostgreSQL from the host's packages.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use kafka_clients::Broker;
use system::database::{Postgres, Server};
use system::{Tool, ToolOutput, check_for_panics, free_address, product, wait_for};
use tempfile::TempDir;

const START_TIME_LIMIT: Duration = Duration::from_secs(120);
const CLIENT_TIME_LIMIT: Duration = Duration::from_secs(240);

/// Of PostgreSQL.
const DATABASE: &str = "compared";

/// What [`Fixture::filled_topic`] holds.
const FILLED_PARTITION_COUNT: usize = 3;
const FILLED_RECORD_COUNT: usize = 30;

/// A broker that serves SQL.
pub struct Fixture {
    broker: Broker,
    sql: SocketAddr,
}

impl Fixture {
    /// The one of this suite, which lets clients of this host in.
    pub fn shared() -> Result<SharedSite> {
        static SHARED: OnceLock<Result<Fixture>> = OnceLock::new();
        let started = SHARED.get_or_init(|| Self::with_options(&["--anonymous", "loopback"]));
        started.as_ref().map(SharedSite).map_err(|error| anyhow!("{error:#}"))
    }

    /// One with these options of `memlane-broker`, which say whom it lets in.
    pub fn with_options(options: &[&str]) -> Result<Self> {
        let sql = free_address()?;
        let address = sql.to_string();
        let options = [&["--sql", address.as_str()], options].concat();
        let fixture = Self { broker: Broker::with_access(&options)?, sql };
        wait_for("SQL", START_TIME_LIMIT, || Ok(TcpStream::connect(sql).is_ok()))?;
        Ok(fixture)
    }

    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Where PostgreSQL's clients connect to.
    pub fn sql(&self) -> SocketAddr {
        self.sql
    }

    /// A client of PostgreSQL, as the environment tells it where the broker is.
    pub fn client(&self, words: &str) -> Tool {
        Tool::new(words)
            .time_limit(CLIENT_TIME_LIMIT)
            .env("PGHOST", &self.sql.ip().to_string())
            .env("PGPORT", &self.sql.port().to_string())
            .env("PGUSER", "tester")
            .env("PGDATABASE", "memlane")
            .env("PGCONNECT_TIMEOUT", "10")
    }

    /// psql without a user's settings, which prints rows with `|` between their columns.
    pub fn psql(&self) -> Tool {
        self.client("psql --no-psqlrc --quiet --no-align --tuples-only -P null=<null>")
    }

    /// Output of psql for one command.
    pub fn query(&self, sql: &str) -> Result<String> {
        let printed = self.broker.check(self.psql().args(["-c", sql]));
        Ok(printed.with_context(|| sql.to_owned())?.trim_end().to_owned())
    }

    /// Failure of psql for one command.
    pub fn refused(&self, sql: &str) -> Result<ToolOutput> {
        let output = self.psql().args(["-v", "VERBOSITY=verbose", "-c", sql]).run()?;
        ensure!(output.exit_code != Some(0), "{sql} was not refused: {}", output.stdout);
        Ok(output)
    }

    /// The SQLSTATE of the error that one command ends with.
    pub fn sql_state(&self, sql: &str) -> Result<String> {
        let output = self.psql().args(["-v", "VERBOSITY=sqlstate", "-c", sql]).run()?;
        let state = output.stderr.lines().find_map(|line| line.strip_prefix("ERROR:  "));
        let state = state.filter(|_| output.exit_code == Some(1));
        Ok(state.with_context(|| format!("{sql} was not refused: {output:?}"))?.to_owned())
    }

    /// Fails when the broker panicked: those of tests go on then.
    fn check_for_panics(&self) -> Result<()> {
        let log = format!("/proc/{}/fd/1", self.broker.process_id()?);
        ensure!(Path::new(&log).exists(), "the broker has ended; {}", self.broker.last_words());
        check_for_panics(Path::new(&log))
    }

    /// Has [`Fixture::memory_peak_mib`] begin at what the broker has now.
    pub fn forget_memory_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.broker.process_id()?);
        fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
    }

    /// The most memory that the broker had at any moment, its pool and its program among it.
    pub fn memory_peak_mib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.broker.process_id()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("the kernel tells the memory of a process")? / 1024)
    }

    /// A topic's name that no other test of the suite uses.
    pub fn topic(&self, name: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number carries no data.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("{name}_{number}")
    }

    pub fn create_topic(&self, name: &str, partition_count: usize) -> Result<()> {
        let count = partition_count.to_string();
        let create = product("memlane").args(["topic", "create", name, "--partitions", &count]);
        // Records of tests have times that are long ago.
        let create = create.args(["--config", "retention.ms=-1"]);
        self.broker.check(create.env("MEMLANE_BROKER", &self.broker.address()))?;
        Ok(())
    }

    /// kcat with options that hold no blanks.
    pub fn kcat(&self, options: &str) -> Tool {
        Tool::new("kcat -m 10 -b").arg(self.broker.address()).args(options.split_whitespace())
    }

    /// A topic that kcat filled, as `python/scenarios.py` says.
    pub fn filled_topic(&self, name: &str) -> Result<String> {
        let topic = self.topic(name);
        self.create_topic(&topic, FILLED_PARTITION_COUNT)?;
        for partition in 0..FILLED_PARTITION_COUNT {
            let numbers = (partition..FILLED_RECORD_COUNT).step_by(FILLED_PARTITION_COUNT);
            let records: Vec<_> = numbers.map(filled_record).collect();
            let client = self.kcat(&format!("-P -K : -t {topic} -p {partition}"));
            self.broker.check(client.input(file_of(&records)?))?;
        }
        Ok(topic)
    }

    /// Has kcat write records, `key:value` each.
    pub fn produce(&self, topic: &str, records: &[String]) -> Result<()> {
        let client = self.kcat(&format!("-P -K : -t {topic}")).input(file_of(records)?);
        self.broker.check(client)?;
        Ok(())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        check_unless_panicking(self);
    }
}

/// The broker of a suite, which is looked at when a test is done with it.
pub struct SharedSite(&'static Fixture);

impl Deref for SharedSite {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        self.0
    }
}

impl Drop for SharedSite {
    fn drop(&mut self) {
        check_unless_panicking(self);
    }
}

fn check_unless_panicking(fixture: &Fixture) {
    let checked = fixture.check_for_panics();
    assert!(checked.is_ok() || thread::panicking(), "the broker panicked: {checked:?}");
}

/// PostgreSQL of the host, with a folder of its own; clients connect over its socket.
pub struct Reference {
    server: Server,
    /// Removed when the server has stopped.
    _folder: TempDir,
}

impl Reference {
    pub fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-sql-").tempdir_in("/tmp")?;
        let server = Server::create(&Postgres::find()?, folder.path())?;
        // Texts in the order of their bytes, letters of all languages.
        let create = format!(
            "CREATE DATABASE {DATABASE} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
        );
        server.query("postgres", &create)?;
        Ok(Self { server, _folder: folder })
    }

    /// A client of it.
    pub fn client(&self, program: &str) -> Tool {
        let client = self.server.client(program).env("PGTZ", "UTC");
        client.env("PGDATABASE", DATABASE).time_limit(CLIENT_TIME_LIMIT)
    }

    /// psql as [`Fixture::psql`] runs it.
    pub fn psql(&self) -> Tool {
        let options = "--no-psqlrc --quiet --no-align --tuples-only -P null=<null>";
        self.client("psql").args(options.split(' '))
    }
}

fn filled_record(number: usize) -> String {
    format!("k{number}:{{\"name\": \"n{number}\", \"qty\": {number}, \"price\": {number}.5}}")
}

/// A file with these lines, to be read from its beginning.
pub fn file_of(lines: &[String]) -> Result<File> {
    let mut file = tempfile::tempfile().context("cannot make a file for input")?;
    for line in lines {
        writeln!(file, "{line}")?;
    }
    file.rewind()?;
    Ok(file)
}
