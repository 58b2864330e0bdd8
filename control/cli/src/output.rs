//! Output of all commands.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{EXIT_FAILED, Failure};
use crate::visible;

/// Output format: text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// Result of a command, as text and as JSON.
#[derive(Debug)]
pub(crate) struct Report {
    /// Text without a trailing newline; empty if there is nothing to print.
    pub(crate) text: String,
    pub(crate) json: Value,
    /// The command ran and found defects.
    pub(crate) is_failure: bool,
}

impl Report {
    pub(crate) fn of(text: String, answer: &impl Serialize) -> Self {
        let json = serde_json::to_value(answer).expect("answers are plain data");
        Self { text, json, is_failure: false }
    }

    /// Report whose output was already printed.
    pub(crate) fn printed() -> Self {
        Self { text: String::new(), json: Value::Null, is_failure: false }
    }

    /// Report without text.
    pub(crate) fn silent(answer: &impl Serialize) -> Self {
        Self::of(String::new(), answer)
    }
}

/// Returns whether the output is still open. A reader that closes it early, such as `head`, does
/// not cause a failure.
pub(crate) fn is_still_read(written: io::Result<()>, what: &str) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::other(format!("cannot print {what}: {error}"))),
    }
}

/// Prints the result of a command, and returns the exit code.
pub(crate) fn print(report: &Report, form: Form) -> ExitCode {
    let printed = match form {
        Form::Text if report.text.is_empty() => Ok(()),
        Form::Json if report.json.is_null() => Ok(()),
        Form::Text => print_line(&coloured(&report.text, io::stdout().is_terminal())),
        Form::Json => print_line(&visible::in_json(&format!("{:#}", report.json))),
    };
    match printed {
        Ok(()) if report.is_failure => ExitCode::from(EXIT_FAILED),
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the output, such as `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("cannot print: {error}"));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Prints the failure of a command, and returns the exit code.
pub(crate) fn report(failure: &Failure, form: Form) -> ExitCode {
    match form {
        Form::Text => {
            let name = painted("memlane:", RED, wants_colour(io::stderr().is_terminal()));
            // The exit code reports the failure, even if this cannot be printed.
            let _ = writeln!(io::stderr(), "{name} {}", visible::in_lines(&failure.message));
        }
        Form::Json => {
            let mut error = json!({"error": {"kind": failure.kind, "message": failure.message}});
            if let Some(field) = &failure.field {
                error["error"]["field"] = json!(field);
            }
            // The exit code reports the failure here too.
            let _ = print_line(&visible::in_json(&format!("{error:#}")));
        }
    }
    ExitCode::from(failure.exit_code)
}

/// Tells the user something on standard error. The command continues if nobody reads it.
pub(crate) fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "memlane: {}", visible::in_lines(&text.to_string()));
}

/// Prints a report; on a terminal it replaces the previous one. Returns false if the output was
/// closed.
pub(crate) fn refresh(report: &Report, form: Form) -> bool {
    if form == Form::Text && io::stdout().is_terminal() {
        // Clear the screen and move to the upper left corner.
        if print_line("\x1b[H\x1b[2J").is_err() {
            return false;
        }
    }
    let text = match form {
        Form::Text => coloured(&report.text, io::stdout().is_terminal()),
        Form::Json => visible::in_json(&report.json.to_string()).into_owned(),
    };
    print_line(&text).is_ok()
}

const RED: &str = "31";
const YELLOW: &str = "33";

/// Colours warnings, if enabled, and escapes control characters.
fn coloured(text: &str, is_terminal: bool) -> String {
    let is_wanted = wants_colour(is_terminal);
    let line = |line: &str| painted(line, YELLOW, is_wanted && line.starts_with("warning: "));
    visible::in_lines(text).lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns whether the output is a terminal and colours were not disabled (<https://no-color.org>).
fn wants_colour(is_terminal: bool) -> bool {
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn painted(text: &str, colour: &str, is_wanted: bool) -> String {
    if is_wanted { format!("\x1b[1;{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

fn print_line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_warnings_are_coloured_and_only_where_that_is_wanted() {
        assert_eq!(painted("a", RED, false), "a");
        assert_eq!(painted("a", RED, true), "\x1b[1;31ma\x1b[0m");
        assert_eq!(coloured("up\nwarning: full", false), "up\nwarning: full");
        assert_eq!(coloured("up\x1b[2J", false), "up\\u{1b}[2J");
    }
}
