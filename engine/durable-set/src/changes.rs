//! Changes of what volumes there are and of what they are: made in memory, made durable, and only
//! then acknowledged.
//!
//! ```text
//!  the journal knows all volumes ─▶ the engine changes one ─▶ the journal knows it ─▶ done
//!  and has room for a table
//!  ── refused: nothing has changed ──┤── not noted: it is so in memory alone ──────┤
//! ```
//!
//! A change begins from what stable storage knows. So the journal sees every step: a volume that
//! was made shorter is not made longer again before the journal has cut off its end. What could not
//! be noted is noted before the next change, and whenever the set is tended.
//!
//! Volumes of class `ram` are none of stable storage's business: their changes wait for no disk.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use journal::{Clock, JournalError};
use volumes::{
    CapacityClass, Durability, Reduction, ShrinkPolicy, Volume, VolumeError, VolumeName, VolumeSpec,
};

use crate::error::{DurableError, DurableErrorKind};
use crate::set::DurableSet;

/// How long to wait for a checkpoint that makes room, at a time.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Keeps changes apart from each other and from the beginning of a save. Never held while room in
/// the journal is waited for.
#[derive(Debug)]
pub(crate) struct Changes {
    turn: Mutex<()>,
    clock: Arc<dyn Clock>,
    /// How long a change waits for a checkpoint to make room, before it and after it.
    patience: Duration,
}

type Turn<'set> = MutexGuard<'set, ()>;

/// A change that has begun.
#[derive(Debug)]
pub(crate) struct Begun<'set> {
    turn: Turn<'set>,
    concern: Concern,
}

impl Changes {
    pub(crate) fn new(clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Self { turn: Mutex::new(()), clock, patience }
    }

    pub(crate) fn turn(&self) -> Turn<'_> {
        self.turn.lock().expect("a panic in a change ends the process")
    }
}

/// Whether stable storage has to know of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    MemoryAlone,
    StableStorage,
}

impl Concern {
    pub(crate) fn of(class: Durability) -> Self {
        match class {
            Durability::Ram => Self::MemoryAlone,
            Durability::Image | Durability::Journal => Self::StableStorage,
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::MemoryAlone { other } else { self }
    }
}

/// Each change is durable when it returns, if the volume's class is `image` or `journal`, or was.
/// One that cannot be made durable is refused; where that turns out too late, the error is of kind
/// [`DurableErrorKind::NotNoted`].
impl DurableSet {
    /// Refused, there is no such volume.
    pub fn create_volume(&self, spec: VolumeSpec) -> Result<Arc<Volume>, DurableError> {
        let attempt = format!("create the volume {:?}", spec.name.as_str());
        let concern = Concern::of(spec.durability);
        self.make(&attempt, || concern, || self.engine.create_volume(spec))
    }

    /// Refused, there is no such volume.
    pub fn clone_volume(
        &self,
        source: &str,
        new_name: VolumeName,
    ) -> Result<Arc<Volume>, DurableError> {
        let attempt = format!("clone {source:?} as {:?}", new_name.as_str());
        let make = || self.engine.clone_volume(source, new_name);
        self.make(&attempt, || self.concern_of(source), make)
    }

    pub fn delete_volume(&self, name: &str) -> Result<(), DurableError> {
        let attempt = format!("delete the volume {name:?}");
        self.change(&attempt, || self.concern_of(name), || self.engine.delete_volume(name))
    }

    pub fn rename_volume(&self, name: &str, new_name: VolumeName) -> Result<(), DurableError> {
        let attempt = format!("rename the volume {name:?} to {:?}", new_name.as_str());
        let rename = || self.engine.rename_volume(name, new_name);
        self.change(&attempt, || self.concern_of(name), rename)
    }

    pub fn resize_volume(
        &self,
        name: &str,
        size_bytes: u64,
        shrink: ShrinkPolicy,
    ) -> Result<(), DurableError> {
        let attempt = format!("resize the volume {name:?}");
        let resize = || self.engine.resize_volume(name, size_bytes, shrink);
        self.change(&attempt, || self.concern_of(name), resize)
    }

    /// Changes what flushes of a volume promise. A volume that becomes one of class `journal` is so
    /// with the next image, for which its flushes wait.
    pub fn set_durability(&self, name: &str, class: Durability) -> Result<(), DurableError> {
        let attempt = format!("change the durability of {name:?}");
        let concern = || self.concern_of(name).or(Concern::of(class));
        self.change(&attempt, concern, || self.engine.set_durability(name, class))
    }

    pub fn set_capacity(&self, name: &str, class: CapacityClass) -> Result<(), DurableError> {
        let attempt = format!("change the capacity class of {name:?}");
        self.change(&attempt, || self.concern_of(name), || self.engine.set_capacity(name, class))
    }

    pub fn set_reduction(&self, name: &str, reduction: Reduction) -> Result<(), DurableError> {
        let attempt = format!("change the reduction of {name:?}");
        let set = || self.engine.set_reduction(name, reduction);
        self.change(&attempt, || self.concern_of(name), set)
    }

    /// Makes a snapshot of each volume, all of one instant. They are durable with the next image.
    pub fn create_snapshots(
        &self,
        volumes: &[&str],
        snapshot: &VolumeName,
        created_unix_seconds: u64,
    ) -> Result<Vec<Arc<Volume>>, DurableError> {
        let attempt = format!("create the snapshot {:?}", snapshot.as_str());
        let create = || self.engine.create_snapshots(volumes, snapshot, created_unix_seconds);
        self.change(&attempt, || Concern::MemoryAlone, create)
    }

    pub fn rename_snapshot(
        &self,
        volume: &str,
        snapshot: &str,
        new_name: &VolumeName,
    ) -> Result<(), DurableError> {
        let attempt = format!("rename the snapshot {volume}@{snapshot}");
        let rename = || self.engine.rename_snapshot(volume, snapshot, new_name);
        self.change(&attempt, || self.concern_of(volume), rename)
    }

    pub fn delete_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), DurableError> {
        let attempt = format!("delete the snapshot {volume}@{snapshot}");
        let delete = || self.engine.delete_snapshot(volume, snapshot);
        self.change(&attempt, || self.concern_of(volume), delete)
    }

    /// Makes a volume what it was when a snapshot was made. Its size is durable when this returns,
    /// its contents are with the next image.
    pub fn restore_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), DurableError> {
        let attempt = format!("restore the volume {volume:?} from {volume}@{snapshot}");
        let restore = || self.engine.restore_snapshot(volume, snapshot);
        self.change(&attempt, || self.concern_of(volume), restore)
    }

    /// Returns when stable storage knows what volumes of class `image` and `journal` there are now.
    pub fn note_volumes(&self) -> Result<(), DurableError> {
        if !self.keeps_table() {
            return Ok(());
        }
        let _turn = self.changes.turn();
        let noted = self.journal.prepare_table();
        noted.map_err(DurableError::journal("write the table of volumes to the journal"))
    }

    /// Whether stable storage has to know of changes of a volume; there may be none of that name.
    fn concern_of(&self, name: &str) -> Concern {
        let class = self.engine.volume(name).map(|volume| volume.durability());
        class.map_or(Concern::MemoryAlone, Concern::of)
    }

    /// Makes a volume, and deletes it again if it cannot be noted.
    fn make(
        &self,
        attempt: &str,
        concern: impl FnOnce() -> Concern,
        make: impl FnOnce() -> Result<Arc<Volume>, VolumeError>,
    ) -> Result<Arc<Volume>, DurableError> {
        let begun = self.begin_change(attempt, concern)?;
        let volume = make().map_err(DurableError::volume(attempt))?;
        match self.end_change(begun, attempt) {
            Ok(()) => Ok(volume),
            Err(error) => Err(self.take_back(&[volume], error)),
        }
    }

    /// Deletes volumes that were made and could not be noted. Returns what there is to say then.
    pub(crate) fn take_back(&self, made: &[Arc<Volume>], error: DurableError) -> DurableError {
        let _turn = self.changes.turn();
        let are_gone = made.iter().all(|volume| self.engine.delete_volume(&volume.name()).is_ok());
        let kind = if are_gone { DurableErrorKind::Journal } else { error.kind };
        DurableError { kind, ..error }
    }

    fn change<Made>(
        &self,
        attempt: &str,
        concern: impl FnOnce() -> Concern,
        make: impl FnOnce() -> Result<Made, VolumeError>,
    ) -> Result<Made, DurableError> {
        let begun = self.begin_change(attempt, concern)?;
        let made = make().map_err(DurableError::volume(attempt))?;
        self.end_change(begun, attempt)?;
        Ok(made)
    }

    /// Waits until a change may begin: what was changed before is noted, and there is room to note
    /// this one.
    pub(crate) fn begin_change(
        &self,
        attempt: &str,
        concern: impl FnOnce() -> Concern,
    ) -> Result<Begun<'_>, DurableError> {
        let turn = self.changes.turn();
        let concern = concern();
        if concern == Concern::MemoryAlone {
            return Ok(Begun { turn, concern });
        }
        let prepared = self.with_patience(turn, || self.journal.prepare_table());
        let turn = prepared.map_err(DurableError::journal(attempt))?;
        Ok(Begun { turn, concern })
    }

    /// Notes what was changed.
    pub(crate) fn end_change(&self, begun: Begun<'_>, attempt: &str) -> Result<(), DurableError> {
        let Begun { turn, concern } = begun;
        if concern == Concern::MemoryAlone {
            return Ok(());
        }
        let noted = self.with_patience(turn, || self.journal.commit_table());
        noted.map(drop).map_err(DurableError::not_noted(attempt))
    }

    /// Tries again what a checkpoint may make room for.
    fn with_patience<'set>(
        &'set self,
        mut turn: Turn<'set>,
        work: impl Fn() -> Result<(), JournalError>,
    ) -> Result<Turn<'set>, JournalError> {
        let Changes { clock, patience, .. } = &self.changes;
        let begun = clock.now();
        loop {
            let Err(error) = work() else { return Ok(turn) };
            let is_over = clock.now().saturating_sub(begun) >= *patience;
            if is_over || !self.journal.may_get_room(&error) {
                return Err(error);
            }
            drop(turn);
            self.journal.wait_for_checkpoint(ROOM_WAIT);
            turn = self.changes.turn();
        }
    }
}
