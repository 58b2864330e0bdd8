//! Change feeds: the current values at one instant, then each change, in order.
//!
//! ```text
//! following thread ─▶ ChangeFeeds of a partition ─▶ ChangeFeed ─▶ consumer takes
//!     changes                                         Snapshot, Change, Change, Snapshot, …
//! ```
//!
//! A snapshot is ordered among the changes: it contains all earlier changes and no later ones.
//! Snapshot and later changes together have no gaps or duplicates. The thread that follows the
//! partition never waits for consumers: a feed with too many pending changes breaks, and must be
//! replaced by a new one. Without feeds, old records are neither read nor kept.
//!
//! Usage: [`ChangeFeeds::add`] on the partition, wake its followers (`watchers.wake()`), then call
//! [`ChangeFeed::take`] when the feed's notify is signalled. The topic must keep current values.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use record_batch::{Header, Record};
use record_log::PinnedLog;
use tokio::sync::Notify;
use values::{Change, Snapshot, Values, ValuesError, read_record};

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum bytes of pending changes in a feed.
const FEED_BYTES_MAX: usize = 64 << 20;

/// Overhead of a change besides keys, values and headers.
const CHANGE_BYTES: usize = 256;

/// An owned copy of a record.
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

/// A change of the current value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueChange {
    /// Offset of the record that caused it; `None` if the old value has expired, or was deleted at
    /// the start of the log.
    pub(crate) offset: Option<i64>,
    /// Previous value of the key.
    pub(crate) old: Option<KeptRecord>,
    /// New value of the key.
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

/// Item of a feed.
#[derive(Clone, Debug)]
pub(crate) enum FeedItem {
    /// The values after all preceding changes. They include expired values that were not swept yet,
    /// whose changes follow later. Therefore it must be read as of a time before all others
    /// (`i64::MIN`).
    Snapshot(Arc<Snapshot>),
    Change(Arc<ValueChange>),
}

/// Reasons why a feed ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Its pending changes exceeded the limit.
    Behind,
    /// The partition is no longer followed, or is followed from the beginning: the topic was
    /// deleted or no longer keeps current values, the storage failed, or the broker stops.
    Unfollowed,
}

/// Subscription to the changes of a partition, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    state: Mutex<FeedState>,
    /// Signalled when items are available.
    notify: Arc<Notify>,
}

#[derive(Debug)]
struct FeedState {
    items: VecDeque<FeedItem>,
    bytes: usize,
    wants_snapshot: bool,
    /// True after the first snapshot. Earlier changes are not delivered.
    is_told: bool,
    applied: i64,
    broken: Option<Broken>,
}

impl ChangeFeed {
    /// Takes all pending items. Returns the offset up to which the partition was followed: all
    /// changes by earlier records have been taken, if the first snapshot has.
    ///
    /// # Errors
    /// The feed is broken. Pending items are lost.
    pub(crate) fn take(&self, into: &mut Vec<FeedItem>) -> Result<i64, Broken> {
        let mut state = self.state.lock().expect(NO_PANIC);
        if let Some(broken) = state.broken {
            return Err(broken);
        }
        into.extend(state.items.drain(..));
        state.bytes = 0;
        Ok(state.applied)
    }

    /// Requests another snapshot among the changes. The first one needs no request. The caller must
    /// wake the partition's followers.
    pub(crate) fn ask_for_snapshot(&self) {
        self.state.lock().expect(NO_PANIC).wants_snapshot = true;
    }

    fn wants_snapshot(&self) -> bool {
        self.state.lock().expect(NO_PANIC).wants_snapshot
    }

    fn put_snapshot(&self, snapshot: &Arc<Snapshot>) {
        let mut state = self.state.lock().expect(NO_PANIC);
        state.items.push_back(FeedItem::Snapshot(Arc::clone(snapshot)));
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
        state.items.push_back(FeedItem::Change(Arc::clone(change)));
        if state.bytes > FEED_BYTES_MAX {
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

impl FeedState {
    fn break_off(&mut self, why: Broken) {
        self.items = VecDeque::new();
        self.broken.get_or_insert(why);
    }
}

/// Feeds of one partition.
#[derive(Debug, Default)]
pub(crate) struct ChangeFeeds(Mutex<Vec<Weak<ChangeFeed>>>);

impl ChangeFeeds {
    /// Adds a feed. Its first snapshot follows when the partition is processed next.
    pub(crate) fn add(&self, notify: Arc<Notify>) -> Arc<ChangeFeed> {
        let state = FeedState {
            items: VecDeque::new(),
            bytes: 0,
            wants_snapshot: true,
            is_told: false,
            applied: 0,
            broken: None,
        };
        let feed = Arc::new(ChangeFeed { state: Mutex::new(state), notify });
        self.0.lock().expect(NO_PANIC).push(Arc::downgrade(&feed));
        feed
    }

    /// Returns the feeds in use. Those that requested a snapshot get one of `values`, if it can be
    /// taken now. Called by the follower thread before it proceeds.
    pub(crate) fn held(&self, values: &Values) -> Vec<Arc<ChangeFeed>> {
        let mut held = Vec::new();
        self.0.lock().expect(NO_PANIC).retain(|it| {
            let feed = it.upgrade();
            held.extend(feed.iter().cloned());
            feed.is_some()
        });
        if held.iter().any(|feed| feed.wants_snapshot())
            && let Ok(snapshot) = values.snapshot()
        {
            let snapshot = Arc::new(snapshot);
            held.iter()
                .filter(|feed| feed.wants_snapshot())
                .for_each(|it| it.put_snapshot(&snapshot));
        }
        held
    }

    /// Breaks all feeds. Called by the follower thread when it ends or restarts.
    pub(crate) fn break_all(&self) {
        for feed in self.0.lock().expect(NO_PANIC).drain(..).filter_map(|it| it.upgrade()) {
            feed.state.lock().expect(NO_PANIC).break_off(Broken::Unfollowed);
            feed.notify.notify_one();
        }
    }
}

/// Delivers changes from a follower to feeds.
pub(crate) struct FeedWriter<'a> {
    feeds: &'a [Arc<ChangeFeed>],
    buffer: Vec<u8>,
    failed: Option<ValuesError>,
}

impl<'a> FeedWriter<'a> {
    pub(crate) fn new(feeds: &'a [Arc<ChangeFeed>]) -> Self {
        Self { feeds, buffer: Vec::new(), failed: None }
    }

    pub(crate) fn tell(&mut self, change: &Change<'_>, log: &PinnedLog) {
        if self.failed.is_some() {
            return;
        }
        match read_change(change, log, &mut self.buffer) {
            Ok(change) => {
                let change = Arc::new(change);
                self.feeds.iter().for_each(|feed| feed.put_change(&change));
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Sets the offset up to which the partition was followed.
    ///
    /// # Errors
    /// An old record could not be read. The caller must break all feeds.
    pub(crate) fn end(self, applied: i64) -> Result<(), ValuesError> {
        self.feeds.iter().for_each(|feed| feed.set_applied(applied));
        self.failed.map_or(Ok(()), Err)
    }
}

/// Converts a change to an owned one, with the record of the old value.
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
