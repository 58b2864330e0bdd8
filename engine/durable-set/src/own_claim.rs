//! Record of a daemon's claims on its image store, in a file of the journal folder.
//!
//! After a takeover by another daemon, this daemon must not claim the store again at a restart: it
//! would fence the other daemon, whose data it lacks. The file contains the daemon's id, which is
//! in each of its claims, and the highest image number when it claimed the store from another
//! writer. A claim of another daemon with a higher number is a takeover.
//!
//! The file also contains the guarantee of the claims about flushes ([`Mirroring`]). It is never
//! weaker than in the store: it is raised before a stronger claim and lowered after a weaker one.
//! So a start without access to the store knows whether flushes must wait for the store.
//!
//! Without the file, the store is claimed regardless of its last writer.

use std::io::IoSlice;

use image::{Claims, ImageError, ImageErrorKind, Mirroring, StoreWriter};
use storage::{AlignedBuffer, BLOCK_BYTES, Folder, StorageError, StorageErrorKind};

use crate::error::{DurableError, DurableErrorKind};

/// File name of the record.
const FILE: &str = "claim";

/// Temporary file name of the record.
const NEW_FILE: &str = "claim-new";

const MAGIC: &str = "memlane claim 1";

/// Guarantees and their names in the file.
const WORDS: [(Mirroring, &str); 3] =
    [(Mirroring::Off, "off"), (Mirroring::MayStop, "may-stop"), (Mirroring::Always, "always")];

const READ: &str = "read the file claim in the journal's directory";

/// Record of the claims of this daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnClaim {
    pub(crate) daemon_id: u128,
    /// Highest image number in use when the store was claimed from another writer.
    pub(crate) known_number: u32,
    /// Strongest guarantee that the claims in the store may have.
    pub(crate) mirroring: Mirroring,
    /// True if the store has a claim of this daemon.
    pub(crate) is_confirmed: bool,
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

    /// Reads the file, or returns the record of a new daemon with id `writer_id`.
    pub fn read_or_begin(folder: &dyn Folder, writer_id: u128) -> Result<Self, DurableError> {
        let known = Self::read(folder)?;
        // Without a file, all claims of other daemons count as older.
        Ok(known.unwrap_or(Self {
            daemon_id: writer_id,
            known_number: u32::MAX,
            mirroring: Mirroring::Off,
            is_confirmed: false,
        }))
    }

    /// Fails if another daemon has claimed the store since this one did.
    pub fn check(&self, claims: &Claims) -> Result<(), ImageError> {
        if let Some(number) = claims.unread.filter(|&number| number > self.known_number) {
            let attempt = format!("determine which daemon wrote image {number}");
            return Err(ImageError::new(ImageErrorKind::Unavailable, attempt));
        }
        let is_own = |(_, writer): &(u32, StoreWriter)| writer.daemon_id == self.daemon_id;
        let must_be_own = self.is_confirmed && self.mirroring == Mirroring::Always;
        if must_be_own && !claims.newest.as_ref().is_some_and(is_own) {
            return Err(self.other_store(claims));
        }
        match &claims.newest {
            Some((number, writer)) if self.is_taken_over(claims) => {
                Err(taken_over(*number, writer))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the newest claim is of another daemon that took over from this one.
    pub fn is_taken_over(&self, claims: &Claims) -> bool {
        claims.newest.as_ref().is_some_and(|(number, writer)| {
            *number > self.known_number && ![0, self.daemon_id].contains(&writer.daemon_id)
        })
    }

    /// Error for a store without a claim of this daemon, which mirrored flushes to another store.
    fn other_store(&self, claims: &Claims) -> ImageError {
        match &claims.newest {
            Some((number, writer)) if *number > self.known_number => taken_over(*number, writer),
            _ => {
                let why = "it has no claim of this daemon, which mirrors flushes to another image \
                           store, or did so last; configure that store, or, if it is lost for \
                           good, delete the file claim in the journal's directory and start \
                           again: do not promote a standby of that store then";
                ImageError::new(ImageErrorKind::Fenced, "claim the store again").with_source(why)
            }
        }
    }

    /// Returns the daemon's id in its claims.
    pub fn daemon_id(&self) -> u128 {
        self.daemon_id
    }

    /// Fails if another daemon has claimed the store since this one did. Otherwise records that the
    /// store is about to be claimed, if the newest claim is of another daemon. A stronger guarantee
    /// about flushes is recorded in any case.
    pub fn approve(
        &mut self,
        claims: &Claims,
        mirroring: Mirroring,
        folder: &dyn Folder,
    ) -> Result<(), ImageError> {
        self.check(claims)?;
        let noted = self.note_claiming(claims, mirroring, folder);
        match noted {
            // Then the claim is not recorded, as without a file.
            Err(_) if mirroring == Mirroring::Off => Ok(()),
            noted => noted.map_err(|error| {
                let attempt = "record in the journal's directory that flushes are mirrored";
                ImageError::new(ImageErrorKind::Unavailable, attempt).with_source(error)
            }),
        }
    }

    /// Records that a standby is about to claim the store from its writer. The writer's guarantee
    /// remains in force until the next claim.
    pub fn take_over(&mut self, claims: &Claims, folder: &dyn Folder) -> Result<(), StorageError> {
        self.note_claiming(claims, claims.mirroring.min(Mirroring::Always), folder)
    }

    fn note_claiming(
        &mut self,
        claims: &Claims,
        mirroring: Mirroring,
        folder: &dyn Folder,
    ) -> Result<(), StorageError> {
        let newest = claims.newest.as_ref();
        let is_own = newest.is_some_and(|(_, writer)| writer.daemon_id == self.daemon_id);
        self.note(folder, |noted| {
            noted.mirroring = noted.mirroring.max(mirroring);
            if !is_own {
                (noted.known_number, noted.is_confirmed) = (claims.top_number, false);
            }
        })
    }

    /// Records that the store has a claim of this daemon with this guarantee. The guarantee in the
    /// store is never stronger than in the file.
    pub(crate) fn note_claimed(
        &mut self,
        mirroring: Mirroring,
        folder: &dyn Folder,
    ) -> Result<(), ImageError> {
        let noted = self.note(folder, |noted| {
            (noted.mirroring, noted.is_confirmed) = (mirroring, true);
        });
        match noted {
            // The old record only makes flushes wait for the store at the next start.
            Err(_) if mirroring == Mirroring::Off => Ok(()),
            noted => noted.map_err(|error| {
                let attempt = "record in the journal's directory that the store was claimed";
                ImageError::new(ImageErrorKind::Unavailable, attempt).with_source(error)
            }),
        }
    }

    fn note(
        &mut self,
        folder: &dyn Folder,
        change: impl FnOnce(&mut Self),
    ) -> Result<(), StorageError> {
        let mut noted = *self;
        change(&mut noted);
        if noted != *self {
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
        let Self { daemon_id, known_number, mirroring, is_confirmed } = self;
        let word = WORDS.iter().find(|(known, _)| known == mirroring);
        let (_, mirroring) = word.expect("a promotion alone promises nothing, and is not noted");
        let text = format!(
            "{MAGIC}\ndaemon {daemon_id:032x}\nnumber {known_number}\nmirroring {mirroring}\n\
             confirmed {is_confirmed}\n"
        );
        format!("{text}{}\n", blake3::hash(text.as_bytes()).to_hex())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let magic = lines.next()?;
        let daemon = lines.next()?.strip_prefix("daemon ")?;
        let number = lines.next()?.strip_prefix("number ")?;
        let mirroring = lines.next()?.strip_prefix("mirroring ")?;
        let is_confirmed = lines.next()?.strip_prefix("confirmed ")?;
        let known = Self {
            daemon_id: u128::from_str_radix(daemon, 16).ok()?,
            known_number: number.parse().ok()?,
            mirroring: WORDS.iter().find(|(_, word)| *word == mirroring)?.0,
            is_confirmed: is_confirmed.parse().ok()?,
        };
        let is_whole = magic == MAGIC && text.starts_with(&known.encode());
        is_whole.then_some(known)
    }
}

/// Error for a store that another daemon has claimed.
fn taken_over(number: u32, writer: &StoreWriter) -> ImageError {
    let host = match writer.host.as_str() {
        "" => String::new(),
        host => format!(" on the host {host}"),
    };
    let why = format!(
        "another daemon{host} has claimed it since, with number {number}; make this daemon a \
         standby, or, to replace everything that the other has saved, stop both, delete the file \
         claim in this daemon's journal directory, and start this one"
    );
    ImageError::new(ImageErrorKind::Fenced, "claim the store again").with_source(why)
}

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> DurableError {
    DurableError::new(DurableErrorKind::Images, READ).with_source(cause)
}
