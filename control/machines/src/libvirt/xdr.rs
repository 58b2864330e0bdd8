//! XDR (RFC 4506) as libvirt's protocol uses it: big-endian words, and bytes padded to whole words.
//! Input from the socket is validated.

/// Error for a message that violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Encoder of a message.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn word(mut self, word: u32) -> Self {
        self.bytes.extend(word.to_be_bytes());
        self
    }

    /// Writes bytes without a length, for fields of fixed size.
    pub(super) fn fixed(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn text(self, text: &str) -> Self {
        let length = u32::try_from(text.len()).expect("texts are far shorter");
        self.word(length).fixed(text.as_bytes())
    }

    pub(super) fn optional_text(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.word(1).text(text),
            None => self.word(0),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Decoder of a message.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn word(&mut self) -> Result<u32, Malformed> {
        let (word, rest) = self.rest.split_first_chunk::<4>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    pub(super) fn double_word(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from(self.word()?) << 32 | u64::from(self.word()?))
    }

    pub(super) fn fixed(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, _) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        let padded = length.checked_next_multiple_of(4).ok_or(Malformed)?;
        (_, self.rest) = self.rest.split_at_checked(padded).ok_or(Malformed)?;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let length = usize::try_from(self.word()?).map_err(|_| Malformed)?;
        String::from_utf8(self.fixed(length)?.to_vec()).map_err(|_| Malformed)
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, Malformed> {
        if self.word()? == 0 { Ok(None) } else { self.text().map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let bytes = Writer::default().word(7).text("abcde").optional_text(None).finish();
        assert_eq!(bytes.len(), 4 + 4 + 8 + 4);
        let mut reader = Reader::of(&bytes);
        assert_eq!(reader.word(), Ok(7));
        assert_eq!(reader.text().as_deref(), Ok("abcde"));
        assert_eq!(reader.optional_text(), Ok(None));
        assert_eq!(reader.word(), Err(Malformed));
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        for bytes in [&[0, 0, 0, 9, b'a', 0, 0, 0][..], &[0xff; 12], &[0, 0, 0, 1, b'a']] {
            assert_eq!(Reader::of(bytes).text(), Err(Malformed), "{bytes:?}");
        }
    }
}
