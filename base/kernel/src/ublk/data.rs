//! A request of a device, and its data.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::pwritev;

use crate::ublk::abi::{Descriptor, UblkOperation, data_offset};
use crate::ublk::sys::Buffers;

/// Method by which the data of requests is copied between the kernel and this process.
#[derive(Debug)]
pub(crate) enum DataPath {
    /// The server reads and writes the data in the channel, at an offset for each request.
    Channel(File),
    /// The driver copies the data from and to registered buffers.
    Buffers(Buffers),
}

/// A request that this process must answer. There is at most one for each tag of a queue. It must
/// be returned to its queue, or the client waits forever.
#[derive(Debug)]
pub struct UblkRequest {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    descriptor: Descriptor,
    data: Arc<DataPath>,
}

impl UblkRequest {
    pub(crate) fn new(queue: u16, tag: u16, descriptor: Descriptor, data: &Arc<DataPath>) -> Self {
        Self { queue, tag, descriptor, data: Arc::clone(data) }
    }

    /// Number of the queue to which it must be returned.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    pub fn operation(&self) -> UblkOperation {
        self.descriptor.operation()
    }

    pub fn start_bytes(&self) -> u64 {
        self.descriptor.start_bytes()
    }

    pub fn length_bytes(&self) -> u64 {
        self.descriptor.length_bytes()
    }

    /// Returns whether a write must be on stable storage before it is acknowledged.
    pub fn is_fua(&self) -> bool {
        self.descriptor.is_fua()
    }

    /// Returns whether zeroed blocks must stay allocated.
    pub fn keeps_allocated(&self) -> bool {
        self.descriptor.keeps_allocated()
    }

    /// Reads data of a write request into `into`, from byte `offset` of the request on.
    pub fn take_data(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match &*self.data {
            DataPath::Channel(channel) => {
                channel.read_exact_at(into, data_offset(self.queue, self.tag, offset))
            }
            DataPath::Buffers(buffers) => {
                buffers.copy_out(self.tag, in_memory(offset), into);
                Ok(())
            }
        }
    }

    /// Passes data of a read request to the kernel, from byte `offset` of the request on. `slices`
    /// are concatenated.
    pub fn give_data(&mut self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        match &*self.data {
            DataPath::Channel(channel) => {
                let place = data_offset(self.queue, self.tag, offset);
                let length: usize = slices.iter().map(|slice| slice.len()).sum();
                let given = pwritev(channel, slices, place)?;
                match given == length {
                    true => Ok(()),
                    false => Err(io::ErrorKind::WriteZero.into()),
                }
            }
            DataPath::Buffers(buffers) => {
                let mut offset = in_memory(offset);
                for slice in slices {
                    buffers.copy_in(self.tag, offset, slice);
                    offset += slice.len();
                }
                Ok(())
            }
        }
    }
}

fn in_memory(offset: u64) -> usize {
    usize::try_from(offset).expect("requests fit into memory")
}
