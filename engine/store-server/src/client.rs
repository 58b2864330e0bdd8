//! Image store that a daemon of another host serves.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use image::{
    ExtractName, ImageError, ImageErrorKind, ImageStore, ObjectName, PackName, PackWriter,
};
use reqwest::Method;
use storage::AlignedBuffer;

use crate::connection::{Asking, Connection, Patience, RunOn, StoreAddress};
use crate::remote_pack::RemotePack;
use crate::wire::{FREE, Kind, READ_BYTES_MAX, REMOVED_COUNT_MAX, TAKEN, path_of, removal_of};

/// Number of concurrent reads, which mostly wait for the network and the server's disk.
const READS_AT_ONCE: usize = 4;

/// Maximum length of a listing: of about a million objects.
const LISTING_BYTES_MAX: usize = 64 << 20;

/// The store at `memlane://HOST:PORT`.
///
/// Requests run on the store's own threads, so its calls may block, but must not be made from a
/// task of an asynchronous runtime. Certificates are read again when the server refuses them.
pub struct StoreClient {
    connection: Arc<Connection>,
    place: String,
}

impl fmt::Debug for StoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "images in {}", self.place)
    }
}

impl StoreClient {
    /// Reads the certificates. Connects with the first request.
    pub fn new(address: StoreAddress) -> Result<Self, ImageError> {
        Self::with_patience(address, Patience::default())
    }

    /// Creates a client with the given timeouts and retries.
    pub fn with_patience(address: StoreAddress, patience: Patience) -> Result<Self, ImageError> {
        let place = address.place.clone();
        Ok(Self { connection: Arc::new(Connection::new(address, patience)?), place })
    }

    fn list<T>(
        &self,
        kind: Kind,
        of: impl Fn(ObjectName) -> Option<T>,
    ) -> Result<Vec<(T, u64)>, ImageError> {
        let attempt = || format!("list the {}", kind.word());
        let asking = Asking {
            method: Method::GET,
            path: kind.word().to_owned(),
            body: Bytes::new(),
            answer_bytes_max: LISTING_BYTES_MAX,
        };
        let answer = self.connection.ask(asking, attempt)?;
        let line = |line: &str| {
            let (name, bytes) = line.split_once(' ')?;
            Some((of(kind.object(name)?)?, bytes.parse().ok()?))
        };
        let text = std::str::from_utf8(&answer).unwrap_or("?");
        let listed: Option<Vec<_>> = text.lines().map(line).collect();
        listed.ok_or_else(|| {
            let error = ImageError::new(ImageErrorKind::Invalid, attempt());
            error.with_source(format!("{} answered with no list of objects", self.place))
        })
    }

    fn read_piece(
        &self,
        object: ObjectName,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ImageError> {
        let attempt = || format!("read {} bytes at {offset} of {object}", into.len());
        let asking = Asking {
            method: Method::GET,
            path: format!("{}?offset={offset}&length={}", path_of(object), into.len()),
            body: Bytes::new(),
            answer_bytes_max: into.len(),
        };
        let answer = self.connection.ask(asking, attempt)?;
        if answer.len() != into.len() {
            let error = ImageError::new(ImageErrorKind::Damaged, attempt());
            return Err(error.with_source("the server answered with fewer bytes"));
        }
        into.copy_from_slice(&answer);
        Ok(())
    }

    /// Removes at most [`REMOVED_COUNT_MAX`] extracts by one request.
    fn remove_together(&self, names: &[ExtractName]) -> Result<(), ImageError> {
        let asking = Asking {
            method: Method::DELETE,
            path: Kind::Journal.word().to_owned(),
            body: removal_of(names).into(),
            answer_bytes_max: 0,
        };
        let attempt = || format!("remove {} extracts of the journal", names.len());
        self.connection.ask(asking, attempt).map(drop)
    }

    fn tell(
        &self,
        method: Method,
        object: ObjectName,
        body: Bytes,
        attempt: impl FnOnce() -> String,
    ) -> Result<(), ImageError> {
        let asking = Asking { method, path: path_of(object), body, answer_bytes_max: 0 };
        self.connection.ask(asking, attempt).map(drop)
    }
}

impl ImageStore for StoreClient {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        Ok(Box::new(RemotePack::new(Arc::clone(&self.connection), name)))
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        let body = Bytes::copy_from_slice(manifest);
        let attempt = || format!("create the manifest of image {number}");
        self.tell(Method::PUT, ObjectName::Image(number), body, attempt)
    }

    fn confirm_image(&self, number: u32) -> Result<(), ImageError> {
        let attempt = || format!("make the manifest of image {number} durable");
        self.tell(Method::POST, ObjectName::Image(number), Bytes::new(), attempt)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        let mut at = offset;
        for piece in into.chunks_mut(READ_BYTES_MAX) {
            self.read_piece(object, at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn reads_at_once(&self) -> usize {
        READS_AT_ONCE
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        let number = |object| match object {
            ObjectName::Image(number) => Some(number),
            _ => None,
        };
        let mut images = self.list(Kind::Images, number)?;
        images.sort_unstable();
        Ok(images)
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        let name = |object| match object {
            ObjectName::Pack(name) => Some(name),
            _ => None,
        };
        self.list(Kind::Packs, name)
    }

    fn put_extract(&self, name: ExtractName, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let object = ObjectName::Extract(name);
        let body = Bytes::copy_from_slice(bytes);
        self.tell(Method::PUT, object, body, || format!("put {object}"))
    }

    fn put_extract_and_look(
        &self,
        name: ExtractName,
        bytes: &AlignedBuffer,
        number: u32,
    ) -> Result<bool, ImageError> {
        let object = ObjectName::Extract(name);
        let attempt = || format!("put {object}");
        let asking = Asking {
            method: Method::PUT,
            path: format!("{}?look={number}", path_of(object)),
            body: Bytes::copy_from_slice(bytes),
            answer_bytes_max: FREE.len().max(TAKEN.len()),
        };
        // Flushes wait for it.
        let answer = self.connection.ask_on(RunOn::OwnThread, asking, attempt)?;
        match std::str::from_utf8(&answer) {
            Ok(FREE) => Ok(false),
            Ok(TAKEN) => Ok(true),
            // The server has not looked.
            _ => self.has_image(number),
        }
    }

    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        let name = |object| match object {
            ObjectName::Extract(name) => Some(name),
            _ => None,
        };
        let mut extracts = self.list(Kind::Journal, name)?;
        extracts.sort_unstable();
        Ok(extracts)
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        self.tell(Method::DELETE, object, Bytes::new(), || format!("remove {object}"))
    }

    fn remove_extracts(&self, names: &[ExtractName]) -> Result<(), ImageError> {
        let one_by_one = || names.iter().try_for_each(|&it| self.remove(ObjectName::Extract(it)));
        if names.len() < 2 {
            return one_by_one();
        }
        match self.remove_together(&[]) {
            // A server of an earlier release.
            Err(error) if error.kind == ImageErrorKind::Invalid => one_by_one(),
            Err(error) => Err(error),
            Ok(()) => {
                names.chunks(REMOVED_COUNT_MAX).try_for_each(|names| self.remove_together(names))
            }
        }
    }
}
