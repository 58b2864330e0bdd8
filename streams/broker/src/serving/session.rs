//! Fetch session (KIP-227): the partitions that a client fetches repeatedly, so that its requests
//! contain changes only.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kafka::fetch::{FetchPartition, FetchStart, FetchVisitor, TopicRef};
use kafka_protocol::error::ResponseError;
use shares::{Owner, Share};
use uuid::Uuid;

use crate::topics::OpenPartition;

/// Maximum number of partitions in a request or session.
const PARTITION_COUNT_MAX: usize = 10_000;

/// Size of a partition besides its topic's name.
const ENTRY_BYTES: usize = size_of::<Tracked>() + 2 * size_of::<usize>();

/// A partition of a session.
#[derive(Debug)]
pub(super) struct Tracked {
    /// Topic name; empty if the topic is identified by id.
    pub(super) name: Arc<str>,
    pub(super) id: Uuid,
    pub(super) is_by_id: bool,
    /// True once there was a topic of this id.
    pub(super) was_found: bool,
    pub(super) want: FetchPartition,
    pub(super) partition: Result<Arc<OpenPartition>, ResponseError>,
    /// High watermark, log start offset and last stable offset that were sent last.
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

/// Identity of a partition.
type Place = (Uuid, Arc<str>, i32);

/// Returns the parameters of each partition, and the position of its first occurrence in the
/// request. Of repeated partitions, the last parameters apply.
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
    let mut in_order: Vec<Tracked> = wanted.into_iter().map(|(_, wanted)| wanted).collect();
    // The vector may have been collected in place, in a larger allocation.
    in_order.shrink_to_fit();
    in_order
}

/// Partitions that a request adds or updates, and those that it removes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    wanted: Vec<Tracked>,
    forgotten: Vec<Tracked>,
    pub(super) is_too_many: bool,
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

/// Creates the entry of a partition. Adjacent partitions of one topic share its name.
fn tracked(before: Option<&Tracked>, topic: TopicRef<'_>, want: FetchPartition) -> Tracked {
    let (name, id) = match topic {
        TopicRef::Name(name) => (name, Uuid::nil()),
        TopicRef::Id(id) => ("", Uuid::from_bytes(id)),
    };
    let shared = before.filter(|it| *it.name == *name).map(|it| Arc::clone(&it.name));
    let name = shared.unwrap_or_else(|| name.into());
    let partition = Err(ResponseError::UnknownTopicOrPartition);
    let is_by_id = matches!(topic, TopicRef::Id(_));
    Tracked { name, id, is_by_id, was_found: false, want, partition, sent: None }
}

/// Returns the size of the partitions, regardless of rotation: a name shared by adjacent partitions
/// counts once, also across the end of the list.
fn bytes_of(tracked: &[Tracked]) -> usize {
    let Some(last) = tracked.last() else { return 0 };
    let mut before = &last.name;
    let mut names_bytes = 0;
    for it in tracked {
        names_bytes += if Arc::ptr_eq(before, &it.name) { 0 } else { it.name.len() };
        before = &it.name;
    }
    // All partitions have the same name.
    let names_bytes = if names_bytes == 0 { last.name.len() } else { names_bytes };
    tracked.len() * ENTRY_BYTES + names_bytes
}

/// Partitions of one request, or of a session.
#[derive(Debug)]
pub(super) struct Session {
    /// 0 for a request without a session.
    pub(super) id: i32,
    /// Epoch of the next request.
    epoch: i32,
    is_by_id: bool,
    /// True if the request continues the session.
    pub(super) is_incremental: bool,
    pub(super) is_committed_only: bool,
    pub(super) tracked: Vec<Tracked>,
    /// Reserved memory, released at the end.
    pub(super) memory: Share,
}

impl Session {
    /// Creates the session of a request that names all of its partitions.
    pub(super) fn new(start: &FetchStart, changes: Changes, memory: Share) -> Self {
        Self {
            id: 0,
            epoch: 1,
            is_by_id: start.is_by_id,
            is_incremental: false,
            is_committed_only: start.is_committed_only,
            tracked: in_order(named_once(changes.wanted)),
            memory,
        }
    }

    /// Checks whether a request can continue the session. Errors have Kafka's precedence.
    pub(super) fn check_next(
        &self,
        start: &FetchStart,
        changes: &Changes,
    ) -> Result<(), ResponseError> {
        if self.epoch != start.session_epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        if self.is_by_id != start.is_by_id {
            return Err(ResponseError::FetchSessionTopicIdError);
        }
        match self.tracked.len() + changes.wanted.len() > 2 * PARTITION_COUNT_MAX {
            true => Err(ResponseError::InvalidRequest),
            false => Ok(()),
        }
    }

    /// Applies the changes of the next request. Returns whether the set of partitions changed.
    pub(super) fn go_on(&mut self, start: &FetchStart, changes: Changes) -> bool {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.is_incremental = true;
        self.is_committed_only = start.is_committed_only;
        self.take_in(changes)
    }

    /// Closes the session, as Kafka does when no partition remains. The response has session id 0.
    pub(super) fn end(&mut self) {
        (self.id, self.is_incremental) = (0, false);
    }

    /// Returns whether the session belongs to `owner`, who may continue it.
    pub(super) fn is_of(&self, owner: Owner) -> bool {
        self.memory.owner() == owner
    }

    /// Returns the size of its partitions.
    pub(super) fn tracked_bytes(&self) -> usize {
        bytes_of(&self.tracked)
    }

    /// Releases all partitions until the next [`Self::resolve`].
    pub(super) fn let_go(&mut self) {
        for tracked in &mut self.tracked {
            tracked.partition = Err(ResponseError::UnknownTopicOrPartition);
        }
    }

    /// Looks up all partitions again, because topics are created and deleted.
    pub(super) fn resolve(
        &mut self,
        find: impl Fn(&mut Tracked) -> Result<Arc<OpenPartition>, ResponseError>,
    ) {
        for tracked in &mut self.tracked {
            tracked.partition = find(tracked);
        }
    }

    /// Rotates the list, so that limits do not starve partitions.
    pub(super) fn turn(&mut self) {
        if !self.tracked.is_empty() {
            self.tracked.rotate_left(1);
        }
    }

    fn take_in(&mut self, changes: Changes) -> bool {
        let mut new = named_once(changes.wanted);
        if !new.is_empty() {
            for known in &mut self.tracked {
                if let Some((_, wanted)) = new.remove(&known.place()) {
                    known.want = wanted.want;
                }
            }
        }
        let has_more = !new.is_empty();
        self.tracked.extend(in_order(new));
        let count = self.tracked.len();
        // Last, as in Kafka: a partition that a request also forgets is removed.
        if !changes.forgotten.is_empty() {
            let gone: HashSet<Place> = changes.forgotten.iter().map(Tracked::place).collect();
            self.tracked.retain(|it| !gone.contains(&it.place()));
        }
        let has_others = has_more || self.tracked.len() < count;
        if has_others {
            // Spare capacity of removed partitions is not accounted.
            self.tracked.shrink_to_fit();
        }
        has_others
    }
}
