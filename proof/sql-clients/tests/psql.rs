//! psql and pgbench, with kcat at the other end of the log.

use anyhow::{Context, Result, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Fixture, file_of};

const PROGRAMS: &[&str] = &["psql", "pgbench", "kcat"];

#[test]
fn sql_reads_what_kafka_wrote_and_kafka_what_sql_wrote() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let topic = fixture.topic("both");
    fixture.produce(&topic, &["a:{\"n\": 1}".to_owned(), "b:{\"n\": 2}".to_owned()])?;
    let found =
        fixture.query(&format!("SELECT \"offset\", key, value->>'n' FROM {topic} ORDER BY 1"))?;
    assert_eq!(found, "0|a|1\n1|b|2");
    fixture.query(&format!(
        "INSERT INTO {topic} (key, value) VALUES ('c', '{{\"n\": 3}}'), ('a', NULL), (NULL, 'x')"
    ))?;
    let read = fixture.kcat(&format!("-C -e -q -t {topic} -o 2")).args(["-f", "%o %k %s %S\\n"]);
    let printed = fixture.broker().check(read)?;
    assert_eq!(printed, "2 c {\"n\": 3} 8\n3 a  -1\n4  x 1\n");
    Ok(())
}

#[test]
fn commands_of_psql_work() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let table = fixture.filled_topic("filled")?;
    let lines = [
        "\\set wanted k3".to_owned(),
        format!("SELECT value->>'name' FROM {table} WHERE key = :'wanted';"),
        format!("SELECT count(*) AS count FROM {table} \\gset"),
        "\\echo :count".to_owned(),
        format!("SELECT key FROM {table} WHERE key = 'k4' \\g"),
        "\\set FETCH_COUNT 4".to_owned(),
        format!("SELECT key FROM {table} WHERE partition = 0 ORDER BY \"offset\";"),
        "\\unset FETCH_COUNT".to_owned(),
        format!("COPY (SELECT key, value->>'no' FROM {table} WHERE key = 'k5') TO STDOUT;"),
        "BEGIN; SELECT no_such; COMMIT;".to_owned(),
        "SELECT 1 / 0;".to_owned(),
        "\\echo :SQLSTATE".to_owned(),
        "SHOW server_version; SELECT 1; SELECT 2;".to_owned(),
    ];
    let psql = fixture.psql().args(["--file", "-"]).input(file_of(&lines)?);
    let printed = fixture.broker().check(psql)?;
    let of_partition: Vec<_> = (0..30).step_by(3).map(|it| format!("k{it}")).collect();
    let version = printed.lines().rev().nth(2).context("a version of the server")?.to_owned();
    ensure!(version.starts_with("15"), "{version}");
    let expected =
        format!("n3\n30\nk4\n{}\nk5\t\\N\n22012\n{version}\n1\n2\n", of_partition.join("\n"));
    assert_eq!(printed, expected);
    Ok(())
}

#[test]
fn pgbench_selects_and_inserts_with_prepared_statements() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let table = fixture.filled_topic("filled")?;
    let script = tempfile::NamedTempFile::new()?;
    std::fs::write(
        &script,
        format!(
            "\\set number random(0, 9)\n\
             SELECT value FROM {table} WHERE partition = 1 AND \"offset\" = :number;\n\
             INSERT INTO {table} (key, value) VALUES ('bench', :number::text);\n"
        ),
    )?;
    for (protocol, count) in [("simple", 200), ("extended", 400), ("prepared", 600)] {
        let client = fixture.client("pgbench --no-vacuum --client 4 --jobs 2 --transactions 50");
        let client = client.args(["--protocol", protocol, "--file"]).arg(script.path());
        let printed = fixture.broker().check(client)?;
        let is_whole = printed.contains("actually processed: 200/200")
            && printed.contains("number of failed transactions: 0 ");
        ensure!(is_whole, "{protocol}: {printed}");
        let counted = format!("SELECT count(*) FROM {table} WHERE key = 'bench'");
        assert_eq!(fixture.query(&counted)?, count.to_string(), "{protocol}");
    }
    Ok(())
}
