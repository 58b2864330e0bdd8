//! Summary of failed tests, repeated at the end of the output.
//!
//! It parses the output of libtest: a section `---- NAME stdout ----` for each failed test, then
//! the list of their names.

use std::collections::BTreeSet;

/// Maximum number of repeated lines of a failed test's output. The suite's log has all of it.
const LINES_MAX: usize = 25;

/// Maximum number of characters of a failure's reason.
const REASON_CHARS_MAX: usize = 400;

/// Prefix of the line that names a failed test or suite.
pub(crate) const FAILED: &str = "failed";

/// Beginning of the panic message of a thread of a test, or of a program that it started.
const PANICKED: &str = "panicked at ";

/// Counts the threads that panicked, in the suite or in programs whose output it shows. Threads of
/// tests themselves do not count: a test that passes has caught its panic on purpose.
pub(crate) fn panics_in(log: &str) -> usize {
    let is_named = |line: &&str| line.starts_with("test ") && line.contains(" ... ");
    let named = log.lines().filter(is_named).filter_map(|line| line.split(' ').nth(1));
    let tests: BTreeSet<_> = named.collect();
    let panicked = log.lines().filter(|line| line.contains(PANICKED));
    let threads = panicked.map(|line| line.split('\'').nth(1).unwrap_or_default());
    threads.filter(|thread| !tests.contains(thread)).count()
}

/// Returns a line with the reason, then a few lines of output, for each failed test in a suite's
/// `log`. If it names none: the first panic, or the end of the log of a suite that died or timed
/// out.
pub(crate) fn summary(suite: &str, log: &str) -> Vec<String> {
    let lines: Vec<_> = log.lines().collect();
    let mut said = Vec::new();
    for name in names(&lines) {
        let printed = section(&lines, name);
        said.push(format!("{FAILED}: {suite}: {name}{}", reason(printed)));
        said.extend(printed.iter().take(LINES_MAX).map(|line| format!("  | {line}")));
    }
    if said.is_empty() {
        let panicked = lines.iter().position(|line| line.contains(PANICKED));
        let (what, start) = match panicked {
            Some(line) => ("in which a thread panicked", line),
            None => ("which names no test; its last lines", lines.len().saturating_sub(LINES_MAX)),
        };
        said.push(format!("{FAILED}: {suite}, {what}:"));
        said.extend(lines[start..].iter().take(LINES_MAX).map(|line| format!("  | {line}")));
    }
    said
}

/// Returns the error or the panic message in what a test printed, shortened to be part of a line.
fn reason(printed: &[&str]) -> String {
    let error = printed.iter().find_map(|line| line.strip_prefix("Error: "));
    let panicked = || {
        let place = printed.iter().rposition(|line| line.contains(PANICKED))?;
        printed.get(place + 1).copied()
    };
    let Some(reason) = error.or_else(panicked) else { return String::new() };
    format!(": {}", reason.chars().take(REASON_CHARS_MAX).collect::<String>())
}

/// Returns the names in the last list of failures.
fn names<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let Some(start) = lines.iter().rposition(|line| *line == "failures:") else {
        return Vec::new();
    };
    let listed = lines[start + 1..].iter().map_while(|line| line.strip_prefix("    "));
    listed.collect()
}

/// Returns the output of a test.
fn section<'a>(lines: &'a [&'a str], name: &str) -> &'a [&'a str] {
    let title = format!("---- {name} stdout ----");
    let Some(start) = lines.iter().position(|line| **line == *title) else { return &[] };
    let rest = &lines[start + 1..];
    let length = rest.iter().position(|line| line.starts_with("---- ") || *line == "failures:");
    &rest[..length.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
test a ... ok
test b ... FAILED

successes:

successes:
    a

failures:

---- b stdout ----
thread 'b' panicked at src/lib.rs:3:5:
it broke

failures:
    b

test result: FAILED. 1 passed; 1 failed; 0 ignored
";

    #[test]
    fn failed_tests_are_named_with_what_they_printed() {
        let said = summary("nbd/clients", LOG);
        assert_eq!(said[0], "failed: nbd/clients: b: it broke");
        assert_eq!(said[1], "  | thread 'b' panicked at src/lib.rs:3:5:");
        assert_eq!(said[2], "  | it broke");
    }

    #[test]
    fn the_error_of_a_failed_test_is_its_reason() {
        let returned = LOG.replace("it broke", "caught\nError: no answer\nStack backtrace:");
        assert_eq!(summary("nbd/clients", &returned)[0], "failed: nbd/clients: b: no answer");
    }

    #[test]
    fn panics_that_a_test_has_caught_are_its_own() {
        let caught = "test a::b ... ok\nthread 'a::b' (7) panicked at a.rs:3:5:\n";
        assert_eq!(panics_in(caught), 0);
        let of_a_server = "test a::b ... ok\nthread 'serve' (7) panicked at a.rs:3:5:\n";
        assert_eq!(panics_in(of_a_server), 1);
    }

    #[test]
    fn a_panic_that_failed_no_test_is_shown() {
        let said = summary("nbd/clients", "thread 'serve' panicked at a.rs:3:5:\nit broke\n");
        assert_eq!(said[0], "failed: nbd/clients, in which a thread panicked:");
        assert_eq!(said[2], "  | it broke");
    }

    #[test]
    fn a_suite_that_died_shows_its_end() {
        let said = summary("nbd/clients", "test a ... ok\nSIGSEGV\n");
        assert!(said[0].starts_with("failed: nbd/clients, which names no test"));
        assert_eq!(said.last().map(String::as_str), Some("  | SIGSEGV"));
    }
}
