//! Clients that log in over TLS, by each mechanism, with the permissions of access lists. Not
//! compared with Apache Kafka, which would need its own files of users and keys.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::{Broker, PythonClient, ToolBox, is_skipped};
use system::{Background, Tool, ToolOutput, product, wait_for};
use tempfile::TempDir;

const PROGRAMS: &[&str] = &["kcat", "openssl", "javac", "mvn", "python3"];

const CONFIGS: &str = "kafka.admin.ConfigCommand";
const ACCESS: &str = "org.apache.kafka.tools.AclCommand";
const TIME_LIMIT: Duration = Duration::from_secs(60);

const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// A broker with the users `admin`, who has all permissions, and `reader`.
struct Fixture {
    broker: Broker,
    folder: TempDir,
}

impl Fixture {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| -> Result<String> {
            let path = folder.path().join(name);
            Ok(path.to_str().context("the folder's name is no UTF-8")?.to_owned())
        };
        let (certificate, key) = (path("certificate.pem")?, path("key.pem")?);
        let (users, lists) = (path("users")?, path("lists")?);
        Tool::new("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2")
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-keyout", &key, "-out", &certificate])
            .check()?;
        for name in ["admin", "reader"] {
            let secret = file_of(&format!("secret of {name}\n"))?;
            let set = product("memlane-broker").args(["user", "set", name, "--user-file", &users]);
            set.input(secret).check()?;
        }
        // Without the file everything would be permitted.
        fs::write(&lists, "version = 1\n").context("cannot write the file of access lists")?;
        let mechanisms = MECHANISMS.join(",");
        let broker = Broker::with_access(&[
            "--user-file",
            &users,
            "--mechanisms",
            &mechanisms,
            "--tls-certificate",
            &certificate,
            "--tls-key",
            &key,
            "--acl-file",
            &lists,
            "--super-user",
            "User:admin",
        ])?;
        Ok(Self { broker, folder })
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    fn kcat(&self, mechanism: &str, name: &str, secret: &str) -> Tool {
        Tool::new("kcat -m 10 -X security.protocol=SASL_SSL -b")
            .arg(self.broker.address())
            .arg("-X")
            .arg(format!("ssl.ca.location={}", self.certificate().display()))
            .args(["-X", &format!("sasl.mechanism={mechanism}")])
            .args(["-X", &format!("sasl.username={name}")])
            .args(["-X", &format!("sasl.password={secret}")])
    }

    fn produce(&self, user: Tool, line: &str) -> Result<ToolOutput> {
        user.args(["-P", "-t", "lines"]).input(file_of(&format!("{line}\n"))?).run()
    }

    fn read(&self, user: Tool) -> Result<ToolOutput> {
        user.args(["-C", "-e", "-q", "-t", "lines", "-p", "0"]).run()
    }

    /// Adds or removes an entry as `admin`, by Kafka's own tool.
    fn allow(&self, options: &str) -> Result<()> {
        self.admin(ACCESS, options)?;
        Ok(())
    }

    /// Runs one of Kafka's own tools as `admin`.
    fn admin(&self, tool: &str, options: &str) -> Result<String> {
        let settings = self.folder.path().join("admin.properties");
        let text = format!(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n\
             sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
             username=\"admin\" password=\"secret of admin\";\n\
             ssl.truststore.type=PEM\nssl.truststore.location={}\n",
            self.certificate().display()
        );
        fs::write(&settings, text).context("cannot write settings")?;
        let settings = settings.to_str().context("the folder's name is no UTF-8")?;
        let address = self.broker.address();
        let mut words = vec!["--bootstrap-server", &address, "--command-config", settings];
        words.extend(options.split_whitespace());
        ToolBox::check(tool, &words, "").with_context(|| self.broker.last_words())
    }
}

fn file_of(text: &str) -> Result<File> {
    let mut file = tempfile::tempfile().context("cannot make a file for input")?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

#[test]
fn users_log_in_and_do_what_access_lists_allow() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::new()?;
    let mut written = String::new();
    for mechanism in MECHANISMS {
        let admin = fixture.kcat(mechanism, "admin", "secret of admin");
        let output = fixture.produce(admin, mechanism)?;
        ensure!(output.exit_code == Some(0), "{mechanism}: {}", output.stderr);
        written += &format!("{mechanism}\n");
        let output = fixture.produce(fixture.kcat(mechanism, "admin", "a guess"), "never")?;
        ensure!(output.exit_code != Some(0), "{mechanism} let a wrong secret in");
        ensure!(output.stderr.contains("authentication"), "{mechanism}: {}", output.stderr);
    }
    let reader = || fixture.kcat("SCRAM-SHA-256", "reader", "secret of reader");
    let refused = fixture.read(reader())?;
    ensure!(refused.exit_code != Some(0) && refused.stdout.is_empty(), "{refused:?}");
    fixture.allow("--add --allow-principal User:reader --operation Read --topic lines")?;
    let output = fixture.read(reader())?;
    ensure!(output.stdout == written, "{output:?}");
    let refused = fixture.produce(reader(), "never")?;
    ensure!(refused.exit_code != Some(0), "a reader could write: {refused:?}");
    let output = fixture.read(reader())?;
    ensure!(output.stdout == written, "{output:?}");
    fixture
        .allow("--remove --force --allow-principal User:reader --operation Read --topic lines")?;
    let refused = fixture.read(reader())?;
    ensure!(
        refused.exit_code != Some(0) && refused.stdout.is_empty(),
        "a right stays: {refused:?}"
    );
    Ok(())
}

/// A group member that subscribes to a pattern, and the topics of its assigned partitions, in order
/// of arrival.
struct Follower {
    member: Background,
    said: PathBuf,
}

impl Follower {
    fn start(fixture: &Fixture, pattern: &str) -> Result<Self> {
        let said = fixture.folder.path().join("follower");
        let certificate = fixture.certificate();
        let member = PythonClient::fetched()?
            .scenario("patterns.follow")
            .arg(fixture.broker.address())
            .args([pattern, "reader", "secret of reader"])
            .arg(certificate)
            .output_to(File::create(&said).context("cannot make a file for output")?)?;
        Ok(Self { member: Background::start(member)?, said })
    }

    /// Waits until the member reports this many topics, and returns them.
    fn topics(&mut self, count: usize) -> Result<Vec<String>> {
        let mut said = String::new();
        let told = wait_for("the member to be given topics", TIME_LIMIT, || {
            said = fs::read_to_string(&self.said)?;
            ensure!(self.member.has_ended()?.is_none(), "the member has ended: {said}");
            Ok(said.lines().filter(|line| line.starts_with("given ")).count() >= count)
        });
        told.with_context(|| said.clone())?;
        Ok(said.lines().filter_map(|line| Some(line.strip_prefix("given ")?.to_owned())).collect())
    }
}

#[test]
fn a_pattern_gives_a_member_the_topics_alone_that_it_may_describe() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::new()?;
    let topics = ["orders-a", "orders-hidden", "orders-z"];
    for topic in topics {
        let admin = fixture.kcat("SCRAM-SHA-256", "admin", "secret of admin");
        let admin = admin.args(["-P", "-t", topic]);
        fixture.broker.check(admin.input(file_of("line\n")?))?;
    }
    fixture.allow("--add --allow-principal User:reader --operation Read --group followers")?;
    for topic in ["orders-a", "orders-z"] {
        let entry = "--add --allow-principal User:reader --operation Read --topic";
        fixture.allow(&format!("{entry} {topic}"))?;
    }
    let mut follower = Follower::start(&fixture, "^orders-.*")?;
    let mut found = follower.topics(2)?;
    found.sort();
    ensure!(found == ["orders-a", "orders-z"], "{found:?}");
    // The pattern also matches the other topic, once the member is permitted to see it.
    fixture.allow("--add --allow-principal User:reader --operation Read --topic orders-hidden")?;
    let found = follower.topics(3)?;
    ensure!(found[2] == "orders-hidden", "{found:?}");
    Ok(())
}

#[test]
fn tools_see_that_rights_are_checked() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::new()?;
    let broker = "--describe --all --entity-type brokers --entity-name 1";
    let settings = fixture.admin(CONFIGS, broker)?;
    ensure!(settings.contains("authorizer.class.name=org.apache.kafka."), "{settings}");
    Ok(())
}

#[test]
fn kafkas_tool_makes_users_and_sets_their_rates() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::new()?;
    let user = "--entity-type users --entity-name writer";
    let writer = || fixture.kcat("SCRAM-SHA-256", "writer", "of-the-tool");
    fixture.allow("--add --allow-principal User:writer --producer --topic lines")?;
    let refused = fixture.produce(writer(), "never")?;
    ensure!(refused.exit_code != Some(0), "a user that is not there was let in");
    let secret = "SCRAM-SHA-256=[iterations=8192,password=of-the-tool]";
    fixture.admin(CONFIGS, &format!("--alter {user} --add-config {secret}"))?;
    let output = fixture.produce(writer(), "one")?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    let rate = "producer_byte_rate=4000000";
    fixture.admin(CONFIGS, &format!("--alter {user} --add-config {rate}"))?;
    let others = "--entity-type users --entity-default";
    fixture.admin(CONFIGS, &format!("--alter {others} --add-config consumer_byte_rate=9000000"))?;
    let described = fixture.admin(CONFIGS, &format!("--describe {user}"))?;
    ensure!(described.contains("producer_byte_rate=4000000"), "{described}");
    ensure!(described.contains("SCRAM-SHA-256=iterations=8192"), "{described}");
    let described = fixture.admin(CONFIGS, &format!("--describe {others}"))?;
    ensure!(described.contains("consumer_byte_rate=9000000"), "{described}");
    // The tool changes one kind at a time.
    for gone in ["SCRAM-SHA-256", "producer_byte_rate"] {
        fixture.admin(CONFIGS, &format!("--alter {user} --delete-config {gone}"))?;
    }
    let described = fixture.admin(CONFIGS, &format!("--describe {user}"))?;
    ensure!(!described.contains("SCRAM") && !described.contains("producer"), "{described}");
    let refused = fixture.produce(writer(), "never")?;
    ensure!(refused.exit_code != Some(0), "a user that was removed was let in");
    Ok(())
}
