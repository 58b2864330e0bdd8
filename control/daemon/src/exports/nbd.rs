//! Volumes over NBD: export name = volume name.

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use api::NbdStatus;
use nbd::{Config, Export, ExportInfo, Exports, Server, TlsFiles};
use volume::Volume;
use waiting::{SPIN_MAX_DEFAULT, SpinPermits};

use crate::config::NbdConfig;
use crate::exports::Catalog;

/// Clients of one listener at once.
const CONNECTION_COUNT_MAX: usize = 1024;

/// How long a client may take to choose an export.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The running server. After [`NbdExport::stop`] it answers as if nobody were connected.
pub(crate) struct NbdExport {
    server: Mutex<Option<Server>>,
    socket: String,
    tcp: Option<String>,
}

/// What clients did since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NbdCounts {
    pub(crate) connections: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) traffic: nbd::Traffic,
}

impl NbdExport {
    pub(crate) fn start(
        config: &NbdConfig,
        catalog: Arc<Catalog>,
        spin_permits: Arc<SpinPermits>,
    ) -> anyhow::Result<Self> {
        let tls = config.tls.as_ref().map(|files| TlsFiles {
            certificate: files.certificate_chain.clone(),
            key: files.private_key.clone(),
            client_authorities: files.client_ca.clone(),
        });
        let server = Server::start(
            Config {
                unix_path: config.socket.clone(),
                tcp: config.tcp,
                tls,
                connection_count_max: CONNECTION_COUNT_MAX,
                handshake_time_max: HANDSHAKE_TIME_MAX,
                spin_permits,
                spin_max: SPIN_MAX_DEFAULT,
                // Threads inherit what they need from the one that started them.
                thread_start: || (),
            },
            catalog,
        )
        .context("cannot serve NBD")?;
        let tcp = server.tcp_address().map(|address| address.to_string());
        let socket = config.socket.display().to_string();
        tracing::info!(socket, tcp, "NBD is served");
        Ok(Self { server: Mutex::new(Some(server)), socket, tcp })
    }

    /// Where clients find a volume of this name.
    pub(crate) fn uri_of(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", quoted(&self.socket))
    }

    pub(crate) fn connection_count_of(&self, volume: &Volume) -> usize {
        self.server_status().connections.get(&volume.name()).copied().unwrap_or(0)
    }

    pub(crate) fn status(&self) -> NbdStatus {
        NbdStatus {
            socket: self.socket.clone(),
            tcp: self.tcp.clone(),
            connections: self.counts().connections,
        }
    }

    pub(crate) fn counts(&self) -> NbdCounts {
        let status = self.server_status();
        let connections = status.handshakes + status.connections.values().sum::<usize>();
        NbdCounts {
            connections: connections as u64,
            accepted: status.accepted,
            refused: status.refused,
            traffic: status.traffic,
        }
    }

    /// Answers what has arrived, for `drain` at most, and ends all connections.
    pub(crate) fn stop(&self, drain: Duration) {
        let server = self.server.lock().expect(NO_PANIC).take();
        let cut_count = server.map_or(0, |server| server.stop(drain));
        if cut_count > 0 {
            tracing::warn!(cut_count, "NBD connections were cut that did not drain in time");
        }
    }

    fn server_status(&self) -> nbd::Status {
        self.server.lock().expect(NO_PANIC).as_ref().map(Server::status).unwrap_or_default()
    }
}

const NO_PANIC: &str = "nobody panics with this lock";

impl Exports for Catalog {
    fn find(&self, name: &str) -> Option<Export> {
        let device = self.by_name(name)?;
        Some(Export { name: device.name(), description: String::new(), device })
    }

    fn list(&self) -> Vec<ExportInfo> {
        let info =
            |volume: &Arc<Volume>| ExportInfo { name: volume.name(), description: String::new() };
        self.engine.volumes().iter().chain(&self.engine.snapshots()).map(info).collect()
    }
}

/// A path as the value of a parameter in a URI.
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
    fn a_path_in_a_uri_is_quoted() {
        assert_eq!(quoted("/run/memlane/nbd.sock"), "/run/memlane/nbd.sock");
        assert_eq!(quoted("/a b&c"), "/a%20b%26c");
    }
}
