//! Where images lie, as a trait.

use std::fmt::{self, Debug};

use storage::AlignedBuffer;

use crate::error::{ImageError, ImageErrorKind};
use crate::names::{ExtractName, PackName};

/// Kind and name of an object in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectName {
    /// The manifest of the image of this number, or what takes the number.
    Image(u32),
    Pack(PackName),
    /// A part of the journal, which continues an image.
    Extract(ExtractName),
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(number) => write!(f, "the manifest of image {number}"),
            Self::Pack(name) => write!(f, "pack {name}"),
            Self::Extract(name) => write!(f, "extract {name} of the journal"),
        }
    }
}

/// A place for images.
///
/// - **Threads.** Calls may run at the same time. Every call may wait for a disk or a network.
/// - **Durability.** What a call made is on stable storage when it returns, but for appends to a
///   pack, which are when the pack is finished.
/// - **Objects never change** once they are whole: they are made, read and removed.
pub trait ImageStore: Debug + Send + Sync {
    /// Begins a pack; it exists, if at all, only for its writer until it is finished.
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError>;

    /// Makes the manifest of image `number`, if it is not there: else the kind is `AlreadyExists`.
    /// This one call decides between two writers, so the kind is another where the store did not
    /// tell whose it is that is there. After a kill there is all of it, or nothing, or
    /// something whose first 4096 bytes are missing or zeros.
    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError>;

    /// Makes sure that [`ImageStore::create_image`] refuses a number that is taken: by `manifest`,
    /// which the caller has just made. Stores where that is certain have nothing to do.
    fn check_exclusive(&self, _number: u32, _manifest: &[u8]) -> Result<(), ImageError> {
        Ok(())
    }

    /// Makes sure that the manifest of an image is durable, whose making failed, or of which it is
    /// not known how it ended: others are removed because it is there. Stores whose objects are
    /// durable when they can be seen have nothing to do.
    fn confirm_image(&self, _number: u32) -> Result<(), ImageError> {
        Ok(())
    }

    /// Fills `into` from `offset` of an object. A range that ends past its end is an error.
    /// Fast when address, offset and length are multiples of 4096.
    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError>;

    /// Reads `length` bytes from `offset` of an object, multiples of 4096, in place of what `into`
    /// holds. A store that has to work on what it reads does so there, and may go by what it kept
    /// from reads before.
    fn read_to(
        &self,
        object: ObjectName,
        offset: u64,
        length: usize,
        into: &mut AlignedBuffer,
    ) -> Result<(), ImageError> {
        into.resize(length, 0);
        self.read(object, offset, into)
    }

    /// Forgets what was kept from reads, so that the next ones show what the store has now.
    fn forget_reads(&self) {}

    /// With how many reads at once much is read fastest.
    fn reads_at_once(&self) -> usize;

    /// All manifests with their sizes, ascending by number.
    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError>;

    /// All packs with their sizes, also those that were begun and not finished.
    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError>;

    /// Puts an extract of the journal, whole or not at all. One that is there under the name is
    /// replaced: whoever repeats an attempt puts the same. Fails with `Invalid` where the store
    /// takes none.
    fn put_extract(&self, name: ExtractName, _bytes: &AlignedBuffer) -> Result<(), ImageError> {
        Err(ImageError::new(ImageErrorKind::Invalid, format!("put extract {name} of the journal")))
    }

    /// All extracts of journals with their sizes, ascending by name.
    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        Ok(Vec::new())
    }

    /// Removes an object. That it is gone already is no error.
    fn remove(&self, object: ObjectName) -> Result<(), ImageError>;
}

/// A pack that is being written.
pub trait PackWriter: Debug + Send {
    /// Appends bytes, a multiple of 4096.
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError>;

    /// Makes the pack durable. A writer that is dropped before leaves nothing, or a pack that no
    /// image refers to.
    fn finish(self: Box<Self>) -> Result<(), ImageError>;
}
