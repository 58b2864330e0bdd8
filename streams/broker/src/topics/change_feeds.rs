//! Current values as a stream: those that are there at one instant, then each change, in order.
//!
//! ```text
//! following thread ─▶ ChangeFeeds of a partition ─▶ ChangeFeed ─▶ whoever asked takes
//!     changes                                         Snapshot, Change, Change, Snapshot, …
//! ```
//!
//! A snapshot stands between the changes that are in it and those that are not: with the changes
//! behind it, it has no gap and nothing twice. The thread that follows the partition never waits
//! for who takes: a feed that holds too much breaks, and another is to be made. Where there are no
//! feeds, nothing is read and nothing kept.
//!
//! To use it: [`ChangeFeeds::add`] on the partition, wake its followers (`watchers.wake()`), then
//! [`ChangeFeed::take`] whenever the notify of the feed says so. The topic must keep current
//! values.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use record_batch::{Header, Record};
use record_log::PinnedLog;
use tokio::sync::Notify;
use values::{Change, Snapshot, Values, ValuesError, read_record};

const NO_PANIC: &str = "no thread panics with this lock";

/// What one feed holds of changes that were not taken.
const FEED_BYTES_MAX: usize = 64 << 20;

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

/// Item that comes out of a feed.
#[derive(Clone, Debug)]
pub(crate) enum FeedItem {
    /// The values after all changes that came before it. Values that have expired and were not
    /// swept yet are among them, and told of as changes later: they are to be read as of a time
    /// before all others (`i64::MIN`).
    Snapshot(Arc<Snapshot>),
    Change(Arc<ValueChange>),
}

/// Why a feed gives no more.
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
pub(crate) struct ChangeFeed {
    state: Mutex<FeedState>,
    /// Is notified when there is something to take.
    notify: Arc<Notify>,
}

#[derive(Debug)]
struct FeedState {
    items: VecDeque<FeedItem>,
    bytes: usize,
    wants_snapshot: bool,
    /// Whether it had its first snapshot: changes before that are not for it.
    is_told: bool,
    applied: i64,
    broken: Option<Broken>,
}

impl ChangeFeed {
    /// Takes all that is there. Returns the offset up to which the partition was followed: all
    /// changes by records before it have been taken, once the first snapshot has.
    ///
    /// # Errors
    /// The feed is broken; what was not taken is lost.
    pub(crate) fn take(&self, into: &mut Vec<FeedItem>) -> Result<i64, Broken> {
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

/// The feeds of one partition.
#[derive(Debug, Default)]
pub(crate) struct ChangeFeeds(Mutex<Vec<Weak<ChangeFeed>>>);

impl ChangeFeeds {
    /// A feed whose first snapshot comes when the partition is followed next.
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

    /// Those that are held, with a snapshot of `values` for those that want one and can have it
    /// yet. For the thread that follows, before it goes on.
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

    /// Breaks all feeds. For the thread that follows, where it ends or begins anew.
    pub(crate) fn break_all(&self) {
        for feed in self.0.lock().expect(NO_PANIC).drain(..).filter_map(|it| it.upgrade()) {
            feed.state.lock().expect(NO_PANIC).break_off(Broken::Unfollowed);
            feed.notify.notify_one();
        }
    }
}

/// Tells feeds of changes as a follower tells of them.
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

    /// Says up to where the partition was followed.
    ///
    /// # Errors
    /// An old record could not be read: all feeds have to be broken.
    pub(crate) fn end(self, applied: i64) -> Result<(), ValuesError> {
        self.feeds.iter().for_each(|feed| feed.set_applied(applied));
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
