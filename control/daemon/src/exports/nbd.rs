//! Volumes over NBD. The export name is the volume name.

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use anyhow::Context;
use api::NbdStatus;
use block_device::{BlockDevice, ReadOnly};
use nbd::{
    Client, Config, Export, ExportInfo, Exports, Peer, Quota, Server, TcpAccess, TlsFiles,
    TlsSettings,
};
use volumes::Volume;

use crate::config::{self, AllowList, NbdAccess, NbdConfig};
use crate::exports::Catalog;
use crate::http::AccessRule;
use crate::volume_users::VolumeUsers;

/// Limits on the number of clients of one listener.
const QUOTA: Quota = Quota { total: 1024, per_user: 512, reserved: 128 };

/// Maximum time for a client to choose an export.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The running server. After [`NbdExport::stop`] it reports no clients.
pub(crate) struct NbdExport {
    server: Mutex<Option<Server>>,
    socket: String,
    tcp: Option<String>,
    is_insecure: bool,
}

/// Dependencies of the NBD server.
#[derive(Clone)]
pub(crate) struct NbdParts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) rule: AccessRule,
    pub(crate) users: Arc<VolumeUsers>,
    pub(crate) spin_permits: Arc<SpinPermits>,
}

impl NbdExport {
    pub(crate) fn start(config: &NbdConfig, parts: NbdParts) -> anyhow::Result<Self> {
        let NbdParts { catalog, rule, users, spin_permits } = parts;
        let allowed = config.allowed.clone();
        let door = Arc::new(Door { catalog, rule, users, allowed });
        let tls = config.tls.clone().map(TlsFiles::from);
        let server = Server::start(
            Config {
                unix_path: config.socket.clone(),
                tcp: config.tcp,
                tcp_access: match config.is_insecure {
                    true => TcpAccess::Anybody,
                    false => TcpAccess::Certified,
                },
                tls,
                quota: QUOTA,
                handshake_time_max: HANDSHAKE_TIME_MAX,
                spin_permits,
                spin_max: SPIN_MAX_DEFAULT,
                // Threads inherit their kernel settings from the thread that starts them.
                thread_start: || (),
            },
            door,
        )
        .context("cannot serve NBD")?;
        let tcp = server.tcp_address().map(|address| address.to_string());
        let socket = config.socket.display().to_string();
        tracing::info!(socket, tcp, "serving NBD");
        let is_insecure = config.is_insecure;
        Ok(Self { server: Mutex::new(Some(server)), socket, tcp, is_insecure })
    }

    /// URI of a volume for NBD clients.
    pub(crate) fn uri_of(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", quoted(&self.socket))
    }

    /// TCP address that accepts clients without authentication, if there is one.
    pub(crate) fn insecure_address(&self) -> Option<&str> {
        self.tcp.as_deref().filter(|_| self.is_insecure)
    }

    pub(crate) fn connection_count_of(&self, volume: &Volume) -> usize {
        let server = self.server.lock().expect(NO_PANIC);
        server.as_ref().map_or(0, |server| server.client_count_of(&volume.name()))
    }

    /// Returns whether a connection of the volume is about to close.
    pub(crate) fn is_closing(&self, volume: &Volume) -> bool {
        let server = self.server.lock().expect(NO_PANIC);
        server.as_ref().is_some_and(|server| server.is_closing(&volume.name()))
    }

    /// Closes the connections of a volume's clients. Returns their number.
    pub(crate) fn disconnect(&self, volume: &Volume) -> usize {
        let server = self.server.lock().expect(NO_PANIC);
        server.as_ref().map_or(0, |server| server.disconnect(&volume.name()))
    }

    pub(crate) fn status(&self) -> NbdStatus {
        NbdStatus {
            socket: self.socket.clone(),
            tcp: self.tcp.clone(),
            connections: self.server_status().client_count() as u64,
        }
    }

    /// Presents these certificates to new clients.
    pub(crate) fn set_tls(&self, settings: TlsSettings) {
        if let Some(server) = &*self.server.lock().expect(NO_PANIC) {
            server.set_tls(settings);
        }
    }

    /// Answers requests that have arrived, for at most `drain`, and closes all connections.
    pub(crate) fn stop(&self, drain: Duration) {
        let server = self.server.lock().expect(NO_PANIC).take();
        let cut_count = server.map_or(0, |server| server.stop(drain));
        if cut_count > 0 {
            tracing::warn!(cut_count, "closing NBD connections with requests in flight");
        }
    }

    /// Traffic of clients since the start.
    pub(crate) fn server_status(&self) -> nbd::Status {
        self.server.lock().expect(NO_PANIC).as_ref().map(Server::status).unwrap_or_default()
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

impl From<config::TlsFiles> for TlsFiles {
    fn from(files: config::TlsFiles) -> Self {
        Self {
            certificate: files.certificate_chain,
            key: files.private_key,
            client_authorities: files.client_ca,
        }
    }
}

/// Access control for clients.
struct Door {
    catalog: Arc<Catalog>,
    rule: AccessRule,
    users: Arc<VolumeUsers>,
    /// Rules for clients over TCP.
    allowed: AllowList,
}

impl Door {
    /// Returns a function that determines the client's access to a volume.
    fn access_of<'door>(
        &'door self,
        client: &'door Client,
    ) -> impl Fn(&Volume) -> Option<NbdAccess> + 'door {
        let is_trusted = match client {
            Client::Local(peer) => self.rule.admits_peer(peer),
            Client::Anybody | Client::Certified(_) => false,
        };
        move |volume| match client {
            Client::Local(peer) => {
                let may_use = is_trusted || self.users.admits(volume.id(), peer.uid);
                may_use.then_some(NbdAccess::ReadWrite)
            }
            Client::Anybody => self.allowed.access(&volume.name(), |_| false),
            Client::Certified(certificate) => {
                self.allowed.access(&volume.name(), |name| certificate.is_for(name))
            }
        }
    }
}

impl Exports for Door {
    fn admits(&self, peer: &Peer) -> bool {
        self.rule.admits_peer(peer) || self.users.admits_somewhere(peer.uid)
    }

    fn find(&self, name: &str, client: &Client) -> Option<Export> {
        let volume = self.catalog.by_name(name)?;
        let access = self.access_of(client)(&volume)?;
        let name = volume.name();
        let device: Arc<dyn BlockDevice> = match access {
            NbdAccess::ReadWrite => self.catalog.device_beside(&volume),
            NbdAccess::ReadOnly => Arc::new(ReadOnly(self.catalog.device(&volume))),
        };
        Some(Export { name, description: String::new(), device })
    }

    fn list(&self, client: &Client) -> Vec<ExportInfo> {
        let access_of = self.access_of(client);
        let usable = self.catalog.listed().into_iter().filter(|volume| access_of(volume).is_some());
        let info =
            |volume: Arc<Volume>| ExportInfo { name: volume.name(), description: String::new() };
        usable.map(info).collect()
    }
}

/// Percent-encodes a path as a parameter value of a URI.
fn quoted(path: impl AsRef<Path>) -> String {
    let mut text = String::new();
    for &byte in path.as_ref().as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("text can always grow");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_over_tcp_sees_what_its_rules_allow_and_changes_no_more() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let door = Door {
            catalog: Arc::new(Catalog::in_folder(folder.path(), &["a", "b", "c"])),
            rule: AccessRule::of_this_host(),
            users: Arc::new(VolumeUsers::read(folder.path()).expect("an empty list")),
            allowed: AllowList(vec!["* = a, b:ro".parse().expect("a rule")]),
        };
        let listed = door.list(&Client::Anybody);
        let names: Vec<_> = listed.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let find = |name: &str| door.find(name, &Client::Anybody);
        let write = |name: &str| {
            let written = find(name).expect("it may be used").device.write(0, &[7; 4096]);
            written.map_err(|error| error.kind)
        };
        assert_eq!(write("a"), Ok(()));
        assert_eq!(write("b"), Err(block_device::DeviceErrorKind::ReadOnly));
        assert!(find("c").is_none());
    }

    #[test]
    fn a_path_in_a_uri_is_quoted() {
        assert_eq!(quoted("/run/memlane/nbd.sock"), "/run/memlane/nbd.sock");
        assert_eq!(quoted("/a b&c"), "/a%20b%26c");
    }
}
