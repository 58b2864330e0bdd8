//! Output of psql's commands, tables with typed columns, time travel, and the list of running
//! queries, with psql at one end of the log and kcat at the other.

use std::time::Duration;

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Fixture, Reference};
use system::{product, wait_for};

const PROGRAMS: &[&str] = &["psql", "kcat", "setpriv"];

/// Output of psql for a table, after its title.
const COLUMNS: &str = "  Column   |           Type           | Collation | Nullable | Default 
-----------+--------------------------+-----------+----------+---------
 partition | integer                  |           | not null | 
 offset    | bigint                   |           | not null | 
 time      | timestamp with time zone |           |          | 
 key       | text                     |           |          | 
 value     | text                     |           |          | 
 headers   | json                     |           |          | 

";

const WAIT_MAX: Duration = Duration::from_secs(30);

/// Starts a broker with oddly named topics. The first one keeps current values.
fn fixture() -> Result<Fixture> {
    let fixture = Fixture::with_options(&["--anonymous", "loopback"])?;
    let create = |words: &str| {
        let create = product("memlane").args(["topic", "create"]).args(words.split(' '));
        fixture.broker().check(create.env("MEMLANE_BROKER", &fixture.broker().address()))
    };
    create("orders --partitions 2 --config memlane.values=latest")?;
    create("Odd.Name")?;
    create("a-b_c.D")?;
    Ok(fixture)
}

/// Returns psql's output in its default format.
fn shown(fixture: &Fixture, command: &str) -> Result<String> {
    fixture.broker().check(fixture.client("psql --no-psqlrc").args(["-c", command]))
}

#[test]
fn psql_lists_and_describes_topics_as_tables() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (fixture()?, Reference::start()?);
    for name in ["orders", "Odd.Name", "a-b_c.D"] {
        let describe = format!("\\d \"{name}\"");
        let create = format!(
            "CREATE TABLE \"{name}\" (partition int NOT NULL, \"offset\" bigint NOT NULL, \
             time timestamptz, key text, value text, headers json)"
        );
        reference.psql().args(["-c", &create]).check()?;
        let expected = reference.client("psql").args(["--no-psqlrc", "-c", &describe]).check()?;
        assert_eq!(shown(&fixture, &describe)?, expected);
    }
    let found = shown(&fixture, "\\d \"orders$current\"")?;
    assert_eq!(found.trim_start(), format!("View \"public.orders$current\"\n{COLUMNS}"));
    let list = "             List of relations
 Schema |      Name      | Type  |  Owner  
--------+----------------+-------+---------
 public | Odd.Name       | table | memlane
 public | a-b_c.D        | table | memlane
 public | orders         | table | memlane
 public | orders$current | view  | memlane
(4 rows)

";
    assert_eq!(shown(&fixture, "\\d")?, list);
    let views = "            List of relations
 Schema |      Name      | Type |  Owner  
--------+----------------+------+---------
 public | orders$current | view | memlane
(1 row)

";
    assert_eq!(shown(&fixture, "\\dv")?, views);
    let tables = shown(&fixture, "\\dt")?;
    ensure!(tables.contains("\n(3 rows)") && !tables.contains("$current"), "{tables}");
    let schemas = " List of schemas
  Name  |  Owner  
--------+---------
 public | memlane
(1 row)

";
    assert_eq!(shown(&fixture, "\\dn")?, schemas);
    let roles = shown(&fixture, "\\du")?;
    ensure!(roles.contains("ANONYMOUS") && roles.contains("memlane"), "{roles}");
    let databases = shown(&fixture, "\\l")?;
    ensure!(databases.contains("memlane | memlane | UTF8"), "{databases}");
    Ok(())
}

#[test]
fn commands_of_psql_that_ask_the_catalogue_are_answered() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    let commands = [
        r#"\d+ orders;\d+ "orders$current";\d public.*;\d pg_class;\dt+"#,
        r#"\dt orders;\dv+;\dm;\di;\ds;\l+;\dn+;\du+;\dg;\df;\df+;\df version;\dT"#,
        r#"\dT+;\da;\dc;\dC;\dd;\dD;\ddp;\dE;\des;\dx;\dy;\dp;\z;\dP;\dRp;\dRs"#,
        r#"\dO;\do;\dF;\dL;\db;\dAc;\dconfig;\dconfig *timeout;\drds"#,
        r#"\dt pg_catalog.*;\encoding;\conninfo"#,
    ];
    let commands = commands.join(";");
    for command in commands.split(';') {
        let output = fixture.client("psql --no-psqlrc").args(["-c", command]).run()?;
        let is_good = output.exit_code == Some(0) && !output.stderr.contains("ERROR");
        ensure!(is_good, "{command}: {} {}", output.stdout, output.stderr);
    }
    let found = shown(&fixture, "\\d+ orders")?;
    ensure!(found.contains(" key       | text ") && found.contains("extended"), "{found}");
    Ok(())
}

#[test]
fn the_catalogue_agrees_with_itself() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    for (query, expected) in [
        ("SELECT relname FROM pg_class WHERE oid = 'orders'::regclass", "orders"),
        ("SELECT oid::regclass FROM pg_class WHERE relname = 'Odd.Name'", "\"Odd.Name\""),
        ("SELECT count(DISTINCT oid) = count(*) FROM pg_class", "t"),
        (
            "SELECT count(*) FROM pg_attribute a LEFT JOIN pg_class c ON c.oid = a.attrelid \
             WHERE c.oid IS NULL",
            "0",
        ),
        (
            "SELECT count(*) FROM pg_attribute a LEFT JOIN pg_type t ON t.oid = a.atttypid \
             WHERE t.oid IS NULL",
            "0",
        ),
        (
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns \
             WHERE table_name = 'Odd.Name' AND ordinal_position < 3 ORDER BY ordinal_position",
            "partition|integer|NO\noffset|bigint|NO",
        ),
        (
            "SELECT table_name, table_type FROM information_schema.tables \
             WHERE table_schema = 'public' ORDER BY 1",
            "Odd.Name|BASE TABLE\na-b_c.D|BASE TABLE\norders|BASE TABLE\norders$current|VIEW",
        ),
        ("SELECT has_table_privilege('orders', 'SELECT, UPDATE')", "t"),
        ("SELECT has_table_privilege('orders$current', 'INSERT')", "f"),
        (
            "SELECT format_type(1184, NULL), 25::regtype, to_regtype('int8')::int",
            "timestamp with time zone|text|20",
        ),
        (
            "SELECT current_setting('server_version_num'), current_setting('x.y', true)",
            "150000|<null>",
        ),
        (
            "SELECT 'b' = ANY (current_schemas(true)), 'public' = ANY (current_schemas(false))",
            "f|t",
        ),
        ("SELECT 'Abc' ~ '^a', 'Abc' ~* '^a', 'Abc' !~ 'c$', NULL", "f|t|f|<null>"),
        (
            "SELECT 'a/b' LIKE 'a//b' ESCAPE '/', 'a%' LIKE 'a#%' ESCAPE '#', \
             'ab' LIKE 'a#%' ESCAPE '#'",
            "t|t|f",
        ),
    ] {
        assert_eq!(fixture.query(query)?, expected, "{query}");
    }
    Ok(())
}

#[test]
fn oids_of_topics_stay_while_others_come_and_go() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    let oid = |name: &str| fixture.query(&format!("SELECT '{name}'::regclass::oid"));
    let before = oid("orders")?;
    for number in 0..20 {
        fixture.create_topic(&format!("other{number}"), 1)?;
        assert_eq!(oid("orders")?, before);
    }
    let delete = product("memlane").args(["topic", "delete", "other7"]);
    fixture.broker().check(delete.env("MEMLANE_BROKER", &fixture.broker().address()))?;
    assert_eq!(oid("orders")?, before);
    Ok(())
}

/// Statements about typed tables that are rejected, with their SQLSTATE.
const REFUSED: [(&str, &str); 10] = [
    ("CREATE TABLE trades (a text) WITH (topic = 'orders')", "42P07"),
    ("CREATE TABLE orders (a text) WITH (topic = 'orders')", "42P07"),
    ("CREATE TABLE t (a text) WITH (topic = 'nothing')", "42P01"),
    ("CREATE TOPIC t AS SELECT symbol FROM trades", "0A000"),
    ("CREATE MATERIALIZED VIEW t AS SELECT count(*) AS n FROM public.trades", "0A000"),
    ("CREATE TABLE t (a point) WITH (topic = 'orders')", "0A000"),
    ("DROP TABLE nothing", "42P01"),
    ("DROP TABLE orders", "42809"),
    ("INSERT INTO trades (qty) VALUES ('x')", "22P02"),
    ("INSERT INTO trades (nothing) VALUES (1)", "42703"),
];

#[test]
fn typed_tables_show_fields_and_publish_objects() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    let values = [
        r#"a:{"symbol": "ACME", "qty": 5, "quote": {"bid": 1.5}, "note": {"x": [1]}}"#,
        r#"b:{"symbol": "B", "qty": "many", "at": "2026-01-31T12:00:00Z"}"#,
        "c:no JSON",
    ];
    fixture.produce("orders", &values.map(str::to_owned))?;
    let columns = "symbol text, qty bigint, bid double precision PATH '$.quote.bid', note json, \
                   at timestamptz";
    fixture.query(&format!(
        "CREATE TABLE trades ({columns}) WITH (topic = 'orders', format = 'json', key = 'symbol')"
    ))?;
    let read = "SELECT key, symbol, qty, bid, note->>'x', at FROM trades";
    let expected = "a|ACME|5|1.5|[1]|<null>\nb|B|<null>|<null>|<null>|2026-01-31 12:00:00+00\n\
                    c|<null>|<null>|<null>|<null>|<null>";
    assert_eq!(fixture.query(&format!("{read} ORDER BY key"))?, expected);
    // Checks the same rows in a live query, with the declared types.
    let follow = |select: &str, count: usize| -> Result<String> {
        let rows = fixture.query(&format!(
            "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO ({select}); \
             FETCH {count} FROM c WITH (TIMEOUT = '60 s'); COMMIT"
        ))?;
        let columns = |row: &str| row.splitn(3, '|').nth(2).unwrap_or_default().to_owned();
        let mut rows: Vec<_> = rows.lines().map(columns).collect();
        rows.sort();
        Ok(rows.join("\n"))
    };
    assert_eq!(follow(read, 3)?, expected);
    assert_eq!(follow("SELECT qty + 1, headers FROM trades WHERE qty >= 5", 1)?, "6|<null>");
    let plan =
        fixture.query("EXPLAIN SELECT symbol FROM trades WHERE partition = 1 AND key = 'a'")?;
    ensure!(plan.contains("partition=1 keys=1 columns=[value"), "{plan}");
    let described = shown(&fixture, "\\d trades")?;
    ensure!(described.contains(" bid       | double precision "), "{described}");
    fixture
        .query("INSERT INTO trades (symbol, qty, bid) VALUES ('N', 7, 2.5), ('M', NULL, NULL)")?;
    let written = "SELECT key, value FROM orders WHERE key IN ('M', 'N') ORDER BY key";
    let objects = r#"{"symbol": "N", "qty": 7, "quote": {"bid": 2.5}}"#;
    assert_eq!(fixture.query(written)?, format!("M|{{\"symbol\": \"M\"}}\nN|{objects}"));
    fixture.query(
        "CREATE TABLE strict (qty bigint) WITH (topic = 'orders', values = 'current', \
         on_error = 'fail')",
    )?;
    assert_eq!(fixture.query("SELECT count(*) FROM strict")?, "5");
    let fails = "COPY (SUBSCRIBE TO (SELECT qty FROM strict) WITH (ON_ERROR = fail)) TO STDOUT";
    assert_eq!(fixture.sql_state(fails)?, "22P02");
    let refused = fixture.refused("SELECT sum(qty) FROM strict")?.stderr;
    ensure!(refused.contains("ERROR:  22P02: ") && refused.contains("many"), "{refused}");
    for (statement, state) in REFUSED {
        assert_eq!(fixture.sql_state(statement)?, state, "{statement}");
    }
    fixture.query("CREATE TABLE IF NOT EXISTS trades (a text) WITH (topic = 'orders')")?;
    fixture.query("DROP TABLE trades, strict")?;
    fixture.query("DROP TABLE IF EXISTS trades")?;
    assert_eq!(fixture.sql_state(read)?, "42P01", "a table is gone that was dropped");
    Ok(())
}

fn create_positions(fixture: &Fixture) -> Result<()> {
    fixture.query(
        "CREATE MATERIALIZED VIEW positions AS SELECT value->>'symbol' AS symbol, \
         sum((value->>'qty')::bigint) AS qty, count(*) AS n FROM \"orders$current\" GROUP BY 1",
    )?;
    Ok(())
}

#[test]
fn a_view_is_a_table_of_its_query() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    create_positions(&fixture)?;
    assert_eq!(fixture.query("SELECT * FROM positions")?, "");
    let columns = " Column |  Type   | Collation | Nullable | Default 
--------+---------+-----------+----------+---------
 symbol | text    |           |          | 
 qty    | numeric |           |          | 
 n      | bigint  |           |          | 

";
    let found = shown(&fixture, "\\d positions")?;
    assert_eq!(found.trim_start(), format!("Materialized view \"public.positions\"\n{columns}"));
    for name in ["positions$current", "positions$log"] {
        let found = shown(&fixture, &format!("\\d \"{name}\""))?;
        assert_eq!(found.trim_start(), format!("View \"public.{name}\"\n{COLUMNS}"));
    }
    let list = "                List of relations
 Schema |   Name    |       Type        |  Owner  
--------+-----------+-------------------+---------
 public | positions | materialized view | memlane
(1 row)

";
    assert_eq!(shown(&fixture, "\\dm")?, list);
    for command in ["\\d+ positions", "\\dm+", "\\d+ \"positions$log\""] {
        let output = fixture.client("psql --no-psqlrc").args(["-c", command]).run()?;
        ensure!(output.exit_code == Some(0), "{command}: {output:?}");
    }
    let found = shown(&fixture, "\\d+ positions")?;
    ensure!(
        found.contains("View definition:\n SELECT ") && found.contains("GROUP BY 1;"),
        "{found}"
    );
    let values = [("a", "A", "2"), ("b", "B", "-3"), ("c", "A", "9223372036854775807")];
    let records: Vec<_> = values
        .iter()
        .map(|(key, symbol, qty)| format!("{key}:{{\"symbol\": \"{symbol}\", \"qty\": {qty}}}"))
        .collect();
    fixture.produce("orders", &records)?;
    let rows = "SELECT symbol, qty, n FROM positions ORDER BY symbol";
    let is_filled = || Ok(fixture.query(rows)? == "A|9223372036854775809|2\nB|-3|1");
    wait_for("the view to be filled", WAIT_MAX, is_filled)?;
    let joined = "SELECT p.symbol, o.key FROM positions p JOIN \"orders$current\" o \
                  ON o.value->>'symbol' = p.symbol WHERE p.qty < 0";
    assert_eq!(fixture.query(joined)?, "B|b");
    let none = "SELECT count(*) FROM positions FOR SYSTEM_TIME AS OF '2020-01-01'";
    assert_eq!(fixture.query(none)?, "0");
    let all = "SELECT count(*) = max(\"offset\") + 1 FROM \"positions$log\"";
    assert_eq!(fixture.query(all)?, "t");
    let json = product("memlane").args(["sql", "--json", "-c", rows]);
    let json = fixture.broker().check(json.env("MEMLANE_SQL", &fixture.sql().to_string()))?;
    let first = json.lines().next().unwrap_or_default();
    assert_eq!(first, r#"{"symbol":"A","qty":9223372036854775809,"n":2}"#);
    fixture.query("DROP MATERIALIZED VIEW positions")?;
    assert_eq!(fixture.sql_state(rows)?, "42P01", "a view is gone that was dropped");
    Ok(())
}

#[test]
fn a_view_is_not_written_to_and_its_log_has_a_name_of_its_own() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    create_positions(&fixture)?;
    fixture.produce("orders", &[r#"b:{"symbol": "B", "qty": 3}"#.to_owned()])?;
    for (statement, state) in [
        ("INSERT INTO positions (symbol) VALUES ('x')", "42809"),
        ("CREATE TOPIC moves AS SELECT * FROM positions", "0A000"),
        ("CREATE MATERIALIZED VIEW twice AS SELECT count(*) AS n FROM positions", "0A000"),
        (
            "CREATE TOPIC moves AS SELECT o.* FROM positions o JOIN \"orders$current\" q \
          ON o.key = q.key",
            "0A000",
        ),
        ("CREATE MATERIALIZED VIEW twice AS SELECT count(*), count(key) FROM orders", "42701"),
        ("CREATE TABLE positions (a text) WITH (topic = 'orders')", "42P07"),
        ("DROP TABLE positions", "42809"),
        ("SELECT key FROM positions", "42703"),
    ] {
        assert_eq!(fixture.sql_state(statement)?, state, "{statement}");
    }
    fixture.query("CREATE TOPIC moves AS SELECT value->>'symbol' AS s FROM \"positions$log\"")?;
    let is_made = "SELECT count(*) FROM moves WHERE value->>'s' = 'B'";
    wait_for("the topic of changes", WAIT_MAX, || Ok(fixture.query(is_made)? == "1"))?;
    Ok(())
}

#[test]
fn values_of_the_past_are_those_of_their_offsets_and_times() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    let insert = |key: &str, value: &str, time: &str| {
        fixture.query(&format!(
            "INSERT INTO orders (partition, key, value, time) \
             VALUES (0, '{key}', {value}, '{time}')"
        ))
    };
    insert("a", "'1'", "2026-01-01 00:00:00+00")?;
    insert("b", "'2'", "2026-01-02 00:00:00+00")?;
    insert("a", "'3'", "2026-01-03 00:00:00+00")?;
    insert("b", "NULL", "2026-01-04 00:00:00+00")?;
    insert("a", "'4'", "2026-01-05 00:00:00+00")?;
    for (when, expected) in [
        ("2025-12-31", ""),
        ("2026-01-01 00:00:00+00", "a=1"),
        ("2026-01-02 12:00:00+00", "a=1,b=2"),
        ("2026-01-03 00:00:00+00", "a=3,b=2"),
        ("2026-01-04 00:00:00+00", "a=3"),
        ("2026-02-01", "a=4"),
        ("0:0", ""),
        ("0:2", "a=1,b=2"),
        ("0:3,1:0", "a=3,b=2"),
        ("0:5", "a=4"),
        ("1:0", ""),
    ] {
        let found = fixture.query(&format!(
            "SELECT coalesce(string_agg(key || '=' || value, ',' ORDER BY key), '') \
             FROM \"orders$current\" FOR SYSTEM_TIME AS OF '{when}' AS then"
        ))?;
        assert_eq!(found, expected, "{when}");
    }
    let keyed = "SELECT value FROM \"orders$current\" FOR SYSTEM_TIME AS OF '0:3' WHERE key = 'b'";
    assert_eq!(fixture.query(keyed)?, "2");
    for (when, state) in [("0:6", "22023"), ("yesterday", "22P02")] {
        let query = format!("SELECT * FROM \"orders$current\" FOR SYSTEM_TIME AS OF '{when}'");
        assert_eq!(fixture.sql_state(&query)?, state, "{when}");
    }
    let of_log = "SELECT * FROM orders FOR SYSTEM_TIME AS OF '2026-01-01'";
    assert_eq!(fixture.sql_state(of_log)?, "22023");
    Ok(())
}

#[test]
fn what_runs_is_listed_and_ended() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    fixture.query("INSERT INTO orders (key) SELECT 'k' || n FROM generate_series(1, 100) t(n)")?;
    let taken = fixture.query(
        "SELECT query, calls, rows, total_exec_time >= max_exec_time \
         FROM pg_stat_statements WHERE query LIKE 'INSERT INTO orders (key) SELECT%'",
    )?;
    let text = "INSERT INTO orders (key) SELECT $1 || n FROM generate_series($2, $3) t(n)";
    assert_eq!(taken, format!("{text}|1|100|t"));
    let endless = "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e, orders f";
    for (end, state) in
        [("pg_cancel_backend", "ERROR:  57014: "), ("pg_terminate_backend", "ERROR:  57P01: ")]
    {
        let ended = std::thread::scope(|scope| {
            let running = scope.spawn(|| fixture.refused(endless));
            let listed = "FROM pg_stat_activity WHERE state = 'active' AND query_start <= now() \
                          AND backend_start <= query_start \
                          AND query LIKE 'SELECT count(*) FROM orders%'";
            let is_listed = || Ok(fixture.query(&format!("SELECT count(*) {listed}"))? == "1");
            wait_for("the statement to be listed", WAIT_MAX, is_listed)?;
            let done = fixture.query(&format!("SELECT {end}(pid) {listed}"))?;
            ensure!(done == "t", "{end}: {done}");
            running.join().expect("the client does not panic")
        })?;
        ensure!(ended.stderr.contains(state), "{end}: {ended:?}");
        assert_eq!(fixture.query(&format!("SELECT {end}(-1)"))?, "f");
    }
    Ok(())
}

#[test]
fn a_session_that_only_reads_changes_nothing() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = fixture()?;
    let state = |switch: &str, statement: &str| {
        fixture.sql_state(&format!("SET default_transaction_read_only = {switch}; {statement}"))
    };
    for statement in [
        "INSERT INTO orders (key) VALUES ('a')",
        "CREATE TABLE other (a text) WITH (topic = 'orders')",
        "CREATE MATERIALIZED VIEW other AS SELECT key FROM orders",
        "DROP TABLE orders",
        "SELECT pg_cancel_backend(-1)",
        "SELECT pg_terminate_backend(-1)",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    ] {
        assert_eq!(state("on", statement)?, "25006", "{statement}");
    }
    assert_eq!(state("perhaps", "SELECT 1")?, "22023");
    let read = "SET default_transaction_read_only = yes; SELECT count(*) FROM orders";
    assert_eq!(fixture.query(read)?, "0");
    let set = |switch: &str| format!("SET default_transaction_read_only = {switch};");
    let written = format!("{}{} INSERT INTO orders (key) VALUES ('a')", set("on"), set("off"));
    fixture.query(&written)?;
    assert_eq!(fixture.query("SELECT count(*) FROM orders")?, "1");
    Ok(())
}
