//! Memory of the claims of a daemon on its image store, in a file of the journal folder.
//!
//! A daemon that was replaced by another must not claim the store again after a restart: it would
//! fence the other, whose data it lacks. The file has the daemon's id, which is in each of its
//! claims, and the highest number that the store had when it claimed it from somebody else. A later
//! claim of another daemon is therefore a takeover. Without the file nothing is known, and the
//! store is claimed whoever wrote to it before.

use std::io::IoSlice;

use image::{Claims, ImageError, ImageErrorKind};
use storage::{AlignedBuffer, BLOCK_BYTES, Folder, StorageError, StorageErrorKind};

use crate::error::{DurableError, DurableErrorKind};

/// Name of the file.
const FILE: &str = "claim";

/// Temporary name of it.
const NEW_FILE: &str = "claim-new";

const MAGIC: &str = "memlane claim 1";

const READ: &str = "read the file claim in the folder of the journal";

/// Claims of this daemon so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnClaim {
    pub(crate) daemon_id: u128,
    /// Numbers up to this one were taken when the store was claimed from somebody else.
    pub(crate) known_number: u32,
}

impl OwnClaim {
    /// Reads the file. Returns `None` if it does not exist.
    pub fn read(folder: &dyn Folder) -> Result<Option<Self>, DurableError> {
        let file = match folder.open(FILE) {
            Ok(file) => file,
            Err(error) if error.kind == StorageErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
        if file.size_bytes() >= BLOCK_BYTES as u64 {
            file.read(0, &mut bytes).map_err(failed)?;
        }
        match Self::decode(&bytes) {
            Some(known) => Ok(Some(known)),
            None => Err(failed("it is corrupt; delete it if no other daemon has taken over")),
        }
    }

    /// Returns what is known for a claim by `writer_id`: the file, or that of a new daemon.
    pub fn read_or_begin(folder: &dyn Folder, writer_id: u128) -> Result<Self, DurableError> {
        let known = Self::read(folder)?;
        // Nothing is known of another daemon's claims, so all of them are older.
        Ok(known.unwrap_or(Self { daemon_id: writer_id, known_number: u32::MAX }))
    }

    /// Fails if another daemon has claimed the store since this one did.
    pub fn check(&self, claims: &Claims) -> Result<(), ImageError> {
        if let Some(number) = claims.unread.filter(|&number| number > self.known_number) {
            let attempt = format!("find out which daemon has written image {number}");
            return Err(ImageError::new(ImageErrorKind::Unavailable, attempt));
        }
        let Some((number, writer)) = &claims.newest else { return Ok(()) };
        let is_known = *number <= self.known_number;
        if is_known || [0, self.daemon_id].contains(&writer.daemon_id) {
            return Ok(());
        }
        let host = match writer.host.as_str() {
            "" => String::new(),
            host => format!(" on the host {host}"),
        };
        let why = format!(
            "another daemon{host} has claimed it since, with number {number}; make this daemon a \
             standby, or, to replace everything that the other has saved, stop both, delete the \
             file claim in the folder of this daemon's journal, and start this one"
        );
        Err(ImageError::new(ImageErrorKind::Fenced, "claim the store again").with_source(why))
    }

    /// Id that the daemon's claims have.
    pub fn daemon_id(&self) -> u128 {
        self.daemon_id
    }

    /// Fails if another daemon has claimed the store since this one did. Otherwise notes that the
    /// store is about to be claimed, if the newest claim is not one of this daemon.
    pub fn approve(&mut self, claims: &Claims, folder: &dyn Folder) -> Result<(), ImageError> {
        self.check(claims)?;
        // Without the note this claim counts as one of which nothing is known.
        let _noted = self.take_over(claims, folder);
        Ok(())
    }

    /// Notes that the store is about to be claimed, also if another daemon has claimed it since.
    pub fn take_over(&mut self, claims: &Claims, folder: &dyn Folder) -> Result<(), StorageError> {
        let newest = claims.newest.as_ref();
        if newest.is_none_or(|(_, writer)| writer.daemon_id != self.daemon_id) {
            let noted = Self { known_number: claims.top_number, ..*self };
            noted.write(folder)?;
            *self = noted;
        }
        Ok(())
    }

    /// Replaces the file atomically: a kill or power loss leaves the old or the new one.
    fn write(&self, folder: &dyn Folder) -> Result<(), StorageError> {
        match folder.remove(NEW_FILE) {
            Err(error) if error.kind != StorageErrorKind::NotFound => return Err(error),
            _ => folder.sync_names()?,
        }
        let mut bytes = AlignedBuffer::with_capacity(BLOCK_BYTES);
        bytes.extend_from_slice(self.encode().as_bytes());
        bytes.pad_to_block();
        let file = folder.create(NEW_FILE, bytes.len() as u64)?;
        file.write_durably(0, &[IoSlice::new(&bytes)])?;
        folder.rename(NEW_FILE, FILE)?;
        folder.sync_names()
    }

    fn encode(&self) -> String {
        let Self { daemon_id, known_number } = self;
        let text = format!("{MAGIC}\ndaemon {daemon_id:032x}\nnumber {known_number}\n");
        format!("{text}{}\n", blake3::hash(text.as_bytes()).to_hex())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let magic = lines.next()?;
        let daemon = lines.next()?.strip_prefix("daemon ")?;
        let number = lines.next()?.strip_prefix("number ")?;
        let known = Self {
            daemon_id: u128::from_str_radix(daemon, 16).ok()?,
            known_number: number.parse().ok()?,
        };
        let is_whole = magic == MAGIC && text.starts_with(&known.encode());
        is_whole.then_some(known)
    }
}

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> DurableError {
    DurableError::new(DurableErrorKind::Images, READ).with_source(cause)
}
