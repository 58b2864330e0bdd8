//! Interface of an image store.

use std::fmt::{self, Debug};

use storage::AlignedBuffer;

use crate::error::{ImageError, ImageErrorKind};
use crate::format::ALIGNMENT_BYTES;
use crate::names::{ExtractName, PackName};

/// Kind and name of an object in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectName {
    /// Manifest of the image with this number, or a fence that takes the number.
    Image(u32),
    Pack(PackName),
    /// Part of the journal, which continues an image.
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

/// Storage for images.
///
/// - **Threads.** Calls may be concurrent. Every call may block on a disk or a network.
/// - **Durability.** On return, the result of a call is on stable storage. Appends to a pack are
///   durable once the pack is finished.
/// - **Objects are immutable** once complete: they are created, read and removed.
pub trait ImageStore: Debug + Send + Sync {
    /// Begins a pack. Until it is finished, it is visible at most to its writer.
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError>;

    /// Creates the manifest of image `number`. Fails with `AlreadyExists` if there is one. This
    /// call decides between two writers. Therefore it returns another kind if it is unknown which
    /// writer created the existing manifest. After a kill the manifest is complete or missing, or
    /// its first 4096 bytes are missing or zeros.
    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError>;

    /// Checks that [`ImageStore::create_image`] rejects a number taken by `manifest`, which the
    /// caller has just created. A store that guarantees this does nothing.
    fn check_exclusive(&self, _number: u32, _manifest: &[u8]) -> Result<(), ImageError> {
        Ok(())
    }

    /// Makes the manifest of an image durable if its creation failed or its outcome is unknown.
    /// Called before other images are deleted in favour of it. A store whose objects are durable
    /// once visible does nothing.
    fn confirm_image(&self, _number: u32) -> Result<(), ImageError> {
        Ok(())
    }

    /// Fills `into` from `offset` of an object. A range past the end of the object is an error.
    /// Fast if address, offset and length are multiples of 4096.
    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError>;

    /// Reads `length` bytes from `offset` of an object, both multiples of 4096, replacing the
    /// contents of `into`. A store that transforms data does so in this buffer, and may use data
    /// cached by earlier reads.
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

    /// Drops cached reads, so that subsequent reads return the store's current contents.
    fn forget_reads(&self) {}

    /// Returns the number of concurrent reads with the highest throughput.
    fn reads_at_once(&self) -> usize;

    /// Returns whether there is a manifest of this number, unfinished ones included.
    fn has_image(&self, number: u32) -> Result<bool, ImageError> {
        let mut header = AlignedBuffer::zeroed(ALIGNMENT_BYTES);
        match self.read(ObjectName::Image(number), 0, &mut header) {
            Ok(()) => Ok(true),
            Err(error) => match error.kind {
                ImageErrorKind::NotFound => Ok(false),
                // It is there, and shorter.
                ImageErrorKind::Damaged => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Lists all manifests with their sizes, in ascending order of number.
    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError>;

    /// Lists all packs with their sizes, unfinished ones included.
    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError>;

    /// Stores a journal extract atomically. Replaces an existing extract of this name: a repeated
    /// attempt stores the same bytes. Fails with `Invalid` if the store does not accept extracts.
    fn put_extract(&self, name: ExtractName, _bytes: &AlignedBuffer) -> Result<(), ImageError> {
        Err(ImageError::new(ImageErrorKind::Invalid, format!("put extract {name} of the journal")))
    }

    /// Stores an extract as [`ImageStore::put_extract`] does, and returns whether there is a
    /// manifest of this number afterwards.
    fn put_extract_and_look(
        &self,
        name: ExtractName,
        bytes: &AlignedBuffer,
        number: u32,
    ) -> Result<bool, ImageError> {
        self.put_extract(name, bytes)?;
        self.has_image(number)
    }

    /// Lists all journal extracts with their sizes, in ascending order of name.
    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        Ok(Vec::new())
    }

    /// Removes an object. A missing object is not an error.
    fn remove(&self, object: ObjectName) -> Result<(), ImageError>;

    /// Removes journal extracts, in ascending order of name. A kill leaves the end of the sequence;
    /// a power loss may leave any of them.
    fn remove_extracts(&self, names: &[ExtractName]) -> Result<(), ImageError> {
        names.iter().try_for_each(|&name| self.remove(ObjectName::Extract(name)))
    }
}

/// A pack being written.
pub trait PackWriter: Debug + Send {
    /// Appends bytes, a multiple of 4096.
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError>;

    /// Makes the pack durable. A writer that is dropped before leaves nothing, or an unreferenced
    /// pack.
    fn finish(self: Box<Self>) -> Result<(), ImageError>;
}
