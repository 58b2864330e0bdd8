//! Error replies to requests.

use block_device::{Action, DeviceError, DeviceErrorKind};

use crate::wire::{Errno, cut};

/// Maximum length of an error message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256;

/// A failed request. The connection continues.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Errno::Invalid, message)
    }

    /// Message for people, cut to [`MESSAGE_BYTES_MAX`].
    pub(crate) fn message(&self) -> &str {
        cut(&self.message, MESSAGE_BYTES_MAX)
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let errno = match error.kind {
            DeviceErrorKind::OutOfRange => past_the_end(error.action),
            DeviceErrorKind::TooLong | DeviceErrorKind::NoSnapshot => Errno::Invalid,
            DeviceErrorKind::NoSpace => Errno::NoSpace,
            DeviceErrorKind::Gone => Errno::Shutdown,
            DeviceErrorKind::Corrupt | DeviceErrorKind::NotDurable => Errno::Io,
            DeviceErrorKind::ReadOnly => Errno::NotPermitted,
        };
        Self::new(errno, error.to_string())
    }
}

/// Returns the errno for a range past the end of the export. The protocol demands `ENOSPC` for
/// writes.
pub(crate) fn past_the_end(action: Action) -> Errno {
    match action {
        Action::Write | Action::WriteZeroes => Errno::NoSpace,
        Action::Read
        | Action::Discard
        | Action::Flush
        | Action::ListExtents
        | Action::ListChanges => Errno::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block_device::ByteRange;

    #[track_caller]
    fn check(kind: DeviceErrorKind, action: Action, expected: Errno) {
        let failure = Failure::from(DeviceError::new(kind, action, ByteRange::new(0, 1)));
        assert_eq!(failure.errno, expected);
        assert!(failure.message().starts_with("cannot "));
    }

    #[test]
    fn each_kind_of_device_error_has_its_number() {
        check(DeviceErrorKind::OutOfRange, Action::Read, Errno::Invalid);
        check(DeviceErrorKind::OutOfRange, Action::Discard, Errno::Invalid);
        check(DeviceErrorKind::OutOfRange, Action::Write, Errno::NoSpace);
        check(DeviceErrorKind::OutOfRange, Action::WriteZeroes, Errno::NoSpace);
        check(DeviceErrorKind::TooLong, Action::Read, Errno::Invalid);
        check(DeviceErrorKind::NoSpace, Action::Write, Errno::NoSpace);
        check(DeviceErrorKind::Gone, Action::Flush, Errno::Shutdown);
        check(DeviceErrorKind::Corrupt, Action::Read, Errno::Io);
        check(DeviceErrorKind::ReadOnly, Action::Write, Errno::NotPermitted);
        check(DeviceErrorKind::NoSnapshot, Action::ListChanges, Errno::Invalid);
        check(DeviceErrorKind::NotDurable, Action::Flush, Errno::Io);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::invalid("ä".repeat(200) + "b");
        assert_eq!(failure.message(), "ä".repeat(MESSAGE_BYTES_MAX / 2));
    }
}
