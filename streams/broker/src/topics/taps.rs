//! Current values as a stream: those that are there at one instant, then each change, in order.
//!
//! ```text
//! following thread ─▶ Taps of a partition ─▶ Tap ─▶ whoever asked takes
//!     changes                                         Snapshot, Change, Change, Snapshot, …
//! ```
//!
//! A snapshot stands between the changes that are in it and those that are not: with the changes
//! behind it, it has no gap and nothing twice. The thread that follows the partition never waits
//! for who takes: a tap that holds too much breaks, and another is to be made. Where there are no
//! taps, nothing is read and nothing kept.
//!
//! To use it: [`Taps::add`] on the partition, wake its followers (`watchers.wake()`), then
//! [`Tap::take`] whenever the notify of the tap says so. The topic must keep current values.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use record_batch::{Header, Record};
use record_log::PinnedLog;
use tokio::sync::Notify;
use values::{Change, Snapshot, Values, ValuesError, read_record};

const NO_PANIC: &str = "no thread panics with this lock";

/// What one tap holds of changes that were not taken.
const TAP_BYTES_MAX: usize = 64 << 20;

/// What a change takes besides keys, values and headers.
const CHANGE_BYTES: usize = 256;

/// A record, kept beside its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptRecord {
    pub(crate) offset: i64,
    /// Unix milliseconds.
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<Header>,
}

impl KeptRecord {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let keep = |bytes: Option<&[u8]>| bytes.map(Bytes::copy_from_slice);
        let headers = record.headers.iter().map(|(name, value)| Header {
            name: String::from_utf8_lossy(name).into_owned(),
            value: keep(value),
        });
        Self {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: keep(record.key),
            value: keep(record.value),
            headers: headers.collect(),
        }
    }

    fn size_bytes(&self) -> usize {
        let length = |it: &Option<Bytes>| it.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter().map(|it| size_of::<Header>() + length(&it.value));
        length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

/// A change of one key's current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueChange {
    /// Offset of the record that made it; `None` where the old one has expired, or went with the
    /// start of the log.
    pub(crate) offset: Option<i64>,
    /// The value that the key had.
    pub(crate) old: Option<KeptRecord>,
    /// The value that it has now.
    pub(crate) new: Option<KeptRecord>,
}

impl ValueChange {
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.new.as_ref().or(self.old.as_ref())?.key.as_deref()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let records = self.old.iter().chain(&self.new).map(KeptRecord::size_bytes);
        CHANGE_BYTES + records.sum::<usize>()
    }
}

/// Item that comes out of a tap.
#[derive(Clone, Debug)]
pub(crate) enum Tapped {
    /// The values after all changes that came before it. Values that have expired and were not
    /// swept yet are among them, and told of as changes later: they are to be read as of a time
    /// before all others (`i64::MIN`).
    Snapshot(Arc<Snapshot>),
    Change(Arc<ValueChange>),
}

/// Why a tap gives no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It held more than it may.
    Behind,
    /// The partition is followed no more, or from the beginning: the topic was deleted, it keeps
    /// current values no more, the storage failed, or the broker stops.
    Unfollowed,
}

/// One who is told of the changes of a partition, as long as it is held.
#[derive(Debug)]
pub(crate) struct Tap {
    state: Mutex<TapState>,
    /// Is notified when there is something to take.
    notify: Arc<Notify>,
}

#[derive(Debug)]
struct TapState {
    items: VecDeque<Tapped>,
    bytes: usize,
    wants_snapshot: bool,
    /// Whether it had its first snapshot: changes before that are not for it.
    is_told: bool,
    applied: i64,
    broken: Option<Broken>,
}

impl Tap {
    /// Takes all that is there. Returns the offset up to which the partition was followed: all
    /// changes by records before it have been taken, once the first snapshot has.
    ///
    /// # Errors
    /// The tap is broken; what was not taken is lost.
    pub(crate) fn take(&self, into: &mut Vec<Tapped>) -> Result<i64, Broken> {
        let mut state = self.state.lock().expect(NO_PANIC);
        if let Some(broken) = state.broken {
            return Err(broken);
        }
        into.extend(state.items.drain(..));
        state.bytes = 0;
        Ok(state.applied)
    }

    /// Has another snapshot come among the changes. The first comes without being asked for. The
    /// partition's followers have to be woken.
    pub(crate) fn ask_for_snapshot(&self) {
        self.state.lock().expect(NO_PANIC).wants_snapshot = true;
    }

    fn wants_snapshot(&self) -> bool {
        self.state.lock().expect(NO_PANIC).wants_snapshot
    }

    fn put_snapshot(&self, snapshot: &Arc<Snapshot>) {
        let mut state = self.state.lock().expect(NO_PANIC);
        state.items.push_back(Tapped::Snapshot(Arc::clone(snapshot)));
        (state.wants_snapshot, state.is_told) = (false, true);
        state.applied = snapshot.applied();
        drop(state);
        self.notify.notify_one();
    }

    fn put_change(&self, change: &Arc<ValueChange>) {
        let mut state = self.state.lock().expect(NO_PANIC);
        if !state.is_told || state.broken.is_some() {
            return;
        }
        state.bytes += change.size_bytes();
        state.items.push_back(Tapped::Change(Arc::clone(change)));
        if state.bytes > TAP_BYTES_MAX {
            state.break_off(Broken::Behind);
        }
    }

    fn set_applied(&self, applied: i64) {
        let mut state = self.state.lock().expect(NO_PANIC);
        let is_news = state.applied != applied || !state.items.is_empty();
        state.applied = applied;
        drop(state);
        if is_news {
            self.notify.notify_one();
        }
    }
}

impl TapState {
    fn break_off(&mut self, why: Broken) {
        self.items = VecDeque::new();
        self.broken.get_or_insert(why);
    }
}

/// The taps of one partition.
#[derive(Debug, Default)]
pub(crate) struct Taps(Mutex<Vec<Weak<Tap>>>);

impl Taps {
    /// A tap whose first snapshot comes when the partition is followed next.
    pub(crate) fn add(&self, notify: Arc<Notify>) -> Arc<Tap> {
        let state = TapState {
            items: VecDeque::new(),
            bytes: 0,
            wants_snapshot: true,
            is_told: false,
            applied: 0,
            broken: None,
        };
        let tap = Arc::new(Tap { state: Mutex::new(state), notify });
        self.0.lock().expect(NO_PANIC).push(Arc::downgrade(&tap));
        tap
    }

    /// Those that are held, with a snapshot of `values` for those that want one and can have it
    /// yet. For the thread that follows, before it goes on.
    pub(crate) fn held(&self, values: &Values) -> Vec<Arc<Tap>> {
        let mut held = Vec::new();
        self.0.lock().expect(NO_PANIC).retain(|it| {
            let tap = it.upgrade();
            held.extend(tap.iter().cloned());
            tap.is_some()
        });
        if held.iter().any(|tap| tap.wants_snapshot())
            && let Ok(snapshot) = values.snapshot()
        {
            let snapshot = Arc::new(snapshot);
            held.iter()
                .filter(|tap| tap.wants_snapshot())
                .for_each(|it| it.put_snapshot(&snapshot));
        }
        held
    }

    /// Breaks all taps. For the thread that follows, where it ends or begins anew.
    pub(crate) fn break_all(&self) {
        for tap in self.0.lock().expect(NO_PANIC).drain(..).filter_map(|it| it.upgrade()) {
            tap.state.lock().expect(NO_PANIC).break_off(Broken::Unfollowed);
            tap.notify.notify_one();
        }
    }
}

/// Tells taps of changes as a follower tells of them.
pub(crate) struct Telling<'a> {
    taps: &'a [Arc<Tap>],
    buffer: Vec<u8>,
    failed: Option<ValuesError>,
}

impl<'a> Telling<'a> {
    pub(crate) fn new(taps: &'a [Arc<Tap>]) -> Self {
        Self { taps, buffer: Vec::new(), failed: None }
    }

    pub(crate) fn tell(&mut self, change: &Change<'_>, log: &PinnedLog) {
        if self.failed.is_some() {
            return;
        }
        match read_change(change, log, &mut self.buffer) {
            Ok(change) => {
                let change = Arc::new(change);
                self.taps.iter().for_each(|tap| tap.put_change(&change));
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Says up to where the partition was followed.
    ///
    /// # Errors
    /// An old record could not be read: all taps have to be broken.
    pub(crate) fn end(self, applied: i64) -> Result<(), ValuesError> {
        self.taps.iter().for_each(|tap| tap.set_applied(applied));
        self.failed.map_or(Ok(()), Err)
    }
}

/// Keeps a change with the record that was the value before.
pub(crate) fn read_change(
    change: &Change<'_>,
    log: &PinnedLog,
    buffer: &mut Vec<u8>,
) -> Result<ValueChange, ValuesError> {
    let mut old_at = |offset| {
        let found = read_record(log, offset, buffer, KeptRecord::of)?;
        found.map(Some).ok_or(ValuesError::Overtaken { partition: log.partition(), offset })
    };
    Ok(match change {
        Change::Published { record, old } => ValueChange {
            offset: Some(record.offset),
            old: old.map_or(Ok(None), &mut old_at)?,
            new: Some(KeptRecord::of(record)),
        },
        Change::Deleted { record, old } => {
            ValueChange { offset: Some(record.offset), old: old_at(*old)?, new: None }
        }
        Change::Expired { record, .. } | Change::Retired { record, .. } => {
            ValueChange { offset: None, old: Some(KeptRecord::of(record)), new: None }
        }
    })
}
