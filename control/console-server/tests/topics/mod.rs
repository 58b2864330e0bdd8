//! Topics, groups and queries through the console, with a real broker.

mod deletions;
mod groups;

use std::fs;
use std::io::{self, BufRead, BufReader, Lines, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system::{Broker, Tool, free_address, product, wait_for};

use crate::check;
use crate::fixture::{Answer, Client, Fixture};

const TOPICS: &str = "/console/v1/topics";
const QUERY: &str = "/console/v1/query";

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Number of rows in a topic. Its square exceeds the limit on the rows of a query.
const ROWS: usize = 150;
/// Range of the number of rows until the limit stops a query, which depends on batching.
const ROWS_TOLD: std::ops::Range<usize> = 10_000..10_201;

/// A console with a broker, whose topic `orders` has three records.
struct Together {
    broker: Broker,
    sql: String,
    fixture: Fixture,
    administrator: Client,
}

impl Together {
    fn start() -> Result<Self> {
        let (http, sql) = (free_address()?.to_string(), free_address()?.to_string());
        let flags = format!("--embedded 128MiB --http {http} --sql {sql}");
        let broker = Broker::start(&flags)?;
        let kafka = broker.address();
        let flags = ["--broker", &http, "--broker-sql", &sql, "--broker-kafka", &kafka];
        let flags = flags.map(str::to_owned).to_vec();
        let (fixture, administrator) = Fixture::with_administrator_and(flags)?;
        let together = Self { broker, sql, fixture, administrator };
        together.memlane("topic create orders --partitions 2 --config memlane.values=latest")?;
        together
            .sql("INSERT INTO orders (key, value) VALUES ('a', '1'), ('b', '2'), ('c', NULL)")?;
        Ok(together)
    }

    fn memlane(&self, words: &str) -> Result<String> {
        self.tool().args(words.split_whitespace()).check()
    }

    fn sql(&self, statement: &str) -> Result<String> {
        self.tool().args(["sql", "-c", statement]).check()
    }

    fn tool(&self) -> Tool {
        let tool = product("memlane").env("MEMLANE_BROKER", &self.broker.address());
        tool.env("MEMLANE_SQL", &self.sql)
    }

    fn user(&self, name: &str, role: &str) -> Result<Client> {
        self.fixture.user(&self.administrator, &json!({"name": name, "role": role}))
    }

    fn query(&self, client: &Client, query: &str) -> Result<Answer> {
        self.fixture.post(client, QUERY, &json!({"query": query}))
    }

    /// Number of queries that the broker is running.
    fn running(&self) -> Result<usize> {
        let listed = self.tool().args(["--json", "query", "list"]).check()?;
        let listed: Value = serde_json::from_str(&listed)?;
        let queries = listed.as_array().context("a list")?;
        let of_console =
            |it: &&Value| it["query"].as_str().is_some_and(|it| it.contains("SUBSCRIBE"));
        Ok(queries.iter().filter(of_console).count())
    }

    fn is_idle(&self) -> Result<()> {
        wait_for("the end of all queries", TIME_LIMIT, || Ok(self.running()? == 0))
    }
}

fn lines(answer: &Answer) -> Result<Vec<Value>> {
    ensure!(answer.status == 200, "{answer:?}");
    // curl has decoded the chunked body.
    answer.body.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn rows(lines: &[Value]) -> Vec<Value> {
    lines.iter().filter_map(|it| it["rows"].as_array()).flatten().cloned().collect()
}

/// A query whose response is read as it arrives.
struct Reader {
    curl: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reader {
    fn begin(together: &Together, client: &Client, query: &str) -> Result<Self> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-N", "--http1.1", "--cacert"]);
        curl.arg(together.fixture.state_dir().join("certificate.pem"));
        client.headers.iter().for_each(|header| _ = curl.args(["-H", header]));
        curl.args(["-H", "Content-Type: application/json", "--data"]);
        curl.arg(json!({"query": query}).to_string());
        curl.arg(format!("https://{}{QUERY}", together.fixture.address()));
        let mut curl = curl.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(curl.stdout.take().context("it is piped")?).lines();
        Ok(Self { curl, lines })
    }

    /// Returns the next line that is not a keepalive.
    fn next(&mut self) -> Result<Value> {
        loop {
            let line: Value = serde_json::from_str(&self.lines.next().context("no line")??)?;
            if line["alive"] != true {
                return Ok(line);
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}

#[test]
fn topics_and_lag_are_for_viewers_and_contents_for_operators() -> Result<()> {
    let together = Together::start()?;
    let fixture = &together.fixture;
    let (viewer, operator) = (together.user("vic", "viewer")?, together.user("olga", "operator")?);
    let project = json!({"name": "shop", "prefix": "shop-"});
    assert_eq!(
        fixture.post(&together.administrator, "/console/v1/projects", &project)?.status,
        201
    );
    let limited = json!({"name": "lim", "role": "operator", "projects": ["shop"]});
    let limited = fixture.user(&together.administrator, &limited)?;
    for path in [TOPICS, "/console/v1/topics/orders"] {
        check(&fixture.get(&Client::nobody(), path)?, 401, "unauthorized");
        check(&fixture.get(&limited, path)?, 403, "forbidden");
    }
    let consumed = together.memlane("consume orders --group readers --count 1 --json")?;
    ensure!(!consumed.is_empty(), "nothing was read");
    for (client, queries) in [(&viewer, "forbidden"), (&operator, "allowed")] {
        let seen = fixture.get(client, TOPICS)?.json()?;
        assert_eq!((&seen["state"], &seen["queries"]), (&json!("up"), &json!(queries)));
        assert_eq!(seen["topics"][0]["name"], "orders", "{seen}");
        assert_eq!(seen["groups"][0]["group"], "readers", "{seen}");
        assert_eq!(seen["groups"][0]["topics"][0]["topic"], "orders", "{seen}");
        let topic = fixture.get(client, "/console/v1/topics/orders")?.json()?;
        assert_eq!(topic["partitions"].as_array().context("a list")?.len(), 2, "{topic}");
    }
    check(&fixture.get(&viewer, "/console/v1/topics/no%2Fthing")?, 404, "not_found");
    check(&together.query(&Client::nobody(), "SELECT 1")?, 401, "unauthorized");
    check(&together.query(&viewer, "SELECT 1")?, 403, "forbidden");
    check(&together.query(&limited, "SELECT 1")?, 403, "forbidden");
    let forged = Client { headers: operator.headers[..1].to_vec() };
    check(&together.query(&forged, "SELECT 1")?, 403, "forged");
    let answer = together.query(&operator, "SELECT key, value FROM orders ORDER BY key")?;
    let told = lines(&answer)?;
    let text = |name: &str| json!({"name": name, "type": "text"});
    assert_eq!(told[0], json!({"columns": [text("key"), text("value")], "live": false}));
    assert_eq!(rows(&told), [json!(["a", "1"]), json!(["b", "2"]), json!(["c", null])]);
    assert_eq!(told.last().context("an end")?["end"], "done");
    let plan = lines(&together.query(&operator, "EXPLAIN SELECT key FROM orders LIMIT 1")?)?;
    assert_eq!(plan[0], json!({"columns": [text("QUERY PLAN")], "live": false}));
    assert!(rows(&plan).iter().any(|it| it.to_string().contains("LogScan: topic=orders")));
    check(&together.query(&viewer, "EXPLAIN SELECT key FROM orders")?, 403, "forbidden");
    Ok(())
}

#[test]
fn a_query_reads_and_does_nothing_else() -> Result<()> {
    let together = Together::start()?;
    let administrator = &together.administrator;
    let insert = "INSERT INTO orders (key, value) VALUES ('d', '4')";
    for query in [
        insert,
        &format!("SELECT 1; {insert}"),
        &format!("SELECT 1;;{insert};"),
        &format!("SELECT * FROM ({insert}) AS made"),
        &format!("SELECT 1 --\n; {insert}"),
        &format!("SUBSCRIBE TO orders; {insert}"),
        "CREATE TOPIC more AS SELECT * FROM orders",
        "DROP TOPIC orders",
        "COPY (SELECT 1) TO STDOUT",
        &format!("EXPLAIN ANALYZE {insert}"),
        &format!("EXPLAIN SELECT 1; {insert}"),
        "EXPLAIN CREATE TOPIC more AS SELECT * FROM orders",
        "EXPLAIN SUBSCRIBE TO orders",
        "SELECT * INTO more FROM orders",
        "SELECT key FROM nothing",
        "SELECT $1::text",
        "SELECT",
        "",
    ] {
        let answer = together.query(administrator, query)?;
        check(&answer, 422, "invalid_field");
        assert_eq!(answer.json()?["field"], "query", "{answer:?}");
    }
    let count = lines(&together.query(administrator, "SELECT count(*) FROM orders")?)?;
    assert_eq!(rows(&count), [json!(["3"])]);
    assert_eq!(together.memlane("--json topic list")?.matches("\"name\"").count(), 1);
    let unread =
        together.fixture.post(administrator, QUERY, &json!({"query": "SELECT 1", "x": 1}))?;
    check(&unread, 400, "invalid_request");
    Ok(())
}

#[test]
fn a_query_is_told_up_to_a_limit_and_then_ends_at_the_broker_too() -> Result<()> {
    let together = Together::start()?;
    let values: Vec<_> = (0..ROWS).map(|number| format!("('{number}', 'x')")).collect();
    together.memlane("topic create many")?;
    together.sql(&format!("INSERT INTO many (key, value) VALUES {}", values.join(", ")))?;
    let query = "SELECT a.key, b.key FROM many AS a CROSS JOIN many AS b";
    let told = lines(&together.query(&together.administrator, query)?)?;
    assert!(ROWS_TOLD.contains(&rows(&told).len()), "{}", rows(&told).len());
    assert_eq!(told.last().context("an end")?["end"], "size");
    let long = lines(&together.query(&together.administrator, "SELECT repeat('ä', 100000)")?)?;
    let cell = rows(&long)[0][0].as_str().context("text")?.to_owned();
    assert!(cell.ends_with("ä…") && cell.chars().count() < 10_000, "{}", cell.len());
    together.is_idle()
}

#[test]
fn a_live_query_ends_with_its_reader_and_with_the_rights() -> Result<()> {
    let together = Together::start()?;
    let live = "SUBSCRIBE TO (SELECT key, value FROM \"orders$current\" WHERE key = 'a')";
    let operator = together.user("olga", "operator")?;
    let mut reader = Reader::begin(&together, &operator, live)?;
    assert_eq!(reader.next()?["live"], true);
    let first = reader.next()?;
    assert_eq!(
        first["rows"][0].as_array().context("a row")?[1..],
        [json!("1"), json!("a"), json!("1")]
    );
    together.sql("INSERT INTO orders (key, value) VALUES ('a', '10')")?;
    let mut changes = Vec::new();
    while changes.len() < 2 {
        changes.extend(rows(&[reader.next()?]));
    }
    assert!(changes.iter().any(|it| it[1] == "-1" && it[3] == "1"), "{changes:?}");
    assert!(changes.iter().any(|it| it[1] == "1" && it[3] == "10"), "{changes:?}");
    assert_eq!(together.running()?, 1);
    drop(reader);
    together.is_idle()?;

    let readers: Result<Vec<_>> = (0..4)
        .map(|_| {
            let mut reader = Reader::begin(&together, &operator, live)?;
            reader.next()?;
            Ok(reader)
        })
        .collect();
    let mut readers = readers?;
    check(&together.query(&operator, "SELECT 1")?, 409, "conflict");
    let demoted = json!({"role": "viewer"});
    let path = "/console/v1/users/olga";
    let body = demoted.to_string();
    let changed = together.fixture.ask(&together.administrator, "PATCH", path, Some(&body))?;
    ensure!(changed.status == 200 || changed.status == 204, "{changed:?}");
    for reader in &mut readers {
        let mut told = reader.next()?;
        while told["end"].is_null() {
            told = reader.next()?;
        }
        assert_eq!(told["end"], "rights");
    }
    together.is_idle()
}

#[test]
fn a_query_ends_nothing_that_others_run() -> Result<()> {
    let together = Together::start()?;
    let (olga, oleg) = (together.user("olga", "operator")?, together.user("oleg", "operator")?);
    let mut reader = Reader::begin(&together, &olga, "SUBSCRIBE TO orders")?;
    reader.next()?;
    for function in ["pg_terminate_backend", "pg_cancel_backend"] {
        let query = format!("SELECT {function}(pid) FROM pg_stat_activity");
        let told = together.query(&oleg, &query)?;
        ensure!(told.body.contains("25006"), "{told:?}");
    }
    // All queries run as one broker user. The audit log has the console user.
    let audit = together.fixture.get(&together.administrator, "/console/v1/audit?user=oleg")?;
    ensure!(audit.body.contains("SELECT pg_cancel_backend(pid)"), "{audit:?}");
    together.sql("INSERT INTO orders (key, value) VALUES ('d', '4')")?;
    while !reader.next()?["rows"].to_string().contains("\"d\"") {}
    Ok(())
}

#[test]
fn a_console_says_what_it_misses() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let seen = fixture.get(&administrator, TOPICS)?.json()?;
    let nothing = "not_configured";
    assert_eq!(seen, json!({"state": nothing, "queries": nothing, "deletions": nothing}));
    check(&fixture.get(&administrator, "/console/v1/topics/a")?, 404, "no_broker");
    check(&fixture.get(&administrator, "/console/v1/groups/a")?, 404, "no_broker");
    let reset = json!({"to": "latest"});
    check(&fixture.post(&administrator, "/console/v1/groups/a/offsets", &reset)?, 404, "no_broker");
    let body = json!({"query": "SELECT 1"});
    check(&fixture.post(&administrator, QUERY, &body)?, 404, "no_broker");

    let mut together = Together::start()?;
    together.broker.kill()?;
    let is_down = || {
        let seen = together.fixture.get(&together.administrator, TOPICS)?.json()?;
        Ok(seen["state"] == "down" && seen["failure"].is_string())
    };
    wait_for("the console to see that the broker died", TIME_LIMIT, is_down)?;
    check(&together.query(&together.administrator, "SELECT 1")?, 503, "broker_down");
    check(
        &together.fixture.get(&together.administrator, "/console/v1/topics/a")?,
        503,
        "broker_down",
    );
    let (group, reset) = ("/console/v1/groups/a", json!({"to": "latest"}));
    check(&together.fixture.get(&together.administrator, group)?, 503, "broker_down");
    let reset =
        together.fixture.post(&together.administrator, &format!("{group}/offsets"), &reset)?;
    check(&reset, 503, "broker_down");
    together.broker.start_again()?;
    wait_for("the console to see the broker", TIME_LIMIT, || Ok(!is_down()?))
}

const RECORDS: &str = "/console/v1/topics/orders/records";

#[test]
fn a_record_is_written_as_it_was_asked_for_and_by_operators_alone() -> Result<()> {
    let together = Together::start()?;
    let fixture = &together.fixture;
    let (viewer, operator) = (together.user("vic", "viewer")?, together.user("olga", "operator")?);
    let record = json!({"key": "d'\\", "value": "{\"a\": 1}", "headers": {"trace": "ab"}});
    check(&fixture.post(&Client::nobody(), RECORDS, &record)?, 401, "unauthorized");
    check(&fixture.post(&viewer, RECORDS, &record)?, 403, "forbidden");
    let forged = Client { headers: operator.headers[..1].to_vec() };
    check(&fixture.post(&forged, RECORDS, &record)?, 403, "forged");
    for record in [&record, &json!({"value": "no key", "partition": 1}), &json!({"key": "a"})] {
        let answer = fixture.post(&operator, RECORDS, record)?;
        ensure!(answer.status == 204, "{record}: {answer:?}");
    }
    let read = |text: &str| lines(&together.query(&operator, text)?).map(|it| rows(&it));
    let written = read("SELECT key, value, headers FROM orders WHERE headers IS NOT NULL")?;
    assert_eq!(written, [json!(["d'\\", "{\"a\": 1}", "{\"trace\": \"ab\"}"])]);
    let written = read("SELECT key, partition FROM orders WHERE value = 'no key'")?;
    assert_eq!(written, [json!([null, "1"])]);
    assert_eq!(read("SELECT count(*) FROM orders WHERE value IS NULL")?, [json!(["2"])]);

    let nowhere = "/console/v1/topics/a%22%3B%20DROP%20TOPIC%20orders/records";
    check(&fixture.post(&operator, nowhere, &record)?, 404, "not_found");
    check(&fixture.post(&operator, RECORDS, &json!({"partition": 2}))?, 409, "conflict");
    check(&fixture.post(&operator, RECORDS, &json!({"offset": 2}))?, 400, "invalid_request");
    let compacted = "topic create kept --config cleanup.policy=compact";
    together.memlane(compacted)?;
    let keyless =
        fixture.post(&operator, "/console/v1/topics/kept/records", &json!({"value": "1"}))?;
    check(&keyless, 422, "invalid_field");
    assert_eq!(keyless.json()?["field"], "key", "{keyless:?}");
    let audit = fixture.get(&together.administrator, "/console/v1/audit?user=olga&status=204")?;
    ensure!(audit.body.contains("value_bytes") && !audit.body.contains("no key"), "{audit:?}");
    let (none, administrator) = Fixture::with_administrator()?;
    check(&none.post(&administrator, RECORDS, &record)?, 404, "no_broker");
    Ok(())
}

/// A console in front of a broker with users, ACLs, and the topics `open` and `closed`.
struct Guarded {
    broker: Broker,
    /// Folder of the broker's users and ACLs.
    _folder: tempfile::TempDir,
    fixture: Fixture,
    administrator: Client,
}

impl Guarded {
    fn start(more: &str) -> Result<Self> {
        Self::start_through(more, |sql| Ok(sql.to_owned()))
    }

    /// Starts both, with SQL connections through another address. `BROKER` in `more` is replaced by
    /// the broker's Kafka address.
    fn start_through(more: &str, way: impl Fn(&str) -> Result<String>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        for name in ["admin", "console"] {
            fs::write(path(name), format!("secret of {name}\n"))?;
            let set = product("memlane-broker").args(["user", "set", name, "--user-file"]);
            set.arg(path("users")).input(fs::File::open(path(name))?).check()?;
        }
        fs::write(path("lists"), "version = 1\n")?;
        let sql = free_address()?.to_string();
        let (http, text) = (free_address()?.to_string(), folder.path().display());
        let broker = Broker::start(&format!(
            "--embedded 128MiB --http {http} --sql {sql} --user-file {text}/users --acl-file \
             {text}/lists --super-user User:admin"
        ))?;
        fs::set_permissions(path("console"), fs::Permissions::from_mode(0o600))?;
        let (through, more) = (way(&sql)?, more.replace("BROKER", &broker.address()));
        let flags = format!(
            "--broker {http} --broker-sql {through} --broker-user console --broker-password-file \
             {text}/console {more}"
        );
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        let (fixture, administrator) = Fixture::with_administrator_and(flags)?;
        let guarded = Self { broker, _folder: folder, fixture, administrator };
        guarded.as_admin("topic create open")?;
        guarded.as_admin("topic create closed")?;
        Ok(guarded)
    }

    fn as_admin(&self, words: &str) -> Result<String> {
        let tool = product("memlane").args(words.split_whitespace());
        let tool = tool.args(["--broker", &self.broker.address(), "--sasl-user", "admin"]);
        tool.env("MEMLANE_BROKER_PASSWORD", "secret of admin").check()
    }

    fn ask(&self, client: &Client, text: &str) -> Result<Answer> {
        self.fixture.post(client, QUERY, &json!({"query": text}))
    }
}

#[test]
fn the_broker_says_what_the_consoles_own_user_may_read() -> Result<()> {
    let guarded = Guarded::start("")?;
    guarded.as_admin("acl add console read --topic open")?;
    let ask = |text: &str| guarded.ask(&guarded.administrator, text);
    assert_eq!(rows(&lines(&ask("SELECT count(*) FROM open")?)?), [json!(["0"])]);
    for text in ["SELECT count(*) FROM closed", "SUBSCRIBE TO closed"] {
        check(&ask(text)?, 422, "invalid_field");
    }
    Ok(())
}

#[test]
fn with_broker_users_a_query_reads_what_its_user_may_read_at_the_broker_too() -> Result<()> {
    let guarded = Guarded::start("--broker-users")?;
    let olga = json!({"name": "olga", "role": "operator"});
    let olga = guarded.fixture.user(&guarded.administrator, &olga)?;
    guarded.as_admin("acl add console read --topic open")?;
    guarded.as_admin("acl add console read --topic closed")?;
    guarded.as_admin("acl add olga read --topic open")?;
    let count = |topic: &str| guarded.ask(&olga, &format!("SELECT count(*) FROM {topic}"));
    assert_eq!(rows(&lines(&count("open")?)?), [json!(["0"])]);
    check(&count("closed")?, 422, "invalid_field");
    check(&guarded.ask(&olga, "SUBSCRIBE TO closed")?, 422, "invalid_field");
    // Roles of the console give no rights in the broker.
    check(&guarded.ask(&guarded.administrator, "SELECT count(*) FROM open")?, 422, "invalid_field");
    let who = guarded.ask(&olga, "SELECT current_user, session_user")?;
    assert_eq!(rows(&lines(&who)?), [json!(["olga", "console"])]);
    guarded.as_admin("acl add olga read --topic closed")?;
    assert_eq!(rows(&lines(&count("closed")?)?), [json!(["0"])]);
    Ok(())
}

#[test]
fn a_record_is_written_where_the_broker_lets_the_console_and_who_asks() -> Result<()> {
    let guarded = Guarded::start("--broker-users")?;
    let olga = json!({"name": "olga", "role": "operator"});
    let olga = guarded.fixture.user(&guarded.administrator, &olga)?;
    let write = |topic: &str| {
        let path = format!("/console/v1/topics/{topic}/records");
        guarded.fixture.post(&olga, &path, &json!({"key": "a", "value": "1"}))
    };
    for user in ["console", "olga"] {
        guarded.as_admin(&format!("acl add {user} read --topic open"))?;
        check(&write("open")?, 403, "forbidden");
        guarded.as_admin(&format!("acl add {user} write --topic open"))?;
    }
    let written = write("open")?;
    ensure!(written.status == 204, "{written:?}");
    assert_eq!(rows(&lines(&guarded.ask(&olga, "SELECT key FROM open")?)?), [json!(["a"])]);
    // The console's broker user alone having the right is not sufficient.
    guarded.as_admin("acl add console write --topic closed")?;
    check(&write("closed")?, 403, "forbidden");
    Ok(())
}

/// Starts a proxy for the broker's SQL that drops some startup parameters, as old brokers and
/// connection poolers do.
fn passing_over(sql: &str, forgotten: &'static [&'static str]) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let sql = sql.to_owned();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let sql = sql.clone();
            thread::spawn(move || pass_over(client, &sql, forgotten));
        }
    });
    Ok(address)
}

fn pass_over(mut client: TcpStream, sql: &str, forgotten: &[&str]) -> io::Result<()> {
    let mut server = TcpStream::connect(sql)?;
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut message = vec![0; (u32::from_be_bytes(length) - 4) as usize];
    client.read_exact(&mut message)?;
    let (code, said) = message.split_at(4);
    let mut said = String::from_utf8_lossy(said).into_owned();
    forgotten.iter().for_each(|words| said = said.replace(words, ""));
    let length = u32::try_from(8 + said.len()).expect("a login is short");
    server.write_all(&[&length.to_be_bytes(), code, said.as_bytes()].concat())?;
    let (mut answers, mut reader) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || {
        let copied = io::copy(&mut answers, &mut reader);
        // Either side may have closed already.
        let _ = reader.shutdown(Shutdown::Both);
        copied
    });
    io::copy(&mut client, &mut server)?;
    server.shutdown(Shutdown::Both)?;
    back.join().expect("bytes are copied without a panic").map(drop)
}

#[test]
fn nothing_is_asked_of_a_broker_that_passes_over_what_the_login_says() -> Result<()> {
    const NAME: &str = " -c memlane.on_behalf_of=olga";
    const READS: &str = "-c default_transaction_read_only=on";
    for (flags, forgotten, said) in [
        ("--broker-users", &[NAME][..], "memlane.on_behalf_of=olga"),
        ("--broker-users", &[READS], "default_transaction_read_only"),
        ("--broker-users", &[READS, NAME], "memlane.on_behalf_of=olga"),
        ("", &[READS], "default_transaction_read_only"),
    ] {
        let guarded = Guarded::start_through(flags, |sql| passing_over(sql, forgotten))?;
        let olga = json!({"name": "olga", "role": "operator"});
        let olga = guarded.fixture.user(&guarded.administrator, &olga)?;
        guarded.as_admin("acl add console read --topic open")?;
        guarded.as_admin("acl add console read --topic closed")?;
        guarded.as_admin("acl add olga read --topic open")?;
        for query in
            ["SELECT count(*) FROM open", "SELECT count(*) FROM closed", "SUBSCRIBE TO open"]
        {
            let refused = guarded.ask(&olga, query)?;
            check(&refused, 503, "broker_down");
            let detail = refused.json()?["detail"].to_string();
            ensure!(detail.contains(said) && detail.contains("memlane-broker"), "{detail}");
        }
    }
    // The console asks for the effective settings, and finds them.
    let guarded = Guarded::start_through("--broker-users", |sql| passing_over(sql, &[]))?;
    let olga = json!({"name": "olga", "role": "operator"});
    let olga = guarded.fixture.user(&guarded.administrator, &olga)?;
    guarded.as_admin("acl add console read --topic open")?;
    guarded.as_admin("acl add olga read --topic open")?;
    assert_eq!(rows(&lines(&guarded.ask(&olga, "SELECT count(*) FROM open")?)?), [json!(["0"])]);
    Ok(())
}
