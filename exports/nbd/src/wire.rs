//! Constants and encodings of the NBD protocol, as pure functions over bytes.
//!
//! Everything is big-endian. This module knows no device, no socket and no limit of this server.

/// Maximum length of strings in the protocol: export names, queries, error messages.
pub(crate) const STRING_BYTES_MAX: usize = 4096;

pub(crate) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

pub(crate) const CLIENT_FLAGS_BYTES: usize = 4;
pub(crate) const OPTION_HEADER_BYTES: usize = 16;
pub(crate) const REQUEST_BYTES: usize = 28;
pub(crate) const SIMPLE_REPLY_BYTES: usize = 16;
pub(crate) const CHUNK_HEADER_BYTES: usize = 20;
/// Zero bytes after the reply to `EXPORT_NAME`, unless `NO_ZEROES` was negotiated.
pub(crate) const EXPORT_NAME_ZEROES: usize = 124;

/// Handshake flags. The same bits are used in both directions.
pub(crate) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags: features of an export.
pub(crate) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of the handshake.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options. Bit 31 marks errors.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub(crate) const ERR_POLICY: u32 = (1 << 31) + 2;
    pub(crate) const ERR_INVALID: u32 = (1 << 31) + 3;
    pub(crate) const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    pub(crate) const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    pub(crate) const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Information types in replies to `INFO` and `GO`.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Chunk types of structured replies. Bit 15 marks errors.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
    /// The only flag of a chunk: it is the last chunk of its reply.
    pub(crate) const FLAG_DONE: u16 = 1;
}

/// Extent states in `base:allocation` and in the contexts of this server.
pub(crate) mod state {
    pub(crate) const HOLE: u32 = 1 << 0;
    pub(crate) const ZERO: u32 = 1 << 1;
    /// The only state in `memlane:changed:SNAPSHOT`.
    pub(crate) const CHANGED: u32 = 1 << 0;
}

/// Error numbers of the transmission phase, which do not depend on the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Errno {
    NotPermitted = 1,
    Io = 5,
    NoMemory = 12,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    Shutdown = 108,
}

impl Errno {
    pub(crate) fn number(self) -> u32 {
        self as u32
    }
}

/// Reads numbers and strings from the front of a payload. Returns `None` if it is too short.
pub(crate) struct Reader<'payload> {
    rest: &'payload [u8],
}

impl<'payload> Reader<'payload> {
    pub(crate) fn new(payload: &'payload [u8]) -> Self {
        Self { rest: payload }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a string with a 32-bit length prefix. It must be valid UTF-8 within the protocol's
    /// limit.
    pub(crate) fn string(&mut self) -> Option<&'payload str> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        text(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*front)
    }
}

/// Returns the bytes as a string, or `None` if they are not valid UTF-8 or too long.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_BYTES_MAX {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// Returns the longest prefix of `text` in whole characters that fits into `bytes_max`.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Header of an option. Its payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionHeader {
    pub(crate) option: u32,
    pub(crate) payload_bytes: u32,
}

impl OptionHeader {
    /// Returns `None` if the magic number is wrong, after which the rest of the stream cannot be
    /// parsed.
    pub(crate) fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u64()? != OPTION_MAGIC {
            return None;
        }
        Some(Self { option: reader.u32()?, payload_bytes: reader.u32()? })
    }
}

/// Header of a request in the transmission phase. A write's payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    /// Identifier chosen by the client and returned in each reply.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Request {
    /// Returns `None` if the magic number is wrong, after which the rest of the stream cannot be
    /// parsed.
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: reader.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gives_nothing_past_the_end() {
        let mut reader = Reader::new(&[0, 1, 2]);
        assert_eq!(reader.u16(), Some(1));
        assert_eq!(reader.u16(), None);
        assert!(!reader.is_empty());
    }

    #[track_caller]
    fn check_string(payload: &[u8], expected: Option<&str>) {
        assert_eq!(Reader::new(payload).string(), expected);
    }

    #[test]
    fn a_string_is_utf8_and_ends_inside_the_payload() {
        check_string(b"\0\0\0\x02abc", Some("ab"));
        check_string(b"\0\0\0\x04abc", None);
        check_string(b"\0\0\0\x01\xff", None);
        check_string(b"\xff\xff\xff\xffabc", None);
    }

    #[test]
    fn a_string_is_no_longer_than_the_protocol_allows() {
        assert!(text(&[b'a'; STRING_BYTES_MAX]).is_some());
        assert!(text(&[b'a'; STRING_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("aä", 3), "aä");
        assert_eq!(cut("aä", 4), "aä");
    }

    #[test]
    fn a_request_has_its_fields_in_the_order_of_the_protocol() {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        for (index, byte) in (1..).zip(&mut bytes[4..]) {
            *byte = index;
        }
        assert_eq!(
            Request::parse(&bytes),
            Some(Request {
                flags: 0x0102,
                command: 0x0304,
                cookie: 0x0506_0708_090a_0b0c,
                offset: 0x0d0e_0f10_1112_1314,
                length: 0x1516_1718,
            })
        );
        bytes[0] ^= 1;
        assert_eq!(Request::parse(&bytes), None);
    }
}
