//! Text formatting without memory allocation.

use std::fmt;

/// Text of at most `BYTES_MAX` bytes; longer text is truncated.
pub(crate) struct Text<const BYTES_MAX: usize> {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl<const BYTES_MAX: usize> Text<BYTES_MAX> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; BYTES_MAX], length: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const BYTES_MAX: usize> fmt::Write for Text<BYTES_MAX> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let count = text.len().min(BYTES_MAX - self.length);
        let part = &text.as_bytes()[..count];
        self.bytes[self.length..self.length + count].copy_from_slice(part);
        self.length += count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut text = Text::<8>::new();
        write!(text, "{}-{}", 1234, 5678).expect("it cannot fail");
        assert_eq!(text.bytes(), b"1234-567");
    }
}
