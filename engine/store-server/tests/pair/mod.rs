//! A server and its clients, with certificates of a temporary authority.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

#[path = "../authority/mod.rs"]
mod authority;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use authority::Authority;
use image::ImageStore;
use store_server::{Patience, ServerSpec, StoreAddress, StoreClient, StoreServer, Visitors};
use tempfile::TempDir;
use tls::{TlsClientFiles, TlsFiles};

/// Timeouts long enough for a busy host, and short enough for tests of failures.
pub(crate) const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(20),
    attempt: Duration::from_secs(60),
    attempts_max: 3,
    total: Duration::from_secs(60),
};

/// Returns the TLS files of a client with this name.
pub(crate) fn client_files(authority: &Authority, name: &str) -> TlsClientFiles {
    let (certificate, key) = authority.issue(name);
    TlsClientFiles { certificate, key, authorities: authority.own_file.clone() }
}

/// Events that the server reported.
#[derive(Default)]
pub(crate) struct News(pub(crate) Mutex<Vec<String>>);

impl News {
    fn add(&self, text: String) {
        self.0.lock().expect("no test panics with it").push(text);
    }

    /// Waits until an event contains a text.
    pub(crate) fn wait_for(&self, text: &str) {
        let begun = std::time::Instant::now();
        loop {
            let all = self.0.lock().expect("no test panics with it").clone();
            if all.iter().any(|it| it.contains(text)) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no {text:?} in {all:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Visitors for News {
    fn came(&self, client: &str, _address: SocketAddr) {
        self.add(format!("came {client}"));
    }

    fn left(&self, client: &str) {
        self.add(format!("left {client}"));
    }

    fn refused(&self, _address: SocketAddr, why: &str) {
        self.add(format!("refused: {why}"));
    }
}

pub(crate) struct Pair {
    pub(crate) authority: Authority,
    pub(crate) folder: TempDir,
    pub(crate) spec: ServerSpec,
    pub(crate) news: Arc<News>,
    pub(crate) server: Option<StoreServer>,
}

impl Pair {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut ServerSpec)) -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        Self::start_in(folder, change)
    }

    pub(crate) fn start_in(folder: TempDir, change: impl FnOnce(&mut ServerSpec)) -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.issue("localhost");
        let client_authorities = Some(authority.own_file.clone());
        let mut spec = ServerSpec {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            directory: folder.path().join("store"),
            tls: TlsFiles { certificate, key, client_authorities },
            clients: Vec::new(),
            bytes_max: None,
        };
        change(&mut spec);
        let mut pair = Self { authority, folder, spec, news: Arc::default(), server: None };
        pair.start_again();
        pair
    }

    /// Starts the server, at its former address if it had one.
    pub(crate) fn start_again(&mut self) {
        let visitors: Arc<dyn Visitors> = Arc::<News>::clone(&self.news);
        let begun = std::time::Instant::now();
        let server = loop {
            match StoreServer::start(self.spec.clone(), Arc::clone(&visitors)) {
                Ok(server) => break server,
                // The threads of the former server may end a moment later than it.
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        self.spec.listen = server.address();
        self.server = Some(server);
    }

    pub(crate) fn place(&self) -> String {
        format!("memlane://localhost:{}", self.spec.listen.port())
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.spec.directory
    }

    pub(crate) fn client(&self) -> Arc<dyn ImageStore> {
        self.client_with(client_files(&self.authority, "writer.example"))
    }

    pub(crate) fn client_with(&self, tls: TlsClientFiles) -> Arc<dyn ImageStore> {
        let address = StoreAddress { place: self.place(), tls };
        Arc::new(StoreClient::with_patience(address, PATIENCE).expect("the files are whole"))
    }

    pub(crate) fn status(&self) -> store_server::ServerStatus {
        self.server.as_ref().expect("it runs").status()
    }
}
