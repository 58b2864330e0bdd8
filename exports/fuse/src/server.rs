//! Service of one request: from a FUSE message to block-device calls and the reply.
//!
//! The server keeps no state between requests, so any process with the same volumes can answer the
//! next one. Reads and writes allocate no memory: data is passed to the kernel from where it is
//! stored, and to the volume from the message buffer.

use std::io::{self, IoSlice};
use std::sync::Arc;

use block_device::{
    BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, ExtentKind, WriteCache,
    Zeroes,
};
use export_kit::Counters;

use crate::file_users::OpenFiles;
use crate::files::{FileId, Files, is_file_name};
use crate::in_flight::Flush;
use crate::reply::{
    DirectoryEntry, Failure, KIND_DIRECTORY, KIND_FILE, Node, Reply, Terms, push_directory_entry,
};
use crate::request::{DATA_BYTES_MAX, Header, Operation, ROOT_NODE};

/// Size of the scratch buffer for reads that cannot be served in place: the maximum amount of data,
/// and the remainder of partial blocks at both ends.
pub(crate) const SCRATCH_BYTES: usize = DATA_BYTES_MAX + 2 * BLOCK_BYTES;

/// Maximum number of parts of a reply: the header, and the maximum from
/// [`BlockDevice::read_in_place`].
const PARTS_MAX: usize = 1 + 258;

/// Maximum number of requests in flight of all loop devices together.
const BACKGROUND_MAX: u16 = 4096;

const MAJOR: u32 = 7;

/// Protocol version that introduced the resend notification, on which takeovers rely.
const MINOR: u32 = 40;

/// Oldest supported protocol version.
const MINOR_MIN: u32 = 28;

mod init_flag {
    pub(super) const ASYNC_READ: u64 = 1 << 0;
    pub(super) const BIG_WRITES: u64 = 1 << 5;
    pub(super) const ASYNC_DIO: u64 = 1 << 15;
    pub(super) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(super) const ABORT_ERROR: u64 = 1 << 21;
    pub(super) const MAX_PAGES: u64 = 1 << 22;
    pub(super) const INIT_EXT: u64 = 1 << 30;
    pub(super) const HAS_RESEND: u64 = 1 << 39;

    pub(super) const WANTED: u64 = ASYNC_READ
        | BIG_WRITES
        | ASYNC_DIO
        | PARALLEL_DIROPS
        | ABORT_ERROR
        | MAX_PAGES
        | INIT_EXT
        | HAS_RESEND;
}

/// Open flags: no page cache between the file and its users, and no lock between their writes.
/// Without a page cache, nothing needs flushing when a file is closed. The kernel must not send a
/// flush then, because a process that closes the file would be unkillable while no server runs.
const OPEN_DIRECT_IO: u32 = 1 << 0;
const OPEN_NO_FLUSH: u32 = 1 << 5;
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
const OPEN_FLAGS: u32 = OPEN_DIRECT_IO | OPEN_NO_FLUSH | OPEN_PARALLEL_DIRECT_WRITES;

/// Flag in the handles of files that are open with `O_DSYNC`. Writes carry that flag themselves,
/// but discards and zeros have only the handle, which outlives this process. Handles are times in
/// nanoseconds, which leave the bit free.
const DURABLE_HANDLE: u64 = 1 << 63;

const ALLOCATE_KEEP_SIZE: u32 = 1 << 0;
const ALLOCATE_PUNCH_HOLE: u32 = 1 << 1;
const ALLOCATE_ZERO_RANGE: u32 = 1 << 4;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Destination of replies.
pub(crate) trait ReplySink {
    /// Sends one reply, the concatenation of all parts. Does not block.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;
}

/// Serves requests for the files that show volumes.
pub(crate) struct Server<'worker> {
    pub(crate) files: &'worker dyn Files,
    pub(crate) open: &'worker OpenFiles,
    pub(crate) counters: &'worker Counters,
    pub(crate) sink: &'worker dyn ReplySink,
    /// Called before an operation that may wait long for its data.
    pub(crate) before_wait: &'worker dyn Fn(),
    /// Called after each flush of a file that may have waited, with its success, before the flush
    /// is answered.
    pub(crate) flushed: &'worker dyn Fn(u64, bool),
}

impl Server<'_> {
    /// Serves one request. If the request needs a flush, everything else is done and the flush is
    /// returned for [`Server::serve_flushes`]; otherwise the request is answered. `scratch` has
    /// [`SCRATCH_BYTES`]; its contents are arbitrary. Fails only if the reply cannot be sent.
    pub(crate) fn serve(
        &self,
        header: Header,
        operation: &Operation<'_>,
        scratch: &mut [u8],
    ) -> io::Result<Option<Flush>> {
        let unique = header.unique;
        let answer = match *operation {
            Operation::Forget | Operation::Interrupt => return Ok(None),
            Operation::Read { offset, length } => {
                return self.serve_read(header, offset, length, scratch).map(|()| None);
            }
            Operation::ReadDirectory { after, bytes_max } => {
                return self.serve_listing(unique, after, bytes_max).map(|()| None);
            }
            // After this error, the kernel does not send the operation again.
            Operation::Unknown { .. } => {
                self.send(&Reply::failed(unique, Failure::NotImplemented))?;
                return Ok(None);
            }
            Operation::Write { offset, data, is_fua } => {
                match self.write(header, offset, data, is_fua) {
                    Ok(Written::All(byte_count)) => Ok(Reply::written(unique, byte_count)),
                    Ok(Written::ButFlushed(flush)) => return Ok(Some(flush)),
                    Err(failure) => Err(failure),
                }
            }
            Operation::Sync => match self.device(header) {
                Ok(device) => return Ok(Some(flush_of(header, None, device.as_ref()))),
                Err(failure) => {
                    self.counters.flushes.add(1);
                    Err(failure)
                }
            },
            Operation::Allocate { handle, offset, length, mode } => {
                match self.allocate(header, ByteRange::new(offset, length), mode) {
                    Ok(device) if handle & DURABLE_HANDLE != 0 => {
                        return Ok(Some(flush_of(header, None, device.as_ref())));
                    }
                    allocated => allocated.map(|_| Reply::done(unique)),
                }
            }
            ref other => {
                self.counters.others.add(1);
                self.answer_about_files(header, other)
            }
        };
        self.send(&answer.unwrap_or_else(|failure| self.failed(unique, failure)))?;
        Ok(None)
    }

    pub(crate) fn refuse(&self, header: Header, failure: Failure) -> io::Result<()> {
        self.send(&self.failed(header.unique, failure))
    }

    fn answer_about_files(
        &self,
        header: Header,
        operation: &Operation<'_>,
    ) -> Result<Reply, Failure> {
        let unique = header.unique;
        match *operation {
            Operation::Init { major, minor, max_readahead, flags } => {
                let terms = agree(major, minor, max_readahead, flags)?;
                Ok(Reply::init(unique, &terms))
            }
            Operation::Lookup { name } => {
                let node = self.look_up(header.node, name)?;
                Ok(Reply::entry(unique, &node))
            }
            Operation::GetAttributes => Ok(Reply::attributes(unique, &self.node(header)?)),
            Operation::SetAttributes { new_size, changes_owner_or_mode } => {
                let node = self.node(header)?;
                refuse_changes(&node, new_size, changes_owner_or_mode)
                    .inspect_err(|_| self.tell_of_refusal(header))?;
                Ok(Reply::attributes(unique, &node))
            }
            Operation::Open { to_write, is_durable } => {
                // The file mode does not keep root from opening it for writing.
                if to_write && self.is_only_read(header)? {
                    return Err(Failure::ReadOnly);
                }
                self.device(header)?;
                let handle = self.open.opened(header.node);
                let mark = if is_durable { DURABLE_HANDLE } else { 0 };
                Ok(Reply::opened(unique, handle | mark, OPEN_FLAGS))
            }
            Operation::Release { handle } => {
                self.open.closed(header.node, handle & !DURABLE_HANDLE);
                Ok(Reply::done(unique))
            }
            Operation::OpenDirectory => Ok(Reply::opened(unique, 0, 0)),
            Operation::FileSystemStatus => {
                let file_count = u64::try_from(self.files.list().len()).unwrap_or(u64::MAX);
                Ok(Reply::file_system_status(unique, file_count))
            }
            Operation::Seek { offset, whence } => {
                let found = seek(self.device(header)?.as_ref(), offset, whence)?;
                Ok(Reply::sought(unique, found))
            }
            _ => Ok(Reply::done(unique)),
        }
    }

    fn serve_read(
        &self,
        header: Header,
        offset: u64,
        length: u32,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        let unique = header.unique;
        self.counters.reads.add(1);
        let device = match self.device(header) {
            Ok(device) => device,
            Err(failure) => return self.send(&self.failed(unique, failure)),
        };
        self.prepare_to_wait(device.as_ref());
        let left = device.geometry().size_bytes.saturating_sub(offset);
        let length = u64::from(length).min(left);
        let Some(data_bytes) = usize::try_from(length).ok().filter(|&n| n <= DATA_BYTES_MAX) else {
            return self.send(&self.failed(unique, Failure::Invalid));
        };
        let reply = Reply::with_data(unique, data_bytes);
        if data_bytes == 0 {
            return self.send(&reply);
        }
        let range = ByteRange::new(offset, length);
        let scratch = &mut scratch[..range.scratch_bytes()];
        let mut sent = Ok(());
        let read = device.read_in_place(range, scratch, &mut |slices| {
            touch(slices);
            sent = send_with_data(self.sink, &reply, slices);
        });
        match read {
            Ok(()) => {
                self.counters.read_bytes.add(length);
                // No later reply would be sent, so the request is answered with an error.
                sent.or_else(|_| self.send(&self.failed(unique, Failure::Io)))
            }
            Err(error) => self.send(&self.failed(unique, Failure::from(error.kind))),
        }
    }

    /// Flushes a file once and answers `flushes`, which all belong to it.
    pub(crate) fn serve_flushes(&self, flushes: &[Flush]) -> io::Result<()> {
        let Some(first) = flushes.first() else { return Ok(()) };
        self.counters.flushes.add(u64::try_from(flushes.len()).unwrap_or(u64::MAX));
        let device = FileId::of_node(first.node).and_then(|id| self.files.by_id(id));
        let flushed = match device {
            Some(device) => device.flush().map_err(failure_of),
            None => Err(Failure::NoDevice),
        };
        if first.may_wait {
            (self.flushed)(first.node, flushed.is_ok());
        }
        let answers = flushes.iter().map(|flush| {
            self.send(&match (flushed, flush.written_bytes) {
                (Ok(()), None) => Reply::done(flush.unique),
                (Ok(()), Some(byte_count)) => Reply::written(flush.unique, byte_count),
                (Err(failure), _) => self.failed(flush.unique, failure),
            })
        });
        // A reply that cannot be sent does not prevent the others.
        answers.fold(Ok(()), Result::and)
    }

    /// Starts writeback for the next flush of a file.
    pub(crate) fn write_back(&self, node: u64) {
        if let Some(device) = FileId::of_node(node).and_then(|id| self.files.by_id(id)) {
            device.write_back();
        }
    }

    /// Writes up to the end of the file, as file systems do.
    fn write(
        &self,
        header: Header,
        offset: u64,
        data: &[u8],
        is_fua: bool,
    ) -> Result<Written, Failure> {
        self.counters.writes.add(1);
        let device = self.device(header)?;
        let left = device.geometry().size_bytes.saturating_sub(offset);
        let data = &data[..usize::try_from(left).unwrap_or(usize::MAX).min(data.len())];
        if data.is_empty() {
            return Err(Failure::TooBig);
        }
        let byte_count = u32::try_from(data.len()).map_err(|_| Failure::Invalid)?;
        self.prepare_to_wait(device.as_ref());
        device.write(offset, data).map_err(failure_of)?;
        self.counters.written_bytes.add(u64::from(byte_count));
        Ok(match is_fua {
            true => Written::ButFlushed(flush_of(header, Some(byte_count), device.as_ref())),
            false => Written::All(byte_count),
        })
    }

    fn prepare_to_wait(&self, device: &dyn BlockDevice) {
        if device.data_may_be_away() {
            (self.before_wait)();
        }
    }

    /// Discards a range, or zeroes it without writing data. The kernel guarantees zeros in the
    /// whole range of a discard, so partial blocks at its ends are written.
    fn allocate(
        &self,
        header: Header,
        range: ByteRange,
        mode: u32,
    ) -> Result<Arc<dyn BlockDevice>, Failure> {
        self.counters.zeroes.add(1);
        let device = self.device(header)?;
        let zeroes = match mode & !ALLOCATE_KEEP_SIZE {
            ALLOCATE_PUNCH_HOLE => Zeroes::Unmap,
            ALLOCATE_ZERO_RANGE => Zeroes::KeepAllocated,
            _ => return Err(Failure::NotSupported),
        };
        let size_bytes = device.geometry().size_bytes;
        if mode & ALLOCATE_KEEP_SIZE == 0 && !range.fits(size_bytes) {
            return Err(Failure::TooBig);
        }
        let length = range.length.min(size_bytes.saturating_sub(range.start));
        if length > 0 {
            let inside = ByteRange::new(range.start, length);
            device.write_zeroes(inside, zeroes).map_err(failure_of)?;
        }
        Ok(device)
    }

    fn serve_listing(&self, unique: u64, after: u64, bytes_max: u32) -> io::Result<()> {
        self.counters.others.add(1);
        let bytes_max = usize::try_from(bytes_max).unwrap_or(0).min(DATA_BYTES_MAX);
        let listing = list_directory(self.files, after, bytes_max);
        let reply = Reply::with_data(unique, listing.len());
        send_with_data(self.sink, &reply, &[IoSlice::new(&listing)])
    }

    fn look_up(&self, directory: u64, name: &[u8]) -> Result<Node, Failure> {
        if directory != ROOT_NODE {
            return Err(Failure::NoSuchFile);
        }
        let name = str::from_utf8(name).map_err(|_| Failure::NoSuchFile)?;
        let (id, device) = self.files.by_name(name).ok_or(Failure::NoSuchFile)?;
        Ok(self.file_node(id, device.as_ref()))
    }

    fn node(&self, header: Header) -> Result<Node, Failure> {
        if header.node == ROOT_NODE {
            return Ok(Node::Root);
        }
        let id = FileId::of_node(header.node).ok_or(Failure::NoSuchFile)?;
        let device = self.files.by_id(id).ok_or(Failure::NoSuchFile)?;
        Ok(self.file_node(id, device.as_ref()))
    }

    fn file_node(&self, id: FileId, device: &dyn BlockDevice) -> Node {
        let size_bytes = device.geometry().size_bytes;
        let is_read_only = device.is_read_only();
        Node::File { id, size_bytes, is_read_only, state: self.files.state(id) }
    }

    /// Logs advice, because the error number does not tell programs what to do instead.
    fn tell_of_refusal(&self, header: Header) {
        let mut entries = self.files.list().into_iter();
        let entry = entries.find(|entry| entry.id.node() == header.node);
        tracing::warn!(
            volume = entry.map(|entry| entry.name),
            "cannot change size, owner or mode of a volume's file; programs that truncate a file \
             first, such as cp or a shell's >, must write to the attached device, or use dd \
             conv=notrunc; resize with memlane volume resize"
        );
    }

    fn device(&self, header: Header) -> Result<Arc<dyn BlockDevice>, Failure> {
        let id = FileId::of_node(header.node).ok_or(Failure::NoSuchFile)?;
        self.files.by_id(id).ok_or(Failure::NoDevice)
    }

    fn is_only_read(&self, header: Header) -> Result<bool, Failure> {
        let is_taken = || FileId::of_node(header.node).is_some_and(|id| self.files.is_taken(id));
        let is_let_in = self.open.is_let_in(header.node);
        Ok(self.device(header)?.is_read_only() || (!is_let_in && is_taken()))
    }

    fn failed(&self, unique: u64, failure: Failure) -> Reply {
        self.counters.count_error();
        Reply::failed(unique, failure)
    }

    fn send(&self, reply: &Reply) -> io::Result<()> {
        self.sink.send(&[IoSlice::new(reply.bytes())])
    }
}

/// Result of a write.
enum Written {
    /// Number of bytes written, up to the end of the file.
    All(u32),
    /// The write is answered after this flush.
    ButFlushed(Flush),
}

fn flush_of(header: Header, written_bytes: Option<u32>, device: &dyn BlockDevice) -> Flush {
    let may_wait = device.write_cache() == WriteCache::Volatile;
    let Header { unique, node, .. } = header;
    Flush { unique, node, written_bytes, may_wait, entry: None }
}

/// Negotiates the parameters of the connection.
fn agree(major: u32, minor: u32, max_readahead: u32, flags: u64) -> Result<Terms, Failure> {
    // A newer kernel gets our version in the reply and negotiates again.
    let too_old = major < MAJOR || (major == MAJOR && minor < MINOR_MIN);
    if too_old || (major == MAJOR && flags & init_flag::MAX_PAGES == 0) {
        return Err(Failure::Protocol);
    }
    Ok(Terms {
        major: MAJOR,
        minor: if major == MAJOR { minor.min(MINOR) } else { MINOR },
        max_readahead,
        flags: flags & init_flag::WANTED,
        background_max: BACKGROUND_MAX,
        write_bytes_max: u32::try_from(DATA_BYTES_MAX).expect("a constant below 4 GiB"),
        pages_max: u16::try_from(DATA_BYTES_MAX / 4096).expect("a constant below 2^16"),
    })
}

/// Refuses changes of size, owner or mode, which are made by the volume's owner, not through its
/// file. Changes of times are accepted and ignored.
fn refuse_changes(node: &Node, new_size: Option<u64>, owner_or_mode: bool) -> Result<(), Failure> {
    let changes_size = match (*node, new_size) {
        (Node::File { size_bytes, .. }, Some(new_size)) => new_size != size_bytes,
        (Node::Root, new_size) => new_size.is_some(),
        (Node::File { .. }, None) => false,
    };
    match (changes_size, owner_or_mode) {
        (true, _) => Err(Failure::NotSupported),
        (false, true) => Err(Failure::NotPermitted),
        (false, false) => Ok(()),
    }
}

fn seek(device: &dyn BlockDevice, offset: u64, whence: u32) -> Result<u64, Failure> {
    const EXTENTS_PER_CALL_MAX: usize = 64;
    let wants_hole = match whence {
        SEEK_DATA => false,
        SEEK_HOLE => true,
        _ => return Err(Failure::Invalid),
    };
    let size_bytes = device.geometry().size_bytes;
    if offset >= size_bytes {
        return Err(Failure::NoSuchAddress);
    }
    let mut at = offset;
    while at < size_bytes {
        let rest = ByteRange::new(at, size_bytes - at);
        let extents = device.extents(rest, EXTENTS_PER_CALL_MAX).map_err(failure_of)?;
        let found = extents.iter().find(|extent| (extent.kind == ExtentKind::Hole) == wants_hole);
        if let Some(extent) = found {
            return Ok(extent.range.start);
        }
        let end = extents.last().and_then(|extent| extent.range.end()).unwrap_or(size_bytes);
        assert!(end > at, "a device listed extents that do not advance");
        at = end;
    }
    // The end of a file counts as a hole.
    if wants_hole { Ok(size_bytes) } else { Err(Failure::NoSuchAddress) }
}

/// Lists the entries after offset `after`: the directory itself, its parent, then files by number.
fn list_directory(files: &dyn Files, after: u64, bytes_max: usize) -> Vec<u8> {
    let mut entries = files.list();
    entries.retain(|entry| is_file_name(&entry.name));
    entries.sort_unstable_by_key(|entry| entry.id);
    let dots = [".", ".."].into_iter().zip(1..);
    let dots = dots.map(|(name, next)| (ROOT_NODE, next, KIND_DIRECTORY, name));
    let files = entries.iter().map(|entry| {
        let node = entry.id.node();
        (node, node + 1, KIND_FILE, entry.name.as_str())
    });
    let mut listing = Vec::new();
    for (node, next, kind, name) in dots.chain(files).filter(|&(_, next, _, _)| next > after) {
        let entry = DirectoryEntry { node, next, kind, name };
        if !push_directory_entry(&mut listing, bytes_max, &entry) {
            break;
        }
    }
    listing
}

/// Reads a byte of each page, so that the kernel finds all pages mapped. If a page fault happens
/// while the kernel reads the reply of a process that is being killed, the kernel fails the request
/// with `EIO` (Linux, `fuse_copy_fill`).
fn touch(slices: &[IoSlice<'_>]) {
    for slice in slices {
        let last = slice.last();
        let pages = slice.iter().step_by(BLOCK_BYTES).chain(last);
        pages.for_each(|byte| {
            std::hint::black_box(*byte);
        });
    }
}

/// Sends a reply and its data in one system call, without copying the data.
fn send_with_data(sink: &dyn ReplySink, reply: &Reply, slices: &[IoSlice<'_>]) -> io::Result<()> {
    // Most reads are of one block, and initializing the whole array would dominate their cost.
    const PARTS_FEW: usize = 4;
    if slices.len() < PARTS_FEW {
        send_parts::<PARTS_FEW>(sink, reply, slices)
    } else {
        send_parts::<PARTS_MAX>(sink, reply, slices)
    }
}

fn send_parts<const COUNT: usize>(
    sink: &dyn ReplySink,
    reply: &Reply,
    slices: &[IoSlice<'_>],
) -> io::Result<()> {
    let mut parts = [IoSlice::new(&[]); COUNT];
    parts[0] = IoSlice::new(reply.bytes());
    parts[1..=slices.len()].copy_from_slice(slices);
    sink.send(&parts[..=slices.len()])
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failure_of(error: DeviceError) -> Failure {
    if error.kind == DeviceErrorKind::Corrupt {
        tracing::error!(%error, "a volume holds damaged data");
    }
    Failure::from(error.kind)
}

#[cfg(test)]
mod tests;
