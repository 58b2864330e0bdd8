//! The plainest image there is: one file, replaced at once, so that checkpoints have one.
//!
//! ```text
//! checksum  position  volumes
//!   of each: id  size  reduction  name length  name  blocks  of each: index  bytes
//! ```

use std::io::IoSlice;
use std::sync::Arc;

use block_device::BlockDevice;
use journal::Position;
use model::{Block, observe};
use powercut::Disk;
use storage::{AlignedBuffer, Folder, StorageError};
use volume::{Durability, Engine, Reduction};

use crate::support::site::{RecoveryError, is_missing};
use crate::support::truth::Listed;

const FOLDER: &str = "images";
const NAME: &str = "image";
const NEW_NAME: &str = "image-in-the-making";

/// A volume's id, what it is, and its blocks that hold something.
pub(crate) type ImagedVolume = (u64, Listed, Vec<(u64, Block)>);

pub(crate) struct PlainImage {
    pub(crate) position: Position,
    pub(crate) volumes: Vec<ImagedVolume>,
}

fn folder(disk: &Disk) -> Arc<dyn Folder> {
    disk.folder().folder(FOLDER).expect("the disk works")
}

impl PlainImage {
    /// Of all volumes of class `journal`, as they are now.
    pub(crate) fn of(engine: &Engine, position: Position) -> Self {
        let journaled = engine.volumes().into_iter();
        let journaled = journaled.filter(|it| it.durability() == Durability::Journal);
        let volumes = journaled.map(|volume| {
            let size_bytes = volume.geometry().size_bytes;
            let reduction = Reduction::ALL.iter().position(|it| *it == volume.reduction());
            let reduction = reduction.expect("all are listed");
            let listed = Listed { name: volume.name(), size_bytes, reduction };
            let blocks = (0..size_bytes / 4096)
                .filter_map(|block| Some((block, observe(&*volume, block)?)))
                .collect();
            (volume.id(), listed, blocks)
        });
        Self { position, volumes: volumes.collect() }
    }

    pub(crate) fn save(&self, disk: &Disk) -> Result<(), StorageError> {
        let folder = folder(disk);
        match folder.remove(NEW_NAME) {
            Err(error) if !is_missing(error.kind) => return Err(error),
            _ => {}
        }
        let file = folder.create(NEW_NAME, 0)?;
        file.write(0, &[IoSlice::new(&self.encode())])?;
        file.sync()?;
        folder.rename(NEW_NAME, NAME)?;
        folder.sync_names()
    }

    /// The image on the disk, if there is one.
    pub(crate) fn load(disk: &Disk) -> Result<Option<Self>, RecoveryError> {
        let file = match folder(disk).open(NAME) {
            Err(error) if is_missing(error.kind) => return Ok(None),
            opened => opened.expect("the disk works"),
        };
        let mut bytes = vec![0; usize::try_from(file.size_bytes()).expect("a small file")];
        file.read(0, &mut bytes).expect("the disk works");
        match Self::decode(&bytes) {
            Some(image) => Ok(Some(image)),
            None => Err(RecoveryError::Image),
        }
    }

    fn encode(&self) -> AlignedBuffer {
        let mut bytes = vec![0; 8];
        put(&mut bytes, self.position.0);
        put(&mut bytes, self.volumes.len() as u64);
        for (id, listed, blocks) in &self.volumes {
            let name = listed.name.as_bytes();
            for number in [*id, listed.size_bytes, listed.reduction as u64, name.len() as u64] {
                put(&mut bytes, number);
            }
            bytes.extend_from_slice(name);
            put(&mut bytes, blocks.len() as u64);
            for (block, contents) in blocks {
                put(&mut bytes, *block);
                bytes.extend_from_slice(contents);
            }
        }
        let sum = checksum(&bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        let mut aligned = AlignedBuffer::new();
        aligned.extend_from_slice(&bytes);
        aligned.pad_to_block();
        aligned
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let sum = take(&mut rest)?;
        let position = Position(take(&mut rest)?);
        let mut volumes = Vec::new();
        for _ in 0..take(&mut rest)? {
            let id = take(&mut rest)?;
            let size_bytes = take(&mut rest)?;
            let reduction = usize::try_from(take(&mut rest)?).ok()?;
            let length = usize::try_from(take(&mut rest)?).ok()?;
            let name = String::from_utf8(rest.split_off(..length)?.to_vec()).ok()?;
            let mut blocks = Vec::new();
            for _ in 0..take(&mut rest)? {
                let block = take(&mut rest)?;
                blocks.push((block, *rest.split_off(..4096)?.first_chunk()?));
            }
            volumes.push((id, Listed { name, size_bytes, reduction }, blocks));
        }
        let used = bytes.len() - rest.len();
        (checksum(&bytes[8..used]) == sum).then_some(Self { position, volumes })
    }
}

fn put(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?))
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(1, |sum, word| {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        (sum.rotate_left(5) ^ u64::from_le_bytes(padded)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}
