//! Drivers of other languages: each test runs one scenario of `python/` or `java/` on a topic that
//! Kafka's client wrote.

use anyhow::Result;
use kafka_clients::is_skipped;
use sql_clients::{Site, jdbc, python};

const PYTHON: &[&str] = &["kcat", "python3"];
const JAVA: &[&str] = &["kcat", "javac", "mvn"];

fn check_python(scenario: &str) -> Result<()> {
    if is_skipped(PYTHON) {
        return Ok(());
    }
    let site = Site::shared()?;
    let table = site.filled_topic()?;
    let [host, port] = [site.sql().ip().to_string(), site.sql().port().to_string()];
    site.broker().check(python()?.scenario(scenario).args([host, port, table]))?;
    Ok(())
}

fn check_java(scenario: &str) -> Result<()> {
    if is_skipped(JAVA) {
        return Ok(());
    }
    let site = Site::shared()?;
    let table = site.filled_topic()?;
    let [host, port] = [site.sql().ip().to_string(), site.sql().port().to_string()];
    let client = jdbc()?.program("Scenarios").arg(scenario);
    site.broker().check(client.args([host, port, table]))?;
    Ok(())
}

#[test]
fn psycopg_sends_parameters_and_reads_text_and_binary() -> Result<()> {
    check_python("with_psycopg.parameters")
}

#[test]
fn psycopg_prepares_statements() -> Result<()> {
    check_python("with_psycopg.prepared_again")
}

#[test]
fn psycopg_reads_by_cursors_of_the_server() -> Result<()> {
    check_python("with_psycopg.cursor_of_the_server")
}

#[test]
fn psycopg_reads_by_named_cursors() -> Result<()> {
    check_python("with_psycopg.named_cursors")
}

#[test]
fn psycopg_looks_types_up() -> Result<()> {
    check_python("with_psycopg.types")
}

#[test]
fn sqlalchemy_reflects_tables() -> Result<()> {
    check_python("with_sqlalchemy.reflection")
}

#[test]
fn psycopg_inserts_many_rows_and_rolls_back() -> Result<()> {
    check_python("with_psycopg.many_rows_in_and_out")
}

#[test]
fn psycopg_is_told_the_states_of_errors() -> Result<()> {
    check_python("with_psycopg.errors_have_states")
}

#[test]
fn psycopg_sees_failed_transactions_fail_whole() -> Result<()> {
    check_python("with_psycopg.transactions_fail_whole")
}

#[test]
fn psycopg_cancels_and_limits_the_time_of_statements() -> Result<()> {
    check_python("with_psycopg.cancel")
}

#[test]
fn psycopg_copies_out() -> Result<()> {
    check_python("with_psycopg.copy_out")
}

#[test]
fn asyncpg_reads_binary_values() -> Result<()> {
    check_python("with_asyncpg.binary_values")
}

#[test]
fn asyncpg_prepares_statements_and_inserts() -> Result<()> {
    check_python("with_asyncpg.prepared_statements")
}

#[test]
fn asyncpg_reads_by_cursors() -> Result<()> {
    check_python("with_asyncpg.cursors")
}

#[test]
fn asyncpg_cancels_what_takes_too_long() -> Result<()> {
    check_python("with_asyncpg.a_timeout_cancels")
}

#[test]
fn jdbc_prepares_statements() -> Result<()> {
    check_java("prepared")
}

#[test]
fn jdbc_reads_with_a_fetch_size() -> Result<()> {
    check_java("fetchSize")
}

#[test]
fn jdbc_inserts_a_batch() -> Result<()> {
    check_java("batch")
}

#[test]
fn jdbc_is_told_the_states_of_errors() -> Result<()> {
    check_java("errors")
}

#[test]
fn jdbc_reads_what_tables_and_types_there_are() -> Result<()> {
    check_java("metadata")
}
