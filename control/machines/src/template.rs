//! Template of a machine's domain XML. No other code generates XML. Requests supply only values,
//! never elements, and every value is escaped.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use api::MachineNetwork;

/// XML namespace of the metadata element that marks machines created by this program.
pub(crate) const NAMESPACE: &str = "urn:memlane:machine:1";

/// Name of the virtio channel of QEMU's guest agent.
pub(crate) const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

/// XML namespace of additional QEMU arguments.
const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// First PCI slot for network devices that libvirt does not know about. libvirt itself assigns
/// slots from 1 up.
const CLOSED_NETWORK_SLOT: usize = 0x10;

/// Number of PCIe ports reserved for hot-plugged disks.
const SPARE_PORT_COUNT: usize = 4;

/// Number of PCIe ports that libvirt uses for its USB controller, the balloon and the agent's
/// channel.
const TAKEN_PORT_COUNT: usize = 3;

/// Time for which QEMU queues requests of an NBD disk while the daemon is unavailable, in seconds.
const NBD_RECONNECT_S_MAX: u32 = 3600;

/// Virtualization type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    Kvm,
    /// Emulation (TCG) without hardware support.
    Emulated,
}

/// Kernel for direct boot, instead of the disk's boot loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: Option<PathBuf>,
    pub(crate) arguments: String,
}

/// A disk on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    VhostUser { socket: String, queues: u16 },
    Nbd { socket: String, volume: String },
}

impl Disk {
    /// Returns the XML of the disk, with a target name such as `vda`.
    pub(crate) fn xml(&self, target: &str) -> String {
        let target = escaped(target);
        match self {
            Self::VhostUser { socket, queues } => format!(
                "<disk type='vhostuser' device='disk'>\
                 <driver name='qemu' type='raw' queues='{queues}'/>\
                 <source type='unix' path='{socket}'>\
                 <reconnect enabled='yes' timeout='1'/></source>\
                 <target dev='{target}' bus='virtio'/></disk>",
                socket = escaped(socket),
            ),
            Self::Nbd { socket, volume } => format!(
                "<disk type='network' device='disk'>\
                 <driver name='qemu' type='raw' cache='none' discard='unmap'/>\
                 <source protocol='nbd' name='{volume}'>\
                 <host transport='unix' socket='{socket}'/>\
                 <reconnect delay='{NBD_RECONNECT_S_MAX}'/></source>\
                 <target dev='{target}' bus='virtio'/></disk>",
                volume = escaped(volume),
                socket = escaped(socket),
            ),
        }
    }
}

/// Target names of disks, in order.
pub(crate) fn targets() -> impl Iterator<Item = String> {
    ('a'..='z').map(|letter| format!("vd{letter}"))
}

/// Configuration of a new machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) accelerator: Accelerator,
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) boot: Option<Boot>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) cdrom: Option<PathBuf>,
    pub(crate) networks: Vec<MachineNetwork>,
    pub(crate) has_screen: bool,
    /// Log file of the guest's serial output.
    pub(crate) console_log: PathBuf,
}

impl Plan {
    /// Returns the domain XML.
    pub(crate) fn xml(&self) -> String {
        let (kind, cpu) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "<cpu mode='host-passthrough'/>"),
            Accelerator::Emulated => ("qemu", ""),
        };
        format!(
            "<domain type='{kind}'><name>{name}</name>\
             <metadata><m:machine xmlns:m='{NAMESPACE}'/></metadata>\
             <memory unit='b'>{memory}</memory>\
             <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\
             <vcpu>{cpus}</vcpu>{os}<features><acpi/><apic/></features>{cpu}\
             <devices>{devices}</devices>{more}</domain>",
            name = escaped(&self.name),
            memory = self.memory_bytes,
            cpus = self.cpus,
            os = self.os(),
            devices = self.devices(),
            more = self.closed_networks(),
        )
    }

    /// Adds user-mode networks with `restrict=on`, which libvirt cannot express. Without it, the
    /// guest could reach services on the host's loopback interface at 10.0.2.2.
    fn closed_networks(&self) -> String {
        let is_own = |network: &&MachineNetwork| **network == MachineNetwork::User;
        let mut words = String::new();
        for number in 0..self.networks.iter().filter(is_own).count() {
            let slot = CLOSED_NETWORK_SLOT + number;
            words += &format!(
                "<q:arg value='-netdev'/><q:arg value='user,id=closed{number},restrict=on'/>\
                 <q:arg value='-device'/>\
                 <q:arg value='virtio-net-pci,netdev=closed{number},bus=pcie.0,addr={slot:#x}'/>"
            );
        }
        match words.is_empty() {
            true => words,
            false => format!("<q:commandline xmlns:q='{QEMU_NAMESPACE}'>{words}</q:commandline>"),
        }
    }

    fn os(&self) -> String {
        let mut os = String::from("<os><type arch='x86_64' machine='q35'>hvm</type>");
        match &self.boot {
            None => {
                os.push_str("<boot dev='hd'/>");
                if self.cdrom.is_some() {
                    os.push_str("<boot dev='cdrom'/>");
                }
            }
            Some(boot) => {
                let initrd = boot.initrd.as_ref();
                let initrd = initrd.map(|path| format!("<initrd>{}</initrd>", escaped_path(path)));
                let (kernel, arguments) = (escaped_path(&boot.kernel), escaped(&boot.arguments));
                // Writing to a string cannot fail.
                let _ = write!(
                    os,
                    "<kernel>{kernel}</kernel>{}<cmdline>{arguments}</cmdline>",
                    initrd.unwrap_or_default(),
                );
            }
        }
        os.push_str("</os>");
        os
    }

    fn devices(&self) -> String {
        let port_count =
            SPARE_PORT_COUNT + TAKEN_PORT_COUNT + self.disks.len() + self.networks.len();
        let mut devices = String::from("<controller type='pci' index='0' model='pcie-root'/>");
        devices += &"<controller type='pci' model='pcie-root-port'/>".repeat(port_count);
        devices.extend(self.disks.iter().zip(targets()).map(|(disk, target)| disk.xml(&target)));
        devices.extend(self.cdrom.as_deref().map(cdrom_xml));
        devices.extend(self.networks.iter().filter_map(network_xml));
        devices += &format!(
            "<channel type='unix'><target type='virtio' name='{AGENT_CHANNEL}'/></channel>\
             <serial type='pty'><log file='{}' append='off'/></serial>",
            escaped_path(&self.console_log)
        );
        if self.has_screen {
            // The display has no listening socket. Clients are passed to QEMU as file descriptors.
            devices += "<graphics type='vnc'><listen type='none'/></graphics>\
                        <video><model type='vga'/></video><input type='tablet' bus='usb'/>";
        }
        devices
    }
}

fn cdrom_xml(image: &Path) -> String {
    format!(
        "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>\
         <source file='{}'/><target dev='sda' bus='sata'/><readonly/></disk>",
        escaped_path(image)
    )
}

/// Returns `None` for a user-mode network.
fn network_xml(network: &MachineNetwork) -> Option<String> {
    let (kind, name) = match network {
        MachineNetwork::User => return None,
        MachineNetwork::Network(name) => ("network", escaped(name)),
        MachineNetwork::Bridge(name) => ("bridge", escaped(name)),
    };
    Some(format!(
        "<interface type='{kind}'><source {kind}='{name}'/><model type='virtio'/></interface>"
    ))
}

fn escaped_path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Escapes text for XML content and attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(value: &str) -> Plan {
        let text = || value.to_owned();
        Plan {
            name: text(),
            accelerator: Accelerator::Emulated,
            cpus: 1,
            memory_bytes: 1 << 28,
            boot: Some(Boot {
                kernel: PathBuf::from(value),
                initrd: Some(PathBuf::from(value)),
                arguments: text(),
            }),
            disks: vec![
                Disk::VhostUser { socket: text(), queues: 1 },
                Disk::Nbd { socket: text(), volume: text() },
            ],
            cdrom: Some(PathBuf::from(value)),
            networks: vec![
                MachineNetwork::Network(text()),
                MachineNetwork::Bridge(text()),
                MachineNetwork::User,
                MachineNetwork::User,
            ],
            has_screen: true,
            console_log: PathBuf::from(value),
        }
    }

    #[test]
    fn networks_of_qemu_lead_nowhere() {
        let xml = plan("a").xml();
        assert_eq!(xml.matches(",restrict=on'/>").count(), 2, "{xml}");
        assert!(!xml.contains("type='user'"), "{xml}");
        let plain = Plan { networks: Vec::new(), ..plan("a") }.xml();
        assert!(!plain.contains("commandline"), "{plain}");
    }

    #[test]
    fn no_value_becomes_an_element() {
        let plain = plan("a").xml();
        let tags = |xml: &str| xml.matches(['<', '>', '\'', '"']).count();
        for value in ["</name><x/>", "a'/><disk b='", "\"&lt;", "]]>", "<!--"] {
            let xml = plan(value).xml();
            assert_eq!(tags(&xml), tags(&plain), "{xml}");
            assert!(!xml.contains(value), "{xml}");
        }
    }
}
