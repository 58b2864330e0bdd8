//! Fetch sessions (KIP-227): what a connection fetches again and again, so that its requests name
//! only what changes. A session belongs to its connection and ends with it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use kafka::fetch::{FetchPartition, FetchStart, FetchVisitor, TopicRef};
use kafka_protocol::error::ResponseError;
use uuid::Uuid;

use crate::topics::OpenPartition;

/// The epoch of a request without a session, and of one that ends it.
const NO_SESSION_EPOCH: i32 = -1;

/// Partitions that a request or a session may name.
const PARTITION_COUNT_MAX: usize = 10_000;

static LAST_ID: AtomicI32 = AtomicI32::new(0);

/// A partition that is fetched.
#[derive(Debug)]
pub(super) struct Tracked {
    /// Name of the topic; empty where it is named by its id.
    pub(super) name: Arc<str>,
    pub(super) id: Uuid,
    pub(super) is_by_id: bool,
    pub(super) want: FetchPartition,
    pub(super) partition: Result<Arc<OpenPartition>, ResponseError>,
    /// High watermark, first offset and last stable offset that the client has.
    pub(super) sent: Option<(i64, i64, i64)>,
}

impl Tracked {
    pub(super) fn is_same_topic(&self, other: &Self) -> bool {
        (self.id, &self.name) == (other.id, &other.name)
    }

    fn place(&self) -> Place {
        (self.id, Arc::clone(&self.name), self.want.index)
    }
}

/// What tells partitions apart.
type Place = (Uuid, Arc<str>, i32);

/// What is wanted of each partition, and where the request named it first. What it says last
/// counts.
fn named_once(wanted: Vec<Tracked>) -> HashMap<Place, (usize, Tracked)> {
    let mut once: HashMap<Place, (usize, Tracked)> = HashMap::with_capacity(wanted.len());
    for (nth, wanted) in wanted.into_iter().enumerate() {
        match once.entry(wanted.place()) {
            Entry::Occupied(mut known) => known.get_mut().1.want = wanted.want,
            Entry::Vacant(place) => {
                place.insert((nth, wanted));
            }
        }
    }
    once
}

fn in_order(wanted: HashMap<Place, (usize, Tracked)>) -> Vec<Tracked> {
    let mut wanted: Vec<_> = wanted.into_values().collect();
    wanted.sort_unstable_by_key(|(nth, _)| *nth);
    wanted.into_iter().map(|(_, wanted)| wanted).collect()
}

/// Changes that a request asks for from now on, and for no longer.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    wanted: Vec<Tracked>,
    forgotten: Vec<Tracked>,
    is_too_many: bool,
}

impl FetchVisitor for Changes {
    fn want(&mut self, topic: TopicRef<'_>, partition: FetchPartition) {
        match self.wanted.len() < PARTITION_COUNT_MAX {
            true => self.wanted.push(tracked(self.wanted.last(), topic, partition)),
            false => self.is_too_many = true,
        }
    }

    fn forget(&mut self, topic: TopicRef<'_>, index: i32) {
        let (leader_epoch, offset, last_fetched_epoch, max_bytes) = (-1, 0, -1, 0);
        let partition =
            FetchPartition { index, leader_epoch, offset, last_fetched_epoch, max_bytes };
        match self.forgotten.len() < PARTITION_COUNT_MAX {
            true => self.forgotten.push(tracked(self.forgotten.last(), topic, partition)),
            false => self.is_too_many = true,
        }
    }
}

/// The name is shared with the partition before, if it is of the same topic.
fn tracked(before: Option<&Tracked>, topic: TopicRef<'_>, want: FetchPartition) -> Tracked {
    let (name, id) = match topic {
        TopicRef::Name(name) => {
            let shared = before.filter(|it| *it.name == *name).map(|it| Arc::clone(&it.name));
            (shared.unwrap_or_else(|| name.into()), Uuid::nil())
        }
        TopicRef::Id(id) => ("".into(), Uuid::from_bytes(id)),
    };
    let partition = Err(ResponseError::UnknownTopicOrPartition);
    let is_by_id = matches!(topic, TopicRef::Id(_));
    Tracked { name, id, is_by_id, want, partition, sent: None }
}

/// The partitions of one request, or of all requests of a session.
#[derive(Debug)]
pub(super) struct Session {
    /// 0 where there is none.
    pub(super) id: i32,
    /// Of the next request.
    epoch: i32,
    /// True if the request goes on with what came before.
    pub(super) is_incremental: bool,
    pub(super) is_committed_only: bool,
    pub(super) tracked: Vec<Tracked>,
}

impl Session {
    /// Finds each partition as it is now: topics come and go.
    pub(super) fn resolve(
        &mut self,
        find: impl Fn(&mut Tracked) -> Result<Arc<OpenPartition>, ResponseError>,
    ) {
        for tracked in &mut self.tracked {
            tracked.partition = find(tracked);
        }
    }

    /// Has another partition be the first one next time, so that none is starved by the limits.
    pub(super) fn turn(&mut self) {
        if !self.tracked.is_empty() {
            self.tracked.rotate_left(1);
        }
    }
}

/// The session of a connection, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    current: Option<Session>,
}

impl Sessions {
    /// Takes in what a request changes.
    pub(super) fn begin(
        &mut self,
        start: &FetchStart,
        changes: Changes,
    ) -> Result<&mut Session, ResponseError> {
        if changes.is_too_many {
            return Err(ResponseError::InvalidRequest);
        }
        if start.session_epoch > 0 {
            return self.go_on(start, changes);
        }
        let has_session = start.session_epoch != NO_SESSION_EPOCH;
        let session = Session {
            id: if has_session { next_id() } else { 0 },
            epoch: 1,
            is_incremental: false,
            is_committed_only: start.is_committed_only,
            tracked: in_order(named_once(changes.wanted)),
        };
        Ok(self.current.insert(session))
    }

    fn go_on(
        &mut self,
        start: &FetchStart,
        changes: Changes,
    ) -> Result<&mut Session, ResponseError> {
        let session = self
            .current
            .as_mut()
            .filter(|session| session.id != 0 && session.id == start.session_id)
            .ok_or(ResponseError::FetchSessionIdNotFound)?;
        if session.epoch != start.session_epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        let tracked_count = session.tracked.len() + changes.wanted.len();
        if tracked_count > 2 * PARTITION_COUNT_MAX {
            return Err(ResponseError::InvalidRequest);
        }
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        session.is_incremental = true;
        session.is_committed_only = start.is_committed_only;
        if !changes.forgotten.is_empty() {
            let gone: HashSet<Place> = changes.forgotten.iter().map(Tracked::place).collect();
            session.tracked.retain(|it| !gone.contains(&it.place()));
        }
        let mut new = named_once(changes.wanted);
        if !new.is_empty() {
            for known in &mut session.tracked {
                if let Some((_, wanted)) = new.remove(&known.place()) {
                    known.want = wanted.want;
                }
            }
        }
        session.tracked.extend(in_order(new));
        Ok(session)
    }
}

/// Never 0, and seldom one that was used before.
fn next_id() -> i32 {
    loop {
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
        if id != 0 {
            return id;
        }
    }
}
