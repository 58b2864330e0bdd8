//! Parser of requests from `/dev/fuse`. It does not trust the input.
//!
//! Each field is read with a bounds check. A message that is too short for its operation is an
//! error, never a panic. Nothing is copied: names and data borrow from the message.

/// Size of `struct fuse_in_header`.
pub(crate) const HEADER_BYTES: usize = 40;

/// Size of `struct fuse_write_in`, between the header and the data of a write.
pub(crate) const WRITE_BYTES: usize = 40;

/// Maximum amount of data of one request, in either direction.
pub(crate) const DATA_BYTES_MAX: usize = 1 << 20;

/// Node number of the root directory.
pub(crate) const ROOT_NODE: u64 = 1;

/// The header of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Request number. The reply repeats it unchanged, including its flag bits.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    opcode: u32,
}

/// Requested operation, with the fields that this server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'message> {
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u64,
    },
    Lookup {
        name: &'message [u8],
    },
    Forget,
    GetAttributes,
    SetAttributes {
        new_size: Option<u64>,
        changes_owner_or_mode: bool,
    },
    /// `is_durable`: the file is open with `O_DSYNC`, so each change must be durable when it is
    /// answered.
    Open {
        to_write: bool,
        is_durable: bool,
    },
    OpenDirectory,
    ReadDirectory {
        after: u64,
        bytes_max: u32,
    },
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: &'message [u8],
        is_fua: bool,
    },
    Sync,
    SyncDirectory,
    Allocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    FileSystemStatus,
    Release {
        handle: u64,
    },
    Interrupt,
    Destroy,
    Unknown {
        opcode: u32,
    },
}

/// Error of a malformed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Too short for a header, so no reply is possible.
    NoHeader,
    /// Too short for its operation, or the length field differs from the number of bytes received.
    Body(Header),
}

mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const LSEEK: u32 = 46;
}

/// Bits of `fuse_setattr_in.valid`.
const SETATTR_MODE_UID_GID: u32 = 0b111;
const SETATTR_SIZE: u32 = 1 << 3;

/// Bits of `fuse_open_in.flags` and `fuse_write_in.flags`, which are those of open(2).
const OPEN_ACCESS: u32 = 0b11;
/// `O_DSYNC`, which is also part of `O_SYNC`. The kernel sends no flush after such writes.
pub(crate) const OPEN_DURABLE: u32 = 0o10_000;
const OPEN_TO_READ: u32 = 0;

/// Parses one complete message.
pub(crate) fn parse(message: &[u8]) -> Result<(Header, Operation<'_>), Malformed> {
    let mut fields = Fields { rest: message };
    let (header, length) = parse_header(&mut fields).ok_or(Malformed::NoHeader)?;
    if usize::try_from(length) != Ok(message.len()) {
        return Err(Malformed::Body(header));
    }
    parse_body(header.opcode, &mut fields)
        .map(|operation| (header, operation))
        .ok_or(Malformed::Body(header))
}

fn parse_header(fields: &mut Fields<'_>) -> Option<(Header, u32)> {
    let length = fields.u32()?;
    let opcode = fields.u32()?;
    let unique = fields.u64()?;
    let node = fields.u64()?;
    // User, group, process and extensions.
    fields.skip(16)?;
    Some((Header { unique, node, opcode }, length))
}

fn parse_body<'message>(opcode: u32, fields: &mut Fields<'message>) -> Option<Operation<'message>> {
    Some(match opcode {
        opcode::INIT => parse_init(fields)?,
        opcode::LOOKUP => Operation::Lookup { name: fields.name()? },
        opcode::FORGET | opcode::BATCH_FORGET => Operation::Forget,
        opcode::GETATTR => Operation::GetAttributes,
        opcode::SETATTR => parse_set_attributes(fields)?,
        opcode::OPEN => {
            let flags = fields.u32()?;
            let to_write = flags & OPEN_ACCESS != OPEN_TO_READ;
            Operation::Open { to_write, is_durable: flags & OPEN_DURABLE != 0 }
        }
        opcode::OPENDIR => Operation::OpenDirectory,
        opcode::READ => {
            let (offset, length) = parse_span(fields)?;
            Operation::Read { offset, length }
        }
        opcode::READDIR => {
            let (after, bytes_max) = parse_span(fields)?;
            Operation::ReadDirectory { after, bytes_max }
        }
        opcode::WRITE => parse_write(fields)?,
        opcode::STATFS => Operation::FileSystemStatus,
        opcode::RELEASE | opcode::RELEASEDIR => Operation::Release { handle: fields.u64()? },
        opcode::FSYNC => Operation::Sync,
        opcode::FSYNCDIR => Operation::SyncDirectory,
        opcode::INTERRUPT => Operation::Interrupt,
        opcode::DESTROY => Operation::Destroy,
        opcode::FALLOCATE => {
            let (handle, offset, length) = (fields.u64()?, fields.u64()?, fields.u64()?);
            Operation::Allocate { handle, offset, length, mode: fields.u32()? }
        }
        opcode::LSEEK => {
            let (offset, whence) = parse_span(fields)?;
            Operation::Seek { offset, whence }
        }
        opcode => Operation::Unknown { opcode },
    })
}

fn parse_init<'message>(fields: &mut Fields<'message>) -> Option<Operation<'message>> {
    let (major, minor, max_readahead) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let flags_low = fields.u32()?;
    // Older kernels do not send the second word.
    let flags_high = fields.u32().unwrap_or(0);
    let flags = u64::from(flags_high) << 32 | u64::from(flags_low);
    Some(Operation::Init { major, minor, max_readahead, flags })
}

fn parse_set_attributes<'message>(fields: &mut Fields<'message>) -> Option<Operation<'message>> {
    let valid = fields.u32()?;
    // Padding and file handle.
    fields.skip(12)?;
    let size = fields.u64()?;
    Some(Operation::SetAttributes {
        new_size: (valid & SETATTR_SIZE != 0).then_some(size),
        changes_owner_or_mode: valid & SETATTR_MODE_UID_GID != 0,
    })
}

fn parse_write<'message>(fields: &mut Fields<'message>) -> Option<Operation<'message>> {
    let (offset, length) = parse_span(fields)?;
    // Flags of the write and lock owner.
    fields.skip(12)?;
    let is_fua = fields.u32()? & OPEN_DURABLE != 0;
    // Padding.
    fields.skip(4)?;
    let data = fields.bytes(usize::try_from(length).ok()?)?;
    Some(Operation::Write { offset, data, is_fua })
}

/// Common beginning of `fuse_read_in`, `fuse_write_in` and `fuse_lseek_in`: a file handle, a 64-bit
/// and a 32-bit number.
fn parse_span(fields: &mut Fields<'_>) -> Option<(u64, u32)> {
    let _handle = fields.u64()?;
    Some((fields.u64()?, fields.u32()?))
}

/// Unread part of a message.
struct Fields<'message> {
    rest: &'message [u8],
}

impl<'message> Fields<'message> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_ne_bytes(*bytes))
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes(count).map(|_| ())
    }

    fn bytes(&mut self, count: usize) -> Option<&'message [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Reads a name up to its terminating zero byte, which must be present.
    fn name(&mut self) -> Option<&'message [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0)?;
        self.bytes(end)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A message of the kernel, built from its fields.
    pub(crate) struct Message {
        bytes: Vec<u8>,
    }

    impl Message {
        pub(crate) fn new(opcode: u32, node: u64) -> Self {
            let mut message = Self { bytes: Vec::new() };
            message = message.u32(0).u32(opcode).u64(77).u64(node);
            message.u64(0).u64(0)
        }

        pub(crate) fn u32(self, value: u32) -> Self {
            self.raw(&value.to_ne_bytes())
        }

        pub(crate) fn u64(self, value: u64) -> Self {
            self.raw(&value.to_ne_bytes())
        }

        pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
            self.bytes.extend_from_slice(bytes);
            self
        }

        pub(crate) fn build(mut self) -> Vec<u8> {
            let length = u32::try_from(self.bytes.len()).expect("test messages are short");
            self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
            self.bytes
        }
    }

    pub(crate) fn read_message(node: u64, offset: u64, length: u32) -> Vec<u8> {
        let body = Message::new(opcode::READ, node).u64(0).u64(offset).u32(length);
        body.u32(0).u64(0).u64(0).build()
    }

    pub(crate) fn write_message(node: u64, offset: u64, data: &[u8]) -> Vec<u8> {
        write_message_with(0, node, offset, data)
    }

    pub(crate) fn write_message_with(flags: u32, node: u64, offset: u64, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).expect("test data is short");
        let body = Message::new(opcode::WRITE, node).u64(0).u64(offset).u32(length);
        body.u32(0).u64(0).u32(flags).u32(0).raw(data).build()
    }

    pub(crate) fn lookup_message(name: &str) -> Vec<u8> {
        Message::new(opcode::LOOKUP, ROOT_NODE).raw(name.as_bytes()).raw(&[0]).build()
    }

    pub(crate) fn init_message(major: u32, minor: u32, flags: u64) -> Vec<u8> {
        let low = u32::try_from(flags & u64::from(u32::MAX)).expect("masked");
        let high = u32::try_from(flags >> 32).expect("shifted");
        let body = Message::new(opcode::INIT, 0).u32(major).u32(minor).u32(65_536);
        body.u32(low).u32(high).raw(&[0; 44]).build()
    }

    #[track_caller]
    fn check(message: &[u8], expected: Operation<'_>) {
        let (header, operation) = parse(message).expect("the message is whole");
        assert_eq!(header.unique, 77);
        assert_eq!(operation, expected);
    }

    #[test]
    fn reads_are_understood() {
        check(&read_message(3, 8192, 4096), Operation::Read { offset: 8192, length: 4096 });
    }

    #[test]
    fn the_data_of_a_write_is_what_follows_its_fields() {
        let expected = Operation::Write { offset: 512, data: b"data", is_fua: false };
        check(&write_message(3, 512, b"data"), expected);
    }

    #[test]
    fn writes_to_files_that_are_open_for_durable_writes_have_fua() {
        for (flags, is_fua) in [(0o1, false), (0o10_001, true), (0o4_010_001, true)] {
            let expected = Operation::Write { offset: 0, data: b"data", is_fua };
            check(&write_message_with(flags, 3, 0, b"data"), expected);
        }
    }

    #[test]
    fn a_name_ends_before_its_zero_byte() {
        check(&lookup_message("db"), Operation::Lookup { name: b"db" });
    }

    #[test]
    fn init_joins_both_words_of_flags() {
        let flags = 1 << 39 | 1 << 22;
        let expected = Operation::Init { major: 7, minor: 45, max_readahead: 65_536, flags };
        check(&init_message(7, 45, flags), expected);
    }

    #[test]
    fn an_old_kernels_short_init_is_understood() {
        let message = Message::new(opcode::INIT, 0).u32(7).u32(23).u32(0).u32(1).build();
        check(&message, Operation::Init { major: 7, minor: 23, max_readahead: 0, flags: 1 });
    }

    #[test]
    fn changes_of_size_and_of_mode_are_told_apart() {
        let message = |valid| {
            Message::new(opcode::SETATTR, 3).u32(valid).u32(0).u64(0).u64(99).raw(&[0; 64]).build()
        };
        let attributes = |new_size, changes_owner_or_mode| Operation::SetAttributes {
            new_size,
            changes_owner_or_mode,
        };
        check(&message(SETATTR_SIZE), attributes(Some(99), false));
        check(&message(1), attributes(None, true));
        check(&message(1 << 4), attributes(None, false));
    }

    #[test]
    fn opening_says_whether_to_write_and_whether_durably() {
        for (access, to_write) in [(0, false), (1, true), (2, true)] {
            for (durable, is_durable) in [(0o40_000, false), (0o10_000, true), (0o4_010_000, true)]
            {
                check(
                    &Message::new(opcode::OPEN, 3).u32(access | durable).u32(0).build(),
                    Operation::Open { to_write, is_durable },
                );
            }
        }
    }

    #[test]
    fn allocation_and_seeking_are_understood() {
        let body = Message::new(opcode::FALLOCATE, 3).u64(5).u64(10).u64(20).u32(3).u32(0);
        check(&body.build(), Operation::Allocate { handle: 5, offset: 10, length: 20, mode: 3 });
        let body = Message::new(opcode::LSEEK, 3).u64(0).u64(10).u32(4).u32(0);
        check(&body.build(), Operation::Seek { offset: 10, whence: 4 });
    }

    #[test]
    fn unknown_operations_keep_their_number() {
        check(&Message::new(999, 3).build(), Operation::Unknown { opcode: 999 });
    }

    #[test]
    fn every_cut_of_a_message_is_refused() {
        let whole = write_message(3, 0, b"12345678");
        for length in 0..whole.len() {
            let refused = parse(&whole[..length]).expect_err("it was cut");
            assert_eq!(refused == Malformed::NoHeader, length < HEADER_BYTES, "{length}");
        }
    }

    #[test]
    fn a_write_that_claims_more_data_than_it_has_is_refused() {
        let mut message = write_message(3, 0, b"1234");
        message[HEADER_BYTES + 16] = 5;
        assert!(matches!(parse(&message), Err(Malformed::Body(_))));
    }

    #[test]
    fn a_name_without_an_end_is_refused() {
        let message = Message::new(opcode::LOOKUP, ROOT_NODE).raw(b"db").build();
        assert!(matches!(parse(&message), Err(Malformed::Body(_))));
    }
}
