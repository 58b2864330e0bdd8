//! Request results as errno values.

use block_device::{Action, DeviceError, DeviceErrorKind};
use rustix::io::Errno;

pub(crate) const DONE: u32 = 0;

/// Unknown operation or invalid length.
pub(crate) fn invalid() -> u32 {
    number(Errno::INVAL)
}

/// No thread could be started for a request that may block.
pub(crate) fn no_thread() -> u32 {
    number(Errno::NOMEM)
}

pub(crate) fn of_device(error: &DeviceError) -> u32 {
    number(match error.kind {
        DeviceErrorKind::OutOfRange => match error.action {
            // The same error as for a write past the end of any block device.
            Action::Write | Action::WriteZeroes => Errno::NOSPC,
            _ => Errno::INVAL,
        },
        DeviceErrorKind::TooLong | DeviceErrorKind::NoSnapshot => Errno::INVAL,
        DeviceErrorKind::NoSpace => Errno::NOSPC,
        DeviceErrorKind::Gone => Errno::NODEV,
        DeviceErrorKind::Corrupt | DeviceErrorKind::NotDurable => Errno::IO,
        DeviceErrorKind::ReadOnly => Errno::ROFS,
    })
}

fn number(errno: Errno) -> u32 {
    u32::try_from(errno.raw_os_error()).expect("error numbers are positive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use block_device::ByteRange;

    #[track_caller]
    fn check(kind: DeviceErrorKind, action: Action, expected: Errno) {
        let error = DeviceError::new(kind, action, ByteRange::new(0, 1));
        assert_eq!(of_device(&error), number(expected));
    }

    #[test]
    fn each_kind_of_device_error_has_its_number() {
        check(DeviceErrorKind::OutOfRange, Action::Read, Errno::INVAL);
        check(DeviceErrorKind::OutOfRange, Action::Discard, Errno::INVAL);
        check(DeviceErrorKind::OutOfRange, Action::Write, Errno::NOSPC);
        check(DeviceErrorKind::OutOfRange, Action::WriteZeroes, Errno::NOSPC);
        check(DeviceErrorKind::TooLong, Action::Read, Errno::INVAL);
        check(DeviceErrorKind::NoSpace, Action::Write, Errno::NOSPC);
        check(DeviceErrorKind::Gone, Action::Flush, Errno::NODEV);
        check(DeviceErrorKind::Corrupt, Action::Read, Errno::IO);
        check(DeviceErrorKind::NotDurable, Action::Flush, Errno::IO);
        check(DeviceErrorKind::ReadOnly, Action::Write, Errno::ROFS);
        check(DeviceErrorKind::NoSnapshot, Action::ListChanges, Errno::INVAL);
    }
}
