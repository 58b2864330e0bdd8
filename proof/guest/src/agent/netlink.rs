//! The part of generic netlink that is necessary to send a command to one family.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail, ensure};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, bind, recv, send, socket};

const ERROR: u16 = 2;
const FLAG_REQUEST: u16 = 1;
const FLAG_ACKNOWLEDGE: u16 = 4;
const NESTED: u16 = 1 << 15;

/// The controller family, which resolves names of families, and its commands.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const MESSAGE_HEADER_BYTES: usize = 16;
const HEADERS_BYTES: usize = MESSAGE_HEADER_BYTES + 4;
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// A sequence of attributes.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).expect("attributes are short");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn with_nested(self, kind: u16, inner: &Self) -> Self {
        self.with(kind | NESTED, &inner.0)
    }

    /// Returns the value of the first attribute of this kind in `bytes`.
    fn find(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
        while bytes.len() >= 4 {
            let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
            let value = bytes.get(4..length)?;
            if u16::from_ne_bytes([bytes[2], bytes[3]]) & !NESTED == kind {
                return Some(value);
            }
            bytes = bytes.get(length.next_multiple_of(4)..)?;
        }
        None
    }
}

/// A netlink family of the kernel.
pub(crate) struct Family {
    socket: OwnedFd,
    id: u16,
}

impl Family {
    pub(crate) fn find(name: &str) -> Result<Self> {
        let kind = SocketType::RAW;
        let socket = socket(AddressFamily::NETLINK, kind, Some(netlink::GENERIC))?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let controller = Self { socket, id: CONTROLLER };
        let name_bytes = [name.as_bytes(), b"\0"].concat();
        let asked = Attributes::default().with(FAMILY_NAME, &name_bytes);
        let answer = controller
            .ask(GET_FAMILY, &asked)
            .with_context(|| format!("the kernel has no netlink family {name}"))?;
        let id = Attributes::find(&answer, FAMILY_ID).and_then(|id| id.try_into().ok());
        let id = u16::from_ne_bytes(id.context("a family has a number")?);
        Ok(Self { id, ..controller })
    }

    /// Sends a command. Returns the attributes of the answer, if there is one.
    pub(crate) fn ask(&self, command: u8, attributes: &Attributes) -> Result<Vec<u8>> {
        let length = u32::try_from(HEADERS_BYTES + attributes.0.len())?;
        let mut message = Vec::new();
        message.extend(length.to_ne_bytes());
        message.extend(self.id.to_ne_bytes());
        message.extend((FLAG_REQUEST | FLAG_ACKNOWLEDGE).to_ne_bytes());
        message.extend([0; 8]);
        message.extend([command, 1, 0, 0]);
        message.extend(&attributes.0);
        send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = Vec::new();
        loop {
            let mut buffer = vec![0; ANSWER_BYTES_MAX];
            let (received, _) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())?;
            let mut rest = &buffer[..received];
            while rest.len() >= MESSAGE_HEADER_BYTES {
                let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]);
                let length = usize::try_from(length)?;
                ensure!((HEADERS_BYTES..=rest.len()).contains(&length), "a message is cut");
                let body = &rest[MESSAGE_HEADER_BYTES..length];
                if u16::from_ne_bytes([rest[4], rest[5]]) == ERROR {
                    let code = i32::from_ne_bytes([body[0], body[1], body[2], body[3]]);
                    return match code {
                        0 => Ok(answer),
                        code => bail!(io::Error::from_raw_os_error(-code)),
                    };
                }
                answer = rest[HEADERS_BYTES..length].to_vec();
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}
