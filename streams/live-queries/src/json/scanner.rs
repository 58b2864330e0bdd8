//! Steps over JSON (RFC 8259) and checks it. Never recurses, never allocates.

use crate::limits::JSON_DEPTH_MAX;

/// A place in text. Each method gives `None` where the text is no JSON from there on.
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// The kinds of the containers around a value, one bit each.
struct Nesting {
    is_object: [u64; JSON_DEPTH_MAX / 64],
    depth: usize,
}

pub(crate) fn is_space_char(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

impl<'a> Scanner<'a> {
    /// `text` is UTF-8.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }

    /// The next byte that is no space, without taking it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    /// Takes `byte`, if that is what comes next.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// A string: the bytes between its quotes, with escapes as they stand.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"').then_some(())?;
        let start = self.at;
        loop {
            self.at += plain_length(self.text.get(self.at..)?)?;
            match self.text[self.at] {
                b'"' => {
                    self.at += 1;
                    return Some(&self.text[start..self.at - 1]);
                }
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    /// One value of any kind.
    pub(super) fn skip_value(&mut self) -> Option<()> {
        let mut nesting = Nesting { is_object: [0; JSON_DEPTH_MAX / 64], depth: 0 };
        loop {
            match self.peek()? {
                b'{' => {
                    self.at += 1;
                    if !self.take(b'}') {
                        nesting.enter_object()?;
                        self.member_key()?;
                        continue;
                    }
                }
                b'[' => {
                    self.at += 1;
                    if !self.take(b']') {
                        nesting.enter_array()?;
                        continue;
                    }
                }
                _ => self.skip_scalar()?,
            }
            // A value has ended: go on in the container around it, or out of it.
            loop {
                if nesting.depth == 0 {
                    return Some(());
                }
                let is_object = nesting.is_in_object();
                if self.take(b',') {
                    if is_object {
                        self.member_key()?;
                    }
                    break;
                }
                self.take(if is_object { b'}' } else { b']' }).then_some(())?;
                nesting.depth -= 1;
            }
        }
    }

    fn member_key(&mut self) -> Option<()> {
        self.string()?;
        self.take(b':').then_some(())
    }

    fn skip_scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.byte() == Some(b'-'));
        match self.byte()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.byte().is_some_and(|it| it.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn escape(&mut self) -> Option<()> {
        match self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let digits = self.text.get(self.at + 2..self.at + 6)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                self.at += 6;
            }
            _ => return None,
        }
        Some(())
    }

    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
    }
}

/// How many bytes stand before the first quote, backslash or control character; `None` without one.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH_BITS: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The high bit of the first byte that is below `limit` is the lowest one that is set.
        let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
        let quotes = below(word ^ (ONES * u64::from(b'"')), 1);
        let escapes = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = (quotes | escapes | below(word, u64::from(b' '))) & HIGH_BITS;
        if found != 0 {
            let byte = usize::try_from(found.trailing_zeros() / 8).expect("it is below 8");
            return Some(index * 8 + byte);
        }
    }
    let is_special = |it: &u8| *it < b' ' || matches!(it, b'"' | b'\\');
    Some(words.len() * 8 + rest.iter().position(is_special)?)
}

impl Nesting {
    fn enter_object(&mut self) -> Option<()> {
        *self.is_object.get_mut(self.depth / 64)? |= 1 << (self.depth % 64);
        self.depth += 1;
        Some(())
    }

    fn enter_array(&mut self) -> Option<()> {
        *self.is_object.get_mut(self.depth / 64)? &= !(1 << (self.depth % 64));
        self.depth += 1;
        Some(())
    }

    /// `depth` is not zero.
    fn is_in_object(&self) -> bool {
        let at = self.depth - 1;
        self.is_object[at / 64] >> (at % 64) & 1 == 1
    }
}
