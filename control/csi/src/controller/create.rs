//! Volume creation for a claim: empty, or a copy of a volume or a snapshot.
//!
//! A volume is created under a temporary name and renamed as the last step, so a volume with its
//! final name is complete. An incomplete volume is deleted by the next call for the same claim.

use std::collections::BTreeMap;

use api::{ByteSize, Volume, VolumeCreate, VolumePatch};
use tonic::Status;

use super::described::SOURCE_LABEL;
use super::sizes::{BLOCK_BYTES, fitting_size, is_over};
use crate::capability::refusal;
use crate::class::{Class, FILESYSTEM_LABEL};
use crate::daemon::{NAME_LABEL, OWNER};
use crate::driver::Driver;
use crate::names::{own_name, unfinished_name};
use crate::wire::{
    CapacityRange, ContentSource, CreateVolumeRequest, VolumeAnswer, VolumeCapability,
};

/// Default size, if a claim requests none.
const SIZE_BYTES_DEFAULT: u64 = 1 << 30;

/// A requested volume.
struct Wanted<'a> {
    /// Name given by the external-provisioner.
    given_name: &'a str,
    name: String,
    class: Class,
    range: CapacityRange,
    size_bytes: u64,
    source: Option<Source>,
}

/// Volume or snapshot to copy.
struct Source {
    id: String,
    size_bytes: u64,
}

impl Driver {
    pub(crate) fn create_volume(
        &self,
        request: CreateVolumeRequest,
    ) -> Result<VolumeAnswer, Status> {
        let name = own_name(&request.name)?;
        check_capabilities(&request.volume_capabilities)?;
        if let Some(key) = request.mutable_parameters.keys().next() {
            let why = format!(
                "the parameter {key:?} cannot be changed after creation; set it in \
                               the StorageClass"
            );
            return Err(Status::invalid_argument(why));
        }
        let mut class = Class::of(&request.parameters)?;
        class.filesystem = filesystem_of(&class, &request.volume_capabilities)?;
        self.check_reachable(&request)?;
        let _guard = self.busy.begin(&name)?;
        let range = request.capacity_range.unwrap_or_default();
        let found = self.daemon.volume(&name)?;
        let source = match (&request.volume_content_source, &found) {
            (None, _) => None,
            // The source may have been deleted since.
            (Some(source), Some(_)) => Some(Source { id: id_of(source)?, size_bytes: 0 }),
            (Some(source), None) => Some(self.source(source)?),
        };
        let size_bytes = size_bytes(&range, source.as_ref(), &class)?;
        let given_name = &request.name;
        let wanted = Wanted { given_name, name, class, range, size_bytes, source };
        let volume = match found {
            Some(volume) => check_same(volume, &wanted)?,
            None => self.make(&wanted)?,
        };
        Ok(VolumeAnswer { volume: Some(self.describe(&volume)) })
    }

    fn make(&self, wanted: &Wanted<'_>) -> Result<Volume, Status> {
        // A copy shares the memory of its source. The daemon checks the additional memory.
        let copied_bytes = wanted.source.as_ref().map_or(0, |source| source.size_bytes);
        self.check_room(&wanted.class, wanted.size_bytes.saturating_sub(copied_bytes))?;
        let name = unfinished_name(&wanted.name);
        self.delete_unfinished(&name)?;
        let made = self.make_unfinished(wanted, &name);
        made.inspect_err(|_| {
            if let Err(status) = self.delete_unfinished(&name) {
                tracing::warn!(
                    name,
                    "cannot clean up a volume whose creation failed: {}",
                    status.message()
                );
            }
        })
    }

    fn make_unfinished(&self, wanted: &Wanted<'_>, name: &str) -> Result<Volume, Status> {
        let Wanted { class, size_bytes, .. } = wanted;
        let size = ByteSize(*size_bytes);
        match &wanted.source {
            Some(source) => {
                self.daemon.clone(&source.id, name)?;
                let made = self.daemon.change(
                    name,
                    &VolumePatch {
                        reduction: Some(class.reduction),
                        durability: Some(class.durability),
                        capacity: Some(class.capacity),
                        size: Some(size),
                        ..VolumePatch::default()
                    },
                )?;
                // Daemons of earlier releases do not have this setting.
                if made.mirror != class.mirror {
                    let mirror = Some(class.mirror);
                    self.daemon.change(name, &VolumePatch { mirror, ..VolumePatch::default() })?;
                }
            }
            None => self.daemon.create(&VolumeCreate {
                name: name.to_owned(),
                size,
                sector_bytes: class.sector_bytes,
                reduction: class.reduction,
                durability: class.durability,
                capacity: class.capacity,
                mirror: class.mirror,
                owner: String::new(),
                labels: BTreeMap::new(),
            })?,
        }
        self.daemon.change(
            name,
            &VolumePatch {
                owner: Some(OWNER.to_owned()),
                labels: labels(wanted),
                name: Some(wanted.name.clone()),
                ..VolumePatch::default()
            },
        )
    }

    /// Deletes an incomplete volume. This is safe: no caller knows it yet, and its name marks it as
    /// temporary.
    pub(super) fn delete_unfinished(&self, name: &str) -> Result<(), Status> {
        if let Some(volume) = self.daemon.volume(name)? {
            self.give_up(&volume)?;
        }
        Ok(())
    }

    /// Deletes an unused volume of the driver.
    pub(super) fn give_up(&self, volume: &Volume) -> Result<(), Status> {
        let name = &volume.name;
        let owned_by =
            |owner: &str| VolumePatch { owner: Some(owner.to_owned()), ..VolumePatch::default() };
        // The force option is not used, because it would disconnect clients. Connected clients must
        // prevent the deletion.
        if volume.owner.as_deref() == Some(OWNER) {
            self.daemon.change(name, &owned_by(""))?;
        }
        self.daemon.delete(name).inspect_err(|_| {
            if let Err(status) = self.daemon.change(name, &owned_by(OWNER)) {
                tracing::warn!(
                    name,
                    "cannot set the owner of the new volume: {}",
                    status.message()
                );
            }
        })
    }

    /// Rejects a volume that must be accessible from other nodes only.
    fn check_reachable(&self, request: &CreateVolumeRequest) -> Result<(), Status> {
        let required = request.accessibility_requirements.as_ref().map(|it| &it.requisite);
        match required {
            Some(required)
                if !required.is_empty() && !required.iter().any(|it| self.is_here(it)) =>
            {
                let node = &self.node;
                let why = format!(
                    "invalid topology: this driver creates volumes on node \
                                   {node:?} only"
                );
                Err(Status::resource_exhausted(why))
            }
            _ => Ok(()),
        }
    }

    fn source(&self, source: &ContentSource) -> Result<Source, Status> {
        let id = id_of(source)?;
        let size_bytes = match &source.snapshot {
            Some(_) => self.daemon.snapshot(&id)?.map(|found| found.size_bytes),
            None => self.daemon.volume(&id)?.filter(|_| !id.contains('@')).map(|it| it.size_bytes),
        };
        let size_bytes = size_bytes.ok_or_else(|| {
            Status::not_found(format!(
                "cannot copy {id:?}: no such volume or snapshot on this \
                                       node"
            ))
        })?;
        if source.volume.is_some() {
            self.write_back(&id)?;
        }
        Ok(Source { id, size_bytes })
    }
}

fn id_of(source: &ContentSource) -> Result<String, Status> {
    let id = source.snapshot.as_ref().or(source.volume.as_ref()).map(|source| source.id.clone());
    id.filter(|id| !id.is_empty()).ok_or_else(|| {
        Status::invalid_argument(
            "the request has no snapshot or volume as \
                                                 content source",
        )
    })
}

fn labels(wanted: &Wanted<'_>) -> BTreeMap<String, String> {
    let mut labels = wanted.class.labels.clone();
    labels.insert(NAME_LABEL.to_owned(), wanted.given_name.to_owned());
    labels.insert(FILESYSTEM_LABEL.to_owned(), wanted.class.filesystem.word().to_owned());
    if let Some(source) = &wanted.source {
        labels.insert(SOURCE_LABEL.to_owned(), source.id.clone());
    }
    labels
}

/// Returns the existing volume if it matches the request.
fn check_same(volume: Volume, wanted: &Wanted<'_>) -> Result<Volume, Status> {
    let differs = |what: &str| {
        let name = &volume.name;
        Status::already_exists(format!("volume {name:?} already exists with a different {what}"))
    };
    if volume.labels.get(NAME_LABEL).is_none_or(|name| name != wanted.given_name) {
        return Err(differs("owner"));
    }
    if let Some(property) = wanted.class.difference(&volume) {
        return Err(differs(property));
    }
    if volume.labels.get(SOURCE_LABEL) != wanted.source.as_ref().map(|source| &source.id) {
        return Err(differs("source"));
    }
    match volume.size_bytes < wanted.size_bytes || is_over(volume.size_bytes, &wanted.range) {
        true => Err(differs("size")),
        false => Ok(volume),
    }
}

/// Returns the smallest size in the range that holds the source's contents and a file system.
fn size_bytes(
    range: &CapacityRange,
    source: Option<&Source>,
    class: &Class,
) -> Result<u64, Status> {
    if range.required_bytes < 0 || range.limit_bytes < 0 {
        return Err(Status::invalid_argument("invalid size: it must not be negative"));
    }
    let required = range.required_bytes.cast_unsigned();
    let copied = source.map_or(0, |source| source.size_bytes);
    if required > 0 && copied > required {
        return Err(Status::out_of_range(format!(
            "invalid size: {required} bytes requested, but the source has {copied}"
        )));
    }
    let usual = match (source, range.limit_bytes) {
        (Some(_), _) => 0,
        (None, 0) => SIZE_BYTES_DEFAULT,
        (None, limit) => SIZE_BYTES_DEFAULT.min(limit.cast_unsigned() / BLOCK_BYTES * BLOCK_BYTES),
    };
    let wanted = if required > 0 { required } else { usual.max(copied) };
    let wanted = wanted.max(class.filesystem.size_bytes_min());
    let size = fitting_size(wanted, range)?;
    Ok(size)
}

/// Returns the file system that the claim requests, or the class's default.
fn filesystem_of(
    class: &Class,
    capabilities: &[VolumeCapability],
) -> Result<crate::class::Filesystem, Status> {
    let asked = capabilities.iter().filter_map(|it| it.mount.as_ref()).map(|it| &it.fs_type);
    match asked.into_iter().find(|word| !word.is_empty()) {
        Some(word) => crate::class::Filesystem::of_word(word),
        None => Ok(class.filesystem),
    }
}

fn check_capabilities(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("the request has no volume capability"));
    }
    match capabilities.iter().find_map(refusal) {
        Some(why) => Err(Status::invalid_argument(why)),
        None => Ok(()),
    }
}
