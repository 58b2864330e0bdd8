//! Calls on domains, as libvirt names machines.

use std::os::fd::OwnedFd;

use api::MachineState;

use super::connection::{Connection, LibvirtError};
use super::console::Console;
use super::xdr::{Malformed, Reader, Writer};

const CREATE: u32 = 9;
const DESTROY: u32 = 12;
const GET_XML_DESC: u32 = 14;
const GET_INFO: u32 = 16;
const LOOKUP_BY_NAME: u32 = 23;
const SHUTDOWN: u32 = 33;
const ATTACH_DEVICE_FLAGS: u32 = 160;
const DETACH_DEVICE_FLAGS: u32 = 161;
const OPEN_CONSOLE: u32 = 201;
const UNDEFINE_FLAGS: u32 = 231;
const LIST_ALL: u32 = 273;
const FSFREEZE: u32 = 335;
const FSTHAW: u32 = 336;
const GET_CAPABILITIES: u32 = 342;
const OPEN_GRAPHICS_FD: u32 = 343;
const DEFINE_XML_FLAGS: u32 = 350;

const UUID_BYTES: usize = 16;
/// `VIR_DOMAIN_DEFINE_VALIDATE`: reject XML that violates the schema.
const DEFINE_VALIDATE: u32 = 1;
/// Flag of `virDomainXMLFlags`.
const XML_INACTIVE: u32 = 2;
/// Flags of `virDomainDeviceModifyFlags`.
const AFFECT_LIVE: u32 = 1;
const AFFECT_CONFIG: u32 = 2;
/// Flag of `virDomainConsoleFlags`.
const CONSOLE_FORCE: u32 = 1;
/// Flag of `virDomainOpenGraphicsFlags`: skip the VNC password. Access to our socket is sufficient.
const GRAPHICS_SKIP_LOGIN: u32 = 1;
/// libvirt's limit on the length of domain lists.
const DOMAIN_COUNT_MAX: u32 = 16_384;

/// Reference to a machine, as libvirt encodes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    pub(crate) name: String,
    uuid: Vec<u8>,
    id: u32,
}

impl Domain {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let name = reader.text()?;
        Ok(Self { name, uuid: reader.fixed(UUID_BYTES)?.to_vec(), id: reader.word()? })
    }

    fn write(&self) -> Writer {
        Writer::default().text(&self.name).fixed(&self.uuid).word(self.id)
    }
}

/// One of a machine's two configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Configuration of the running machine.
    Live,
    /// Persistent configuration, which the next start uses.
    Config,
}

/// Handling of a console that another client has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    Refused,
    Forced,
}

/// Current state and size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomainInfo {
    pub(crate) state: MachineState,
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: u32,
}

impl Connection {
    pub(crate) fn domains(&mut self) -> Result<Vec<Domain>, LibvirtError> {
        let answer = self.call(LIST_ALL, Writer::default().word(1).word(0))?;
        let mut reader = Reader::of(&answer);
        let count = reader.word()?;
        if count > DOMAIN_COUNT_MAX {
            return Err(LibvirtError::Malformed);
        }
        Ok((0..count).map(|_| Domain::read(&mut reader)).collect::<Result<_, _>>()?)
    }

    pub(crate) fn domain(&mut self, name: &str) -> Result<Domain, LibvirtError> {
        let answer = self.call(LOOKUP_BY_NAME, Writer::default().text(name))?;
        Ok(Domain::read(&mut Reader::of(&answer))?)
    }

    pub(crate) fn info(&mut self, domain: &Domain) -> Result<DomainInfo, LibvirtError> {
        let answer = self.call(GET_INFO, domain.write())?;
        let mut reader = Reader::of(&answer);
        let state = state_of(reader.word()?);
        let memory_kib = reader.double_word()?;
        let _now_kib = reader.double_word()?;
        let memory_bytes = memory_kib.saturating_mul(1024);
        Ok(DomainInfo { state, memory_bytes, cpus: reader.word()? })
    }

    /// Returns the domain XML: the live configuration if the machine is running, otherwise the
    /// persistent one.
    pub(crate) fn xml(&mut self, domain: &Domain) -> Result<String, LibvirtError> {
        self.xml_with(domain, 0)
    }

    /// Returns the persistent domain XML, which the next start uses.
    pub(crate) fn config_xml(&mut self, domain: &Domain) -> Result<String, LibvirtError> {
        self.xml_with(domain, XML_INACTIVE)
    }

    fn xml_with(&mut self, domain: &Domain, flags: u32) -> Result<String, LibvirtError> {
        let answer = self.call(GET_XML_DESC, domain.write().word(flags))?;
        Ok(Reader::of(&answer).text()?)
    }

    pub(crate) fn attach(
        &mut self,
        domain: &Domain,
        device: &str,
        sides: &[Side],
    ) -> Result<(), LibvirtError> {
        let body = domain.write().text(device).word(flags_of(sides));
        self.call(ATTACH_DEVICE_FLAGS, body).map(drop)
    }

    /// Detaches a device. If the machine is running, the guest is asked to release the device and
    /// may take time.
    pub(crate) fn detach(
        &mut self,
        domain: &Domain,
        device: &str,
        side: Side,
    ) -> Result<(), LibvirtError> {
        let body = domain.write().text(device).word(flags_of(&[side]));
        self.call(DETACH_DEVICE_FLAGS, body).map(drop)
    }

    /// Freezes the guest's file systems through its agent: flushes them and blocks writes.
    pub(crate) fn freeze(&mut self, domain: &Domain) -> Result<(), LibvirtError> {
        self.call(FSFREEZE, domain.write().word(0).word(0)).map(drop)
    }

    pub(crate) fn thaw(&mut self, domain: &Domain) -> Result<(), LibvirtError> {
        self.call(FSTHAW, domain.write().word(0).word(0)).map(drop)
    }

    /// Opens the terminal on the machine's first serial port.
    pub(crate) fn into_console(
        mut self,
        domain: &Domain,
        takeover: Takeover,
    ) -> Result<Console, LibvirtError> {
        let flags = match takeover {
            Takeover::Refused => 0,
            Takeover::Forced => CONSOLE_FORCE,
        };
        self.call(OPEN_CONSOLE, domain.write().optional_text(None).word(flags))?;
        let (stream, serial) = self.into_parts();
        Ok(Console { stream, procedure: OPEN_CONSOLE, serial })
    }

    /// Opens a new client connection to the machine's VNC display.
    pub(crate) fn screen(&mut self, domain: &Domain) -> Result<OwnedFd, LibvirtError> {
        let body = domain.write().word(0).word(GRAPHICS_SKIP_LOGIN);
        self.call_for_descriptor(OPEN_GRAPHICS_FD, body)
    }

    /// Returns whether this host supports a virtualization type, such as `kvm`.
    pub(crate) fn can_run(&mut self, kind: &str) -> Result<bool, LibvirtError> {
        let body = Writer::default().optional_text(None).optional_text(None);
        let body = body.optional_text(None).optional_text(Some(kind)).word(0);
        match self.call(GET_CAPABILITIES, body) {
            Ok(_) => Ok(true),
            Err(LibvirtError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Defines a persistent machine.
    pub(crate) fn define(&mut self, xml: &str) -> Result<Domain, LibvirtError> {
        let answer =
            self.call(DEFINE_XML_FLAGS, Writer::default().text(xml).word(DEFINE_VALIDATE))?;
        Ok(Domain::read(&mut Reader::of(&answer))?)
    }

    pub(crate) fn undefine(&mut self, domain: &Domain) -> Result<(), LibvirtError> {
        self.call(UNDEFINE_FLAGS, domain.write().word(0)).map(drop)
    }

    pub(crate) fn start(&mut self, domain: &Domain) -> Result<(), LibvirtError> {
        self.call(CREATE, domain.write()).map(drop)
    }

    /// Asks the guest to shut down. Does not wait until it has.
    pub(crate) fn shut_down(&mut self, domain: &Domain) -> Result<(), LibvirtError> {
        self.call(SHUTDOWN, domain.write()).map(drop)
    }

    /// Powers the machine off.
    pub(crate) fn kill(&mut self, domain: &Domain) -> Result<(), LibvirtError> {
        self.call(DESTROY, domain.write()).map(drop)
    }
}

fn flags_of(sides: &[Side]) -> u32 {
    let flag = |side: &Side| match side {
        Side::Live => AFFECT_LIVE,
        Side::Config => AFFECT_CONFIG,
    };
    sides.iter().map(flag).fold(0, |flags, flag| flags | flag)
}

/// Decodes `virDomainState`.
fn state_of(number: u32) -> MachineState {
    match number {
        1 | 2 => MachineState::Running,
        3 | 7 => MachineState::Paused,
        4 => MachineState::ShuttingDown,
        5 => MachineState::Off,
        6 => MachineState::Crashed,
        _ => MachineState::Unknown,
    }
}
