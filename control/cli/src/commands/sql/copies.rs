//! COPY between standard input or output and the broker, without conversion. It must be the only
//! statement, and must not be read from standard input itself.

use std::io::{self, Read, Write};
use std::iter::Peekable;
use std::pin::pin;
use std::str::Chars;

use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use tokio::sync::mpsc;

use super::connect::Server;
use super::print::Printer;
use crate::failure::Failure;
use crate::output::{Form, is_still_read};

/// Size of the chunks of standard input that are sent.
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum number of chunks that are read ahead.
const CHUNK_COUNT: usize = 4;

/// Direction of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From standard input.
    In,
    /// To standard output.
    Out,
}

/// Returns the direction of a COPY statement; `None` for other statements.
///
/// # Errors
/// The text contains a COPY and other statements.
pub(super) fn direction_of(text: &str) -> Result<Option<Direction>, Failure> {
    let bare = bare(text);
    let statements: Vec<_> = bare.split(';').map(words).filter(|it| !it.is_empty()).collect();
    let mut directions = statements.iter().filter_map(|it| direction(it));
    match (directions.next(), statements.len()) {
        (None, _) => Ok(None),
        (Some(direction), 1) => Ok(Some(direction)),
        _ => Err(Failure::usage("COPY cannot be combined with other statements; run it alone")),
    }
}

/// Removes quoted parts and comments from a text.
fn bare(text: &str) -> String {
    let mut bare = String::new();
    let mut rest = text.chars().peekable();
    while let Some(sign) = rest.next() {
        match sign {
            '\'' | '"' => {
                rest.by_ref().find(|it| *it == sign);
                bare.push_str(" _ ");
            }
            '-' if rest.peek() == Some(&'-') => {
                rest.by_ref().find(|it| *it == '\n');
                bare.push(' ');
            }
            '/' if rest.peek() == Some(&'*') => {
                skip_comment(&mut rest);
                bare.push(' ');
            }
            other => bare.push(other),
        }
    }
    bare
}

/// Skips a comment, whose first character was already read. Comments may be nested.
fn skip_comment(rest: &mut Peekable<Chars<'_>>) {
    let mut depth = 0_usize;
    let mut before = '/';
    for sign in rest.by_ref() {
        depth = match (before, sign) {
            ('/', '*') => depth + 1,
            ('*', '/') => depth - 1,
            _ => depth,
        };
        if depth == 0 {
            return;
        }
        // A character of one delimiter cannot be part of the next.
        before = if matches!((before, sign), ('/', '*') | ('*', '/')) { ' ' } else { sign };
    }
}

fn words(statement: &str) -> Vec<String> {
    let is_between = |it: char| !(it.is_alphanumeric() || it == '_');
    let words = statement.split(is_between).filter(|it| !it.is_empty());
    words.map(str::to_ascii_uppercase).collect()
}

fn direction(words: &[String]) -> Option<Direction> {
    if words.first().is_none_or(|it| it != "COPY") {
        return None;
    }
    words.windows(2).find_map(|pair| match [pair[0].as_str(), pair[1].as_str()] {
        ["FROM", "STDIN"] => Some(Direction::In),
        ["TO", "STDOUT"] => Some(Direction::Out),
        _ => None,
    })
}

/// Executes a COPY.
pub(super) async fn run(
    server: &Server,
    text: &str,
    direction: Direction,
    form: Form,
) -> Result<(), Failure> {
    match direction {
        Direction::In => {
            let count = take_in(server, text).await?;
            let mut printer = Printer::new(form, Vec::new(), u64::MAX);
            printer.end(count)?;
            printer.flush()
        }
        Direction::Out => give_out(server, text).await,
    }
}

async fn give_out(server: &Server, text: &str) -> Result<(), Failure> {
    let mut rows = pin!(server.client.copy_out(text).await?);
    let mut out = io::stdout().lock();
    while let Some(bytes) = rows.try_next().await? {
        if !is_still_read(out.write_all(&bytes), "rows")? {
            return Ok(());
        }
    }
    is_still_read(out.flush(), "rows").map(drop)
}

/// Sends standard input, and returns the number of rows.
async fn take_in(server: &Server, text: &str) -> Result<u64, Failure> {
    let mut rows = pin!(server.client.copy_in::<_, Bytes>(text).await?);
    let mut chunks = standard_input();
    while let Some(chunk) = chunks.recv().await {
        let unreadable = |error| Failure::other(format!("cannot read standard input: {error}"));
        if rows.send(chunk.map_err(unreadable)?).await.is_err() {
            // The server's response contains the reason.
            break;
        }
    }
    Ok(rows.finish().await?)
}

/// Reads standard input on a thread, so that Ctrl-C can end the statement meanwhile.
fn standard_input() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(CHUNK_COUNT);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match input.read(&mut chunk) {
                Ok(0) => return,
                Ok(count) => Ok(Bytes::copy_from_slice(&chunk[..count])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = read.is_err();
            if sender.blocking_send(read).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_runs_alone() {
        for (text, expected) in [
            ("copy t (a) from stdin;", Some(Direction::In)),
            (" COPY t(a) FROM STDIN WITH (FORMAT csv)", Some(Direction::In)),
            ("-- rows\ncopy (select 'from stdin') to stdout", Some(Direction::Out)),
            ("/* a /* b */ 'c */ copy t to stdout /**/", Some(Direction::Out)),
            ("/* copy t to stdout; */ select 1", None),
            ("select 'copy t from stdin'", None),
            ("select copy from stdin", None),
            ("", None),
        ] {
            assert_eq!(direction_of(text).expect("one statement"), expected, "{text}");
        }
        for text in ["select 1; copy t to stdout", "copy t to stdout; select 1"] {
            direction_of(text).expect_err(text);
        }
    }
}
