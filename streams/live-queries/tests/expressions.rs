//! Compares the results of expressions with those of PostgreSQL 15.
//!
//! Each line of `postgresql.txt` has an expression with the text or SQLSTATE that a real server
//! returned, in UTC with collation C.UTF-8, for one row of `(partition int, "offset" bigint, time
//! timestamptz, key text, value json)` with the contents of [`VALUE`] and [`record`].

use live_queries::{Fields, Paths, Query, Record, Row, Table, Value, parse_query};

const VALUE: &str = concat!(
    r#"{"symbol":"ABC","price":10.50,"qty":7,"flag":true,"none":null,"#,
    r#""nested":{"a":"x","list":[1,"two",3]},"escaped":"a\"b\u00e9\n","twice":1,"#,
    r#""big":12345678901234567890,"exp":1.5e3,"twice":2}"#
);

fn record(value: &str) -> Record<'_> {
    Record {
        partition: 3,
        offset: 42,
        timestamp_ms: 1_769_854_830_123,
        key: Some(b"k1"),
        value: Some(value.as_bytes()),
        headers: &[],
    }
}

/// Returns the text of an expression evaluated on `value`, or `ERROR` and the SQLSTATE.
fn evaluate(expression: &str, value: &str) -> String {
    let mut paths = Paths::new();
    let query = parse_query(&format!("SELECT {expression} FROM t"));
    let query = query.and_then(|it| Query::compile(&it, &Table::log("t"), &mut paths));
    let query = match query {
        Ok(query) => query,
        Err(error) => return format!("ERROR {}", error.state),
    };
    let mut fields = Fields::default();
    let row = Row::read(record(value), &paths, &mut fields);
    match query.project(&row).expect("an expression without groups") {
        Ok(values) if values[0] == Value::Null => "NULL".to_owned(),
        Ok(values) => values[0].to_string().replace('\n', "\\n"),
        Err(error) => format!("ERROR {}", error.state()),
    }
}

#[test]
fn expressions_give_what_postgresql_gives() {
    let mut differences = Vec::new();
    for line in include_str!("postgresql.txt").lines() {
        let (expression, expected) = line.rsplit_once(" => ").expect("a line has a result");
        let given = evaluate(expression, VALUE);
        if given != expected {
            differences.push(format!("{expression}: {given}, PostgreSQL {expected}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
