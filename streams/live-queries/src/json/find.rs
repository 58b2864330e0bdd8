//! Lookup of a single value in a JSON text by a path.

use std::ops::Range;

use crate::json::scanner::{Inside, Scanner};
use crate::json::strings::unescape;
use crate::limits::JSON_DEPTH_MAX;

/// A step of a path: into an object by key, or into an array by an index from 0 or, if negative,
/// from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonStep<'a> {
    Key(&'a str),
    Index(i64),
}

/// Returns the JSON text of the value at the end of a path, or `None` if there is none or `text` is
/// not valid JSON. Of duplicate keys, the last one counts. Reads the text once, but arrays with an
/// index below -1 twice, to determine their length.
pub fn find_json<'a>(text: &'a str, path: &[JsonStep<'_>]) -> Option<&'a str> {
    let is_far = |step: &JsonStep<'_>| matches!(step, JsonStep::Index(..-1));
    let (mut found, mut path) = (text, path);
    loop {
        let (near, rest) = path.split_at(path.iter().position(is_far).unwrap_or(path.len()));
        found = Walk::new(found, near).last()?;
        let Some((JsonStep::Index(index), after)) = rest.split_first() else {
            return Some(found);
        };
        found = from_end(found, usize::try_from(index.unsigned_abs()).ok()?)?;
        path = after;
    }
}

/// A pass over a text, which descends into containers on the path and skips everything else.
struct Walk<'a, 'p> {
    text: &'a str,
    scanner: Scanner<'a>,
    /// Path without indexes below -1.
    path: &'p [JsonStep<'p>],
    /// Number of open containers, each of which corresponds to a step of the path.
    level: usize,
    /// Index of the next element if the innermost container is an array.
    next_index: i64,
    found: Option<&'a str>,
}

/// Position in the innermost open container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    BeforeMember,
    BehindValue,
}

impl<'a, 'p> Walk<'a, 'p> {
    fn new(text: &'a str, path: &'p [JsonStep<'p>]) -> Self {
        let scanner = Scanner::new(text.as_bytes());
        Self { text, scanner, path, level: 0, next_index: 0, found: None }
    }

    /// Returns the last value at the end of the path.
    fn last(mut self) -> Option<&'a str> {
        loop {
            // The next value matches the steps taken so far.
            let place = self.enter_or_pass()?;
            if !self.go_on(place)? {
                return self.scanner.is_at_end().then_some(self.found)?;
            }
        }
    }

    /// Descends into the next value if the path leads through it, or skips it.
    fn enter_or_pass(&mut self) -> Option<Place> {
        let first = self.scanner.peek()?;
        let Some(step) = self.path.get(self.level) else {
            let start = self.scanner.at();
            self.scanner.skip_value(self.level)?;
            self.found = self.text.get(start..self.scanner.at());
            return Some(Place::BehindValue);
        };
        let fits = match step {
            JsonStep::Key(_) => first == b'{',
            JsonStep::Index(_) => first == b'[',
        };
        if !fits || self.level == JSON_DEPTH_MAX {
            self.scanner.skip_value(self.level)?;
            return Some(Place::BehindValue);
        }
        self.scanner.take(first);
        if self.scanner.take(closing(step)) {
            return Some(Place::BehindValue);
        }
        self.level += 1;
        self.next_index = 0;
        Some(Place::BeforeMember)
    }

    /// Advances to the next value on the path. Returns whether there is one.
    fn go_on(&mut self, mut place: Place) -> Option<bool> {
        while let Some(around) = self.level.checked_sub(1) {
            let step = &self.path[around];
            if place == Place::BehindValue && !self.scanner.take(b',') {
                self.scanner.take(closing(step)).then_some(())?;
                self.level = around;
                // Restores the index of the enclosing array after leaving a nested container.
                if let Some(JsonStep::Index(index)) = around.checked_sub(1).map(|it| self.path[it])
                {
                    self.next_index = index.saturating_add(1);
                }
                continue;
            }
            place = Place::BehindValue;
            if self.is_wanted(step)? {
                // An earlier value of a duplicate key is discarded.
                self.found = None;
                return Some(true);
            }
            self.scanner.skip_value(self.level)?;
        }
        Some(false)
    }

    /// Returns whether the next member matches `step`. Its value then comes next.
    fn is_wanted(&mut self, step: &JsonStep<'_>) -> Option<bool> {
        match step {
            JsonStep::Key(wanted) => self.scanner.key().map(|key| is_key(&key, wanted)),
            JsonStep::Index(index) => {
                let is_wanted = *index == self.next_index || *index == -1;
                self.next_index += 1;
                Some(is_wanted)
            }
        }
    }
}

fn closing(step: &JsonStep<'_>) -> u8 {
    match step {
        JsonStep::Key(_) => b'}',
        JsonStep::Index(_) => b']',
    }
}

fn is_key(key: &Inside<'_>, wanted: &str) -> bool {
    if !key.has_escapes {
        return key.bytes == wanted.as_bytes();
    }
    let key = std::str::from_utf8(key.bytes).ok().and_then(|it| unescape(it).ok());
    key.is_some_and(|it| it == wanted)
}

/// Returns the element of `array` at `place`, counted from the end starting with 1, or `None` if
/// there is none. `array` must be valid.
fn from_end(array: &str, place: usize) -> Option<&str> {
    let index = elements(array)?.count().checked_sub(place)?;
    let element = elements(array)?.nth(index)?;
    Some(&array[element])
}

/// Iterates over the ranges of an array's elements. Returns `None` for another value.
fn elements(array: &str) -> Option<impl Iterator<Item = Range<usize>>> {
    let mut scanner = Scanner::new(array.as_bytes());
    scanner.take(b'[').then_some(())?;
    let mut is_over = scanner.take(b']');
    Some(std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        scanner.peek()?;
        let start = scanner.at();
        scanner.skip_value(0)?;
        let place = start..scanner.at();
        is_over = !scanner.take(b',');
        Some(place)
    }))
}
