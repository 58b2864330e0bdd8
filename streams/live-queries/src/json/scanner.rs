//! Validating JSON scanner (RFC 8259). Never recurses, never allocates.
//!
//! Scanners are copied and their small methods inlined, so that the position stays in a register:
//! scanning a short token takes less time than storing and loading the position.

use crate::json::plain::next_special;
use crate::limits::JSON_DEPTH_MAX;

/// Position in a text. All methods return `None` if the text is not valid JSON from there on.
#[derive(Clone, Copy)]
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// Raw contents of a string between its quotes, including escapes.
pub(super) struct Inside<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) has_escapes: bool,
}

/// Types of the enclosing containers, one bit each.
struct Nesting {
    is_object: [u64; JSON_DEPTH_MAX / 64],
    depth: usize,
    depth_max: usize,
}

pub(crate) fn is_space_char(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

impl<'a> Scanner<'a> {
    /// `text` must be UTF-8.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Returns the next byte that is not space, without consuming it.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> Option<u8> {
        let byte = self.byte()?;
        if byte > b' ' {
            return Some(byte);
        }
        self.at = end_of_space(self.text, self.at);
        self.byte()
    }

    /// Consumes the next byte if it is `byte`. Returns whether it was.
    #[inline(always)]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        if self.peek() != Some(byte) {
            return false;
        }
        self.at += 1;
        true
    }

    /// Consumes the key of a member and the colon after it.
    #[inline(always)]
    pub(super) fn key(&mut self) -> Option<Inside<'a>> {
        self.take(b'"').then_some(())?;
        let start = self.at;
        let has_escapes = self.rest_of_string()?;
        let bytes = self.text.get(start..self.at - 1)?;
        self.take(b':').then_some(Inside { bytes, has_escapes })
    }

    /// Consumes a value of any kind, which is inside `depth` containers.
    #[inline(always)]
    pub(super) fn skip_value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' | b'[' => {
                self.at = end_of_container(*self, depth)?;
                Some(())
            }
            first => self.skip_scalar(first),
        }
    }

    /// Consumes a scalar value that begins with `first`.
    #[inline(always)]
    fn skip_scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b'"' => {
                self.at += 1;
                self.rest_of_string().map(|_| ())
            }
            b'-' | b'0'..=b'9' => self.number(first),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => None,
        }
    }

    /// Consumes the rest of a string after its opening quote. Returns whether it has escapes.
    #[inline(always)]
    fn rest_of_string(&mut self) -> Option<bool> {
        let mut has_escapes = false;
        loop {
            self.at = next_special(self.text, self.at)?;
            match self.text[self.at] {
                b'"' => {
                    self.at += 1;
                    return Some(has_escapes);
                }
                b'\\' => self.at = end_of_escape(self.text, self.at)?,
                _ => return None,
            }
            has_escapes = true;
        }
    }

    #[inline(always)]
    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    #[inline(always)]
    fn number(&mut self, first: u8) -> Option<()> {
        if first == b'-' {
            self.at += 1;
        }
        match self.byte()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    #[inline(always)]
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.byte().is_some_and(|it| it.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    #[inline(always)]
    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

/// Returns the end of the next container, which is inside `depth` others.
fn end_of_container(mut scanner: Scanner<'_>, depth: usize) -> Option<usize> {
    let mut nesting = Nesting {
        is_object: [0; JSON_DEPTH_MAX / 64],
        depth: 0,
        depth_max: JSON_DEPTH_MAX.saturating_sub(depth),
    };
    loop {
        match scanner.peek()? {
            b'{' => {
                scanner.at += 1;
                if !scanner.take(b'}') {
                    nesting.enter_object()?;
                    scanner.key()?;
                    continue;
                }
            }
            b'[' => {
                scanner.at += 1;
                if !scanner.take(b']') {
                    nesting.enter_array()?;
                    continue;
                }
            }
            first => scanner.skip_scalar(first)?,
        }
        // After a value: continue in the enclosing container, or leave it.
        while nesting.depth > 0 {
            let is_object = nesting.is_in_object();
            match scanner.peek()? {
                b',' => {
                    scanner.at += 1;
                    if is_object {
                        scanner.key()?;
                    }
                    break;
                }
                b'}' if is_object => scanner.at += 1,
                b']' if !is_object => scanner.at += 1,
                _ => return None,
            }
            nesting.depth -= 1;
        }
        if nesting.depth == 0 {
            return Some(scanner.at);
        }
    }
}

fn end_of_escape(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => {
            let digits = text.get(at + 2..at + 6)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 6)
        }
        _ => None,
    }
}

#[inline(never)]
fn end_of_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

impl Nesting {
    fn enter_object(&mut self) -> Option<()> {
        (self.depth < self.depth_max).then_some(())?;
        *self.is_object.get_mut(self.depth / 64)? |= 1 << (self.depth % 64);
        self.depth += 1;
        Some(())
    }

    fn enter_array(&mut self) -> Option<()> {
        (self.depth < self.depth_max).then_some(())?;
        *self.is_object.get_mut(self.depth / 64)? &= !(1 << (self.depth % 64));
        self.depth += 1;
        Some(())
    }

    /// `depth` must not be zero.
    fn is_in_object(&self) -> bool {
        let at = self.depth - 1;
        self.is_object[at / 64] >> (at % 64) & 1 == 1
    }
}
