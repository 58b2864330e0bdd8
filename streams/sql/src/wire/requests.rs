//! Messages from clients.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::{SqlError, SqlState};
use crate::wire::types::Format;

/// Type byte of Sync.
pub(crate) const SYNC: u8 = b'S';

/// Maximum length of the first message of a connection.
const STARTUP_BYTES_MAX: usize = 10_000;

const CANCEL_CODE: u32 = 80_877_102;
const SSL_CODE: u32 = 80_877_103;
const GSS_CODE: u32 = 80_877_104;

/// Supported major version of the protocol.
const MAJOR_VERSION: u32 = 3;

/// First message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Startup {
    /// SSLRequest.
    Tls,
    /// GSSENCRequest. GSSAPI encryption is not supported.
    Gss,
    Cancel {
        id: i32,
        secret: i32,
    },
    Begin {
        /// Minor version of the protocol. 0 is supported.
        minor_version: u16,
        parameters: Vec<(String, String)>,
    },
}

/// Consumes the first message. Returns `None` if it is incomplete.
pub(crate) fn take_startup(buffer: &mut BytesMut) -> Result<Option<Startup>, SqlError> {
    let Some(length) = buffer.first_chunk().map(|it| u32::from_be_bytes(*it)) else {
        return Ok(None);
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(SqlError::protocol("invalid length of startup packet"));
    }
    if buffer.len() < length {
        return Ok(None);
    }
    let mut fields = Fields(buffer.split_to(length).freeze());
    fields.0.advance(4);
    let code = fields.u32()?;
    let startup = match code {
        SSL_CODE => Startup::Tls,
        GSS_CODE => Startup::Gss,
        CANCEL_CODE => Startup::Cancel { id: fields.i32()?, secret: fields.i32()? },
        _ if code >> 16 == MAJOR_VERSION => {
            let minor_version = u16::try_from(code & 0xFFFF).expect("it has 16 bits");
            let mut parameters = Vec::new();
            loop {
                let name = fields.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, fields.text()?));
            }
            Startup::Begin { minor_version, parameters }
        }
        _ => {
            let (major, minor) = (code >> 16, code & 0xFFFF);
            let what =
                format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
            return Err(SqlError::new(SqlState::NOT_SUPPORTED, what));
        }
    };
    Ok(Some(startup))
}

/// A prepared statement or a portal, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Statement(String),
    Portal(String),
}

/// Bind: parameter values for a prepared statement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    pub(crate) parameter_formats: Vec<Format>,
    /// `None` is NULL.
    pub(crate) parameters: Vec<Option<Bytes>>,
    pub(crate) result_formats: Vec<Format>,
}

/// A message after the first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Query(String),
    Parse {
        name: String,
        text: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target),
    Execute {
        portal: String,
        rows_max: usize,
    },
    Close(Target),
    Flush,
    Sync,
    Terminate,
    /// Login message: a password or a SASL response.
    Login(Bytes),
    CopyData(Bytes),
    CopyDone,
    /// Reason why the client aborts a COPY.
    CopyFail(String),
}

/// Consumes a message. Returns `None` if it is incomplete. A message of more than `bytes_max` bytes
/// is rejected before it is read.
pub(crate) fn take_request(
    buffer: &mut BytesMut,
    bytes_max: usize,
) -> Result<Option<Request>, SqlError> {
    let Some(length) = buffer.get(1..5) else { return Ok(None) };
    let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length < 4 {
        return Err(SqlError::protocol("invalid message length"));
    }
    if length > bytes_max {
        let what = format!("message of {length} bytes exceeds the limit of {bytes_max}");
        return Err(SqlError::new(SqlState::TOO_LARGE, what));
    }
    if buffer.len() <= length {
        return Ok(None);
    }
    let mut message = buffer.split_to(length + 1).freeze();
    let kind = message[0];
    message.advance(5);
    read(kind, Fields(message)).map(Some)
}

fn read(kind: u8, mut fields: Fields) -> Result<Request, SqlError> {
    let request = match kind {
        b'Q' => Request::Query(fields.text()?),
        b'P' => {
            let (name, text) = (fields.text()?, fields.text()?);
            let types = fields.list(4, Fields::u32)?;
            Request::Parse { name, text, types }
        }
        b'B' => Request::Bind(Bind {
            portal: fields.text()?,
            statement: fields.text()?,
            parameter_formats: fields.list(2, Fields::format)?,
            parameters: fields.list(4, Fields::value)?,
            result_formats: fields.list(2, Fields::format)?,
        }),
        b'D' => Request::Describe(fields.target()?),
        b'C' => Request::Close(fields.target()?),
        b'E' => {
            let portal = fields.text()?;
            // 0 means no limit.
            let rows_max = usize::try_from(fields.i32()?).unwrap_or(0);
            let rows_max = if rows_max == 0 { usize::MAX } else { rows_max };
            Request::Execute { portal, rows_max }
        }
        b'H' => Request::Flush,
        SYNC => Request::Sync,
        b'X' => Request::Terminate,
        b'p' => Request::Login(fields.0.split_off(0)),
        b'd' => Request::CopyData(fields.0.split_off(0)),
        b'c' => Request::CopyDone,
        b'f' => Request::CopyFail(fields.text()?),
        _ => return Err(SqlError::protocol(format!("invalid frontend message type {kind}"))),
    };
    if fields.0.has_remaining() {
        return Err(SqlError::protocol(
            "invalid message format: message is longer than its fields",
        ));
    }
    Ok(request)
}

/// The unread fields of a message.
pub(crate) struct Fields(pub(crate) Bytes);

impl Fields {
    fn take(&mut self, length: usize) -> Result<Bytes, SqlError> {
        if self.0.len() < length {
            return Err(SqlError::protocol("insufficient data left in message"));
        }
        Ok(self.0.split_to(length))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SqlError> {
        Ok(self.take(N)?[..].try_into().expect("as many were taken"))
    }

    fn u16(&mut self) -> Result<u16, SqlError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, SqlError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, SqlError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Reads a zero-terminated text.
    pub(crate) fn text(&mut self) -> Result<String, SqlError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end
            .ok_or_else(|| SqlError::protocol("invalid string in message: it has no terminator"))?;
        let bytes = self.take(end)?;
        self.0.advance(1);
        String::from_utf8(bytes.into()).map_err(|_| {
            SqlError::new(
                SqlState::INVALID_ENCODING,
                "invalid byte sequence for encoding \"UTF8\" in a message",
            )
        })
    }

    fn format(&mut self) -> Result<Format, SqlError> {
        match self.u16()? {
            0 => Ok(Format::TEXT),
            1 => Ok(Format::Binary),
            other => Err(SqlError::protocol(format!("unsupported format code: {other}"))),
        }
    }

    fn value(&mut self) -> Result<Option<Bytes>, SqlError> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length);
                let length = length
                    .map_err(|_| SqlError::protocol("invalid length of a value in message"))?;
                self.take(length).map(Some)
            }
        }
    }

    /// Reads a count and as many fields of at least `bytes_min` bytes.
    fn list<T>(
        &mut self,
        bytes_min: usize,
        take: impl Fn(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let count = usize::from(self.u16()?);
        if count * bytes_min > self.0.len() {
            return Err(SqlError::protocol("insufficient data left in message"));
        }
        (0..count).map(|_| take(self)).collect()
    }

    fn target(&mut self) -> Result<Target, SqlError> {
        let [kind] = self.array()?;
        let name = self.text()?;
        match kind {
            b'S' => Ok(Target::Statement(name)),
            b'P' => Ok(Target::Portal(name)),
            _ => {
                Err(SqlError::protocol("invalid message subtype: neither a statement nor a portal"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 1000;

    fn message(kind: u8, body: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::from(&[kind][..]);
        let length = u32::try_from(body.len() + 4).expect("a short message");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_message_is_read_when_it_is_whole() {
        let whole = message(b'B', b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xFF\xFF\xFF\xFF\0\0");
        for length in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..length]);
            assert_eq!(take_request(&mut part, BYTES_MAX), Ok(None), "{length} bytes");
        }
        let bind = Bind {
            portal: "p".to_owned(),
            statement: "s".to_owned(),
            parameter_formats: vec![Format::Binary],
            parameters: vec![Some(Bytes::from_static(b"x")), None],
            result_formats: Vec::new(),
        };
        let mut whole = whole;
        assert_eq!(take_request(&mut whole, BYTES_MAX), Ok(Some(Request::Bind(bind))));
        assert!(whole.is_empty());
    }

    #[test]
    fn messages_that_lie_are_errors() {
        let cases = [
            (message(b'B', b"p\0s\0\xFF\xFF"), SqlState::PROTOCOL),
            (message(b'B', b"p\0s\0\0\0\0\x01\x7F\xFF\xFF\xFF\0\0"), SqlState::PROTOCOL),
            (message(b'B', b"p\0s\0\0\0\0\x01\xFF\xFF\xFF\xFE\0\0"), SqlState::PROTOCOL),
            (message(b'B', b""), SqlState::PROTOCOL),
            (message(b'Q', b"select 1"), SqlState::PROTOCOL),
            (message(b'Q', b"\xFF\0"), SqlState::INVALID_ENCODING),
            (message(b'Q', b"a\0b"), SqlState::PROTOCOL),
            (message(b'D', b"Xa\0"), SqlState::PROTOCOL),
            (message(b'?', b""), SqlState::PROTOCOL),
            (BytesMut::from(&b"Q\0\0\0\x03"[..]), SqlState::PROTOCOL),
            (BytesMut::from(&b"Q\x7F\xFF\xFF\xFF"[..]), SqlState::TOO_LARGE),
            (BytesMut::from(&b"Q\xFF\xFF\xFF\xFF"[..]), SqlState::TOO_LARGE),
        ];
        for (mut bytes, state) in cases {
            let found = take_request(&mut bytes, BYTES_MAX).expect_err("it lies");
            assert_eq!(found.state, state, "{bytes:?}");
        }
    }

    #[test]
    fn a_connection_begins_in_one_of_four_ways() {
        let startup = |code: u32, rest: &[u8]| {
            let length = u32::try_from(rest.len() + 8).expect("a short message");
            let mut bytes = BytesMut::from(&length.to_be_bytes()[..]);
            bytes.extend_from_slice(&code.to_be_bytes());
            bytes.extend_from_slice(rest);
            take_startup(&mut bytes)
        };
        assert_eq!(startup(SSL_CODE, b""), Ok(Some(Startup::Tls)));
        assert_eq!(startup(GSS_CODE, b""), Ok(Some(Startup::Gss)));
        let cancel = Startup::Cancel { id: 1, secret: -2 };
        assert_eq!(startup(CANCEL_CODE, b"\0\0\0\x01\xFF\xFF\xFF\xFE"), Ok(Some(cancel)));
        let parameters = vec![("user".to_owned(), "a".to_owned())];
        let begin = Startup::Begin { minor_version: 2, parameters };
        assert_eq!(startup((3 << 16) + 2, b"user\0a\0\0"), Ok(Some(begin)));
        let state = |found: Result<_, SqlError>| found.map_err(|error| error.state);
        assert_eq!(state(startup(2 << 16, b"")), Err(SqlState::NOT_SUPPORTED));
        assert_eq!(state(startup(3 << 16, b"user\0a")), Err(SqlState::PROTOCOL));
        assert_eq!(state(startup(CANCEL_CODE, b"")), Err(SqlState::PROTOCOL));
        let long = take_startup(&mut BytesMut::from(&[0, 1, 0, 0][..]));
        assert_eq!(state(long), Err(SqlState::PROTOCOL));
    }
}
