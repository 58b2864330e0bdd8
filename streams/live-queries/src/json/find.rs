//! One value of one text, by a path that need not be known before.

use std::ops::Range;

use crate::json::scanner::Scanner;
use crate::json::strings::unescape;

/// A step of a path: into an object, or into an array by an index from 0, or from its end where it
/// is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonStep<'a> {
    Key(&'a str),
    Index(i64),
}

/// The JSON text of the value at the end of a path; `None` where there is none, and where `text` is
/// no JSON. Of a repeated key the last one counts. Each step reads what it goes into once.
pub fn find_json<'a>(text: &'a str, path: &[JsonStep<'_>]) -> Option<&'a str> {
    let mut whole = Scanner::new(text.as_bytes());
    let start = whole.peek().map(|_| whole.at())?;
    whole.skip_value()?;
    let mut found = &text[start..whole.at()];
    whole.is_at_end().then_some(())?;
    for step in path {
        let mut scanner = Scanner::new(found.as_bytes());
        let place = match step {
            JsonStep::Key(key) => last_member(&mut scanner, key)?,
            JsonStep::Index(index) => match usize::try_from(*index) {
                Ok(index) => element(&mut scanner, index)?,
                Err(_) => {
                    let from_end = usize::try_from(index.unsigned_abs()).ok()?;
                    let count = elements(&mut Scanner::new(found.as_bytes()))?.count();
                    element(&mut scanner, count.checked_sub(from_end)?)?
                }
            },
        };
        found = &found[place];
    }
    Some(found)
}

fn last_member(scanner: &mut Scanner<'_>, wanted: &str) -> Option<Range<usize>> {
    scanner.take(b'{').then_some(())?;
    let mut found = None;
    if scanner.take(b'}') {
        return None;
    }
    loop {
        let key = scanner.string()?;
        let is_wanted = match key.contains(&b'\\') {
            false => key == wanted.as_bytes(),
            true => {
                let key = std::str::from_utf8(key).ok()?;
                unescape(key).is_ok_and(|key| key == wanted)
            }
        };
        scanner.take(b':').then_some(())?;
        let place = value(scanner)?;
        if is_wanted {
            found = Some(place);
        }
        if !scanner.take(b',') {
            return found;
        }
    }
}

fn element(scanner: &mut Scanner<'_>, index: usize) -> Option<Range<usize>> {
    elements(scanner)?.nth(index)
}

/// Where the elements of an array stand; `None` where it is none.
fn elements(scanner: &mut Scanner<'_>) -> Option<impl Iterator<Item = Range<usize>>> {
    scanner.take(b'[').then_some(())?;
    let mut is_over = scanner.take(b']');
    Some(std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let place = value(scanner)?;
        is_over = !scanner.take(b',');
        Some(place)
    }))
}

/// Where the next value stands.
fn value(scanner: &mut Scanner<'_>) -> Option<Range<usize>> {
    scanner.peek()?;
    let start = scanner.at();
    scanner.skip_value()?;
    Some(start..scanner.at())
}
