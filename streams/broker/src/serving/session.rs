//! Fetch sessions (KIP-227): what a connection fetches again and again, so that its requests name
//! only what changes. A session belongs to its connection and ends with it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use kafka::fetch::{FetchPartition, FetchStart, FetchVisitor, TopicRef};
use kafka_protocol::error::ResponseError;
use shares::{Limit, Owner, Share};
use uuid::Uuid;

use crate::topics::OpenPartition;

/// The epoch of a request without a session, and of one that ends it.
const NO_SESSION_EPOCH: i32 = -1;

/// The epoch of a request that begins a session.
const NEW_SESSION_EPOCH: i32 = 0;

/// Partitions that a request or a session may name.
const PARTITION_COUNT_MAX: usize = 10_000;

/// Memory of the sessions of all connections. One owner alone gets half. A request that would begin
/// another one gets an answer without a session, as in Kafka where its cache of sessions is full.
const SESSIONS_BYTES_MAX: usize = 256 << 20;

/// What a partition takes beside the name of its topic.
const ENTRY_BYTES: usize = size_of::<Tracked>() + 2 * size_of::<usize>();

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

/// Memory of the sessions of all connections.
pub(crate) fn session_memory() -> Arc<Limit> {
    Limit::new(SESSIONS_BYTES_MAX)
}

/// Memory of partitions, whichever of them is the first now: a name that several have in a row
/// counts once, also from the last one on to the first.
fn bytes_of(tracked: &[Tracked]) -> usize {
    let Some(last) = tracked.last() else { return 0 };
    let mut before = &last.name;
    let mut names_bytes = 0;
    for it in tracked {
        names_bytes += if Arc::ptr_eq(before, &it.name) { 0 } else { it.name.len() };
        before = &it.name;
    }
    // All have one name.
    let names_bytes = if names_bytes == 0 { last.name.len() } else { names_bytes };
    tracked.len() * ENTRY_BYTES + names_bytes
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
    /// Memory that it has, until it ends.
    memory: Share,
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

    fn take_in(&mut self, changes: Changes) {
        if !changes.forgotten.is_empty() {
            let gone: HashSet<Place> = changes.forgotten.iter().map(Tracked::place).collect();
            self.tracked.retain(|it| !gone.contains(&it.place()));
        }
        let mut new = named_once(changes.wanted);
        if !new.is_empty() {
            for known in &mut self.tracked {
                if let Some((_, wanted)) = new.remove(&known.place()) {
                    known.want = wanted.want;
                }
            }
        }
        self.tracked.extend(in_order(new));
        // Room for partitions that were forgotten counts as nobody's.
        self.tracked.shrink_to_fit();
    }
}

/// The session of a connection, if there is one.
#[derive(Debug)]
pub(crate) struct Sessions {
    current: Option<Session>,
    memory: Arc<Limit>,
}

impl Sessions {
    pub(super) fn new(memory: &Arc<Limit>) -> Self {
        Self { current: None, memory: Arc::clone(memory) }
    }

    /// Takes in what a request changes. The session is for the caller to [`Self::keep`] when the
    /// request is answered.
    pub(super) fn begin(
        &mut self,
        start: &FetchStart,
        changes: Changes,
        owner: Owner,
    ) -> Result<Session, ResponseError> {
        if changes.is_too_many {
            return Err(ResponseError::InvalidRequest);
        }
        let is_new = start.session_epoch == NEW_SESSION_EPOCH;
        if !is_new && start.session_epoch != NO_SESSION_EPOCH {
            return self.go_on(start, changes);
        }
        // A request without a session ends the one that it names, and leaves any other.
        self.current.take_if(|session| is_new || session.id == start.session_id);
        let tracked = in_order(named_once(changes.wanted));
        let mut memory = self.memory.nothing(owner);
        let has_session = is_new && memory.try_resize(bytes_of(&tracked));
        Ok(Session {
            id: if has_session { next_id() } else { 0 },
            epoch: 1,
            is_incremental: false,
            is_committed_only: start.is_committed_only,
            tracked,
            memory,
        })
    }

    /// Keeps a session for its next request.
    pub(super) fn keep(&mut self, session: Session) {
        if session.id != 0 {
            self.current = Some(session);
        }
    }

    fn go_on(&mut self, start: &FetchStart, changes: Changes) -> Result<Session, ResponseError> {
        let session = self
            .current
            .as_ref()
            .filter(|session| session.id == start.session_id)
            .ok_or(ResponseError::FetchSessionIdNotFound)?;
        if session.epoch != start.session_epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        let tracked_count = session.tracked.len() + changes.wanted.len();
        if tracked_count > 2 * PARTITION_COUNT_MAX {
            return Err(ResponseError::InvalidRequest);
        }
        let mut session = self.current.take().expect("it was just looked at");
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        session.is_incremental = true;
        session.is_committed_only = start.is_committed_only;
        session.take_in(changes);
        // A session without room for what it gets ends. Its client begins another one.
        match session.memory.try_resize(bytes_of(&session.tracked)) {
            true => Ok(session),
            false => Err(ResponseError::FetchSessionIdNotFound),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner(1);
    const OTHER: Owner = Owner(2);

    fn start(session_id: i32, session_epoch: i32) -> FetchStart {
        let (max_wait_ms, min_bytes, max_bytes, is_committed_only) = (0, 0, 1, false);
        FetchStart {
            max_wait_ms,
            min_bytes,
            max_bytes,
            is_committed_only,
            session_id,
            session_epoch,
        }
    }

    fn wanting(topic: &str, index: i32) -> Changes {
        let (leader_epoch, offset, last_fetched_epoch, max_bytes) = (-1, 0, -1, 1);
        let want = FetchPartition { index, leader_epoch, offset, last_fetched_epoch, max_bytes };
        let mut changes = Changes::default();
        changes.want(TopicRef::Name(topic), want);
        changes
    }

    /// Makes a request, and keeps the session behind the answer.
    fn fetch(
        sessions: &mut Sessions,
        (id, epoch): (i32, i32),
        changes: Changes,
    ) -> Result<(i32, Vec<i32>), ResponseError> {
        let session = sessions.begin(&start(id, epoch), changes, ONE)?;
        let found = (session.id, session.tracked.iter().map(|it| it.want.index).collect());
        sessions.keep(session);
        Ok(found)
    }

    fn begun() -> (Sessions, i32) {
        let mut sessions = Sessions::new(&session_memory());
        let (id, _) = fetch(&mut sessions, (0, 0), wanting("orders", 3)).expect("it is new");
        assert_ne!(id, 0);
        (sessions, id)
    }

    #[test]
    fn a_fetch_without_a_session_leaves_the_one_there_is() {
        let (mut sessions, id) = begun();
        let alone = fetch(&mut sessions, (0, NO_SESSION_EPOCH), wanting("orders", 4));
        assert_eq!(alone, Ok((0, vec![4])));
        assert_eq!(fetch(&mut sessions, (id, 1), Changes::default()), Ok((id, vec![3])));
    }

    #[test]
    fn the_last_fetch_of_a_session_ends_it() {
        let (mut sessions, id) = begun();
        let last = fetch(&mut sessions, (id, NO_SESSION_EPOCH), Changes::default());
        assert_eq!(last, Ok((0, Vec::new())));
        assert_eq!(sessions.memory.taken(), 0);
        let next = fetch(&mut sessions, (id, 1), Changes::default());
        assert_eq!(next, Err(ResponseError::FetchSessionIdNotFound));
    }

    #[test]
    fn no_epoch_is_below_that_of_no_session() {
        let mut sessions = Sessions::new(&session_memory());
        let unknown = Err(ResponseError::FetchSessionIdNotFound);
        assert_eq!(fetch(&mut sessions, (0, -2), wanting("orders", 0)), unknown);
        let (mut sessions, id) = begun();
        assert_eq!(fetch(&mut sessions, (0, i32::MIN), Changes::default()), unknown);
        let wrong = Err(ResponseError::InvalidFetchSessionEpoch);
        assert_eq!(fetch(&mut sessions, (id, -2), Changes::default()), wrong);
        assert_eq!(fetch(&mut sessions, (id, 1), Changes::default()), Ok((id, vec![3])));
    }

    #[test]
    fn a_session_that_grows_beyond_its_share_ends() {
        let (mut sessions, id) = begun();
        let long = "n".repeat(SESSIONS_BYTES_MAX / 2);
        let grown = fetch(&mut sessions, (id, 1), wanting(&long, 0));
        assert_eq!(grown, Err(ResponseError::FetchSessionIdNotFound));
        assert_eq!(sessions.memory.taken(), 0, "it gave back what it had");
        // A request that is alone needs none of it.
        assert_eq!(fetch(&mut sessions, (0, 0), wanting(&long, 5)), Ok((0, vec![5])));
        assert_eq!(sessions.memory.taken(), 0);
    }

    #[test]
    fn sessions_of_one_client_leave_room_for_those_of_others() {
        let memory = session_memory();
        let name = "n".repeat(SESSIONS_BYTES_MAX / 64);
        let mut all = Vec::new();
        let mut begin = |owner| {
            let mut sessions = Sessions::new(&memory);
            let session = sessions.begin(&start(0, 0), wanting(&name, 0), owner);
            let session = session.expect("it is answered");
            let has_session = session.id != 0;
            sessions.keep(session);
            all.push(sessions);
            has_session
        };
        let of_one = (0..64).filter(|_| begin(ONE)).count();
        assert_eq!(of_one, 31, "half of all, as each takes a little more than a 64th");
        assert!(begin(OTHER));
        all.clear();
        assert_eq!(memory.taken(), 0);
    }
}
