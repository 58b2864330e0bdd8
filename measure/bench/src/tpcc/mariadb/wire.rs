//! Client of the MariaDB protocol: the subset that the workload needs, on a Unix socket, without
//! passwords, compression or TLS.
//!
//! Existing libraries include all of these, and change how hashes are built for programs that
//! depend on them. Server responses are validated while parsing, and truncated ones are errors.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::tpcc::plain::{Cell, Value};

const HEADER_BYTES: usize = 4;
/// Maximum packet length. Longer packets are split, which is not needed here.
const PACKET_BYTES_MAX: usize = (1 << 24) - 2;

const PROTOCOL: u8 = 10;
const LATIN1: u8 = 8;
const LONG_PASSWORD: u32 = 1;
const PROTOCOL_41: u32 = 0x200;
const TRANSACTIONS: u32 = 0x2000;
const SECURE_CONNECTION: u32 = 0x8000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const CAPABILITIES: u32 =
    LONG_PASSWORD | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

const OK: u8 = 0x00;
const FAILED: u8 = 0xFF;
const END: u8 = 0xFE;
const NOTHING: u8 = 0xFB;
/// Maximum length of an end packet. Longer ones are rows.
const END_BYTES_MAX: usize = 8;

const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// Types of columns and parameters.
mod kind {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const LONG_LONG: u8 = 8;
    pub(super) const INT_24: u8 = 9;
    pub(super) const VARCHAR: u8 = 15;
    pub(super) const DECIMAL: u8 = 246;
    pub(super) const BLOBS: std::ops::RangeInclusive<u8> = 249..=252;
    pub(super) const VAR_STRING: u8 = 253;
    pub(super) const STRING: u8 = 254;
}

#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("lost the connection to MariaDB")]
    Io(#[from] std::io::Error),
    #[error("MariaDB error {code}: {message}")]
    Refused { code: u16, message: String },
    #[error("MariaDB protocol error: {0}")]
    Unexpected(&'static str),
}

impl Error {
    /// Returns whether the database aborted the transaction because of a conflict.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: DEADLOCK | LOCK_WAIT_TIMEOUT, .. })
    }
}

/// A prepared statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    id: u32,
    parameters: usize,
}

/// A connection.
pub(super) struct Wire {
    stream: BufReader<UnixStream>,
    sequence: u8,
    packet: Vec<u8>,
    /// Send buffer, with space for the header at its start.
    sending: Vec<u8>,
}

impl Wire {
    /// Connects as `root`, which has no password here. `answer_time_limit` applies to every
    /// response.
    pub(super) fn connect(socket: &Path, answer_time_limit: Duration) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(answer_time_limit))?;
        stream.set_write_timeout(Some(answer_time_limit))?;
        let stream = BufReader::with_capacity(64 << 10, stream);
        let mut wire = Self { stream, sequence: 0, packet: Vec::new(), sending: Vec::new() };
        wire.receive()?;
        let greeting = wire.packet.first().copied();
        match greeting {
            Some(PROTOCOL) => {}
            Some(FAILED) => return Err(refusal(&wire.packet)),
            _ => return Err(Error::Unexpected("unsupported protocol version")),
        }
        wire.sending.extend([0; HEADER_BYTES]);
        wire.sending.extend(CAPABILITIES.to_le_bytes());
        wire.sending.extend((1_u32 << 24).to_le_bytes());
        wire.sending.push(LATIN1);
        wire.sending.extend([0; 23]);
        wire.sending.extend(b"root\0");
        wire.sending.push(0);
        wire.sending.extend(b"mysql_native_password\0");
        wire.send()?;
        wire.receive()?;
        match wire.packet.first() {
            Some(&OK) => Ok(wire),
            Some(&FAILED) => Err(refusal(&wire.packet)),
            _ => Err(Error::Unexpected("the server requires a password")),
        }
    }

    /// Executes a statement without rows. Returns the number of affected rows.
    pub(super) fn change(&mut self, statement: &str) -> Result<u64, Error> {
        self.query(statement)?;
        match self.packet.split_first() {
            Some((&OK, rest)) => Reader(rest).whole(),
            _ => Err(Error::Unexpected("rows")),
        }
    }

    /// Executes a statement. Returns its text rows, if any.
    pub(super) fn query(&mut self, statement: &str) -> Result<Vec<Vec<Cell>>, Error> {
        self.begin(QUERY);
        self.sending.extend(statement.as_bytes());
        self.send()?;
        let Some(kinds) = self.columns()? else { return Ok(Vec::new()) };
        self.rows(|packet| {
            let mut reader = Reader(packet);
            kinds.iter().map(|_| reader.text_cell()).collect()
        })
    }

    pub(super) fn prepare(&mut self, statement: &str) -> Result<Prepared, Error> {
        self.begin(PREPARE);
        self.sending.extend(statement.as_bytes());
        self.send()?;
        self.receive()?;
        if self.packet.first() == Some(&FAILED) {
            return Err(refusal(&self.packet));
        }
        let mut reader = Reader(&self.packet);
        reader.take(1)?;
        let id = u32::from_le_bytes(reader.bytes()?);
        let (columns, parameters) = (reader.short()?, reader.short()?);
        for described in [parameters, columns] {
            // Descriptions of parameters and columns are skipped, each list with its end packet.
            let packets = if described == 0 { 0 } else { described + 1 };
            for _ in 0..packets {
                self.receive()?;
            }
        }
        Ok(Prepared { id, parameters })
    }

    /// Executes a prepared statement. Returns its rows, if any.
    pub(super) fn execute(
        &mut self,
        statement: Prepared,
        values: &[Value<'_>],
    ) -> Result<Vec<Vec<Cell>>, Error> {
        assert_eq!(values.len(), statement.parameters, "each mark has a value");
        self.begin(EXECUTE);
        self.sending.extend(statement.id.to_le_bytes());
        self.sending.push(0);
        self.sending.extend(1_u32.to_le_bytes());
        if !values.is_empty() {
            self.add_values(values);
        }
        self.send()?;
        let Some(kinds) = self.columns()? else { return Ok(Vec::new()) };
        self.rows(|packet| binary_row(packet, &kinds))
    }

    fn add_values(&mut self, values: &[Value<'_>]) {
        // No parameter is null.
        self.sending.extend(std::iter::repeat_n(0, values.len().div_ceil(8)));
        self.sending.push(1);
        for value in values {
            let kind = match value {
                Value::Number(_) => kind::LONG_LONG,
                Value::Text(_) => kind::VAR_STRING,
            };
            self.sending.extend([kind, 0]);
        }
        for value in values {
            match value {
                Value::Number(number) => self.sending.extend(number.to_le_bytes()),
                Value::Text(text) => add_text(&mut self.sending, text),
            }
        }
    }

    /// Reads the column types of a result, or returns `None` if it has no rows.
    fn columns(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.receive()?;
        match self.packet.first() {
            Some(&FAILED) => return Err(refusal(&self.packet)),
            Some(&OK) => return Ok(None),
            Some(&NOTHING) => {
                return Err(Error::Unexpected("the server requested a file (LOAD DATA LOCAL)"));
            }
            _ => {}
        }
        let count = Reader(&self.packet).length()?;
        let mut kinds = Vec::new();
        for _ in 0..count {
            self.receive()?;
            let mut reader = Reader(&self.packet);
            for _name in 0..6 {
                reader.text()?;
            }
            // Length, character set and column length.
            reader.take(1 + 2 + 4)?;
            let [kind] = reader.bytes()?;
            kinds.push(kind);
        }
        self.receive()?;
        Ok(Some(kinds))
    }

    fn rows(
        &mut self,
        read: impl Fn(&[u8]) -> Result<Vec<Cell>, Error>,
    ) -> Result<Vec<Vec<Cell>>, Error> {
        let mut rows = Vec::new();
        loop {
            self.receive()?;
            match self.packet.first() {
                Some(&END) if self.packet.len() <= END_BYTES_MAX => return Ok(rows),
                Some(&FAILED) => return Err(refusal(&self.packet)),
                _ => rows.push(read(&self.packet)?),
            }
        }
    }

    fn begin(&mut self, command: u8) {
        self.sequence = 0;
        self.sending.clear();
        self.sending.extend([0; HEADER_BYTES]);
        self.sending.push(command);
    }

    fn send(&mut self) -> Result<(), Error> {
        let length = self.sending.len() - HEADER_BYTES;
        if length > PACKET_BYTES_MAX {
            return Err(Error::Unexpected("a statement that is too long"));
        }
        let length = length.to_le_bytes();
        let header = [length[0], length[1], length[2], self.sequence];
        self.sending[..HEADER_BYTES].copy_from_slice(&header);
        self.stream.get_mut().write_all(&self.sending)?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Error> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        if length > PACKET_BYTES_MAX {
            return Err(Error::Unexpected("a packet that is too long"));
        }
        self.packet.resize(length, 0);
        self.stream.read_exact(&mut self.packet)?;
        self.sequence = header[3].wrapping_add(1);
        Ok(())
    }
}

/// Unparsed rest of a packet.
struct Reader<'packet>(&'packet [u8]);

impl<'packet> Reader<'packet> {
    fn take(&mut self, count: usize) -> Result<&'packet [u8], Error> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(Error::Unexpected("a truncated packet"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn bytes<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], Error> {
        let taken = self.take(COUNT)?;
        Ok(taken.try_into().expect("so many were taken"))
    }

    fn short(&mut self) -> Result<usize, Error> {
        self.bytes().map(u16::from_le_bytes).map(usize::from)
    }

    fn length(&mut self) -> Result<usize, Error> {
        usize::try_from(self.whole()?).map_err(|_| Error::Unexpected("a length that is too large"))
    }

    /// Reads a variable-length integer.
    fn whole(&mut self) -> Result<u64, Error> {
        let [first] = self.bytes()?;
        Ok(match first {
            0xFC => u64::from(u16::from_le_bytes(self.bytes()?)),
            0xFD => {
                let [low, middle, high] = self.bytes()?;
                u64::from(u32::from_le_bytes([low, middle, high, 0]))
            }
            0xFE => u64::from_le_bytes(self.bytes()?),
            0xFF | 0xFB => return Err(Error::Unexpected("an invalid length")),
            short => u64::from(short),
        })
    }

    fn text(&mut self) -> Result<&'packet str, Error> {
        let length = self.length()?;
        std::str::from_utf8(self.take(length)?)
            .map_err(|_| Error::Unexpected("a text that is not UTF-8"))
    }

    fn text_cell(&mut self) -> Result<Cell, Error> {
        if self.0.first() == Some(&NOTHING) {
            self.take(1)?;
            return Ok(Cell::Nothing);
        }
        self.text().map(|text| Cell::Text(text.to_owned()))
    }

    fn binary_cell(&mut self, kind: u8) -> Result<Cell, Error> {
        Ok(match kind {
            kind::TINY => Cell::Number(i64::from(i8::from_le_bytes(self.bytes()?))),
            kind::SHORT => Cell::Number(i64::from(i16::from_le_bytes(self.bytes()?))),
            kind::LONG | kind::INT_24 => Cell::Number(i64::from(i32::from_le_bytes(self.bytes()?))),
            kind::LONG_LONG => Cell::Number(i64::from_le_bytes(self.bytes()?)),
            kind::FLOAT => Cell::Real(f64::from(f32::from_le_bytes(self.bytes()?))),
            kind::DOUBLE => Cell::Real(f64::from_le_bytes(self.bytes()?)),
            kind::VARCHAR | kind::DECIMAL | kind::VAR_STRING | kind::STRING => {
                Cell::Text(self.text()?.to_owned())
            }
            kind if kind::BLOBS.contains(&kind) => Cell::Text(self.text()?.to_owned()),
            _ => return Err(Error::Unexpected("an unsupported column type")),
        })
    }
}

/// Parses a row of a prepared statement: a null bitmap, then the other cells.
fn binary_row(packet: &[u8], kinds: &[u8]) -> Result<Vec<Cell>, Error> {
    /// Offset of the bitmap. The protocol reserves the first bits.
    const FIRST_BIT: usize = 2;
    let mut reader = Reader(packet);
    reader.take(1)?;
    let nothing = reader.take((kinds.len() + FIRST_BIT).div_ceil(8))?;
    let is_nothing = |column: usize| {
        let bit = column + FIRST_BIT;
        nothing[bit / 8] >> (bit % 8) & 1 == 1
    };
    let cell = |(column, kind): (usize, &u8)| match is_nothing(column) {
        true => Ok(Cell::Nothing),
        false => reader.binary_cell(*kind),
    };
    kinds.iter().enumerate().map(cell).collect()
}

fn add_text(bytes: &mut Vec<u8>, text: &str) {
    /// Maximum length encoded in one byte.
    const SHORT_MAX: u8 = 250;
    match u8::try_from(text.len()) {
        Ok(length) if length <= SHORT_MAX => bytes.push(length),
        _ => {
            bytes.push(0xFE);
            bytes.extend((text.len() as u64).to_le_bytes());
        }
    }
    bytes.extend(text.as_bytes());
}

/// Parses an error: code, SQL state after a marker, and message.
fn refusal(packet: &[u8]) -> Error {
    let mut reader = Reader(packet);
    let code = reader.take(1).and_then(|_| reader.bytes()).map_or(0, u16::from_le_bytes);
    let said = String::from_utf8_lossy(reader.0).into_owned();
    let message = if said.starts_with('#') { said.chars().skip(6).collect() } else { said };
    Error::Refused { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_rows_are_read_by_the_types_of_their_columns() {
        let kinds = [kind::LONG, kind::LONG_LONG, kind::DECIMAL, kind::DOUBLE, kind::VAR_STRING];
        let mut packet = vec![OK, 0b0001_0000 << 2, 0xFF, 0xFF, 0xFF, 0xFF];
        packet.extend(7_u64.to_le_bytes());
        add_text(&mut packet, "12.34");
        packet.extend(0.5_f64.to_le_bytes());
        let row = binary_row(&packet, &kinds).expect("it is whole");
        let expected = [
            Cell::Number(-1),
            Cell::Number(7),
            Cell::Text("12.34".to_owned()),
            Cell::Real(0.5),
            Cell::Nothing,
        ];
        assert_eq!(row, expected);
        for length in 0..packet.len() {
            assert!(binary_row(&packet[..length], &kinds).is_err(), "cut after {length}");
        }
    }

    #[test]
    fn refusals_are_told_and_conflicts_known() {
        let refused = |code: u16| {
            let mut packet = vec![FAILED];
            packet.extend(code.to_le_bytes());
            packet.extend(b"#40001Deadlock found");
            refusal(&packet)
        };
        assert_eq!(refused(DEADLOCK).to_string(), "MariaDB error 1213: Deadlock found");
        assert!(refused(DEADLOCK).is_conflict() && refused(LOCK_WAIT_TIMEOUT).is_conflict());
        assert!(!refused(1064).is_conflict() && !refusal(&[FAILED]).is_conflict());
    }

    #[test]
    fn long_texts_are_sent_with_their_length() {
        for length in [0, 250, 251, 70_000] {
            let mut bytes = Vec::new();
            add_text(&mut bytes, &"x".repeat(length));
            assert_eq!(Reader(&bytes).text().expect("it is whole").len(), length);
        }
    }
}
