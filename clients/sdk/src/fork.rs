//! Detection of forked children, without a system call for each request.
//!
//! A child has copies of its parent's memory and sockets, and must not use them: both processes
//! would write to the same lanes. A count of forks is kept in a page that the kernel clears in
//! every child, however it was created: `fork`, `_Fork`, `clone`, a system call. The first user of
//! the library that finds the page cleared increments the count and closes the inherited sockets,
//! so that connections end with the parent. After `fork` a handler does that before `fork` returns.
//! Children that share their parent's memory (`vfork`) share the page and the parent's connections.
//! They open no connections, because the descriptors would not exist in the parent.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::process::getpid;

/// Maximum number of sockets that children close immediately. Further ones are closed when the
/// child exits.
const SOCKETS_MAX: usize = 1024;

/// Size of the largest page on any platform.
const PAGE_BYTES: usize = 64 << 10;

/// Count of the first process.
const FIRST: u64 = 1;

/// State in the page that the kernel clears in children.
struct Marks {
    /// Fork count; zero in a child that has not detected the fork yet.
    count: AtomicU64,
    /// Id of the process that set the count.
    process: AtomicI32,
}

/// State of all processes before the detection is enabled.
static BEFORE_WATCH: Marks = Marks { count: AtomicU64::new(FIRST), process: AtomicI32::new(0) };

static MARKS: AtomicPtr<Marks> = AtomicPtr::new((&raw const BEFORE_WATCH).cast_mut());

/// Fork count in memory that children inherit; never less than that of the process.
static INHERITED: AtomicU64 = AtomicU64::new(FIRST);

static SOCKETS: [Place; SOCKETS_MAX] = [const { Place::new() }; SOCKETS_MAX];

/// Table entry of a socket.
struct Place {
    /// Descriptor in the lower half, and the lower half of its process's fork count above it; zero
    /// if the entry is free.
    socket: AtomicU64,
    /// Inode of the socket, unique on the host. It detects that a program closed the descriptor and
    /// reused its number.
    inode: AtomicU64,
}

impl Place {
    const fn new() -> Self {
        Self { socket: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }
}

/// Number of forks between the first process that used the library and this one, plus one.
#[inline]
pub(crate) fn count() -> u64 {
    match marks().count.load(Ordering::Relaxed) {
        0 => notice(),
        count => count,
    }
}

/// Returns whether this process is a child that was created without fork handlers, and has not used
/// the library yet. Its memory may contain locks, of any library, that threads of the parent held.
#[inline]
pub fn is_untold_child() -> bool {
    marks().count.load(Ordering::Relaxed) == 0
}

/// Returns whether this process shares the memory of another one, as a child of `vfork` does.
/// Requires [`tell_children_apart`]; makes a system call.
pub fn is_guest() -> bool {
    let process = marks().process.load(Ordering::Relaxed);
    process != 0 && process != getpid().as_raw_pid()
}

#[inline]
fn marks() -> &'static Marks {
    // PAIRS-WITH: tell_children_apart, "the marks are in their page"
    let marks = MARKS.load(Ordering::Acquire);
    // SAFETY:
    // - alive, aligned, initialised: a static, or the start of a page that is never unmapped.
    // - exclusive: it is only used as atomics.
    unsafe { &*marks }
}

/// Enables the detection of forked children. Further calls have no effect. Fails if the host does
/// not support it; then no volume can be opened.
pub fn tell_children_apart() -> io::Result<()> {
    static WATCHED: OnceLock<Result<(), i32>> = OnceLock::new();
    let watched = WATCHED.get_or_init(|| {
        let page = emptied_page().map_err(Errno::raw_os_error)?;
        let marks = Marks {
            count: AtomicU64::new(INHERITED.load(Ordering::Relaxed)),
            process: AtomicI32::new(getpid().as_raw_pid()),
        };
        // SAFETY:
        // - alive, aligned, in bounds: the page was just mapped, and is this function's alone.
        unsafe { page.write(marks) };
        // PAIRS-WITH: marks, "the marks are in their page"
        MARKS.store(page, Ordering::Release);
        // SAFETY:
        // - same type: the handler is a function of C without arguments, as pthread_atfork(3) asks.
        // - alive: it is part of this library, which the registration goes with.
        match unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) } {
            0 => Ok(()),
            error => Err(error),
        }
    });
    watched.map_err(io::Error::from_raw_os_error)
}

/// Maps a page that is cleared in each child that gets a copy of it.
fn emptied_page() -> Result<*mut Marks, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY:
    // - in bounds: the kernel chooses where it lies.
    let page =
        unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, protection, MapFlags::PRIVATE) }?;
    // SAFETY:
    // - alive, exclusive: it was just mapped, and nothing is in it.
    unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }?;
    Ok(page.cast())
}

/// A socket that children close immediately, unless they share the parent's memory.
pub(crate) struct OwnSocket {
    socket: Option<OwnedFd>,
    /// Fork count of the process that may use the socket.
    forks: u64,
}

impl OwnSocket {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let forks = count();
        remember(socket.as_fd(), forks);
        Self { socket: Some(socket), forks }
    }
}

impl AsFd for OwnSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        if self.forks == count() {
            forget(socket.as_fd(), self.forks);
        } else {
            // The socket was closed when the process started, and its number may have been reused.
            std::mem::forget(socket);
        }
    }
}

/// Makes children close a socket, until [`forget`].
fn remember(socket: BorrowedFd<'_>, forks: u64) {
    let Ok(status) = fstat(socket) else { return };
    let word = packed(socket.as_raw_fd(), forks);
    let place = SOCKETS.iter().find(|place| {
        let taken = place.socket.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    });
    if let Some(place) = place {
        place.inode.store(status.st_ino, Ordering::Relaxed);
    }
}

/// Must be called before the socket is closed.
fn forget(socket: BorrowedFd<'_>, forks: u64) {
    let word = packed(socket.as_raw_fd(), forks);
    if let Some(place) = SOCKETS.iter().find(|it| it.socket.load(Ordering::Relaxed) == word) {
        place.inode.store(0, Ordering::Relaxed);
        place.socket.store(0, Ordering::Relaxed);
    }
}

fn packed(socket: RawFd, count: u64) -> u64 {
    (count & u64::from(u32::MAX)) << 32 | u64::from(socket.cast_unsigned())
}

/// Increments the count in a child. Several threads of a child without fork handlers may call this
/// concurrently.
#[cold]
fn notice() -> u64 {
    // PAIRS-WITH: notice, "the count was found to be new"
    let before = INHERITED.load(Ordering::Acquire);
    let known = marks().count.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    close_inherited(before);
    let now = before + 1;
    marks().process.store(getpid().as_raw_pid(), Ordering::Relaxed);
    // PAIRS-WITH: notice, "the count was found to be new"
    INHERITED.fetch_max(now, Ordering::AcqRel);
    match marks().count.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => now,
        Err(other) => other,
    }
}

/// Closes sockets of the parent. Calls only async-signal-safe functions. Sockets that other threads
/// of this process opened meanwhile have a higher count and stay open.
fn close_inherited(before: u64) {
    for place in &SOCKETS {
        let word = place.socket.load(Ordering::Relaxed);
        if word == 0 || word >> 32 > before & u64::from(u32::MAX) {
            continue;
        }
        let inode = place.inode.load(Ordering::Relaxed);
        let taken = place.socket.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
        let number = u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        if taken.is_ok() {
            close_if_it_is(number.cast_signed(), inode);
        }
    }
}

fn close_if_it_is(number: RawFd, inode: u64) {
    // SAFETY:
    // - in bounds: only numbers of sockets are remembered, which are not negative.
    // - alive: a number that is not open is refused by the kernel.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    if fstat(socket).is_ok_and(|status| status.st_ino == inode) {
        // SAFETY:
        // - alive, one caller: it is the parent's socket, taken out of the table above, and values
        //   of this process that have its number see by the count not to close it again.
        unsafe { rustix::io::close(number) };
    }
}

extern "C" fn after_fork_in_child() {
    count();
}
