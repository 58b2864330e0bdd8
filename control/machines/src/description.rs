//! Parser of libvirt's domain XML, created here or by other tools. The XML is only read, never
//! passed on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::{DiskKind, MachineDisk};
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::{NsReader, XmlVersion};

use crate::template::NAMESPACE;

/// Maximum nesting depth of XML elements, far more than libvirt uses.
const DEPTH_MAX: usize = 64;

/// Socket paths by which the daemon's volumes are recognized.
#[derive(Clone, Debug)]
pub(crate) struct Sockets {
    /// Folder with one vhost-user socket for each volume.
    pub(crate) vhost_folder: PathBuf,
    pub(crate) nbd: PathBuf,
    pub(crate) ring: PathBuf,
}

/// A machine as its domain XML describes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    /// The XML contains the metadata element that [`crate::template`] adds.
    pub(crate) is_own: bool,
    pub(crate) is_emulated: bool,
    pub(crate) disks: Vec<MachineDisk>,
    pub(crate) has_serial: bool,
    /// A VNC display.
    pub(crate) has_screen: bool,
}

/// Error for XML from libvirt that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("cannot parse the domain XML from libvirt: {0}")]
pub(crate) struct Unreadable(String);

impl From<quick_xml::Error> for Unreadable {
    fn from(error: quick_xml::Error) -> Self {
        Self(error.to_string())
    }
}

impl Description {
    pub(crate) fn read(xml: &str, sockets: &Sockets) -> Result<Self, Unreadable> {
        let mut reading = Reading { sockets, description: Self::default(), disk: None };
        let mut reader = NsReader::from_str(xml);
        let mut path: Vec<String> = Vec::new();
        loop {
            let (namespace, event) = reader.read_resolved_event()?;
            let namespace = match namespace {
                ResolveResult::Bound(Namespace(name)) => name == NAMESPACE.as_bytes(),
                _ => false,
            };
            match event {
                Event::Start(element) => {
                    path.push(local_name(&element));
                    if path.len() > DEPTH_MAX {
                        return Err(Unreadable("its elements are nested too deep".to_owned()));
                    }
                    reading.begin(&path, &element, namespace)?;
                }
                Event::Empty(element) => {
                    path.push(local_name(&element));
                    reading.begin(&path, &element, namespace)?;
                    reading.end(&path);
                    path.pop();
                }
                Event::End(_) => {
                    reading.end(&path);
                    path.pop();
                }
                Event::Eof => break,
                _ => {}
            }
        }
        Ok(reading.description)
    }

    pub(crate) fn volumes(&self) -> Vec<String> {
        self.disks.iter().filter_map(|disk| disk.volume.clone()).collect()
    }

    /// Sets the volume names of disks whose socket paths contain a volume id. `name_of` maps ids to
    /// names.
    pub(crate) fn name_volumes<E>(
        &mut self,
        mut name_of: impl FnMut(u64) -> Result<Option<String>, E>,
    ) -> Result<(), E> {
        let is_vhost = |disk: &&mut MachineDisk| disk.kind == DiskKind::VhostUser;
        for disk in self.disks.iter_mut().filter(is_vhost) {
            if let Some(id) = disk.volume.as_deref().and_then(api::volume_of_socket)
                && let Some(name) = name_of(id)?
            {
                disk.volume = Some(name);
            }
        }
        Ok(())
    }
}

/// A disk element that is being parsed.
#[derive(Debug, Default)]
struct DiskParts {
    kind: String,
    target: String,
    source: BTreeMap<String, String>,
    /// Socket of an NBD server.
    socket: Option<String>,
}

impl DiskParts {
    fn whole(self, sockets: &Sockets) -> MachineDisk {
        let has = |name: &str, value: &str| self.source.get(name).is_some_and(|it| it == value);
        let (kind, volume) = match self.kind.as_str() {
            "vhostuser" => {
                let path = self.source.get("path").map(Path::new);
                (DiskKind::VhostUser, path.and_then(|path| vhost_volume(path, sockets)))
            }
            "network" if has("protocol", "nbd") => {
                let is_daemon = self.socket.is_some_and(|it| Path::new(&it) == sockets.nbd);
                (DiskKind::Nbd, self.source.get("name").filter(|_| is_daemon).cloned())
            }
            "file" => (DiskKind::File, None),
            _ => (DiskKind::Other, None),
        };
        MachineDisk { target: self.target, kind, volume }
    }
}

fn vhost_volume(path: &Path, sockets: &Sockets) -> Option<String> {
    let is_daemon = path.parent() == Some(&sockets.vhost_folder);
    let name = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    is_daemon.then(|| name.to_owned())
}

struct Reading<'a> {
    sockets: &'a Sockets,
    description: Description,
    disk: Option<DiskParts>,
}

impl Reading<'_> {
    fn begin(
        &mut self,
        path: &[String],
        element: &BytesStart<'_>,
        is_ours: bool,
    ) -> Result<(), Unreadable> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let attributes = || attributes_of(element);
        let take = |name: &str| Ok::<_, Unreadable>(attributes()?.remove(name));
        match (path.as_slice(), &mut self.disk) {
            (["domain"], _) => {
                self.description.is_emulated = take("type")?.as_deref() == Some("qemu");
            }
            (["domain", "metadata", "machine"], _) if is_ours => self.description.is_own = true,
            (["domain", "devices", "serial" | "console"], _) => self.description.has_serial = true,
            (["domain", "devices", "graphics"], _) => {
                self.description.has_screen |= take("type")?.as_deref() == Some("vnc");
            }
            (["domain", "devices", "disk"], disk) => {
                let kind = take("type")?.unwrap_or_default();
                *disk = Some(DiskParts { kind, ..DiskParts::default() });
            }
            (["domain", "devices", "disk", "source"], Some(disk)) => disk.source = attributes()?,
            (["domain", "devices", "disk", "source", "host"], Some(disk)) => {
                disk.socket = take("socket")?;
            }
            (["domain", "devices", "disk", "target"], Some(disk)) => {
                disk.target = take("dev")?.unwrap_or_default();
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, path: &[String]) {
        if path == ["domain", "devices", "disk"] {
            let disk = self.disk.take().map(|parts| parts.whole(self.sockets));
            self.description.disks.extend(disk);
        }
    }
}

fn local_name(element: &BytesStart<'_>) -> String {
    String::from_utf8_lossy(element.local_name().as_ref()).into_owned()
}

fn attributes_of(element: &BytesStart<'_>) -> Result<BTreeMap<String, String>, Unreadable> {
    let mut attributes = BTreeMap::new();
    for attribute in element.attributes() {
        let attribute = attribute.map_err(|error| Unreadable(error.to_string()))?;
        let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
        let value = attribute.normalized_value(XmlVersion::Implicit1_0)?.into_owned();
        attributes.insert(name, value);
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets() -> Sockets {
        Sockets {
            vhost_folder: "/run/memlane/vhost".into(),
            nbd: "/run/memlane/nbd.sock".into(),
            ring: "/run/memlane/ring.sock".into(),
        }
    }

    fn disk(target: &str, kind: DiskKind, volume: Option<&str>) -> MachineDisk {
        MachineDisk { target: target.to_owned(), kind, volume: volume.map(str::to_owned) }
    }

    #[test]
    fn disks_tell_their_volumes_and_those_of_others_do_not() {
        let xml = "<domain type='qemu' id='1'><metadata>\
            <m:machine xmlns:m='urn:memlane:machine:1'/></metadata><devices>\
            <disk type='vhostuser'><source type='unix' path='/run/memlane/vhost/a&amp;b.sock'>\
            <reconnect enabled='yes'/></source><target dev='vda'/></disk>\
            <disk type='vhostuser'><source type='unix' path='/run/other/x.sock'/>\
            <target dev='vdb'/></disk>\
            <disk type='network'><source protocol='nbd' name='db'>\
            <host transport='unix' socket='/run/memlane/nbd.sock'/></source>\
            <target dev='vdc'/></disk>\
            <disk type='network'><source protocol='nbd' name='db'><host name='h' port='1'/>\
            </source><target dev='vdd'/></disk>\
            <disk type='file' device='cdrom'><source file='/x.iso'/><target dev='sda'/></disk>\
            <disk type='block'><target dev='vde'/></disk><serial type='pty'/>\
            <graphics type='vnc'/></devices></domain>";
        let description = Description::read(xml, &sockets()).expect("it is XML");
        assert!(description.is_own && description.is_emulated);
        assert!(description.has_serial && description.has_screen);
        assert_eq!(description.volumes(), ["a&b", "db"]);
        assert_eq!(
            description.disks,
            [
                disk("vda", DiskKind::VhostUser, Some("a&b")),
                disk("vdb", DiskKind::VhostUser, None),
                disk("vdc", DiskKind::Nbd, Some("db")),
                disk("vdd", DiskKind::Nbd, None),
                disk("sda", DiskKind::File, None),
                disk("vde", DiskKind::Other, None),
            ]
        );
    }

    #[test]
    fn a_socket_that_tells_a_number_is_that_of_the_volume_with_it() {
        let disks = ["vhost/@2a", "vhost/@2b", "vhost/db@2a", "elsewhere/@2a"].map(|path| {
            format!("<disk type='vhostuser'><source path='/run/memlane/{path}.sock'/></disk>")
        });
        let nbd = "<disk type='network'><source protocol='nbd' name='@2a'>\
                   <host socket='/run/memlane/nbd.sock'/></source></disk>";
        let xml = format!("<domain><devices>{}{nbd}</devices></domain>", disks.concat());
        let mut description = Description::read(&xml, &sockets()).expect("it is XML");
        let names = |id| Ok::<_, ()>((id == 0x2a).then(|| "db@long".to_owned()));
        assert_eq!(description.name_volumes(names), Ok(()));
        assert_eq!(description.volumes(), ["db@long", "@2b", "db@2a", "@2a"]);
        assert_eq!(description.name_volumes(|_| Err("no answer")), Err("no answer"));
    }

    #[test]
    fn a_machine_is_ours_by_the_namespace_alone() {
        let other = "<domain type='kvm'><metadata><m:machine xmlns:m='urn:x'/>\
                     <machine/></metadata></domain>";
        let description = Description::read(other, &sockets()).expect("it is XML");
        assert_eq!(description, Description::default());
    }

    #[test]
    fn what_is_no_xml_is_an_error() {
        for xml in ["<domain></x>", "<domain type=>", &"<a>".repeat(DEPTH_MAX + 1)] {
            assert!(Description::read(xml, &sockets()).is_err(), "{xml}");
        }
    }
}
