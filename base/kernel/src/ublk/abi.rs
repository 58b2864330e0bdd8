//! Constants and layouts of the ublk driver's ABI (`linux/ublk_cmd.h`), as bytes. They contain no
//! pointers that could be dereferenced.

/// Maximum depth of a queue.
pub const UBLK_DEPTH_MAX: u16 = 4096;

/// Binary logarithm of the driver's sector size, independent of the device's logical block size.
pub(crate) const SECTOR_SHIFT: u32 = 9;

pub(crate) const CONTROL_PATH: &str = "/dev/ublk-control";

const DIRECTION_READ: u32 = 2;
const DIRECTION_READ_WRITE: u32 = 3;

const CONTROL_COMMAND_BYTES: usize = 32;
const IO_COMMAND_BYTES: usize = 16;

/// Encodes a command number as `_IOR` and `_IOWR` do.
const fn encoded(direction: u32, number: u32, bytes: usize) -> u32 {
    assert!(bytes < 1 << 14, "the size has 14 bits");
    #[expect(clippy::cast_possible_truncation, reason = "it is small")]
    let bytes = bytes as u32;
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// Commands of the control device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlCommand {
    AddDevice,
    DeleteDevice,
    StartDevice,
    StopDevice,
    SetParameters,
    StartRecovery,
    EndRecovery,
    GetInfo,
    GetFeatures,
    UpdateSize,
    TryStopDevice,
}

impl ControlCommand {
    pub(crate) const fn code(self) -> u32 {
        let (direction, number) = match self {
            Self::GetInfo => (DIRECTION_READ, 0x02),
            Self::AddDevice => (DIRECTION_READ_WRITE, 0x04),
            Self::DeleteDevice => (DIRECTION_READ_WRITE, 0x05),
            Self::StartDevice => (DIRECTION_READ_WRITE, 0x06),
            Self::StopDevice => (DIRECTION_READ_WRITE, 0x07),
            Self::SetParameters => (DIRECTION_READ_WRITE, 0x08),
            Self::StartRecovery => (DIRECTION_READ_WRITE, 0x10),
            Self::EndRecovery => (DIRECTION_READ_WRITE, 0x11),
            Self::GetFeatures => (DIRECTION_READ, 0x13),
            Self::UpdateSize => (DIRECTION_READ_WRITE, 0x15),
            Self::TryStopDevice => (DIRECTION_READ_WRITE, 0x17),
        };
        encoded(direction, number, CONTROL_COMMAND_BYTES)
    }

    /// Command code of drivers before 6.4.
    pub(crate) const fn old_code(self) -> u32 {
        self.code() & OLD_CODE_MASK
    }
}

const OLD_CODE_MASK: u32 = 0xFF;

/// Commands of a queue to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueCommand {
    Fetch,
    CommitAndFetch,
}

impl QueueCommand {
    pub(crate) const fn code(self, features: UblkFeatures) -> u32 {
        let number = match self {
            Self::Fetch => 0x20,
            Self::CommitAndFetch => 0x21,
        };
        let code = encoded(DIRECTION_READ_WRITE, number, IO_COMMAND_BYTES);
        if features.has(UblkFeatures::IOCTL_ENCODING) { code } else { code & OLD_CODE_MASK }
    }
}

/// Features of the driver, or those with which a device was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UblkFeatures(pub u64);

impl UblkFeatures {
    pub const USER_RECOVERY: Self = Self(1 << 3);
    pub const USER_RECOVERY_REISSUE: Self = Self(1 << 4);
    pub const UNPRIVILEGED: Self = Self(1 << 5);
    pub const IOCTL_ENCODING: Self = Self(1 << 6);
    pub const USER_COPY: Self = Self(1 << 7);
    pub const UPDATE_SIZE: Self = Self(1 << 10);
    pub const SAFE_STOP: Self = Self(1 << 17);

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// State of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkState {
    /// Not started, or stopped. It cannot be opened.
    Dead,
    Live,
    /// The server has exited; requests wait for the next one.
    Quiesced,
    Other(u16),
}

/// Description of a device: `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkDevice {
    /// [`UblkDevice::ANY_ID`] lets the driver choose.
    pub id: u32,
    pub queue_count: u16,
    pub queue_depth: u16,
    pub state: UblkState,
    pub request_bytes_max: u32,
    /// Id of the process that serves the device, or served it last.
    pub server: i32,
    pub features: UblkFeatures,
    /// Stored by the driver for the server that created the device, without interpretation.
    pub owner_mark: u64,
}

pub(crate) const DEVICE_BYTES: usize = 64;

impl UblkDevice {
    pub const ANY_ID: u32 = u32::MAX;

    pub(crate) fn to_bytes(self) -> [u8; DEVICE_BYTES] {
        let mut bytes = [0; DEVICE_BYTES];
        let mut put = Writer::new(&mut bytes);
        put.u16(self.queue_count).u16(self.queue_depth).u16(0).u16(0);
        put.u32(self.request_bytes_max).u32(self.id).u32(0).u32(0);
        put.u64(self.features.0).u64(self.owner_mark);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; DEVICE_BYTES]) -> Self {
        let state = match u16_at(bytes, 4) {
            0 => UblkState::Dead,
            1 => UblkState::Live,
            2 => UblkState::Quiesced,
            other => UblkState::Other(other),
        };
        Self {
            queue_count: u16_at(bytes, 0),
            queue_depth: u16_at(bytes, 2),
            state,
            request_bytes_max: u32_at(bytes, 8),
            id: u32_at(bytes, 12),
            server: u32_at(bytes, 16).cast_signed(),
            features: UblkFeatures(u64_at(bytes, 24)),
            owner_mark: u64_at(bytes, 32),
        }
    }
}

/// Access of processes to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkAccess {
    ReadWrite,
    ReadOnly,
}

/// Parameters of a device for the kernel. A volatile write cache and FUA are always enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkShape {
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    /// Minimum size of a discard that frees memory.
    pub physical_block_bytes: u32,
    pub request_bytes_max: u32,
    /// Maximum length of a discard or write of zeros.
    pub zeroing_bytes_max: u32,
    pub access: UblkAccess,
}

/// Size of the header, the basic parameters and the discard parameters, in the layout of all driver
/// versions.
const PARAMETERS_BYTES: usize = 8 + 32 + 20 + 4;

const ATTRIBUTE_READ_ONLY: u32 = 1;
const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
const ATTRIBUTE_FUA: u32 = 1 << 3;
const PARAMETERS_BASIC: u32 = 1;
const PARAMETERS_DISCARD: u32 = 1 << 1;

impl UblkShape {
    /// `struct ublk_params`.
    pub(crate) fn to_bytes(self) -> [u8; PARAMETERS_BYTES] {
        let mut attributes = ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA;
        if self.access == UblkAccess::ReadOnly {
            attributes |= ATTRIBUTE_READ_ONLY;
        }
        let shift = |bytes: u32| u8::try_from(bytes.trailing_zeros()).expect("it is below 32");
        let (logical, physical) =
            (shift(self.logical_block_bytes), shift(self.physical_block_bytes));
        let mut bytes = [0; PARAMETERS_BYTES];
        let mut put = Writer::new(&mut bytes);
        put.u32(u32::try_from(PARAMETERS_BYTES).expect("it is small"));
        put.u32(PARAMETERS_BASIC | PARAMETERS_DISCARD);
        put.u32(attributes).u8(logical).u8(physical).u8(physical).u8(physical);
        put.u32(self.request_bytes_max >> SECTOR_SHIFT).u32(0);
        put.u64(self.size_bytes >> SECTOR_SHIFT).u64(0);
        let zeroing_sectors = self.zeroing_bytes_max >> SECTOR_SHIFT;
        put.u32(0).u32(self.physical_block_bytes).u32(zeroing_sectors).u32(zeroing_sectors);
        put.u16(1).u16(0);
        bytes
    }
}

/// Operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkOperation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    Other(u8),
}

/// Entry of a queue's request table: `struct ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    operation_and_flags: u32,
    sector_count: u32,
    start_sector: u64,
    address: u64,
}

pub(crate) const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>();

const _: () = assert!(DESCRIPTOR_BYTES == 24);

const FLAG_FUA: u32 = 1 << 13;
const FLAG_NO_UNMAP: u32 = 1 << 15;

impl Descriptor {
    pub(crate) fn operation(&self) -> UblkOperation {
        match self.operation_and_flags.to_ne_bytes()[0] {
            _ if cfg!(target_endian = "big") => UblkOperation::Other(u8::MAX),
            0 => UblkOperation::Read,
            1 => UblkOperation::Write,
            2 => UblkOperation::Flush,
            3 => UblkOperation::Discard,
            5 => UblkOperation::WriteZeroes,
            other => UblkOperation::Other(other),
        }
    }

    pub(crate) fn is_fua(&self) -> bool {
        self.operation_and_flags & FLAG_FUA != 0
    }

    pub(crate) fn keeps_allocated(&self) -> bool {
        self.operation_and_flags & FLAG_NO_UNMAP != 0
    }

    pub(crate) fn start_bytes(&self) -> u64 {
        self.start_sector << SECTOR_SHIFT
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        u64::from(self.sector_count) << SECTOR_SHIFT
    }
}

/// `struct ublksrv_ctrl_cmd`, for the command area of a 128-byte submission entry.
pub(crate) fn control_command(id: u32, data: u64, address: u64, length: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    let mut put = Writer::new(&mut bytes);
    put.u32(id).u16(u16::MAX).u16(length).u64(address).u64(data);
    bytes
}

/// `struct ublksrv_io_cmd`.
pub(crate) fn io_command(queue: u16, tag: u16, result: i32, address: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    Writer::new(&mut bytes).u16(queue).u16(tag).u32(result.cast_unsigned()).u64(address);
    bytes
}

/// Offset of a queue's request table in the channel.
pub(crate) fn table_offset(queue: u16) -> u64 {
    let table_bytes_max = usize::from(UBLK_DEPTH_MAX) * DESCRIPTOR_BYTES;
    u64::from(queue) * page_aligned(table_bytes_max) as u64
}

pub(crate) fn page_aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(rustix::param::page_size())
}

const REQUESTS_OFFSET: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = TAG_SHIFT + 16;

/// Offset of a request's data in the channel.
pub(crate) fn data_offset(queue: u16, tag: u16, offset: u64) -> u64 {
    REQUESTS_OFFSET + (u64::from(queue) << QUEUE_SHIFT | u64::from(tag) << TAG_SHIFT) + offset
}

/// Writes integers one after another, in the layout of C structs without padding.
struct Writer<'bytes> {
    rest: &'bytes mut [u8],
}

impl<'bytes> Writer<'bytes> {
    fn new(rest: &'bytes mut [u8]) -> Self {
        Self { rest }
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let (place, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.rest = rest;
        self
    }

    fn u8(&mut self, number: u8) -> &mut Self {
        self.put(&[number])
    }

    fn u16(&mut self, number: u16) -> &mut Self {
        self.put(&number.to_ne_bytes())
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.put(&number.to_ne_bytes())
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.put(&number.to_ne_bytes())
    }
}

fn u16_at(bytes: &[u8; DEVICE_BYTES], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; DEVICE_BYTES], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8; DEVICE_BYTES], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_numbered_as_the_header_does() {
        assert_eq!(ControlCommand::AddDevice.code(), 0xC020_7504);
        assert_eq!(ControlCommand::GetInfo.code(), 0x8020_7502);
        assert_eq!(ControlCommand::GetFeatures.code(), 0x8020_7513);
        assert_eq!(ControlCommand::AddDevice.old_code(), 4);
        let new = UblkFeatures::IOCTL_ENCODING;
        assert_eq!(QueueCommand::Fetch.code(new), 0xC010_7520);
        assert_eq!(QueueCommand::CommitAndFetch.code(new), 0xC010_7521);
        assert_eq!(QueueCommand::Fetch.code(UblkFeatures::default()), 0x20);
    }

    #[test]
    fn a_device_is_described_in_the_drivers_layout() {
        let device = UblkDevice {
            id: 7,
            queue_count: 2,
            queue_depth: 128,
            state: UblkState::Dead,
            request_bytes_max: 1 << 20,
            server: 0,
            features: UblkFeatures::USER_COPY,
            owner_mark: 0x0123_4567_89AB_CDEF,
        };
        let bytes = device.to_bytes();
        assert_eq!(bytes[..4], [2, 0, 128, 0]);
        assert_eq!(bytes[12..16], [7, 0, 0, 0]);
        assert_eq!(bytes[24..32], [128, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(UblkDevice::from_bytes(&bytes), device);
    }

    #[test]
    fn parameters_are_laid_out_as_the_driver_reads_them() {
        let shape = UblkShape {
            size_bytes: 1 << 30,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            request_bytes_max: 1 << 20,
            zeroing_bytes_max: 1 << 30,
            access: UblkAccess::ReadOnly,
        };
        let bytes = shape.to_bytes();
        let number = |at: usize| u32::from_ne_bytes(std::array::from_fn(|it| bytes[at + it]));
        assert_eq!((number(0), number(4)), (64, 3));
        assert_eq!(number(8), 0b1101);
        assert_eq!(bytes[12..16], [9, 12, 12, 12]);
        assert_eq!(number(16), 2048);
        assert_eq!((number(24), number(28)), (1 << 21, 0));
        assert_eq!((number(40), number(44), number(48), number(52)), (0, 4096, 1 << 21, 1 << 21));
        assert_eq!(bytes[56..58], [1, 0]);
    }

    #[test]
    fn the_data_of_a_request_lies_after_all_tables() {
        assert_eq!(data_offset(0, 0, 0), 0x8000_0000);
        assert_eq!(data_offset(1, 2, 3), 0x8000_0000 + (1 << 41) + (2 << 25) + 3);
        assert!(table_offset(1) >= 4096 * 24);
    }
}
