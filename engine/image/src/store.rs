//! The interface of a store of images.

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
    /// Begins a pack. Until it is finished, it exists for its writer only, if at all.
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError>;

    /// Creates the manifest of image `number`; fails with `AlreadyExists` if there is one. This
    /// call decides between two writers, so it returns another kind where the store did not tell
    /// whose manifest is there. After a kill the manifest is there whole, or not at all, or its
    /// first 4096 bytes are missing or zeros.
    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError>;

    /// Makes sure that [`ImageStore::create_image`] refuses a number that is taken: by `manifest`,
    /// which the caller has just created. A store that guarantees this does nothing.
    fn check_exclusive(&self, _number: u32, _manifest: &[u8]) -> Result<(), ImageError> {
        Ok(())
    }

    /// Makes sure that the manifest of an image is durable, when its creation failed or its outcome
    /// is unknown, before other images are deleted because of it. A store whose objects are durable
    /// as soon as they are visible does nothing.
    fn confirm_image(&self, _number: u32) -> Result<(), ImageError> {
        Ok(())
    }

    /// Fills `into` from `offset` of an object. A range past the end of the object is an error.
    /// Fast when address, offset and length are multiples of 4096.
    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError>;

    /// Reads `length` bytes from `offset` of an object, both multiples of 4096, replacing the
    /// contents of `into`. A store that has to transform what it reads does so in this buffer, and
    /// may use what it cached in earlier reads.
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

    /// Drops cached reads, so that the next reads return what the store has now.
    fn forget_reads(&self) {}

    /// Number of concurrent reads at which throughput is highest.
    fn reads_at_once(&self) -> usize;

    /// Lists all manifests with their sizes, in ascending order of number.
    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError>;

    /// Lists all packs with their sizes, unfinished ones included.
    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError>;

    /// Stores an extract of the journal atomically. An extract that exists under the name is
    /// replaced: a repeated attempt stores the same bytes. Fails with `Invalid` where the store
    /// takes no extracts.
    fn put_extract(&self, name: ExtractName, _bytes: &AlignedBuffer) -> Result<(), ImageError> {
        Err(ImageError::new(ImageErrorKind::Invalid, format!("put extract {name} of the journal")))
    }

    /// Lists all extracts of journals with their sizes, in ascending order of name.
    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        Ok(Vec::new())
    }

    /// Removes an object. A missing object is not an error.
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
