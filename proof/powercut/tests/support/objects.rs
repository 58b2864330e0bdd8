//! Images in an object store simulated beside the disk: answers are lost, and objects that were
//! given up arrive late.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use image::{ImageError, ImageErrorKind, ImageStore, ObjectName, PackName, PackWriter};
use model::Random;
use powercut::{Disk, LateObject, Objects};
use storage::{AlignedBuffer, StorageError, StorageErrorKind};

use crate::support::kinds::count;

/// One in this many objects has an unusual fate.
const UNUSUAL_ONE_IN: u64 = 12;

/// A store of images in objects of a disk. Clones refer to the same store.
#[derive(Clone, Debug)]
pub(crate) struct RemoteStore(std::sync::Arc<Remote>);

#[derive(Debug)]
struct Remote {
    images: Objects,
    packs: Objects,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of puts of each object.
    puts: BTreeMap<ObjectName, u64>,
    late: Option<(ObjectName, LateObject)>,
    /// No answer is lost.
    is_well: bool,
}

/// Fate of an object that is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// The object exists, but its sender gets an error.
    AnswerLost,
    /// Same, and the object becomes visible at a later request.
    Late,
}

/// A pack whose bytes are put when it is finished.
#[derive(Debug)]
struct RemotePack {
    store: RemoteStore,
    name: PackName,
    bytes: Vec<u8>,
}

impl RemoteStore {
    pub(crate) fn new(disk: &Disk, seed: u64) -> Self {
        let objects = |name| disk.objects(name).expect("the disk works");
        let (images, packs) = (objects("object-images"), objects("object-packs"));
        Self(std::sync::Arc::new(Remote { images, packs, seed, state: Mutex::default() }))
    }

    /// From now on no answer is lost.
    pub(crate) fn heal(&self) {
        self.calm().is_well = true;
    }

    /// Lets the object in transit arrive.
    fn calm(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().expect("no thread panics with the store locked");
        if let Some((object, late)) = state.late.take() {
            self.objects(object).arrive(&late);
        }
        state
    }

    fn objects(&self, object: ObjectName) -> &Objects {
        match object {
            ObjectName::Image(_) => &self.0.images,
            ObjectName::Pack(_) => &self.0.packs,
            ObjectName::Extract(_) => unreachable!("this store takes none"),
        }
    }

    fn put(&self, object: ObjectName, bytes: &[u8]) -> Result<(), ImageError> {
        let mut state = self.calm();
        let (objects, name) = (self.objects(object), name_of(object));
        let fate = state.fate(self.0.seed, object);
        if fate == Fate::Late && !self.is_there(object)? {
            state.late = Some((object, objects.put_late(&name, bytes)));
            count("an object arrives late");
            return Err(no_answer(object));
        }
        objects.put(&name, bytes).map_err(|error| image_error(error, object))?;
        if fate == Fate::AnswerLost {
            count("an answer of the object store is lost");
            return Err(no_answer(object));
        }
        Ok(())
    }

    fn is_there(&self, object: ObjectName) -> Result<bool, ImageError> {
        let listed = self.objects(object).list().map_err(|error| image_error(error, object))?;
        Ok(listed.iter().any(|listed| listed.name == name_of(object)))
    }
}

impl State {
    /// Determined by the seed, the object and the number of its puts, because threads put them in
    /// any order.
    fn fate(&mut self, seed: u64, object: ObjectName) -> Fate {
        let puts = self.puts.entry(object).or_default();
        *puts += 1;
        let number = match object {
            ObjectName::Image(number) => u64::from(number),
            ObjectName::Pack(name) => 1 << 40 | u64::from(name.index),
            ObjectName::Extract(name) => 1 << 41 | u64::from(name.offset),
        };
        let mut random = Random::new(seed ^ number << 8 ^ *puts);
        match random.one_in(UNUSUAL_ONE_IN) && !self.is_well {
            true => random.pick(&[Fate::AnswerLost, Fate::Late]),
            false => Fate::Answered,
        }
    }
}

impl ImageStore for RemoteStore {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        Ok(Box::new(RemotePack { store: self.clone(), name, bytes: Vec::new() }))
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.put(ObjectName::Image(number), manifest)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        drop(self.calm());
        match self.objects(object).read(&name_of(object), offset, into) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ImageError::new(ImageErrorKind::Damaged, format!("read {object}"))),
            Err(error) => Err(image_error(error, object)),
        }
    }

    fn reads_at_once(&self) -> usize {
        2
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        drop(self.calm());
        let listed = self.0.images.list().map_err(|error| image_error(error, "list the images"))?;
        let number = |object: &str| object.parse().expect("images have numbers");
        Ok(listed.iter().map(|object| (number(&object.name), object.size_bytes)).collect())
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        drop(self.calm());
        let listed = self.0.packs.list().map_err(|error| image_error(error, "list the packs"))?;
        let name = |object: &str| object.parse().expect("packs have names of packs");
        Ok(listed.iter().map(|object| (name(&object.name), object.size_bytes)).collect())
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        drop(self.calm());
        match self.objects(object).remove(&name_of(object)) {
            Err(error) if error.kind == StorageErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| image_error(error, object)),
        }
    }
}

impl PackWriter for RemotePack {
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), ImageError> {
        self.store.put(ObjectName::Pack(self.name), &self.bytes)
    }
}

/// Manifests are listed in the order of their numbers.
fn name_of(object: ObjectName) -> String {
    match object {
        ObjectName::Image(number) => format!("{number:010}"),
        ObjectName::Pack(name) => name.to_string(),
        ObjectName::Extract(name) => name.to_string(),
    }
}

fn no_answer(object: ObjectName) -> ImageError {
    ImageError::new(ImageErrorKind::Unavailable, format!("put {object}"))
}

fn image_error(error: StorageError, what: impl std::fmt::Display) -> ImageError {
    let kind = match error.kind {
        StorageErrorKind::NotFound => ImageErrorKind::NotFound,
        StorageErrorKind::AlreadyExists => ImageErrorKind::AlreadyExists,
        _ => ImageErrorKind::Unavailable,
    };
    ImageError::new(kind, format!("reach {what}")).with_source(error)
}
