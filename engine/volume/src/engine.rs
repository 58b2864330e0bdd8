//! A pool and the volumes in it.

use std::sync::Arc;

use region::Region;

use crate::error::VolumeError;
use crate::spec::{EngineOptions, Reduction, ShrinkPolicy, VolumeName, VolumeSpec};
use crate::usage::{PoolUsage, Recovery};
use crate::volume::Volume;

/// The volumes of one pool. Shared by reference between threads; every method may be called from
/// any of them.
pub struct Engine;

impl Engine {
    /// Opens the pool in `region`, or makes one in a fresh region. After an unclean end it serves
    /// at once and [`Engine::maintain`] collects what leaked.
    pub fn open(_region: Region, _options: EngineOptions) -> Result<Self, page_store::OpenError> {
        unimplemented!()
    }

    pub fn create_volume(&self, _spec: VolumeSpec) -> Result<Arc<Volume>, VolumeError> {
        unimplemented!()
    }

    pub fn volume(&self, _name: &str) -> Result<Arc<Volume>, VolumeError> {
        unimplemented!()
    }

    /// All volumes, by name.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        unimplemented!()
    }

    /// Deletes a volume and gives its memory back. Requests through handles that exports still
    /// hold fail with `Gone`.
    pub fn delete_volume(&self, _name: &str) -> Result<(), VolumeError> {
        unimplemented!()
    }

    pub fn rename_volume(&self, _name: &str, _new_name: VolumeName) -> Result<(), VolumeError> {
        unimplemented!()
    }

    pub fn resize_volume(
        &self,
        _name: &str,
        _size_bytes: u64,
        _shrink: ShrinkPolicy,
    ) -> Result<(), VolumeError> {
        unimplemented!()
    }

    /// Changes how contents are reduced from now on. What is stored stays as it is.
    pub fn set_reduction(&self, _name: &str, _reduction: Reduction) -> Result<(), VolumeError> {
        unimplemented!()
    }

    pub fn usage(&self) -> PoolUsage {
        unimplemented!()
    }

    pub fn recovery(&self) -> Recovery {
        unimplemented!()
    }

    /// Does a bounded piece of the work that nobody waits for: collecting leaks, emptying sparse
    /// slabs. Returns whether there is more to do now. One thread at a time does the work.
    pub fn maintain(&self) -> bool {
        unimplemented!()
    }

    /// Ends cleanly: drops what is retired and marks the pool so that the next open need not look
    /// for leaks. No request may be in flight.
    pub fn close(self) {
        unimplemented!()
    }
}
