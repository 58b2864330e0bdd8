//! Receives objects in pieces into a folder.
//!
//! ```text
//! manifest, extract: temporary file ─▶ pieces ─▶ sync ─▶ named ─▶ names synced
//! part of a pack:    pieces at their offset in the pack ─▶ sync
//! ```
//!
//! A sender may repeat a request whose response was lost: a part writes the same bytes to the same
//! position, and an existing manifest with the same bytes is the sender's own. A manifest is never
//! visible before it is complete and durable.

use std::io::IoSlice;
use std::sync::{Arc, Mutex};

use storage::{AlignedBuffer, Folder, StableFile, StorageError, StorageErrorKind};

use crate::error::{ImageError, ImageErrorKind};
use crate::store::ObjectName;

/// Length of the pieces in which two manifests are compared.
const COMPARED_BYTES: usize = 1 << 20;

/// Suffix of the names of temporary files.
const UNFINISHED: &str = ".new";

/// Counter of temporary files.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<u64>);

impl Arrivals {
    /// Returns a name that no other arrival has, not even a repeated one of the same object: the
    /// first may still be writing. Extracts of several writers may arrive in one folder.
    fn next_name(&self, object: ObjectName) -> String {
        let mut count = self.0.lock().expect("no thread panics with this lock");
        *count += 1;
        match object {
            ObjectName::Extract(name) => format!("{:032x}-{count:010}{UNFINISHED}", name.writer),
            _ => format!("{count:010}{UNFINISHED}"),
        }
    }
}

/// Object being received. If it is dropped before [`Arrival::finish`], nothing remains, or the
/// beginning of a part.
#[derive(Debug)]
pub struct Arrival {
    object: ObjectName,
    folder: Arc<dyn Folder>,
    file: Arc<dyn StableFile>,
    end: u64,
    /// Name of the temporary file, and that of the object. `None` for a part of a pack.
    names: Option<(String, String)>,
}

impl Arrival {
    pub(crate) fn whole(
        folder: &Arc<dyn Folder>,
        (object, name): (ObjectName, String),
        arrivals: &Arrivals,
    ) -> Result<Self, ImageError> {
        let temporary = arrivals.next_name(object);
        let file = discard(&**folder, &temporary).and_then(|()| folder.create(&temporary, 0));
        let file = file.map_err(receiving(object))?;
        let names = Some((temporary, name));
        Ok(Self { object, folder: Arc::clone(folder), file, end: 0, names })
    }

    pub(crate) fn part(
        folder: &Arc<dyn Folder>,
        object: ObjectName,
        offset: u64,
    ) -> Result<Self, ImageError> {
        let ObjectName::Pack(name) = object else { unreachable!("only packs arrive in parts") };
        let name = name.to_string();
        let file = match folder.open(&name) {
            Err(error) if error.kind == StorageErrorKind::NotFound && offset == 0 => {
                // A repeated request may have created it meanwhile.
                folder.create(&name, 0).or_else(|error| folder.open(&name).map_err(|_| error))
            }
            opened => opened,
        };
        let file = file.map_err(receiving(object))?;
        Ok(Self { object, folder: Arc::clone(folder), file, end: offset, names: None })
    }

    /// Appends bytes, a multiple of 4096.
    pub fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let written = self.file.write(self.end, &[IoSlice::new(bytes)]);
        written.map_err(receiving(self.object))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Makes the received bytes durable, and a manifest or extract visible. `length_bytes` is given
    /// with the last part of a pack: the length that the whole pack must have. Fails with
    /// `AlreadyExists` if there is another manifest of this number.
    pub fn finish(mut self, length_bytes: Option<u64>) -> Result<(), ImageError> {
        let object = self.object;
        self.file.sync().map_err(receiving(object))?;
        let found_bytes = self.file.size_bytes();
        if let Some(expected) = length_bytes.filter(|&expected| expected != found_bytes) {
            let why = format!("it has {found_bytes} bytes, and {expected} were sent");
            let error = ImageError::new(ImageErrorKind::Damaged, format!("finish {object}"));
            return Err(error.with_source(why));
        }
        let Some((temporary, name)) = self.names.take() else { return Ok(()) };
        let named = self.give_name(&temporary, &name);
        if named.is_err() {
            // If this fails too, the next start of the server removes the file.
            let _ = self.folder.remove(&temporary);
        }
        named
    }

    fn give_name(&self, temporary: &str, name: &str) -> Result<(), ImageError> {
        let named = match self.object {
            ObjectName::Image(_) => match self.folder.publish(temporary, name) {
                // A repeated request whose first response was lost. The name of the existing file
                // may not be durable yet, so the file that was synced now replaces it.
                Err(error) if error.kind == StorageErrorKind::AlreadyExists => {
                    match self.is_same_as(name)? {
                        true => self.folder.rename(temporary, name),
                        false => Err(error),
                    }
                }
                published => published,
            },
            _ => self.folder.rename(temporary, name),
        };
        let durable = named.and_then(|()| self.folder.sync_names());
        durable.map_err(receiving(self.object))
    }

    /// Returns whether the file of this name has the received bytes. Fails with `Unavailable` if it
    /// cannot be read, because then its owner is unknown.
    fn is_same_as(&self, name: &str) -> Result<bool, ImageError> {
        let compare = || -> Result<bool, StorageError> {
            let other = self.folder.open(name)?;
            if other.size_bytes() != self.end {
                return Ok(false);
            }
            let (mut ours, mut theirs) = (AlignedBuffer::new(), AlignedBuffer::new());
            let mut offset = 0;
            while offset < self.end {
                let left = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
                let length = left.min(COMPARED_BYTES);
                ours.resize(length, 0);
                theirs.resize(length, 0);
                self.file.read(offset, &mut ours)?;
                other.read(offset, &mut theirs)?;
                if ours[..] != theirs[..] {
                    return Ok(false);
                }
                offset += length as u64;
            }
            Ok(true)
        };
        compare().map_err(|error| {
            let attempt = format!("determine which daemon wrote {}", self.object);
            ImageError::new(ImageErrorKind::Unavailable, attempt).with_source(error)
        })
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some((temporary, _)) = self.names.take() {
            // If this fails, the next start of the server removes the file.
            let _ = self.folder.remove(&temporary);
        }
    }
}

/// Removes the temporary files that a killed process left.
pub(crate) fn remove_unfinished(folder: &dyn Folder) -> Result<(), ImageError> {
    let files = folder.list().map_err(ImageError::storage(|| "list a served folder".to_owned()))?;
    for file in files.iter().filter(|file| file.name.ends_with(UNFINISHED)) {
        let attempt = || format!("remove the unfinished file {}", file.name);
        discard(folder, &file.name).map_err(ImageError::storage(attempt))?;
    }
    Ok(())
}

fn discard(folder: &dyn Folder, name: &str) -> Result<(), StorageError> {
    match folder.remove(name) {
        Err(error) if error.kind != StorageErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn receiving(object: ObjectName) -> impl FnOnce(StorageError) -> ImageError {
    ImageError::storage(move || format!("receive {object}"))
}
