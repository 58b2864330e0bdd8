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

/// Database name on the PostgreSQL server.
const DATABASE: &str = "compared";

/// Partitions and records of [`Fixture::filled_topic`].
const FILLED_PARTITION_COUNT: usize = 3;
const FILLED_RECORD_COUNT: usize = 30;

/// Broker that serves SQL.
pub struct Fixture {
    broker: Broker,
    sql: SocketAddr,
}

impl Fixture {
    /// Returns the suite's shared broker, which accepts anonymous clients of this host.
    pub fn shared() -> Result<SharedFixture> {
        static SHARED: OnceLock<Result<Fixture>> = OnceLock::new();
        let started = SHARED.get_or_init(|| Self::with_options(&["--anonymous", "loopback"]));
        started.as_ref().map(SharedFixture).map_err(|error| anyhow!("{error:#}"))
    }

    /// Starts a broker with these options of `memlane-broker`, which decide who may connect.
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

    /// Address of the broker's PostgreSQL port.
    pub fn sql(&self) -> SocketAddr {
        self.sql
    }

    /// Returns a PostgreSQL client with the broker's address in its environment.
    pub fn client(&self, words: &str) -> Tool {
        Tool::new(words)
            .time_limit(CLIENT_TIME_LIMIT)
            .env("PGHOST", &self.sql.ip().to_string())
            .env("PGPORT", &self.sql.port().to_string())
            .env("PGUSER", "tester")
            .env("PGDATABASE", "memlane")
            .env("PGCONNECT_TIMEOUT", "10")
    }

    /// Returns psql without user settings. It separates the columns of a row with `|`.
    pub fn psql(&self) -> Tool {
        self.client("psql --no-psqlrc --quiet --no-align --tuples-only -P null=<null>")
    }

    /// Runs one command with psql and returns its output.
    pub fn query(&self, sql: &str) -> Result<String> {
        let printed = self.broker.check(self.psql().args(["-c", sql]));
        Ok(printed.with_context(|| sql.to_owned())?.trim_end().to_owned())
    }

    /// Runs one command that must fail with psql and returns the output.
    pub fn refused(&self, sql: &str) -> Result<ToolOutput> {
        let output = self.psql().args(["-v", "VERBOSITY=verbose", "-c", sql]).run()?;
        ensure!(output.exit_code != Some(0), "{sql} was not refused: {}", output.stdout);
        Ok(output)
    }

    /// Returns the SQLSTATE of the error that a command fails with.
    pub fn sql_state(&self, sql: &str) -> Result<String> {
        let output = self.psql().args(["-v", "VERBOSITY=sqlstate", "-c", sql]).run()?;
        let state = output.stderr.lines().find_map(|line| line.strip_prefix("ERROR:  "));
        let state = state.filter(|_| output.exit_code == Some(1));
        Ok(state.with_context(|| format!("{sql} was not refused: {output:?}"))?.to_owned())
    }

    /// Fails if the broker panicked. Tests do not notice panics otherwise.
    fn check_for_panics(&self) -> Result<()> {
        let log = format!("/proc/{}/fd/1", self.broker.process_id()?);
        ensure!(Path::new(&log).exists(), "the broker has ended; {}", self.broker.last_words());
        check_for_panics(Path::new(&log))
    }

    /// Resets the peak that [`Fixture::memory_peak_mib`] returns to the broker's current memory.
    pub fn forget_memory_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.broker.process_id()?);
        fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
    }

    /// Returns the broker's peak resident memory, including its pool and its program.
    pub fn memory_peak_mib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.broker.process_id()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("the kernel tells the memory of a process")? / 1024)
    }

    /// Returns a topic name that no other test of the suite uses.
    pub fn topic(&self, name: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number carries no data.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("{name}_{number}")
    }

    pub fn create_topic(&self, name: &str, partition_count: usize) -> Result<()> {
        let count = partition_count.to_string();
        let create = product("memlane").args(["topic", "create", name, "--partitions", &count]);
        // Keeps records forever: test records have old timestamps.
        let create = create.args(["--config", "retention.ms=-1"]);
        self.broker.check(create.env("MEMLANE_BROKER", &self.broker.address()))?;
        Ok(())
    }

    /// Returns kcat with these options, which contain no spaces.
    pub fn kcat(&self, options: &str) -> Tool {
        Tool::new("kcat -m 10 -b").arg(self.broker.address()).args(options.split_whitespace())
    }

    /// Creates a topic and fills it with kcat. `python/scenarios.py` describes the records.
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

    /// Writes records with kcat, each as `key:value`.
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

/// Handle of the suite's shared broker. Checks the broker for panics when a test drops it.
pub struct SharedFixture(&'static Fixture);

impl Deref for SharedFixture {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        self.0
    }
}

impl Drop for SharedFixture {
    fn drop(&mut self) {
        check_unless_panicking(self);
    }
}

fn check_unless_panicking(fixture: &Fixture) {
    let checked = fixture.check_for_panics();
    assert!(checked.is_ok() || thread::panicking(), "the broker panicked: {checked:?}");
}

/// PostgreSQL server of the host with its own folder. Clients connect over its socket.
pub struct Reference {
    server: Server,
    /// Removed after the server has stopped.
    _folder: TempDir,
}

impl Reference {
    pub fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-sql-").tempdir_in("/tmp")?;
        let server = Server::create(&Postgres::find()?, folder.path())?;
        // Sorts texts by bytes, and knows the letters of all languages.
        let create = format!(
            "CREATE DATABASE {DATABASE} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
        );
        server.query("postgres", &create)?;
        Ok(Self { server, _folder: folder })
    }

    /// Returns a client of this server.
    pub fn client(&self, program: &str) -> Tool {
        let client = self.server.client(program).env("PGTZ", "UTC");
        client.env("PGDATABASE", DATABASE).time_limit(CLIENT_TIME_LIMIT)
    }

    /// Returns psql with the options of [`Fixture::psql`].
    pub fn psql(&self) -> Tool {
        let options = "--no-psqlrc --quiet --no-align --tuples-only -P null=<null>";
        self.client("psql").args(options.split(' '))
    }
}

fn filled_record(number: usize) -> String {
    format!("k{number}:{{\"name\": \"n{number}\", \"qty\": {number}, \"price\": {number}.5}}")
}

/// Returns a temporary file with these lines, positioned at its start.
pub fn file_of(lines: &[String]) -> Result<File> {
    let mut file = tempfile::tempfile().context("cannot make a file for input")?;
    for line in lines {
        writeln!(file, "{line}")?;
    }
    file.rewind()?;
    Ok(file)
}
