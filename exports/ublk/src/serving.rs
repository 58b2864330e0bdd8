//! Translation of one request of the driver to calls of a [`BlockDevice`].

use std::io;

use block_device::{
    BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, WriteCache, Zeroes,
};
use kernel::{UblkOperation, UblkRequest};

/// Maximum length of a read or write: the limit of `read_in_place`.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Size of the scratch buffer. A request with partial blocks at both ends covers up to two more
/// blocks.
const SCRATCH_BYTES: usize = REQUEST_BYTES_MAX as usize + 2 * BLOCK_BYTES;

/// Error of a request, by the error numbers of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Io,
    NotPermitted,
    NoSpace,
    NotSupported,
}

impl Failure {
    fn errno(self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::Io => 5,
            Self::NoSpace => 28,
            Self::NotSupported => 95,
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        match error.kind {
            DeviceErrorKind::NoSpace => Self::NoSpace,
            DeviceErrorKind::ReadOnly => Self::NotPermitted,
            DeviceErrorKind::OutOfRange
            | DeviceErrorKind::TooLong
            | DeviceErrorKind::Gone
            | DeviceErrorKind::Corrupt
            | DeviceErrorKind::NotDurable
            | DeviceErrorKind::NoSnapshot => Self::Io,
        }
    }
}

/// Result of a request: the number of transferred bytes, or an error.
pub(crate) type Outcome = Result<u64, Failure>;

/// Converts the result for the driver.
pub(crate) fn result_of(outcome: Outcome) -> i32 {
    match outcome {
        Ok(bytes) => i32::try_from(bytes).expect("requests that move bytes are short"),
        Err(failure) => -failure.errno(),
    }
}

/// Thread that must serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The queue's thread, because the request does not block.
    Here,
    /// A thread that may wait for absent data, and then flushes if required.
    Elsewhere,
    /// The queue's thread, followed by a flush on a thread that may wait for a disk.
    Flush,
}

/// Decides which thread serves a request, so that no request waits for another one's I/O.
pub(crate) fn work_of(request: &UblkRequest, device: &dyn BlockDevice) -> Work {
    let moves_data = matches!(request.operation(), UblkOperation::Read | UblkOperation::Write);
    if moves_data && device.data_may_be_away() && may_need_data(request) {
        return Work::Elsewhere;
    }
    match wants_flush(request) && device.write_cache() == WriteCache::Volatile {
        true => Work::Flush,
        false => Work::Here,
    }
}

pub(crate) fn wants_flush(request: &UblkRequest) -> bool {
    match request.operation() {
        UblkOperation::Flush => true,
        UblkOperation::Write | UblkOperation::WriteZeroes => request.is_fua(),
        _ => false,
    }
}

/// Returns whether the request may need stored data: reads do, and writes of partial blocks.
fn may_need_data(request: &UblkRequest) -> bool {
    let is_cut = |bytes: u64| !bytes.is_multiple_of(BLOCK_BYTES as u64);
    request.operation() == UblkOperation::Read
        || is_cut(request.start_bytes())
        || is_cut(request.length_bytes())
}

/// Buffers with which one thread serves requests.
pub(crate) struct Scratch {
    bytes: Box<[u8]>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; SCRATCH_BYTES].into_boxed_slice() }
    }

    /// Serves a request, except for its flush.
    pub(crate) fn serve(&mut self, request: &mut UblkRequest, device: &dyn BlockDevice) -> Outcome {
        let range = ByteRange::new(request.start_bytes(), request.length_bytes());
        match request.operation() {
            UblkOperation::Read => self.read(request, range, device),
            UblkOperation::Write => self.write(request, range, device),
            UblkOperation::Flush => Ok(0),
            UblkOperation::Discard => Ok(device.discard(range).map(|()| 0)?),
            UblkOperation::WriteZeroes => {
                let zeroes = match request.keeps_allocated() {
                    true => Zeroes::KeepAllocated,
                    false => Zeroes::Unmap,
                };
                Ok(device.write_zeroes(range, zeroes).map(|()| 0)?)
            }
            UblkOperation::Other(_) => Err(Failure::NotSupported),
        }
    }

    fn read(
        &mut self,
        request: &mut UblkRequest,
        range: ByteRange,
        device: &dyn BlockDevice,
    ) -> Outcome {
        if range.length > u64::from(REQUEST_BYTES_MAX) {
            return Err(Failure::Io);
        }
        let mut given: io::Result<()> = Ok(());
        device.read_in_place(range, &mut self.bytes[..range.scratch_bytes()], &mut |slices| {
            given = request.give_data(0, slices);
        })?;
        self.moved(request, given, range)
    }

    fn write(
        &mut self,
        request: &mut UblkRequest,
        range: ByteRange,
        device: &dyn BlockDevice,
    ) -> Outcome {
        if range.length > u64::from(REQUEST_BYTES_MAX) {
            return Err(Failure::Io);
        }
        let length = usize::try_from(range.length).expect("it is short");
        let taken = request.take_data(0, &mut self.bytes[..length]);
        self.moved(request, taken, range)?;
        device.write(range.start, &self.bytes[..length])?;
        Ok(range.length)
    }

    fn moved(&self, request: &UblkRequest, moved: io::Result<()>, range: ByteRange) -> Outcome {
        match moved {
            Ok(()) => Ok(range.length),
            Err(error) => {
                let operation = request.operation();
                tracing::error!(?operation, %range, %error, "cannot copy data of a ublk request");
                Err(Failure::Io)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block_device::Action;

    #[track_caller]
    fn check(kind: DeviceErrorKind, errno: i32) {
        let error = DeviceError::new(kind, Action::Write, ByteRange::new(0, 1));
        assert_eq!(result_of(Err(error.into())), -errno);
    }

    #[test]
    fn failures_reach_the_kernel_as_it_knows_them() {
        check(DeviceErrorKind::NoSpace, 28);
        check(DeviceErrorKind::ReadOnly, 1);
        check(DeviceErrorKind::NotDurable, 5);
        check(DeviceErrorKind::Corrupt, 5);
    }

    #[test]
    fn a_request_that_moved_bytes_says_how_many() {
        assert_eq!(result_of(Ok(4096)), 4096);
    }
}
