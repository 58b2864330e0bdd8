//! Messages to the user: once for each reason on standard error, and always in the report.

use std::fmt::{self, Write};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};

use crate::settings::Settings;
use crate::sys;
use crate::table::{self, Entry};
use crate::text::Text;

const MESSAGE_BYTES_MAX: usize = 512;

/// Reason for which a program's requests unexpectedly go through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No ring is available.
    NoRing,
    /// The user may not use a volume.
    Refused,
    /// The file is mapped into memory.
    Mapped,
    /// The program uses another interface for I/O.
    IoUring,
    /// The table of devices is full.
    TooMany,
}

impl Reason {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

static SAID: AtomicU32 = AtomicU32::new(0);

/// Prints why requests go through the kernel, the first time for each reason.
pub(crate) fn say(reason: Reason, detail: fmt::Arguments<'_>) {
    report(detail);
    let was_said = SAID.fetch_or(reason.bit(), Ordering::Relaxed) & reason.bit() != 0;
    if was_said || Settings::get().quiet || matches!(table::get(2), Entry::Bypassed(_)) {
        return;
    }
    let mut text = Text::<MESSAGE_BYTES_MAX>::new();
    // A message that is too long is truncated.
    let _ = writeln!(text, "memlane: {detail}");
    sys::complain(text.bytes());
}

/// Adds a line about `fd` to the report.
pub(crate) fn report_descriptor(fd: RawFd, what: fmt::Arguments<'_>) {
    report(format_args!("descriptor {fd}: {what}"));
}

/// Appends a line to the report, if there is one. Failures are ignored.
pub(crate) fn report(what: fmt::Arguments<'_>) {
    let Some(path) = Settings::get().report else { return };
    let mut text = Text::<MESSAGE_BYTES_MAX>::new();
    // A message that is too long is truncated.
    let _ = writeln!(text, "process {}: {what}", rustix::process::getpid());
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::from(0o644)) else { return };
    // A single write, so that lines of concurrent processes do not interleave.
    let _ = rustix::io::write(file, text.bytes());
}
