//! Replies and notifications to the kernel, as written to `/dev/fuse`.
//!
//! A [`Reply`] is a small message on the stack, without the data of reads and directory listings.
//! Layouts follow the kernel's ABI, field by field.

use block_device::DeviceErrorKind;

use crate::files::{FileId, FileState};

/// Size of `struct fuse_out_header`.
pub(crate) const HEADER_BYTES: usize = 16;

const ATTRIBUTES_BYTES: usize = 88;
const ENTRY_BYTES: usize = 40 + ATTRIBUTES_BYTES;
const INIT_BYTES: usize = 64;
const STATUS_BYTES: usize = 80;

/// Maximum length of a reply without data.
const REPLY_BYTES_MAX: usize = HEADER_BYTES + ENTRY_BYTES;

const _: () = assert!(INIT_BYTES <= ENTRY_BYTES && STATUS_BYTES <= ENTRY_BYTES);

const FILE_MODE: u32 = 0o100_600;
const READ_ONLY_FILE_MODE: u32 = 0o100_400;
const DIRECTORY_MODE: u32 = 0o040_700;

/// Preferred transfer size that is reported to programs (`st_blksize`).
const BLOCK_BYTES: u32 = 4096;

/// Error numbers of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    NotPermitted,
    NoSuchFile,
    Io,
    NoSuchAddress,
    NoDevice,
    Invalid,
    TooBig,
    NoSpace,
    ReadOnly,
    NotImplemented,
    Protocol,
    NotSupported,
}

impl Failure {
    fn number(self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::NoSuchFile => 2,
            Self::Io => 5,
            Self::NoSuchAddress => 6,
            Self::NoDevice => 19,
            Self::Invalid => 22,
            Self::TooBig => 27,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
            Self::NotImplemented => 38,
            Self::Protocol => 71,
            Self::NotSupported => 95,
        }
    }
}

impl From<DeviceErrorKind> for Failure {
    fn from(kind: DeviceErrorKind) -> Self {
        match kind {
            DeviceErrorKind::OutOfRange => Self::TooBig,
            DeviceErrorKind::TooLong | DeviceErrorKind::NoSnapshot => Self::Invalid,
            DeviceErrorKind::NoSpace => Self::NoSpace,
            DeviceErrorKind::Gone => Self::NoDevice,
            DeviceErrorKind::Corrupt | DeviceErrorKind::NotDurable => Self::Io,
            DeviceErrorKind::ReadOnly => Self::ReadOnly,
        }
    }
}

/// A message to the kernel, built in place.
pub(crate) struct Reply {
    bytes: [u8; REPLY_BYTES_MAX],
    length: usize,
}

impl Reply {
    /// Successful reply without a body.
    pub(crate) fn done(unique: u64) -> Self {
        Self::new(0, unique)
    }

    pub(crate) fn failed(unique: u64, failure: Failure) -> Self {
        Self::new(-failure.number(), unique)
    }

    /// Header of a reply that is followed by `data_bytes` of data.
    pub(crate) fn with_data(unique: u64, data_bytes: usize) -> Self {
        let mut reply = Self::done(unique);
        reply.set_length(HEADER_BYTES + data_bytes);
        reply
    }

    pub(crate) fn init(unique: u64, terms: &Terms) -> Self {
        Self::done(unique)
            .u32(terms.major)
            .u32(terms.minor)
            .u32(terms.max_readahead)
            .u32(low_half(terms.flags))
            .u16(terms.background_max)
            .u16(terms.background_max)
            .u32(terms.write_bytes_max)
            .u32(1)
            .u16(terms.pages_max)
            .u16(0)
            .u32(low_half(terms.flags >> 32))
            .zeros(28)
    }

    pub(crate) fn written(unique: u64, byte_count: u32) -> Self {
        Self::done(unique).u32(byte_count).u32(0)
    }

    pub(crate) fn opened(unique: u64, handle: u64, flags: u32) -> Self {
        Self::done(unique).u64(handle).u32(flags).u32(0)
    }

    pub(crate) fn sought(unique: u64, offset: u64) -> Self {
        Self::done(unique).u64(offset)
    }

    pub(crate) fn attributes(unique: u64, node: &Node) -> Self {
        Self::done(unique).zeros(16).node(node)
    }

    /// Reply to a lookup: the file, with a cache timeout of zero, because names and sizes may
    /// change.
    pub(crate) fn entry(unique: u64, node: &Node) -> Self {
        Self::done(unique).u64(node.number()).zeros(32).node(node)
    }

    pub(crate) fn file_system_status(unique: u64, file_count: u64) -> Self {
        Self::done(unique)
            .zeros(24)
            .u64(file_count)
            .u64(0)
            .u32(BLOCK_BYTES)
            .u32(255)
            .u32(BLOCK_BYTES)
            .zeros(28)
    }

    /// Reply to the interruption of a request. Without an error number it has no effect, and the
    /// kernel refuses it with `ENOENT` if it does not wait for the request (Linux,
    /// `fuse_dev_do_write`).
    pub(crate) fn to_interrupt(unique: u64) -> Self {
        const INTERRUPT_BIT: u64 = 1;
        Self::done(unique | INTERRUPT_BIT)
    }

    /// Notification that asks the kernel to resend requests that a terminated process had read and
    /// not answered.
    pub(crate) fn resend_notification() -> Self {
        const NOTIFY_RESEND: i32 = 7;
        Self::new(NOTIFY_RESEND, 0)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn new(error: i32, unique: u64) -> Self {
        let mut reply = Self { bytes: [0; REPLY_BYTES_MAX], length: HEADER_BYTES };
        reply.bytes[4..8].copy_from_slice(&error.to_ne_bytes());
        reply.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        reply.set_length(HEADER_BYTES);
        reply
    }

    fn set_length(&mut self, length: usize) {
        let length = u32::try_from(length).expect("messages are far shorter than 4 GiB");
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
    }

    fn node(self, node: &Node) -> Self {
        let (size, mode, link_count, state) = match *node {
            Node::Root => (0, DIRECTORY_MODE, 2, FileState::default()),
            Node::File { size_bytes, is_read_only: false, state, .. } => {
                (size_bytes, FILE_MODE, 1, state)
            }
            Node::File { size_bytes, state, .. } => (size_bytes, READ_ONLY_FILE_MODE, 1, state),
        };
        let (seconds, ns) = (state.modified.as_secs(), state.modified.subsec_nanos());
        // Only the modification time is known. It is also used as access and change time.
        let times = self
            .u64(node.number())
            .u64(size)
            .u64(state.data_bytes.min(size).div_ceil(512))
            .u64(seconds)
            .u64(seconds)
            .u64(seconds);
        times.u32(ns).u32(ns).u32(ns).u32(mode).u32(link_count).zeros(12).u32(BLOCK_BYTES).u32(0)
    }

    fn u16(self, value: u16) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    fn raw(mut self, field: &[u8]) -> Self {
        self.bytes[self.length..self.length + field.len()].copy_from_slice(field);
        self.zeros(field.len())
    }

    /// Skips bytes that are zero or were just written.
    fn zeros(mut self, count: usize) -> Self {
        self.length += count;
        let length = self.length;
        self.set_length(length);
        self
    }
}

/// Negotiated parameters of the connection.
pub(crate) struct Terms {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u64,
    /// Maximum number of asynchronous requests in flight. All requests of a loop device are
    /// asynchronous.
    pub(crate) background_max: u16,
    pub(crate) write_bytes_max: u32,
    pub(crate) pages_max: u16,
}

/// A file or directory with attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Root,
    File { id: FileId, size_bytes: u64, is_read_only: bool, state: FileState },
}

impl Node {
    fn number(&self) -> u64 {
        match self {
            Self::Root => crate::request::ROOT_NODE,
            Self::File { id, .. } => id.node(),
        }
    }
}

/// Appends a directory entry to `listing`, unless that would exceed `bytes_max`. `next` is the
/// offset from which the kernel continues after this entry.
pub(crate) fn push_directory_entry(
    listing: &mut Vec<u8>,
    bytes_max: usize,
    entry: &DirectoryEntry<'_>,
) -> bool {
    const FIXED_BYTES: usize = 24;
    let unpadded_bytes = FIXED_BYTES + entry.name.len();
    let bytes = unpadded_bytes.next_multiple_of(8);
    if listing.len() + bytes > bytes_max {
        return false;
    }
    let name_bytes = u32::try_from(entry.name.len()).expect("names are at most 255 bytes");
    listing.extend_from_slice(&entry.node.to_ne_bytes());
    listing.extend_from_slice(&entry.next.to_ne_bytes());
    listing.extend_from_slice(&name_bytes.to_ne_bytes());
    listing.extend_from_slice(&entry.kind.to_ne_bytes());
    listing.extend_from_slice(entry.name.as_bytes());
    listing.resize(listing.len() + bytes - unpadded_bytes, 0);
    true
}

pub(crate) struct DirectoryEntry<'name> {
    pub(crate) node: u64,
    pub(crate) next: u64,
    /// File type bits of the mode.
    pub(crate) kind: u32,
    pub(crate) name: &'name str,
}

pub(crate) const KIND_DIRECTORY: u32 = 4;
pub(crate) const KIND_FILE: u32 = 8;

fn low_half(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).expect("the high half is masked off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_length(reply: &Reply, body_bytes: usize) {
        assert_eq!(reply.bytes().len(), HEADER_BYTES + body_bytes);
        let stated = u32::from_ne_bytes(*reply.bytes().first_chunk().expect("a header"));
        assert_eq!(usize::try_from(stated), Ok(reply.bytes().len()));
    }

    fn terms() -> Terms {
        Terms {
            major: 7,
            minor: 40,
            max_readahead: 0,
            flags: 1 << 39 | 1,
            background_max: 512,
            write_bytes_max: 1 << 20,
            pages_max: 256,
        }
    }

    fn file(size_bytes: u64, is_read_only: bool) -> Node {
        let state = FileState { data_bytes: u64::MAX, ..FileState::default() };
        Node::File { id: FileId(5), size_bytes, is_read_only, state }
    }

    #[test]
    fn every_reply_is_as_long_as_the_kernels_structure() {
        let file = file(4096, false);
        check_length(&Reply::done(1), 0);
        check_length(&Reply::failed(1, Failure::Io), 0);
        check_length(&Reply::init(1, &terms()), INIT_BYTES);
        check_length(&Reply::written(1, 1), 8);
        check_length(&Reply::opened(1, 1, 1), 16);
        check_length(&Reply::sought(1, 1), 8);
        check_length(&Reply::attributes(1, &file), 16 + ATTRIBUTES_BYTES);
        check_length(&Reply::entry(1, &file), ENTRY_BYTES);
        check_length(&Reply::file_system_status(1, 1), STATUS_BYTES);
        check_length(&Reply::resend_notification(), 0);
    }

    #[test]
    fn a_failure_carries_the_negative_error_number_and_the_request() {
        let reply = Reply::failed(9, Failure::NoSpace);
        assert_eq!(reply.bytes()[4..8], (-28_i32).to_ne_bytes());
        assert_eq!(reply.bytes()[8..16], 9_u64.to_ne_bytes());
    }

    #[test]
    fn attributes_stand_where_the_kernel_looks_for_them() {
        let node = |is_read_only| file(8192, is_read_only);
        let reply = Reply::attributes(1, &node(false));
        let attributes = &reply.bytes()[HEADER_BYTES + 16..];
        assert_eq!(attributes[0..8], 7_u64.to_ne_bytes());
        assert_eq!(attributes[8..16], 8192_u64.to_ne_bytes());
        assert_eq!(attributes[16..24], 16_u64.to_ne_bytes());
        assert_eq!(attributes[60..64], FILE_MODE.to_ne_bytes());
        assert_eq!(attributes[64..68], 1_u32.to_ne_bytes());
        assert_eq!(attributes[80..84], BLOCK_BYTES.to_ne_bytes());
        let reply = Reply::attributes(1, &node(true));
        let attributes = &reply.bytes()[HEADER_BYTES + 16..];
        assert_eq!(attributes[60..64], READ_ONLY_FILE_MODE.to_ne_bytes());
    }

    #[test]
    fn init_states_its_terms_where_the_kernel_looks_for_them() {
        let reply = Reply::init(1, &terms());
        let body = &reply.bytes()[HEADER_BYTES..];
        assert_eq!(body[16..18], 512_u16.to_ne_bytes());
        assert_eq!(body[20..24], (1_u32 << 20).to_ne_bytes());
        assert_eq!(body[28..30], 256_u16.to_ne_bytes());
        assert_eq!(body[32..36], (1_u32 << 7).to_ne_bytes());
    }

    #[test]
    fn data_counts_in_the_stated_length_only() {
        let reply = Reply::with_data(1, 4096);
        assert_eq!(reply.bytes().len(), HEADER_BYTES);
        assert_eq!(reply.bytes()[..4], 4112_u32.to_ne_bytes());
    }

    #[test]
    fn directory_entries_are_padded_to_eight_bytes_and_stop_at_the_limit() {
        let entry = DirectoryEntry { node: 3, next: 4, kind: KIND_FILE, name: "db" };
        let mut listing = Vec::new();
        assert!(push_directory_entry(&mut listing, 32, &entry));
        assert_eq!(listing.len(), 32);
        assert!(!push_directory_entry(&mut listing, 63, &entry));
        assert_eq!(listing.len(), 32);
    }

    #[test]
    fn every_kind_of_device_error_has_its_number() {
        let number = |kind| Failure::from(kind).number();
        assert_eq!(number(DeviceErrorKind::OutOfRange), 27);
        assert_eq!(number(DeviceErrorKind::TooLong), 22);
        assert_eq!(number(DeviceErrorKind::NoSpace), 28);
        assert_eq!(number(DeviceErrorKind::Gone), 19);
        assert_eq!(number(DeviceErrorKind::Corrupt), 5);
        assert_eq!(number(DeviceErrorKind::ReadOnly), 30);
        assert_eq!(number(DeviceErrorKind::NotDurable), 5);
    }
}
