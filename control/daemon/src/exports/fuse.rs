//! Volumes as loop devices over the daemon's FUSE file system.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::UNIX_EPOCH;

use adaptive_polling::SpinPermits;
use anyhow::{Context, anyhow};
use block_device::BlockDevice;
use export_kit::{AttachError, AttachErrorKind, Traffic};
use fuse::{Config, Export, FileEntry, FileId, FileState, Files, HelperRunner, Keep};
use volumes::Volume;

use crate::config::FuseConfig;
use crate::exports::{Catalog, DeviceFailure, KernelDevices, OtherUser};

/// First argument of helper processes. The daemon runs its own program as a helper for operations
/// that must not run in the daemon's process: keeping the file system's connection after the
/// daemon's death, and opening files that the daemon itself serves.
const HELPER_FLAG: &str = "--helper";

/// Runs a helper command, if the arguments request one, and returns its exit code.
pub(crate) fn run_command() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let is_helper = arguments.next().as_deref() == Some(OsStr::new(HELPER_FLAG));
    is_helper.then(|| fuse::run_command(arguments))
}

/// The running file system. After [`FuseDevices::stop`] it has no devices.
pub(crate) struct FuseDevices {
    export: RwLock<Option<Export>>,
}

impl FuseDevices {
    /// Mounts the file system, or takes over the file system of an earlier daemon.
    pub(crate) fn start(
        config: &FuseConfig,
        catalog: Arc<Catalog>,
        spin_permits: Arc<SpinPermits>,
    ) -> anyhow::Result<Self> {
        let helpers = HelperRunner::same_program([OsString::from(HELPER_FLAG)]);
        let mut plan =
            Config::new(config.mount_point.clone(), config.holder_socket.clone(), helpers);
        plan.permits = spin_permits;
        let export = Export::start(plan, catalog).context("cannot serve volumes over FUSE")?;
        tracing::info!(
            mount_point = %config.mount_point.display(),
            origin = ?export.origin(),
            "serving volumes over FUSE and as loop devices"
        );
        Ok(Self { export: RwLock::new(Some(export)) })
    }

    /// Stops serving. While programs or devices have files open, the connection stays in the fd
    /// store, and their requests wait for the next daemon.
    pub(crate) fn stop(&self) {
        let taken = self.export.write().expect(NO_PANIC).take();
        let Some(export) = taken else { return };
        if let Err(error) = export.stop(Keep::WhatIsUsed) {
            tracing::warn!(error = %error.chain(), "cannot stop the FUSE file system cleanly");
        }
    }

    /// Checks that devices would survive the death of this process, and removes dead devices.
    pub(crate) fn look_after_devices(&self) {
        let Some(export) = &*self.export() else { return };
        export.remove_dead_devices();
        if let Err(error) = export.refresh_fd_store() {
            let error = error.chain();
            tracing::error!(
                error,
                "cannot start the fd store: loop devices will fail if this daemon dies"
            );
        }
    }

    fn export(&self) -> RwLockReadGuard<'_, Option<Export>> {
        self.export.read().expect(NO_PANIC)
    }

    fn on_export<T>(
        &self,
        act: impl FnOnce(&Export) -> Result<T, AttachError>,
    ) -> Result<T, DeviceFailure> {
        let export = self.export();
        let export = export.as_ref().ok_or_else(|| {
            DeviceFailure::Host(anyhow!("the daemon's FUSE file system has stopped"))
        })?;
        act(export).map_err(|error| match error.kind {
            AttachErrorKind::Busy => DeviceFailure::InUse(error.into()),
            _ => DeviceFailure::Host(error.into()),
        })
    }
}

impl Drop for FuseDevices {
    /// Stops serving, also at a start that is refused later.
    fn drop(&mut self) {
        self.stop();
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

impl KernelDevices for FuseDevices {
    fn attach(
        &self,
        volume: &Arc<Volume>,
        flush_each_write: bool,
    ) -> Result<String, DeviceFailure> {
        let attachment =
            self.on_export(|export| export.attach(&volume.name(), flush_each_write))?;
        Ok(attachment.device.display().to_string())
    }

    fn has_device(&self, volume_id: u64) -> bool {
        let export = self.export();
        export.as_ref().is_some_and(|it| it.device_of(FileId(volume_id)).is_some())
    }

    fn other_user(&self, volume: &Volume) -> Result<Option<OtherUser>, DeviceFailure> {
        let user = self.on_export(|export| export.file_user(FileId(volume.id())))?;
        Ok(user.map(|it| OtherUser { words: it.words, writes: it.writes }))
    }

    fn detach(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.on_export(|export| match export.detach(FileId(volume.id())) {
            Err(error) if error.kind == AttachErrorKind::NotFound => Ok(()),
            result => result,
        })
    }

    fn resized(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.on_export(|export| export.resized(&volume.name()))
    }

    fn write_cache_changed(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.on_export(|export| export.write_cache_changed(FileId(volume.id())))
    }

    fn devices(&self) -> Vec<(u64, String)> {
        let export = self.export();
        let attachments = export.iter().flat_map(Export::attachments);
        attachments.map(|it| (it.file.0, it.device.display().to_string())).collect()
    }

    fn dead_devices(&self) -> Vec<String> {
        let export = self.export();
        let dead = export.iter().flat_map(Export::dead_devices);
        dead.map(|it| it.device.display().to_string()).collect()
    }

    fn traffic(&self) -> Traffic {
        self.export().as_ref().map(Export::traffic).unwrap_or_default()
    }
}

impl Files for Catalog {
    fn by_name(&self, name: &str) -> Option<(FileId, Arc<dyn BlockDevice>)> {
        let volume = Catalog::by_name(self, name)?;
        Some((FileId(volume.id()), self.device(&volume)))
    }

    fn by_id(&self, id: FileId) -> Option<Arc<dyn BlockDevice>> {
        self.device_by_id(id.0)
    }

    fn state(&self, id: FileId) -> FileState {
        let Some(metered) = self.metered(id.0) else { return FileState::default() };
        let modified = metered.modified().duration_since(UNIX_EPOCH).unwrap_or_default();
        FileState { data_bytes: metered.volume().written_bytes(), modified }
    }

    fn is_taken(&self, id: FileId) -> bool {
        self.has_holder(id.0)
    }

    fn list(&self) -> Vec<FileEntry> {
        let entry =
            |volume: &Arc<Volume>| FileEntry { id: FileId(volume.id()), name: volume.name() };
        self.all().iter().map(entry).collect()
    }
}
