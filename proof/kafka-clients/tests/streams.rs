//! Kafka Streams with `processing.guarantee=exactly_once_v2`: an application that is killed during
//! its transactions counts each word exactly once.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kafka_clients::{Broker, JavaClient, PythonClient, is_skipped};
use system::{Background, Tool};
use tempfile::TempDir;

const PROGRAMS: &[&str] = &["javac", "mvn", "python3", "kcat"];

const SOURCE: &str = "lines";
const TARGET: &str = "counts";
const WORDS_IN_LINE: usize = 10;
const LINES_IN_PART: usize = 200;
const WORDS_IN_PART: usize = LINES_IN_PART * WORDS_IN_LINE;

/// Number of committed counts of a part when the application is killed.
const COUNTS_BEFORE_KILL: usize = 100;
const KILL_COUNT: usize = 2;

const TIME_LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

struct Fixture {
    broker: &'static Broker,
    java: JavaClient,
    python: PythonClient,
    folder: TempDir,
}

impl Fixture {
    fn start_application(&self) -> Result<Background> {
        let folder = self.folder.path();
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log"))?;
        let application = self
            .java
            .program("WordCount")
            .args([&self.broker.address(), "word-count", SOURCE, TARGET])
            .arg(folder.join("state"));
        Background::start(application.output_to(log)?)
    }

    fn scenario(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let scenario = self.python.scenario(name).arg(self.broker.address()).args(arguments);
        self.broker.check(scenario)?;
        Ok(())
    }

    /// Waits until this many counts are committed.
    fn wait_for(&self, application: &mut Background, count: usize) -> Result<()> {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let kcat = Tool::new("kcat -C -e -q -o beginning -X isolation.level=read_committed -t")
                .args([TARGET, "-b", &self.broker.address()]);
            let found = self.broker.check(kcat)?.lines().count();
            if found >= count {
                return Ok(());
            }
            ensure!(application.has_ended()?.is_none(), "the application ended: {}", self.log());
            let is_late = Instant::now() >= deadline;
            ensure!(!is_late, "{found} of {count} counts within {TIME_LIMIT:?}: {}", self.log());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(Path::new(self.folder.path()).join("log"));
        format!("{}\n{}", log.unwrap_or_default(), self.broker.last_words())
    }
}

#[test]
fn words_are_counted_once_though_the_application_is_killed() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture {
        broker: Broker::shared()?,
        java: JavaClient::fetched()?,
        python: PythonClient::fetched()?,
        folder: tempfile::tempdir()?,
    };
    let lines = LINES_IN_PART.to_string();
    fixture.scenario("word_count.make", &[SOURCE, TARGET])?;
    for part in 0..KILL_COUNT {
        let mut application = fixture.start_application()?;
        fixture.wait_for(&mut application, part * WORDS_IN_PART)?;
        fixture.scenario("word_count.write", &[SOURCE, &lines])?;
        fixture.wait_for(&mut application, part * WORDS_IN_PART + COUNTS_BEFORE_KILL)?;
        // Dropping kills it during its work.
        drop(application);
    }
    let mut application = fixture.start_application()?;
    fixture.wait_for(&mut application, KILL_COUNT * WORDS_IN_PART)?;
    drop(application);
    fixture.scenario("word_count.check", &[SOURCE, TARGET])
}
