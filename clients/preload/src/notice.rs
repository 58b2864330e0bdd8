//! Notices for the user: once for each reason on standard error, and each time in the report.

use std::fmt::{self, Write};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};

use crate::settings::Settings;
use crate::sys;
use crate::table::{self, Entry};
use crate::text::Text;

const MESSAGE_BYTES_MAX: usize = 512;

/// Why a program's requests go through the kernel although they could be thought not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No ring can be had.
    NoRing,
    /// A volume is not for this user.
    Refused,
    /// The file is mapped into memory.
    Mapped,
    /// The program makes its requests by another interface.
    IoUring,
    /// More devices than there is room for.
    TooMany,
}

impl Reason {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

static SAID: AtomicU32 = AtomicU32::new(0);

/// Says, the first time, why requests go through the kernel.
pub(crate) fn say(reason: Reason, detail: fmt::Arguments<'_>) {
    report(detail);
    let was_said = SAID.fetch_or(reason.bit(), Ordering::Relaxed) & reason.bit() != 0;
    if was_said || Settings::get().quiet || matches!(table::get(2), Entry::Bypassed(_)) {
        return;
    }
    let mut text = Text::<MESSAGE_BYTES_MAX>::new();
    // What does not fit is left out.
    let _ = writeln!(text, "memlane: {detail}");
    sys::complain(text.bytes());
}

/// Adds a line about `fd` to the report.
pub(crate) fn report_descriptor(fd: RawFd, what: fmt::Arguments<'_>) {
    report(format_args!("descriptor {fd}: {what}"));
}

/// Adds a line to the report, if there is one. A failure is told nowhere.
pub(crate) fn report(what: fmt::Arguments<'_>) {
    let Some(path) = Settings::get().report else { return };
    let mut text = Text::<MESSAGE_BYTES_MAX>::new();
    // What does not fit is left out.
    let _ = writeln!(text, "process {}: {what}", rustix::process::getpid());
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::from(0o644)) else { return };
    // One write: lines of several processes do not mix.
    let _ = rustix::io::write(file, text.bytes());
}
