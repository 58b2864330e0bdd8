//! Changes to the list of volumes and to their properties: applied in memory, made durable, and
//! only then acknowledged.
//!
//! ```text
//!  journal has the current table ─▶ engine applies the change ─▶ journal has it ─▶ done
//!  and space for the next one
//!  ── failure: nothing has changed ──┤── failure: change is in memory only ─────┤
//! ```
//!
//! A change starts only when stable storage has all previous ones, so the journal sees every step.
//! For example, a shrunk volume does not grow again before the journal has recorded the shrink. A
//! change that could not be recorded is recorded before the next change, and by maintenance.
//!
//! Stable storage has no data of volumes of class `ram`, so their changes do not wait for the disk.

use std::cell::Cell;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use image::OpenImage;
use journal::{JournalError, Position};
use volumes::{
    CapacityClass, Durability, Reduction, ShrinkPolicy, Volume, VolumeError, VolumeMirror,
    VolumeName, VolumeSpec,
};

use crate::error::{DurableError, DurableErrorKind};
use crate::mirror::Limit;
use crate::restore::restore_as;
use crate::set::DurableSet;

/// Maximum time of one wait for a checkpoint to free space.
const ROOM_WAIT: Duration = Duration::from_millis(100);

type ChangeGuard<'set> = MutexGuard<'set, ()>;

/// A change in progress.
struct Begun<'set> {
    guard: ChangeGuard<'set>,
    /// Set if stable storage must record the change.
    is_durable: bool,
}

/// If the volume's class is or was `image` or `journal`, each change is durable when the method
/// returns. A change that cannot be made durable is rejected. If that is detected too late, the
/// error is of kind [`DurableErrorKind::NotNoted`].
impl DurableSet {
    /// Creates a volume. After a failure the volume does not exist.
    pub fn create_volume(&self, spec: VolumeSpec) -> Result<Arc<Volume>, DurableError> {
        let attempt = format!("create the volume {:?}", spec.name.as_str());
        let is_durable = spec.durability != Durability::Ram;
        self.make(&attempt, || is_durable, || self.engine.create_volume(spec))
    }

    /// Creates a clone of a volume or snapshot. After a failure the clone does not exist.
    pub fn clone_volume(
        &self,
        source: &str,
        new_name: VolumeName,
    ) -> Result<Arc<Volume>, DurableError> {
        let attempt = format!("clone {source:?} as {:?}", new_name.as_str());
        let make = || self.engine.clone_volume(source, new_name);
        self.make(&attempt, || self.is_durable(source), make)
    }

    pub fn delete_volume(&self, name: &str) -> Result<(), DurableError> {
        let attempt = format!("delete the volume {name:?}");
        self.change(&attempt, || self.is_durable(name), || self.engine.delete_volume(name))
    }

    pub fn rename_volume(&self, name: &str, new_name: VolumeName) -> Result<(), DurableError> {
        let attempt = format!("rename the volume {name:?} to {:?}", new_name.as_str());
        let rename = || self.engine.rename_volume(name, new_name);
        self.change(&attempt, || self.is_durable(name), rename)
    }

    pub fn resize_volume(
        &self,
        name: &str,
        size_bytes: u64,
        shrink: ShrinkPolicy,
    ) -> Result<(), DurableError> {
        let attempt = format!("resize the volume {name:?}");
        let resize = || self.engine.resize_volume(name, size_bytes, shrink);
        self.change(&attempt, || self.is_durable(name), resize)
    }

    /// Changes the durability class of a volume. A change to class `journal` takes effect with the
    /// next image, and the volume's flushes wait for it.
    pub fn set_durability(&self, name: &str, class: Durability) -> Result<(), DurableError> {
        let attempt = format!("change the durability of {name:?}");
        let is_durable = || self.is_durable(name) || class != Durability::Ram;
        self.change(&attempt, is_durable, || self.engine.set_durability(name, class))
    }

    pub fn set_capacity(&self, name: &str, class: CapacityClass) -> Result<(), DurableError> {
        let attempt = format!("change the capacity class of {name:?}");
        self.change(&attempt, || self.is_durable(name), || self.engine.set_capacity(name, class))
    }

    pub fn set_reduction(&self, name: &str, reduction: Reduction) -> Result<(), DurableError> {
        let attempt = format!("change the reduction of {name:?}");
        let set = || self.engine.set_reduction(name, reduction);
        self.change(&attempt, || self.is_durable(name), set)
    }

    /// Changes whether flushes of a volume are mirrored, if flushes are. A change to `no` takes
    /// effect once the image store has it, so that a promotion knows of each volume whose flushes
    /// it may lack. If the store does not answer, the change is made, and the volume's flushes wait
    /// as before until it does.
    pub fn set_mirror(&self, name: &str, mirror: VolumeMirror) -> Result<(), DurableError> {
        let attempt = format!("change the mirroring of {name:?}");
        self.change(&attempt, || self.is_durable(name), || self.engine.set_mirror(name, mirror))
    }

    /// Creates a snapshot of each volume, all at the same instant. They become durable with the
    /// next image.
    pub fn create_snapshots(
        &self,
        volumes: &[&str],
        snapshot: &VolumeName,
        created_unix_seconds: u64,
    ) -> Result<Vec<Arc<Volume>>, DurableError> {
        let attempt = format!("create the snapshot {:?}", snapshot.as_str());
        let create = || self.engine.create_snapshots(volumes, snapshot, created_unix_seconds);
        self.change(&attempt, || false, create)
    }

    pub fn rename_snapshot(
        &self,
        volume: &str,
        snapshot: &str,
        new_name: &VolumeName,
    ) -> Result<(), DurableError> {
        let attempt = format!("rename the snapshot {volume}@{snapshot}");
        let rename = || self.engine.rename_snapshot(volume, snapshot, new_name);
        self.change(&attempt, || self.is_durable(volume), rename)
    }

    pub fn delete_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), DurableError> {
        let attempt = format!("delete the snapshot {volume}@{snapshot}");
        let delete = || self.engine.delete_snapshot(volume, snapshot);
        self.change(&attempt, || self.is_durable(volume), delete)
    }

    /// Rolls a volume back to a snapshot. Its size is durable on return, its contents with the next
    /// image.
    pub fn restore_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), DurableError> {
        let attempt = format!("restore the volume {volume:?} from {volume}@{snapshot}");
        let restore = || self.engine.restore_snapshot(volume, snapshot);
        self.change(&attempt, || self.is_durable(volume), restore)
    }

    /// Restores volumes of an image under new names. `names` are pairs of a volume's or snapshot's
    /// name in the image and its new name. Restores all or none. Contents are fetched on first
    /// read.
    pub fn restore(
        &self,
        image: u32,
        names: &[(String, String)],
    ) -> Result<Vec<Arc<Volume>>, DurableError> {
        let attempt = format!("restore from image {image}");
        // Prevents deleting images and ending the use of another source of absent blocks. A save
        // may continue: either nothing in its frozen copies is absent, or everything absent is in
        // this image.
        let _in_use = self.hold_image_use();
        let source = match self.source()? {
            Some(source) if source.id().number() == image => source,
            Some(_) => return Err(DurableError::new(DurableErrorKind::Restoring, attempt)),
            None => {
                let opened = OpenImage::open(Arc::clone(&self.images), image);
                Arc::new(opened.map_err(DurableError::images(&attempt))?)
            }
        };
        let mut indexes = Vec::new();
        for (name, _) in names {
            let index = source.volumes().iter().position(|volume| volume.name == *name);
            let attempt = || format!("{attempt}: {name:?}");
            let missing = || DurableError::new(DurableErrorKind::NotInImage, attempt());
            indexes.push(index.ok_or_else(missing)?);
        }
        let is_durable = |&index: &usize| source.volumes()[index].durability != Durability::Ram;
        let begun = self.begin_change(&attempt, || indexes.iter().any(is_durable))?;
        self.set_source(Some(Arc::clone(&source)));
        let mut made = Vec::new();
        for (&index, (_, new_name)) in indexes.iter().zip(names) {
            match restore_as(&self.engine, &source, index, new_name) {
                Ok(volume) => made.push(volume),
                Err(error) => {
                    made.iter().for_each(|volume| self.engine.abandon_filling(volume));
                    return Err(error);
                }
            }
        }
        match self.end_change(begun, &attempt) {
            Ok(()) => Ok(made),
            Err(error) => Err(self.take_back(&made, error)),
        }
    }

    /// Blocks until stable storage has the current table of volumes of class `image` and `journal`.
    /// Does not exclude concurrent changes, and neither do flushes, which record them too.
    /// Otherwise changes to volumes in memory would wait for the disk.
    pub fn note_volumes(&self) -> Result<(), DurableError> {
        if !self.keeps_table() {
            return Ok(());
        }
        let noted = self.journal.prepare_table();
        noted.map_err(DurableError::journal("write the table of volumes to the journal"))
    }

    /// Records changes that could not be recorded before, and does the journal's work ahead of
    /// flushes. Called about once a second, and soon after [`DurableSet::wants_maintenance`]
    /// returns true. With volumes of class `image` only, the journal is short. Without either class
    /// it uses no disk space.
    pub fn maintain(&self) -> Result<(), DurableError> {
        if !self.journal.knows_table() || self.journal.failure().is_some() {
            self.note_volumes()?;
        }
        self.complete_leaving()?;
        match self.has_journaled_volumes() {
            true => self.journal.maintain().map_err(DurableError::journal("maintain the journal")),
            false => Ok(()),
        }
    }

    /// Ends the mirroring of volumes that are not to be mirrored, if the image store knows that by
    /// now, and otherwise notes what it must have for that.
    fn complete_leaving(&self) -> Result<(), DurableError> {
        if !self.mirror.is_on() || !self.engine.has_leaving() {
            return Ok(());
        }
        let version = self.engine.table_version();
        let noted = *self.lock_table_at();
        match noted {
            Some((noted, position)) if noted == version => {
                if self.mirror.has(position) {
                    self.engine.complete_leaving(version);
                }
            }
            _ => {
                let attempt = "write the table of volumes to the journal";
                self.journal.commit_table().map_err(DurableError::journal(attempt))?;
                *self.lock_table_at() = Some((version, self.journal.position()));
            }
        }
        Ok(())
    }

    fn lock_table_at(&self) -> MutexGuard<'_, Option<(u64, Position)>> {
        self.table_at.lock().expect("no thread panics with this lock")
    }

    pub fn wants_maintenance(&self) -> bool {
        self.has_journaled_volumes() && self.journal.wants_maintenance()
    }

    /// Locks out other changes and the start of a save.
    pub(crate) fn lock_changes(&self) -> ChangeGuard<'_> {
        self.changes.lock().expect("a panic in a change ends the process")
    }

    /// Returns whether stable storage must have a table of volumes.
    fn keeps_table(&self) -> bool {
        self.journal.length_bytes() > 0 || self.engine.has_durable_volumes()
    }

    /// Returns whether stable storage must record changes of a volume. The volume may not exist.
    fn is_durable(&self, name: &str) -> bool {
        self.engine.volume(name).is_ok_and(|volume| volume.durability() != Durability::Ram)
    }

    /// Creates a volume, and deletes it if it cannot be recorded.
    fn make(
        &self,
        attempt: &str,
        is_durable: impl Fn() -> bool,
        make: impl FnOnce() -> Result<Arc<Volume>, VolumeError>,
    ) -> Result<Arc<Volume>, DurableError> {
        let begun = self.begin_change(attempt, is_durable)?;
        let volume = make().map_err(DurableError::volume(attempt))?;
        match self.end_change(begun, attempt) {
            Ok(()) => Ok(volume),
            Err(error) => Err(self.take_back(&[volume], error)),
        }
    }

    /// Deletes new volumes that could not be recorded. Returns the error to report.
    fn take_back(&self, made: &[Arc<Volume>], error: DurableError) -> DurableError {
        if error.kind == DurableErrorKind::NotMirrored {
            // The journal has the volume, and it may already be in use.
            return error;
        }
        let _guard = self.lock_changes();
        let are_gone = made.iter().all(|volume| self.engine.delete_volume(&volume.name()).is_ok());
        let kind = if are_gone { DurableErrorKind::Journal } else { error.kind };
        DurableError { kind, ..error }
    }

    fn change<Made>(
        &self,
        attempt: &str,
        is_durable: impl Fn() -> bool,
        make: impl FnOnce() -> Result<Made, VolumeError>,
    ) -> Result<Made, DurableError> {
        let begun = self.begin_change(attempt, is_durable)?;
        let made = make().map_err(DurableError::volume(attempt))?;
        self.end_change(begun, attempt)?;
        Ok(made)
    }

    /// Waits until a change may begin: previous changes are recorded, and there is space to record
    /// this one. Waits for a flush that is being written before it locks out other changes, and
    /// fails if the disk does not finish it in time.
    fn begin_change(
        &self,
        attempt: &str,
        is_durable: impl Fn() -> bool,
    ) -> Result<Begun<'_>, DurableError> {
        let guard = self.lock_changes();
        if !is_durable() {
            return Ok(Begun { guard, is_durable: false });
        }
        drop(guard);
        let turn = self.journal.turn().map_err(DurableError::journal(attempt))?;
        let turn = Cell::new(Some(turn));
        let guard = self.lock_changes();
        if !is_durable() {
            return Ok(Begun { guard, is_durable: false });
        }
        let prepare = || {
            let prepared = self.journal.prepare_table();
            // Flushes continue while this change waits for space.
            drop(turn.take());
            prepared
        };
        let prepared = self.with_patience(guard, prepare);
        let guard = prepared.map_err(DurableError::journal(attempt))?;
        Ok(Begun { guard, is_durable: true })
    }

    /// Records a change.
    fn end_change(&self, begun: Begun<'_>, attempt: &str) -> Result<(), DurableError> {
        if !begun.is_durable {
            return Ok(());
        }
        let version = self.engine.table_version();
        let noted = self.with_patience(begun.guard, || self.journal.commit_table());
        // Other changes and saves do not wait for the store.
        drop(noted.map_err(DurableError::not_noted(attempt))?);
        let position = self.journal.position();
        let mirrored = self.mirror.wait(position, Limit::Patience);
        if self.mirror.has(position) {
            // If there was another change since, that one completes it.
            self.engine.complete_leaving(version);
        }
        mirrored.map_err(|error| {
            DurableError::new(DurableErrorKind::NotMirrored, attempt).with_source(error)
        })
    }

    /// Retries work that failed for lack of space while a checkpoint may free some.
    fn with_patience<'set>(
        &'set self,
        mut guard: ChangeGuard<'set>,
        work: impl Fn() -> Result<(), JournalError>,
    ) -> Result<ChangeGuard<'set>, JournalError> {
        let begun = self.clock.now();
        loop {
            let Err(error) = work() else { return Ok(guard) };
            let is_over = self.clock.now().saturating_sub(begun) >= self.patience;
            if is_over || !self.journal.may_get_room(&error) {
                return Err(error);
            }
            drop(guard);
            self.journal.wait_for_checkpoint(ROOM_WAIT);
            guard = self.lock_changes();
        }
    }
}
