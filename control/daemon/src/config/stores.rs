//! Location of the image store, and the store that the daemon serves.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use store_server::{StoreAddress, TlsClientFiles};

use crate::config::TlsFiles;
use crate::config::settings::{ImagesSettings, StoreServerSettings};

/// Location of the image store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StorePlace {
    Directory(PathBuf),
    /// URL of an object store.
    Url(String),
    /// Store that a daemon of another host serves.
    Served(StoreAddress),
}

/// An image store that this daemon serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreServerConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) directory: PathBuf,
    pub(crate) tls: TlsFiles,
    /// Names of clients. Empty: all that the authority has certified.
    pub(crate) clients: Vec<String>,
    pub(crate) bytes_max: Option<u64>,
}

pub(super) fn place(images: &ImagesSettings, state_dir: &Path) -> anyhow::Result<StorePlace> {
    let ImagesSettings { store_certificate, store_key, store_ca, .. } = images;
    let files = (store_certificate, store_key, store_ca);
    let Some(place) = &images.store else {
        refuse_files(files)?;
        return Ok(StorePlace::Directory(state_dir.join("images")));
    };
    if StoreAddress::is_one(place) {
        let (Some(certificate), Some(key), Some(authorities)) = files else {
            bail!("store = {place:?} in [images] needs store-certificate, store-key and store-ca");
        };
        let (certificate, key, authorities) =
            (certificate.clone(), key.clone(), authorities.clone());
        let tls = TlsClientFiles { certificate, key, authorities };
        let address = StoreAddress { place: place.clone(), tls };
        address.check().context("store in [images] cannot be used")?;
        return Ok(StorePlace::Served(address));
    }
    refuse_files(files)?;
    match place {
        place if place.starts_with('/') => Ok(StorePlace::Directory(place.into())),
        place if place.starts_with("file:///") => {
            Ok(StorePlace::Directory(place.trim_start_matches("file://").into()))
        }
        place if place.starts_with("s3://") => Ok(StorePlace::Url(place.clone())),
        place => bail!(
            "store = {place:?} in [images] is neither a path that begins with / nor a URL of the \
             form s3://BUCKET/PREFIX or memlane://HOST:PORT"
        ),
    }
}

type Files<'settings> =
    (&'settings Option<PathBuf>, &'settings Option<PathBuf>, &'settings Option<PathBuf>);

/// Refuses certificates for a store that is not served by a daemon.
fn refuse_files((certificate, key, authorities): Files<'_>) -> anyhow::Result<()> {
    if certificate.is_some() || key.is_some() || authorities.is_some() {
        bail!(
            "store-certificate, store-key and store-ca in [images] are for a store at \
             memlane://HOST:PORT only"
        );
    }
    Ok(())
}

pub(super) fn server(settings: &StoreServerSettings) -> anyhow::Result<Option<StoreServerConfig>> {
    let StoreServerSettings { listen, directory, certificate, key, client_ca, .. } = settings;
    if *settings == StoreServerSettings::default() {
        return Ok(None);
    }
    let (Some(listen), Some(directory), Some(certificate), Some(key), Some(client_ca)) =
        (listen, directory, certificate, key, client_ca)
    else {
        bail!("[store-server] needs listen, directory, certificate, key and client-ca");
    };
    if !directory.is_absolute() {
        bail!("directory = {directory:?} in [store-server] is relative; use an absolute path");
    }
    if settings.clients.as_ref().is_some_and(Vec::is_empty) {
        bail!("clients = [] in [store-server] admits nobody; name clients, or leave it out");
    }
    let tls = TlsFiles {
        certificate_chain: certificate.clone(),
        private_key: key.clone(),
        client_ca: Some(client_ca.clone()),
    };
    Ok(Some(StoreServerConfig {
        listen: *listen,
        directory: directory.clone(),
        tls,
        clients: settings.clients.clone().unwrap_or_default(),
        bytes_max: settings.max_bytes.map(|size| size.0),
    }))
}
