//! Control device: creates, starts, stops and recovers devices.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::process;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

use crate::ublk::abi::{
    CONTROL_PATH, ControlCommand, DEVICE_BYTES, SECTOR_SHIFT, UblkDevice, UblkFeatures, UblkShape,
    control_command,
};
use crate::ublk::sys::{EntryWithMemory, run};

/// The driver's control device.
///
/// Every call waits for the kernel, and some also for other processes: starting a device waits
/// until all of its queues are served, and deleting one until its channel is closed everywhere.
/// Some kernels have bugs that make calls hang, so callers may need to wait on another thread.
#[derive(Debug)]
pub struct UblkControl {
    file: File,
    features: Option<UblkFeatures>,
}

impl UblkControl {
    /// Opens the control device. Fails with `NotFound` if the driver is missing or hidden.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL_PATH)?;
        // Initially assumes the command codes of newer drivers, which support the query.
        let mut control = Self { file, features: Some(UblkFeatures::default()) };
        let answer = control.ask(ControlCommand::GetFeatures, UblkDevice::ANY_ID, Box::new([0; 8]));
        control.features = match answer {
            Ok(bytes) => {
                let bytes: [u8; 8] = bytes.as_ref().try_into().expect("as many as were sent");
                Some(UblkFeatures(u64::from_ne_bytes(bytes)))
            }
            Err(error) if is_unknown_command(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(control)
    }

    /// Features of the driver. `None` for drivers before 6.5, which cannot report them; for these,
    /// the features of a new device show what was granted.
    pub fn features(&self) -> Option<UblkFeatures> {
        self.features
    }

    /// Creates a device, and returns its granted parameters. The device cannot be opened until it
    /// is started.
    pub fn add(&self, device: &UblkDevice) -> io::Result<UblkDevice> {
        let bytes = Box::new(device.to_bytes());
        self.ask(ControlCommand::AddDevice, device.id, bytes).map(|bytes| device_in(&bytes))
    }

    /// Describes a device. Fails with `NotFound` if it does not exist.
    pub fn info(&self, id: u32) -> io::Result<UblkDevice> {
        let bytes = Box::new([0; DEVICE_BYTES]);
        let answer = self.ask(ControlCommand::GetInfo, id, bytes);
        answer.map(|bytes| device_in(&bytes)).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => io::ErrorKind::NotFound.into(),
            _ => error,
        })
    }

    /// Sets the parameters of a device that was not started yet.
    pub fn shape(&self, id: u32, shape: &UblkShape) -> io::Result<()> {
        self.ask(ControlCommand::SetParameters, id, Box::new(shape.to_bytes())).map(|_| ())
    }

    /// Starts the device, so that programs can open it. This process must serve all of its queues.
    pub fn start(&self, id: u32) -> io::Result<()> {
        self.tell(ControlCommand::StartDevice, id, u64::from(process::id()))
    }

    /// Fails all requests from now on, and removes the block device.
    pub fn stop(&self, id: u32) -> io::Result<()> {
        self.tell(ControlCommand::StopDevice, id, 0)
    }

    /// Stops a device as [`UblkControl::stop`] does. Fails with `ResourceBusy` while a process has
    /// the device open. Requires [`UblkFeatures::SAFE_STOP`].
    pub fn try_stop(&self, id: u32) -> io::Result<()> {
        self.tell(ControlCommand::TryStopDevice, id, 0)
    }

    pub fn delete(&self, id: u32) -> io::Result<()> {
        self.tell(ControlCommand::DeleteDevice, id, 0)
    }

    /// Starts to take over a device whose server has exited. Fails with `ResourceBusy` while some
    /// of that server's threads still exist.
    pub fn start_recovery(&self, id: u32) -> io::Result<()> {
        self.tell(ControlCommand::StartRecovery, id, 0)
    }

    /// Completes a takeover, when this process serves all queues. Waiting requests continue.
    pub fn end_recovery(&self, id: u32) -> io::Result<()> {
        self.tell(ControlCommand::EndRecovery, id, u64::from(process::id()))
    }

    /// Changes the size of a started device. Requires [`UblkFeatures::UPDATE_SIZE`].
    pub fn update_size(&self, id: u32, size_bytes: u64) -> io::Result<()> {
        self.tell(ControlCommand::UpdateSize, id, size_bytes >> SECTOR_SHIFT)
    }

    fn tell(&self, command: ControlCommand, id: u32, data: u64) -> io::Result<()> {
        self.call(command, id, data, Box::new([])).map(|_| ())
    }

    fn ask(&self, command: ControlCommand, id: u32, memory: Box<[u8]>) -> io::Result<Box<[u8]>> {
        self.call(command, id, 0, memory)
    }

    fn call(
        &self,
        command: ControlCommand,
        id: u32,
        data: u64,
        memory: Box<[u8]>,
    ) -> io::Result<Box<[u8]>> {
        let length = u16::try_from(memory.len()).expect("arguments are short");
        let address = if length == 0 { 0 } else { memory.as_ptr().addr() as u64 };
        let command_bytes = control_command(id, data, address, length);
        let code = match self.features {
            Some(_) => command.code(),
            None => command.old_code(),
        };
        let entry =
            opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), code).cmd(command_bytes).build();
        // Each command uses its own ring, because commands are rare and may never complete.
        let mut ring = IoUring::<squeue::Entry128>::builder().build(1)?;
        let (result, memory) = run(&mut ring, EntryWithMemory { entry, memory })?;
        match result {
            0.. => Ok(memory),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    }
}

fn is_unknown_command(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

fn device_in(bytes: &[u8]) -> UblkDevice {
    UblkDevice::from_bytes(bytes.try_into().expect("as many as were sent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_driver_says_so() {
        match UblkControl::open() {
            Ok(control) => {
                let error = control.info(1 << 19).expect_err("no device has this number");
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
            }
            Err(error) => {
                let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
        }
    }
}
