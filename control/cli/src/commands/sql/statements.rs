//! Statements from the command line, standard input or a prompt, and subscriptions from
//! command-line options.

use std::io::{self, IsTerminal, Read, Write};
use std::pin::pin;

use futures::{FutureExt, TryStreamExt};
use tokio_postgres::SimpleQueryMessage;

use super::connect::Server;
use super::copies::{self, Direction, direction_of};
use super::print::Printer;
use crate::arguments::sql::{Sql, Subscribe};
use crate::failure::Failure;
use crate::output::{Form, Report};

/// Maximum length of a script. No server accepts a longer one.
const SCRIPT_BYTES_MAX: u64 = 64 << 20;

pub(super) async fn run(server: Server, sql: Sql, form: Form) -> Result<Report, Failure> {
    let (text, is_command) = match sql.command {
        Some(text) => (text, true),
        None if io::stdin().is_terminal() => return prompt(&server, form).await,
        None => (script()?, false),
    };
    match direction_of(&text)? {
        Some(Direction::In) if !is_command => Err(input_is_taken()),
        Some(direction) => execute_copy(&server, &text, direction, form).await,
        None => execute(&server, &text, form, u64::MAX).await,
    }?;
    Ok(Report::printed())
}

pub(super) async fn subscribe(
    server: Server,
    subscribe: Subscribe,
    form: Form,
) -> Result<Report, Failure> {
    let text = statement_of(&subscribe);
    match execute(&server, &text, form, subscribe.count.unwrap_or(u64::MAX)).await {
        // Ctrl-C is the normal end of a subscription.
        Err(failure) if failure.is_interruption() => Ok(Report::printed()),
        other => other.map(|()| Report::printed()),
    }
}

fn script() -> Result<String, Failure> {
    let unreadable = |why: String| Failure::other(format!("cannot read standard input: {why}"));
    let mut text = String::new();
    let read = io::stdin().take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut text);
    match read.map_err(|error| unreadable(error.to_string()))? as u64 {
        0..=SCRIPT_BYTES_MAX => Ok(text),
        _ => Err(unreadable(format!("the script is longer than {SCRIPT_BYTES_MAX} bytes"))),
    }
}

/// Prompts for statements until the end of input. Errors of statements are printed.
async fn prompt(server: &Server, form: Form) -> Result<Report, Failure> {
    let mut text = String::new();
    loop {
        let prompt = if text.is_empty() { "memlane> " } else { "      -> " };
        // An error of printing the prompt is ignored.
        let _ = write!(io::stderr(), "{prompt}");
        let read = io::stdin().read_line(&mut text);
        if read.map_err(|error| Failure::other(format!("cannot read a statement: {error}")))? == 0 {
            let _ = writeln!(io::stderr());
            return Ok(Report::printed());
        }
        if text.trim().is_empty() {
            text.clear();
        } else if text.trim_end().ends_with(';')
            && let Err(failure) = execute_line(server, &std::mem::take(&mut text), form).await
        {
            if server.client.is_closed() {
                return Err(failure);
            }
            crate::output::report(&failure, form);
        }
    }
}

fn input_is_taken() -> Failure {
    Failure::usage("COPY FROM STDIN takes its rows from standard input: give the statement by -c")
}

/// Executes a line of the prompt.
async fn execute_line(server: &Server, text: &str, form: Form) -> Result<(), Failure> {
    match direction_of(text)? {
        Some(Direction::In) => Err(input_is_taken()),
        Some(direction) => execute_copy(server, text, direction, form).await,
        None => execute(server, text, form, u64::MAX).await,
    }
}

async fn execute_copy(
    server: &Server,
    text: &str,
    direction: Direction,
    form: Form,
) -> Result<(), Failure> {
    unless_interrupted(server, copies::run(server, text, direction, form)).await
}

/// Executes statements and prints up to `rows_max` rows as they arrive.
async fn execute(server: &Server, text: &str, form: Form, rows_max: u64) -> Result<(), Failure> {
    unless_interrupted(server, print_rows(server, text, form, rows_max)).await
}

/// Runs a future. Ctrl-C cancels the running statement.
async fn unless_interrupted(
    server: &Server,
    runs: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let canceller = server.canceller();
    tokio::select! {
        done = runs => done,
        _ = tokio::signal::ctrl_c() => {
            canceller.cancel().await?;
            Err(Failure::interrupted("the statement was cancelled"))
        }
    }
}

async fn print_rows(server: &Server, text: &str, form: Form, rows_max: u64) -> Result<(), Failure> {
    // Only a prepared statement reports the column types, which JSON output needs.
    let types = match form {
        Form::Json => {
            let prepared = server.client.prepare(text).await?;
            prepared.columns().iter().map(|column| column.type_().clone()).collect()
        }
        Form::Text => Vec::new(),
    };
    let mut printer = Printer::new(form, types, rows_max);
    let mut messages = pin!(server.client.simple_query_raw(text).await?);
    while !printer.is_done() {
        let message = match messages.try_next().now_or_never() {
            Some(message) => message,
            None => {
                printer.flush()?;
                messages.try_next().await
            }
        };
        match message {
            Ok(Some(SimpleQueryMessage::RowDescription(columns))) => {
                printer.begin(columns.iter().map(|column| column.name().to_owned()).collect());
            }
            Ok(Some(SimpleQueryMessage::Row(row))) => {
                printer.row((0..row.len()).map(|at| row.get(at)))?;
            }
            Ok(Some(SimpleQueryMessage::CommandComplete(count))) => printer.end(count)?,
            Ok(Some(_)) => (),
            Ok(None) => break,
            Err(error) => {
                printer.flush()?;
                return Err(error.into());
            }
        }
    }
    printer.flush()
}

/// Returns the SQL statement of a subscription.
fn statement_of(subscribe: &Subscribe) -> String {
    let query = subscribe.query.trim().trim_end_matches(';');
    let is_select = query.split_whitespace().next();
    let is_select = is_select.is_some_and(|word| word.eq_ignore_ascii_case("select"));
    let what = match is_select {
        true => format!("({query})"),
        false => format!("\"{}\"", query.replace('"', "\"\"")),
    };
    let mut options = vec![format!("SNAPSHOT = {}", !subscribe.no_snapshot)];
    options.extend(subscribe.progress.then(|| "PROGRESS = true".to_owned()));
    options.extend(subscribe.position.then(|| "POSITION = true".to_owned()));
    options.extend(subscribe.every.map(|it| format!("EVERY = '{} ms'", it.as_millis())));
    options.extend(subscribe.speed.map(|it| format!("SPEED = {it}")));
    let as_of = subscribe.as_of.as_ref().map(|point| match point.parse::<u64>() {
        Ok(time_ms) => format!(" AS OF {time_ms}"),
        Err(_) => format!(" AS OF '{}'", point.replace('\'', "''")),
    });
    let options = options.join(", ");
    format!("SUBSCRIBE TO {what} WITH ({options}){}", as_of.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::sql::SqlCommand;
    use crate::arguments::{Arguments, Command};

    #[track_caller]
    fn check(words: &[&str], expected: &str) {
        let words = ["memlane", "subscribe"].iter().chain(words);
        let parsed = Arguments::try_parse_from(words).expect("a command line");
        let Command::Sql(SqlCommand::Subscribe(subscribe)) = parsed.command else {
            panic!("it is a subscription")
        };
        assert_eq!(statement_of(&subscribe), expected);
    }

    #[test]
    fn a_subscription_is_written_as_sql() {
        check(
            &["select 1 from orders;"],
            "SUBSCRIBE TO (select 1 from orders) WITH (SNAPSHOT = true)",
        );
        check(&["a\"b$current"], "SUBSCRIBE TO \"a\"\"b$current\" WITH (SNAPSHOT = true)");
        check(
            &["t", "--no-snapshot", "--progress", "--position", "--every", "1s", "--speed", "2"],
            "SUBSCRIBE TO \"t\" WITH (SNAPSHOT = false, PROGRESS = true, POSITION = true, \
             EVERY = '1000 ms', SPEED = 2)",
        );
        check(&["t", "--as-of", "17"], "SUBSCRIBE TO \"t\" WITH (SNAPSHOT = true) AS OF 17");
        check(
            &["t", "--as-of", "0:1,1:2'"],
            "SUBSCRIBE TO \"t\" WITH (SNAPSHOT = true) AS OF '0:1,1:2'''",
        );
    }
}
