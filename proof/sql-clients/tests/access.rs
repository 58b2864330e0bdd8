//! SQL users and rights are those of Kafka's clients: SCRAM over TLS, and access lists.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Fixture, file_of};
use system::{Tool, ToolOutput, product, wait_for};
use tempfile::TempDir;

const PROGRAMS: &[&str] = &["psql", "openssl"];
const BEGIN_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Broker with the superuser `admin` and the user `reader`.
struct Guarded {
    fixture: Fixture,
    folder: TempDir,
}

impl Guarded {
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
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &key, "-out", &certificate])
            .check()?;
        for name in ["admin", "reader"] {
            let secret = file_of(&[format!("secret of {name}")])?;
            let set = product("memlane-broker").args(["user", "set", name, "--user-file", &users]);
            set.input(secret).check()?;
        }
        fs::write(&lists, "version = 1\n").context("cannot write the file of access lists")?;
        let fixture = Fixture::with_options(&[
            "--user-file",
            &users,
            "--mechanisms",
            "SCRAM-SHA-256",
            "--tls-certificate",
            &certificate,
            "--tls-key",
            &key,
            "--acl-file",
            &lists,
            "--super-user",
            "User:admin",
        ])?;
        Ok(Self { fixture, folder })
    }

    /// Runs one command with psql as this user, over TLS with a verified certificate.
    fn run(&self, user: &str, secret: &str, sql: &str) -> Result<ToolOutput> {
        let certificate = self.folder.path().join("certificate.pem");
        let client = self.fixture.psql().env("PGUSER", user).env("PGPASSWORD", secret);
        let client = client.env("PGSSLMODE", "verify-full");
        let client = client.env("PGSSLROOTCERT", &certificate.to_string_lossy());
        client.args(["-v", "VERBOSITY=sqlstate", "-c", sql]).run()
    }

    fn memlane(&self, words: &str) -> Result<String> {
        let certificate = self.folder.path().join("certificate.pem");
        let client = product("memlane").args(words.split_whitespace()).arg("--tls-ca");
        let client = client.arg(certificate).args(["--broker", &self.fixture.broker().address()]);
        let client = client.args(["--sasl-user", "admin"]);
        client.env("MEMLANE_BROKER_PASSWORD", "secret of admin").check()
    }
}

#[test]
fn users_log_in_by_scram_over_tls_and_do_what_access_lists_allow() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let guarded = Guarded::new()?;
    guarded.memlane("topic create lines")?;
    let insert = "INSERT INTO lines (value) VALUES ('one')";
    let read = "SELECT value FROM lines";
    let done = guarded.run("admin", "secret of admin", insert)?;
    ensure!(done.exit_code == Some(0), "{done:?}");
    for (user, secret, why) in [
        ("admin", "a guess", "FATAL:  "),
        ("nobody", "secret of admin", "FATAL:  "),
        // Error of psql itself, when the server asks for a password.
        ("admin", "", "no password supplied"),
    ] {
        let refused = guarded.run(user, secret, read)?;
        let is_told = refused.stderr.contains(why);
        ensure!(refused.exit_code == Some(2) && is_told, "{user}: {refused:?}");
    }
    let reader = |sql: &str| guarded.run("reader", "secret of reader", sql);
    // Topics without the right to describe them look as if they did not exist.
    let refused = reader(read)?;
    ensure!(refused.exit_code == Some(1) && refused.stderr.contains("42P01"), "{refused:?}");
    guarded.memlane("acl add reader describe --topic lines")?;
    let refused = reader(read)?;
    ensure!(refused.exit_code == Some(1) && refused.stderr.contains("42501"), "{refused:?}");
    guarded.memlane("acl add reader read --topic lines")?;
    let found = reader(read)?;
    ensure!(found.stdout == "one\n", "{found:?}");
    let refused = reader(insert)?;
    ensure!(refused.exit_code == Some(1) && refused.stderr.contains("42501"), "{refused:?}");
    let found = reader("SELECT count(*), current_user FROM lines")?;
    ensure!(found.stdout == "1|reader\n", "{found:?}");
    Ok(())
}

#[test]
fn statements_do_not_reveal_names_that_their_user_may_not_describe() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let guarded = Guarded::new()?;
    guarded.memlane("topic create hidden")?;
    for definition in [
        "CREATE TOPIC hidden_topic AS SELECT key, value FROM hidden",
        "CREATE MATERIALIZED VIEW hidden_view AS SELECT key, count(*) FROM hidden GROUP BY key",
        "CREATE TABLE hidden_table (a text) WITH (topic = 'hidden', format = 'json')",
    ] {
        let done = guarded.run("admin", "secret of admin", definition)?;
        ensure!(done.exit_code == Some(0), "{definition}: {done:?}");
    }
    let names = ["hidden", "hidden_topic", "hidden_view", "hidden_table", "nothing"];
    for right in [None, Some("acl add reader create --cluster")] {
        right.map(|words| guarded.memlane(words)).transpose()?;
        for statement in [
            "SELECT * FROM X",
            "INSERT INTO X (value) VALUES ('x')",
            "COPY X (value) FROM STDIN",
            "CREATE TOPIC other AS SELECT key, value FROM X",
            "CREATE MATERIALIZED VIEW other AS SELECT key, count(*) FROM X GROUP BY key",
            "CREATE TABLE other (a text) WITH (topic = 'X', format = 'json')",
            "DROP TOPIC X",
            "DROP MATERIALIZED VIEW X",
            "DROP TABLE X",
        ] {
            let told = |name: &str| -> Result<String> {
                let sql = statement.replace('X', name);
                let refused = guarded.run("reader", "secret of reader", &sql)?;
                ensure!(refused.exit_code == Some(1), "{sql}: {refused:?}");
                Ok(refused.stderr)
            };
            let expected = told("nothing")?;
            for name in names {
                let found = told(name)?;
                ensure!(found == expected, "{statement}: {name}: {found}, and else {expected}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_live_query_ends_when_its_user_loses_the_right() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let guarded = Guarded::new()?;
    guarded.memlane("topic create lines")?;
    guarded.memlane("acl add reader describe --topic lines")?;
    guarded.memlane("acl add reader read --topic lines")?;
    let copy = "COPY (SUBSCRIBE TO lines) TO STDOUT";
    let refused = std::thread::scope(|scope| {
        let reading = scope.spawn(|| guarded.run("reader", "secret of reader", copy));
        let begun = wait_for("the live query", BEGIN_TIME_LIMIT, || {
            guarded.fixture.broker().shows("memlane_broker_live_queries 1")
        });
        // Removes the right even if the query did not start, so that its thread ends.
        guarded.memlane("acl remove reader read --topic lines").and(begun)?;
        reading.join().expect("it does not panic")
    })?;
    ensure!(refused.exit_code == Some(1) && refused.stderr.contains("42501"), "{refused:?}");
    Ok(())
}

#[test]
fn connections_without_tls_are_refused_where_there_is_a_certificate() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let guarded = Guarded::new()?;
    let client = guarded.fixture.psql().env("PGUSER", "admin").env("PGPASSWORD", "secret of admin");
    let refused = client.env("PGSSLMODE", "disable").args(["-c", "SELECT 1"]).run()?;
    ensure!(refused.exit_code == Some(2), "{refused:?}");
    ensure!(refused.stderr.contains("encrypted"), "{refused:?}");
    Ok(())
}
