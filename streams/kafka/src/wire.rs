//! Primitive types of Kafka's protocol. Numbers are big-endian. *Flexible* versions encode lengths
//! as varints and end each structure with tagged fields. Source: Apache Kafka, "Protocol guide";
//! KIP-482.

use std::ops::Range;

use crate::WireError;

/// Reads a request sequentially. Positions are relative to its first byte.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_flexible: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], is_flexible: bool) -> Self {
        Self { bytes, at: 0, is_flexible }
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn i8(&mut self) -> Result<i8, WireError> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, WireError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads 16 arbitrary bytes, such as a topic id.
    pub(crate) fn uuid(&mut self) -> Result<[u8; 16], WireError> {
        self.array()
    }

    /// Reads the number of elements of an array; null counts as 0. Each element takes at least one
    /// byte, so a count above the number of remaining bytes is rejected.
    pub(crate) fn count(&mut self) -> Result<usize, WireError> {
        let count = match self.is_flexible {
            true => self.varint()?.saturating_sub(1),
            false => u32::try_from(self.i32()?).unwrap_or(0),
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > self.bytes.len() - self.at { Err(WireError::Length) } else { Ok(count) }
    }

    /// Reads a string; `None` is null.
    pub(crate) fn string(&mut self) -> Result<Option<&'a str>, WireError> {
        let length = match self.is_flexible {
            true => self.compact_length()?,
            false => usize::try_from(self.i16()?).ok(),
        };
        let Some(length) = length else { return Ok(None) };
        let bytes = self.take(length)?;
        std::str::from_utf8(&self.bytes[bytes]).map(Some).map_err(|_| WireError::Text)
    }

    /// Reads a byte string and returns its range in the request; `None` is null.
    pub(crate) fn bytes(&mut self) -> Result<Option<Range<usize>>, WireError> {
        let length = match self.is_flexible {
            true => self.compact_length()?,
            false => usize::try_from(self.i32()?).ok(),
        };
        length.map(|length| self.take(length)).transpose()
    }

    /// Skips the tagged fields at the end of a structure. Versions that are not flexible have none.
    pub(crate) fn skip_tags(&mut self) -> Result<(), WireError> {
        if !self.is_flexible {
            return Ok(());
        }
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = self.varint()?;
            self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        }
        Ok(())
    }

    /// Fails if bytes remain.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(WireError::Length) }
    }

    fn compact_length(&mut self) -> Result<Option<usize>, WireError> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        Ok(length.checked_sub(1))
    }

    fn varint(&mut self) -> Result<u32, WireError> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).map_err(|_| WireError::Length);
            }
        }
        Err(WireError::Length)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let range = self.take(N)?;
        Ok(self.bytes[range].try_into().expect("as many bytes as were taken"))
    }

    fn take(&mut self, length: usize) -> Result<Range<usize>, WireError> {
        if length > self.bytes.len() - self.at {
            return Err(WireError::Length);
        }
        let start = self.at;
        self.at += length;
        Ok(start..self.at)
    }
}

/// Appends a response to a buffer.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) into: &'a mut Vec<u8>,
    is_flexible: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(into: &'a mut Vec<u8>, is_flexible: bool) -> Self {
        Self { into, is_flexible }
    }

    pub(crate) fn i16(&mut self, number: i16) {
        self.into.extend(number.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, number: i32) {
        self.into.extend(number.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, number: i64) {
        self.into.extend(number.to_be_bytes());
    }

    pub(crate) fn uuid(&mut self, bytes: [u8; 16]) {
        self.into.extend(bytes);
    }

    pub(crate) fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("counts come from requests, which have limits");
        match self.is_flexible {
            true => self.varint(count + 1),
            false => self.into.extend(count.to_be_bytes()),
        }
    }

    pub(crate) fn string(&mut self, text: Option<&str>) {
        match (self.is_flexible, text) {
            (true, None) => self.varint(0),
            (false, None) => self.i16(-1),
            (true, Some(text)) => {
                self.count(text.len());
                self.into.extend(text.as_bytes());
            }
            (false, Some(text)) => {
                let end = (0..=32_767.min(text.len())).rfind(|at| text.is_char_boundary(*at));
                let text = &text[..end.unwrap_or(0)];
                self.i16(i16::try_from(text.len()).expect("it was cut"));
                self.into.extend(text.as_bytes());
            }
        }
    }

    /// Writes the length of a byte string that the caller sends separately.
    pub(crate) fn bytes_length(&mut self, length: usize) {
        self.count(length);
    }

    /// Writes a null array.
    pub(crate) fn null_array(&mut self) {
        match self.is_flexible {
            true => self.varint(0),
            false => self.i32(-1),
        }
    }

    /// Writes an empty tagged section.
    pub(crate) fn no_tags(&mut self) {
        if self.is_flexible {
            self.into.push(0);
        }
    }

    fn varint(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.into.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
            number >>= 7;
        }
        self.into.push(u8::try_from(number).expect("seven bits"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for is_flexible in [false, true] {
            for length in [0, 1, 126, 127, 128, 20_000] {
                let text = "x".repeat(length);
                let mut bytes = Vec::new();
                let mut writer = Writer::new(&mut bytes, is_flexible);
                writer.string(Some(&text));
                writer.string(None);
                writer.i64(-7);
                writer.no_tags();
                let mut reader = Reader::new(&bytes, is_flexible);
                assert_eq!(reader.string(), Ok(Some(text.as_str())));
                assert_eq!(reader.string(), Ok(None));
                assert_eq!(reader.i64(), Ok(-7));
                assert_eq!(reader.skip_tags(), Ok(()));
                assert_eq!(reader.end(), Ok(()));
            }
        }
    }

    #[test]
    fn lengths_past_the_end_are_refused() {
        let huge = i32::MAX.to_be_bytes();
        assert_eq!(Reader::new(&huge, false).count(), Err(WireError::Length));
        assert_eq!(Reader::new(&huge, false).bytes(), Err(WireError::Length));
        assert_eq!(Reader::new(&[0xff; 5], true).count(), Err(WireError::Length));
        assert_eq!(Reader::new(&[0xff; 3], true).string(), Err(WireError::Length));
        assert_eq!(Reader::new(&[1, 0, 9, 0], true).skip_tags(), Err(WireError::Length));
    }
}
