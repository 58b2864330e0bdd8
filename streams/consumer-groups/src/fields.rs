//! Encoding of fields in state records: little-endian numbers, and bytes with a length prefix.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

/// Encoder of a key or value.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn done(self) -> Bytes {
        self.bytes.into()
    }

    pub(crate) fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes.push(number);
        self
    }

    pub(crate) fn i16(&mut self, number: i16) -> &mut Self {
        self.bytes.extend(number.to_le_bytes());
        self
    }

    pub(crate) fn i32(&mut self, number: i32) -> &mut Self {
        self.bytes.extend(number.to_le_bytes());
        self
    }

    pub(crate) fn i64(&mut self, number: i64) -> &mut Self {
        self.bytes.extend(number.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes.extend(number.to_le_bytes());
        self
    }

    pub(crate) fn id(&mut self, id: Uuid) -> &mut Self {
        self.bytes.extend(id.as_bytes());
        self
    }

    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        let count = u32::try_from(count).expect("lists and texts are limited far below 4 Gi");
        self.bytes.extend(count.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.bytes.extend(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &StrBytes) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn maybe_text(&mut self, text: Option<&StrBytes>) -> &mut Self {
        match text {
            Some(text) => self.u8(1).text(text),
            None => self.u8(0),
        }
    }
}

/// Decoder of a key or value. Returns `None` if the bytes are truncated or invalid.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns whether all bytes were read.
    pub(crate) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.take().map(i16::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn id(&mut self) -> Option<Uuid> {
        self.take().map(Uuid::from_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Option<Bytes> {
        let count = usize::try_from(u32::from_le_bytes(self.take()?)).ok()?;
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(Bytes::copy_from_slice(taken))
    }

    pub(crate) fn text(&mut self) -> Option<StrBytes> {
        StrBytes::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn maybe_text(&mut self) -> Option<Option<StrBytes>> {
        match self.u8()? {
            0 => Some(None),
            1 => Some(Some(self.text()?)),
            _ => None,
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = u32::from_le_bytes(self.take()?);
        (0..count).map(|_| item(self)).collect()
    }
}

/// Copies a string, because a decoded one keeps the buffer of the whole request in memory.
pub(crate) fn own(text: &StrBytes) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

/// Copies a prefix of at most `bytes_max` bytes.
pub(crate) fn own_beginning(text: &str, bytes_max: usize) -> StrBytes {
    let ends = text.char_indices().map(|(start, letter)| start + letter.len_utf8());
    let end = ends.take_while(|end| *end <= bytes_max).last().unwrap_or(0);
    StrBytes::from_string(text[..end].to_owned())
}

pub(crate) fn own_bytes(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
