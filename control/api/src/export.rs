//! Exports: volumes that are disks of virtual machines on this host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Protocol by which a machine reaches the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExportProtocol {
    /// One disk of one virtual machine, over shared memory.
    VhostUser,
}

/// A volume to export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportCreate {
    /// Name of the volume, or VOLUME@SNAPSHOT for a read-only disk.
    pub volume: String,
    pub protocol: ExportProtocol,
    /// Queues of the disk, 1 to 16; best one for each processor of the machine. By default one for
    /// each core of this host, up to 4.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 16)]
    pub queues: Option<u16>,
    /// Export the volume although it is attached to this host. Only file systems and databases for
    /// shared disks allow this; two writers corrupt others.
    #[serde(default)]
    pub share: bool,
    /// The user, by name or number, who owns the socket and may connect: usually the user of the
    /// virtual machine. By default the first of the volume's users, or the daemon's.
    #[serde(default)]
    pub owner: Option<String>,
    /// Group of the socket, by name or number; its members may connect. By default memlane.
    #[serde(default)]
    pub group: Option<String>,
    /// The socket's mode, in octal digits. By default 660. It controls access to the socket; the
    /// daemon also checks who connects.
    #[serde(default)]
    #[schema(example = "660")]
    pub mode: Option<String>,
}

/// An exported volume. It stays exported over restarts of the daemon, until the export is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// The name of the volume.
    pub volume: String,
    pub protocol: ExportProtocol,
    #[schema(minimum = 1, maximum = 16)]
    pub queues: u16,
    /// Path of the socket; null if the export failed at the last start.
    #[schema(example = "/run/memlane/vhost/db.sock", required)]
    pub socket: Option<String>,
    /// True if a virtual machine is connected.
    pub connected: bool,
}

impl Export {
    /// Returns the QEMU command-line arguments for the disk, formatted for a shell.
    pub fn qemu_words(&self) -> String {
        let (id, socket) = (self.id(), self.socket.as_deref().unwrap_or_default());
        let queues = self.queues;
        // In QEMU's option syntax, a comma inside a value is doubled.
        let path = socket.replace(',', ",,");
        format!(
            "-object memory-backend-memfd,id=mem,size=2G,share=on -machine memory-backend=mem \\\n\
             -chardev 'socket,id={id},path={path},reconnect=1' \\\n\
             -device vhost-user-blk-pci,id={id}-disk,chardev={id},num-queues={queues}"
        )
    }

    /// Returns the libvirt XML elements for the disk.
    pub fn libvirt_xml(&self) -> String {
        let socket = self.socket.as_deref().unwrap_or_default();
        let path = socket.replace('&', "&amp;").replace('\'', "&apos;").replace('<', "&lt;");
        let queues = self.queues;
        format!(
            "<memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n\
             </memoryBacking>\n\n\
             <disk type='vhostuser' device='disk'>\n  \
             <driver name='qemu' type='raw' queues='{queues}'/>\n  \
             <source type='unix' path='{path}'>\n    \
             <reconnect enabled='yes' timeout='1'/>\n  </source>\n  \
             <target dev='vdb' bus='virtio'/>\n</disk>"
        )
    }

    /// Returns a valid id for QEMU.
    fn id(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        let plain = |letter| if is_plain(letter) { letter } else { '-' };
        format!("memlane-{}", self.volume.chars().map(plain).collect::<String>())
    }
}

/// Name of a volume's socket (without `.sock`), used if the volume's own name is too long for a
/// socket path, as names of snapshots can be. Names of volumes do not start with `@`.
pub fn numbered_socket(volume_id: u64) -> String {
    format!("@{volume_id:x}")
}

/// Returns the id of the volume whose socket has this name from [`numbered_socket`].
pub fn volume_of_socket(name: &str) -> Option<u64> {
    let volume_id = u64::from_str_radix(name.strip_prefix('@')?, 16).ok()?;
    (numbered_socket(volume_id) == name).then_some(volume_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_sockets_name_is_found_again() {
        for volume_id in [1, 0x2a, u64::MAX] {
            assert_eq!(volume_of_socket(&numbered_socket(volume_id)), Some(volume_id));
        }
        for other in ["2a", "@", "@2A", "@02a", "@+2a", "@2a@2a", "@10000000000000000", "db@2a"] {
            assert_eq!(volume_of_socket(other), None, "{other}");
        }
    }

    fn export(volume: &str, socket: &str) -> Export {
        Export {
            volume: volume.to_owned(),
            protocol: ExportProtocol::VhostUser,
            queues: 3,
            socket: Some(socket.to_owned()),
            connected: false,
        }
    }

    #[test]
    fn names_and_paths_become_words_that_qemu_takes() {
        let words = export("db@monday", "/run/a,b/db@monday.sock").qemu_words();
        assert!(words.contains("id=memlane-db-monday,path=/run/a,,b/db@monday.sock,"), "{words}");
        assert!(words.ends_with("chardev=memlane-db-monday,num-queues=3"), "{words}");
    }

    #[test]
    fn paths_are_quoted_in_xml() {
        let xml = export("db", "/run/a'&<b.sock").libvirt_xml();
        assert!(xml.contains("path='/run/a&apos;&amp;&lt;b.sock'"), "{xml}");
        assert!(xml.contains("queues='3'"), "{xml}");
    }
}
