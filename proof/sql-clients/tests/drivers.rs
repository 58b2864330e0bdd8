//! Drivers of other languages. Each test runs one scenario of `python/` or `java/` on a topic that
//! a Kafka client wrote.

use anyhow::Result;
use kafka_clients::is_skipped;
use sql_clients::{Fixture, jdbc, python};

const PYTHON: &[&str] = &["kcat", "python3"];
const JAVA: &[&str] = &["kcat", "javac", "mvn"];

/// Topic name that statements use without quotes.
const PLAIN: &str = "filled";

/// Topic name that needs quotes.
const ODD: &str = "Odd.Name-";

fn check_python(scenario: &str, topic: &str) -> Result<()> {
    if is_skipped(PYTHON) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let table = fixture.filled_topic(topic)?;
    let [host, port] = [fixture.sql().ip().to_string(), fixture.sql().port().to_string()];
    fixture.broker().check(python()?.scenario(scenario).args([host, port, table]))?;
    Ok(())
}

fn check_java(scenario: &str, topic: &str) -> Result<()> {
    if is_skipped(JAVA) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let table = fixture.filled_topic(topic)?;
    let [host, port] = [fixture.sql().ip().to_string(), fixture.sql().port().to_string()];
    let client = jdbc()?.program("Scenarios").arg(scenario);
    fixture.broker().check(client.args([host, port, table]))?;
    Ok(())
}

#[test]
fn psycopg_sends_parameters_and_reads_text_and_binary() -> Result<()> {
    check_python("with_psycopg.parameters", PLAIN)
}

#[test]
fn psycopg_sends_exact_values() -> Result<()> {
    check_python("with_psycopg.exact_parameters", PLAIN)
}

#[test]
fn psycopg_reads_and_writes_columns_of_jsonb() -> Result<()> {
    check_python("with_psycopg.jsonb_columns", PLAIN)
}

#[test]
fn psycopg_prepares_statements() -> Result<()> {
    check_python("with_psycopg.prepared_again", PLAIN)
}

#[test]
fn psycopg_reads_by_cursors_of_the_server() -> Result<()> {
    check_python("with_psycopg.cursor_of_the_server", PLAIN)
}

#[test]
fn psycopg_reads_by_named_cursors() -> Result<()> {
    check_python("with_psycopg.named_cursors", PLAIN)
}

#[test]
fn psycopg_looks_types_up() -> Result<()> {
    check_python("with_psycopg.types", PLAIN)
}

#[test]
fn sqlalchemy_reflects_tables() -> Result<()> {
    check_python("with_sqlalchemy.reflection", ODD)
}

#[test]
fn psycopg_inserts_many_rows_and_rolls_back() -> Result<()> {
    check_python("with_psycopg.many_rows_in_and_out", PLAIN)
}

#[test]
fn psycopg_is_told_the_states_of_errors() -> Result<()> {
    check_python("with_psycopg.errors_have_states", PLAIN)
}

#[test]
fn psycopg_sees_failed_transactions_fail_whole() -> Result<()> {
    check_python("with_psycopg.transactions_fail_whole", PLAIN)
}

#[test]
fn psycopg_cancels_and_limits_the_time_of_statements() -> Result<()> {
    check_python("with_psycopg.cancel", PLAIN)
}

#[test]
fn psycopg_copies_out() -> Result<()> {
    check_python("with_psycopg.copy_out", PLAIN)
}

#[test]
fn psycopg_copies_in() -> Result<()> {
    check_python("with_psycopg.copy_in", PLAIN)
}

#[test]
fn asyncpg_copies_records_in_and_rows_out() -> Result<()> {
    check_python("with_asyncpg.copies", PLAIN)
}

#[test]
fn jdbc_copies_in_and_out() -> Result<()> {
    check_java("copy", PLAIN)
}

#[test]
fn asyncpg_resets_sessions_of_a_pool() -> Result<()> {
    check_python("with_asyncpg.pools", PLAIN)
}

#[test]
fn asyncpg_sends_parameters_of_inferred_types() -> Result<()> {
    check_python("with_asyncpg.inferred_parameters", PLAIN)
}

#[test]
fn asyncpg_reads_binary_values() -> Result<()> {
    check_python("with_asyncpg.binary_values", PLAIN)
}

#[test]
fn asyncpg_prepares_statements_and_inserts() -> Result<()> {
    check_python("with_asyncpg.prepared_statements", PLAIN)
}

#[test]
fn asyncpg_binds_parameters_of_the_types_to_which_they_are_cast() -> Result<()> {
    check_python("with_asyncpg.casts_type_parameters", PLAIN)
}

#[test]
fn asyncpg_reads_by_cursors() -> Result<()> {
    check_python("with_asyncpg.cursors", PLAIN)
}

#[test]
fn asyncpg_is_told_the_states_of_errors() -> Result<()> {
    check_python("with_asyncpg.errors_have_states", PLAIN)
}

#[test]
fn asyncpg_cancels_what_takes_too_long() -> Result<()> {
    check_python("with_asyncpg.a_timeout_cancels", PLAIN)
}

#[test]
fn jdbc_prepares_statements() -> Result<()> {
    check_java("prepared", PLAIN)
}

#[test]
fn jdbc_reads_with_a_fetch_size() -> Result<()> {
    check_java("fetchSize", PLAIN)
}

#[test]
fn jdbc_inserts_a_batch() -> Result<()> {
    check_java("batch", PLAIN)
}

#[test]
fn jdbc_is_told_the_states_of_errors() -> Result<()> {
    check_java("errors", PLAIN)
}

#[test]
fn jdbc_reads_what_tables_and_types_there_are() -> Result<()> {
    check_java("metadata", ODD)
}
