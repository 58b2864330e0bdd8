//! COPY in both directions, compared with PostgreSQL byte for byte, with the same files and
//! options.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Fixture, Reference, file_of};
use system::Tool;

const PROGRAMS: &[&str] = &["psql", "kcat", "setpriv"];

/// Options of COPY … (key, value) FROM, and the input bytes.
const IN: &[(&str, &[u8])] = &[
    ("", b"a\t1\nb\t\\N\nc\t\n"),
    ("", b"end\tnone"),
    ("", b"t\ta\\tb\\nc\\\\d\\.e\\101\\x41\\x\\\nf\n"),
    ("", b"crlf\t1\r\nsecond\t2\r\n"),
    ("", b"cr\t1\rsecond\t2\r"),
    ("", b"mixed\t1\nsecond\t2\r\n"),
    ("", b"mixed\t1\r\nsecond\t2\n"),
    ("", b"few\n"),
    ("", b"many\t1\t2\n"),
    ("", b"\n"),
    ("", b"good\t1\nbad\t\xff\n"),
    ("", b"zero\ta\\000b\n"),
    ("", b"umlaut\t\xc3\xa4\n"),
    ("", b""),
    ("delimiter ';' null '-'", b"d;-\ne;a\\;b\nf;\\N\n"),
    ("with (delimiter '|', null '')", b"g|\nh|x\n"),
    ("with (header)", b"key\tvalue\ni\t1\n"),
    ("with (header match)", b"key\tvalue\nj\t1\n"),
    ("with (header match)", b"key\tother\nj\t1\n"),
    ("with (header match)", b"key\nj\t1\n"),
    ("csv", b"k,1\nl,\nm,\"\"\n"),
    ("csv", b"n,\"a,b\nc\"\"d\"\n"),
    ("csv", b"o,a\"b,c\"d\n"),
    ("csv", b"p,\"open\n"),
    ("csv", b"q,\\N\n"),
    ("csv", b"r,1\r\ns,\"x\r\ny\"\r\n"),
    ("csv", b"t,1\nu,2\r\n"),
    ("csv", b"v\n"),
    ("csv", b"w,1,2\n"),
    ("csv", b"\n"),
    ("csv header", b"key,value\nx,1\n"),
    ("csv null 'NULL'", b"y,NULL\nz,\"NULL\"\n"),
    ("csv delimiter ';' quote '''' escape E'\\\\'", b"aa;'it\\'s'\nbb;'\\\\'\ncc;\\\n"),
    ("csv delimiter ';' quote ';'", b""),
    ("csv delimiter 'ab'", b""),
    ("with (format csv, header maybe)", b""),
    ("with (format nothing)", b""),
    ("with (nothing)", b""),
    ("quote '\"'", b""),
    ("delimiter 'a'", b""),
];

/// Options of COPY … TO STDOUT, or other ends of the statement.
const OUT: &[&str] = &[
    "TO STDOUT",
    "TO STDOUT WITH (FORMAT csv, HEADER)",
    "TO STDOUT CSV",
    "TO STDOUT (HEADER, DELIMITER ';', NULL '-')",
    "TO STDOUT (FORMAT csv, DELIMITER ';', NULL 'none', QUOTE '''', ESCAPE '\"')",
    "TO STDOUT (FORMAT csv, FORMAT text)",
    "TO STDOUT (FORMAT csv, NULL 'a,b')",
    "TO STDOUT (FORMAT binary, NULL '')",
    "TO STDOUT (HEADER match)",
];

fn servers() -> Result<(Fixture, Reference)> {
    let fixture = Fixture::with_options(&["--anonymous", "loopback"])?;
    fixture.create_topic("copied", 1)?;
    let reference = Reference::start()?;
    let create = "CREATE TABLE copied (\"offset\" bigserial, key text, value text)";
    reference.psql().args(["-c", create]).check()?;
    Ok((fixture, reference))
}

/// Runs these lines with psql and returns its standard output.
fn said(psql: Tool, lines: &[String]) -> Result<String> {
    psql.args(["--file", "-"]).input(file_of(lines)?).check()
}

/// Compares both outputs block by block, with the statement of each.
fn compare(lines: &[(String, String)], ours: &str, theirs: &str) -> Result<()> {
    let blocks = |text: &str| text.split("@@end\n").map(str::to_owned).collect::<Vec<_>>();
    let (ours, theirs) = (blocks(ours), blocks(theirs));
    ensure!(ours.len() == lines.len() + 1 && ours.len() == theirs.len(), "{ours:?} {theirs:?}");
    let mut failures = Vec::new();
    for (index, (title, _)) in lines.iter().enumerate() {
        if ours[index] != theirs[index] {
            failures.push(format!("{title}:\n{}in PostgreSQL\n{}", ours[index], theirs[index]));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn cases_in(folder: &Path) -> Result<Vec<(String, String)>> {
    let cases = IN.iter().enumerate().map(|(index, (options, bytes))| {
        let path = folder.join(format!("in{index}"));
        fs::write(&path, bytes)?;
        let copy = format!("\\copy copied (key, value) from '{}' {options}", path.display());
        let title = format!("{options} {:?}", String::from_utf8_lossy(bytes));
        let rest = "\\echo @@ :SQLSTATE\n\
                    SELECT key, value, value IS NULL FROM copied ORDER BY \"offset\";";
        Ok((title, format!("{copy}\n{rest}\n\\echo @@end")))
    });
    cases.collect()
}

#[test]
fn rows_are_copied_in_and_out_as_postgresql_does() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = servers()?;
    let folder = tempfile::Builder::new().prefix("memlane-copy-").tempdir()?;
    let mut cases = cases_in(folder.path())?;
    for (rows, order) in [("copied (key, value)", ""), ("", " ORDER BY \"offset\"")] {
        for options in OUT {
            let rows = match rows {
                "" => format!("(SELECT key, value FROM copied{order})"),
                table => table.to_owned(),
            };
            let copy = format!("COPY {rows} {options};\n\\echo @@ :SQLSTATE\n\\echo @@end");
            cases.push((format!("{rows} {options}"), copy));
        }
    }
    // Characters that the text format escapes and CSV quotes.
    let odd = "('odd', E'\\b\\f\\n\\r\\t\\v\\\\,;\"''' || E'\\u0001'), ('dot', '\\.'), \
               ('none', 'none')";
    let insert = format!("INSERT INTO copied (key, value) VALUES {odd};\n\\echo @@end");
    cases.insert(IN.len(), ("INSERT".to_owned(), insert));
    let lines: Vec<_> = cases.iter().map(|it| it.1.clone()).collect();
    let (ours, theirs) = (said(fixture.psql(), &lines)?, said(reference.psql(), &lines)?);
    compare(&cases, &ours, &theirs)
}

#[test]
fn a_copy_is_all_of_its_rows_or_none() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let topic = fixture.topic("whole");
    fixture.create_topic(&topic, 3)?;
    let folder = tempfile::Builder::new().prefix("memlane-copy-").tempdir()?;
    let path = folder.path().join("rows");
    let copy = |columns: &str, rows: &str| -> Result<String> {
        fs::write(&path, rows)?;
        let copy = format!("\\copy {topic} ({columns}) from '{}'", path.display());
        let lines = [copy, "\\echo :SQLSTATE".to_owned()];
        let output = fixture.psql().args(["-v", "VERBOSITY=verbose", "--file", "-"]);
        let output = output.input(file_of(&lines)?).run()?;
        Ok(format!("{}{}", output.stdout, output.stderr))
    };
    let count = || fixture.query(&format!("SELECT count(*) FROM {topic}"));
    // The error names the invalid row, which follows thousands of valid ones.
    let mut rows: String = (0..5_000).map(|it| format!("{}\tk{it}\n", it % 3)).collect();
    rows.push_str("x\tlast\n");
    let said = copy("partition, key", &rows)?;
    ensure!(said.contains("22P02") && said.contains(&format!("COPY {topic}, line 5001")), "{said}");
    for (columns, rows, state) in [
        ("partition, key", "3\tk\n", "23"),
        ("partition, key", "3000000000\tk\n", "22003"),
        ("time, key", "not a time\tk\n", "22007"),
        ("headers, key", "[]\tk\n", "22P02"),
        ("nothing", "1\n", "42703"),
        ("\"offset\"", "1\n", "42601"),
        ("key, key", "1\t1\n", "42701"),
    ] {
        let said = copy(columns, rows)?;
        ensure!(said.contains("ERROR") && said.contains(state), "{columns} {rows}: {said}");
        assert_eq!(count()?, "0", "{columns} {rows}");
    }
    let rows: String = (0..5_000).map(|it| format!("{}\tk{it}\n", it % 3)).collect();
    copy("partition, key", &rows)?;
    let counted = format!("SELECT partition, count(*) FROM {topic} GROUP BY 1 ORDER BY 1");
    assert_eq!(fixture.query(&counted)?, "0|1667\n1|1667\n2|1666");
    // COPY takes effect with its transaction, or not at all.
    fs::write(&path, "rolled back\n")?;
    let from = format!("\\copy {topic} (key) from '{}'", path.display());
    for (end, more) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        let lines = ["BEGIN;".to_owned(), from.clone(), format!("{end};")];
        fixture.broker().check(fixture.psql().args(["--file", "-"]).input(file_of(&lines)?))?;
        assert_eq!(count()?, (5_000 + more).to_string(), "{end}");
    }
    let copy = format!("COPY {topic} (key) FROM STDIN");
    assert_eq!(fixture.sql_state(&format!("BEGIN READ ONLY; {copy}"))?, "25006");
    assert_eq!(fixture.sql_state(&format!("COPY {topic} FROM STDIN"))?, "42601");
    assert_eq!(fixture.sql_state("COPY no_such_topic (key) FROM STDIN")?, "42P01");
    Ok(())
}

#[test]
fn typed_tables_take_and_give_rows_by_copy() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let topic = fixture.topic("typed");
    fixture.create_topic(&topic, 1)?;
    let table = format!("{topic}_rows");
    fixture.query(&format!(
        "CREATE TABLE {table} (symbol text, qty bigint, price numeric, live boolean) \
         WITH (topic = '{topic}', key = 'symbol')"
    ))?;
    let rows = "A,5,1.25,true\nB,,123456789.123456789,f\n";
    let copy = format!("COPY {table} (symbol, qty, price, live) FROM STDIN (FORMAT csv)");
    let copied = fixture.psql().args(["-c", &copy]).input(file_of(&[rows.trim_end().to_owned()])?);
    fixture.broker().check(copied)?;
    let values = format!("SELECT key, value FROM {topic} ORDER BY \"offset\"");
    let expected = "A|{\"symbol\": \"A\", \"qty\": 5, \"price\": 1.25, \"live\": true}\n\
                    B|{\"symbol\": \"B\", \"price\": 123456789.123456789, \"live\": false}";
    assert_eq!(fixture.query(&values)?, expected);
    let out = format!("COPY {table} (symbol, qty, live) TO STDOUT WITH (FORMAT csv, HEADER)");
    assert_eq!(fixture.query(&out)?, "symbol,qty,live\nA,5,t\nB,,f");
    // Without a column list, all declared columns are copied.
    fixture.query(&format!("INSERT INTO {table} VALUES ('C', 7), ('D', NULL)"))?;
    let copy = format!("COPY {table} FROM STDIN (FORMAT csv, HEADER match)");
    let rows = file_of(&["symbol,qty,price,live\nE,8,2.5,t".to_owned()])?;
    fixture.broker().check(fixture.psql().args(["-c", &copy]).input(rows))?;
    assert_eq!(fixture.query(&out)?, "symbol,qty,live\nA,5,t\nB,,f\nC,7,\nD,,\nE,8,t");
    let many = format!("INSERT INTO {table} VALUES ('F', 1, 1, true, 1)");
    assert_eq!(fixture.sql_state(&many)?, "42601");
    assert_eq!(fixture.sql_state(&format!("INSERT INTO {topic} VALUES ('F')"))?, "42601");
    Ok(())
}
