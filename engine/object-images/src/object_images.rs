//! Image store in an object store.

use std::fmt;
use std::io;
use std::sync::Arc;

use image::{
    ExtractName, ImageError, ImageErrorKind, ImageStore, ObjectName, PackName, PackWriter,
};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use storage::AlignedBuffer;

use crate::client::{Client, image_name};
use crate::failure::image_error;
use crate::object_pack::ObjectPack;

/// Reads mostly wait for the network and the server.
const READS_AT_ONCE: usize = 4;

/// Images as objects `<prefix>/images/0000000007` and `<prefix>/packs/<writer>-<index>`.
#[derive(Clone)]
pub struct ObjectImages {
    client: Arc<Client>,
}

impl fmt::Debug for ObjectImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Client { objects, prefix, .. } = &*self.client;
        write!(f, "images in {objects} below {prefix:?}")
    }
}

impl ObjectImages {
    /// Creates an image store below `prefix` in `objects`. Fails if no threads can be started.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: Path) -> io::Result<Self> {
        Ok(Self { client: Arc::new(Client::new(objects, prefix)?) })
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, ImageError> {
        let path = self.client.prefix.clone().join(folder);
        let listed = self.client.wait(self.client.objects.list_with_delimiter(Some(&path)));
        let listed = listed.map_err(|error| self.list_error(error, folder))?;
        Ok(listed.objects)
    }

    /// Determines the error of a failed listing. A listing does not report denied access, but a
    /// head request does.
    fn list_error(&self, error: object_store::Error, folder: &str) -> ImageError {
        let error = image_error(error, format!("list the {folder}"));
        let path = self.client.path(ObjectName::Image(0));
        match self.client.wait(self.client.objects.head(&path)) {
            Err(head) => match image_error(head, "look for an image") {
                head if head.kind == ImageErrorKind::Denied => {
                    ImageError { attempt: error.attempt, ..head }
                }
                _ => error,
            },
            Ok(_) => error,
        }
    }

    /// Puts an object unless it exists.
    fn put_new(&self, path: &Path, bytes: &[u8]) -> object_store::Result<()> {
        let payload = PutPayload::from(bytes.to_vec());
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        self.client.wait(self.client.objects.put_opts(path, payload, options)).map(|_| ())
    }

    /// Returns whether the existing object has these bytes. If so, the rejected call itself created
    /// it and its response was lost, because no two writers put the same bytes. Fails if this
    /// cannot be determined.
    fn has_bytes(&self, path: &Path, bytes: &[u8]) -> object_store::Result<bool> {
        let objects = &self.client.objects;
        let read = self.client.wait(async { objects.get(path).await?.bytes().await });
        read.map(|read| read[..] == *bytes)
    }

    /// Returns whether the object ends before `end`.
    fn is_shorter(&self, path: &Path, end: u64) -> bool {
        let head = self.client.wait(self.client.objects.head(path));
        head.is_ok_and(|head| head.size < end)
    }
}

impl ImageStore for ObjectImages {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        let path = self.client.path(ObjectName::Pack(name));
        Ok(Box::new(ObjectPack::new(Arc::clone(&self.client), name, path)))
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        let path = self.client.path(ObjectName::Image(number));
        let attempt = || format!("create the manifest of image {number}");
        let put = self.put_new(&path, manifest).map_err(|error| image_error(error, attempt()));
        let error = match put {
            Err(error) if error.kind == ImageErrorKind::AlreadyExists => error,
            other => return other,
        };
        match self.has_bytes(&path, manifest) {
            Ok(true) => Ok(()),
            Ok(false) => Err(error),
            // An unreadable object may be ours. Some servers also reject a request that conflicts
            // with another one, although no object exists then.
            Err(unknown) => Err(ImageError::new(ImageErrorKind::Unavailable, attempt())
                .with_source(image_error(unknown, "determine which daemon wrote the manifest"))),
        }
    }

    fn check_exclusive(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        let path = self.client.path(ObjectName::Image(number));
        let attempt = || format!("verify conditional writes (If-None-Match) with image {number}");
        match self.put_new(&path, manifest).map_err(|error| image_error(error, attempt())) {
            Err(error) if error.kind == ImageErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(ImageError::new(ImageErrorKind::Invalid, attempt()).with_source(
                "the object store ignores If-None-Match: * and overwrites objects; use a server \
                 that supports conditional writes",
            )),
        }
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        if into.is_empty() {
            return Ok(());
        }
        let path = self.client.path(object);
        let end = offset + into.len() as u64;
        let read = self.client.wait(self.client.objects.get_range(&path, offset..end));
        let attempt = || format!("read {} bytes at {offset} of {object}", into.len());
        let short = || {
            ImageError::new(ImageErrorKind::Damaged, attempt())
                .with_source("the object is shorter than it was")
        };
        match read {
            Ok(bytes) if bytes.len() == into.len() => {
                into.copy_from_slice(&bytes);
                Ok(())
            }
            Ok(_) => Err(short()),
            // Servers report a range past the end in different ways.
            Err(object_store::Error::Generic { .. }) if self.is_shorter(&path, end) => Err(short()),
            Err(error) => Err(image_error(error, attempt())),
        }
    }

    fn reads_at_once(&self) -> usize {
        READS_AT_ONCE
    }

    fn has_image(&self, number: u32) -> Result<bool, ImageError> {
        let path = self.client.path(ObjectName::Image(number));
        match self.client.wait(self.client.objects.head(&path)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => match image_error(error, format!("look for image {number}")) {
                // Servers deny that an object is missing to those who may list only parts.
                error if error.kind == ImageErrorKind::Denied => {
                    Ok(self.images()?.iter().any(|&(found, _)| found == number))
                }
                error => Err(error),
            },
        }
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        let number = |object: &ObjectMeta| {
            let name = object.location.filename()?;
            let number = name.parse().ok()?;
            (image_name(number) == name).then_some((number, object.size))
        };
        let mut images: Vec<_> = self.list("images")?.iter().filter_map(number).collect();
        images.sort_unstable();
        Ok(images)
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        let pack =
            |object: &ObjectMeta| Some((object.location.filename()?.parse().ok()?, object.size));
        let mut packs: Vec<_> = self.list("packs")?.iter().filter_map(pack).collect();
        packs.sort_unstable();
        Ok(packs)
    }

    fn put_extract(&self, name: ExtractName, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let object = ObjectName::Extract(name);
        let payload = PutPayload::from(bytes.to_vec());
        let path = self.client.path(object);
        let put = self.client.wait(self.client.objects.put(&path, payload));
        put.map(|_| ()).map_err(|error| image_error(error, format!("put {object}")))
    }

    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        let extract =
            |object: &ObjectMeta| Some((object.location.filename()?.parse().ok()?, object.size));
        let mut extracts: Vec<_> = self.list("journal")?.iter().filter_map(extract).collect();
        extracts.sort_unstable();
        Ok(extracts)
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        let path = self.client.path(object);
        match self.client.wait(self.client.objects.delete(&path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(image_error(error, format!("remove {object}"))),
        }
    }
}
