//! Fetch sessions of all connections (KIP-227), with the semantics of Kafka's broker: each request
//! names its session by id, and may use any connection of its client, as requests through a proxy
//! do.
//!
//! ```text
//! begin ─▶ in use by one request ─▶ cached ─▶ closed by its client, with the connection that
//!                 ▲                   │       used it last, or evicted while idle to make
//!                 └───────────────────┘       room for another one
//! ```
//!
//! A session that its client closes during one of its requests is dropped when that request ends.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kafka::fetch::FetchStart;
use kafka_protocol::error::ResponseError;
use shares::{Limit, Owner};

use super::session::{Changes, Session};

/// Epoch of a request without a session, or one that closes it.
const NO_SESSION_EPOCH: i32 = -1;

/// Epoch of a request that creates a session.
const NEW_SESSION_EPOCH: i32 = 0;

/// Maximum memory of all sessions. One owner can use half of it. A request for a new session beyond
/// that gets a response without a session, as in Kafka when the session cache is full.
const SESSIONS_BYTES_MAX: usize = 256 << 20;

/// Upper bound of the memory of a tree relative to its entries: nodes may be half empty, and
/// contain pointers.
const TREE_SHARE: usize = 3;

/// Memory of a session without its partitions.
const SESSION_BYTES: usize = TREE_SHARE
    * (size_of::<(i32, Kept)>()
        + size_of::<ConnectionKey>()
        + size_of::<OwnerKey>()
        + size_of::<(i32, InHands)>());

/// Idle time after which a session may be evicted for one of the same owner, or of an owner with
/// less memory (Kafka's `min.incremental.fetch.session.eviction.ms`).
const IDLE_TIME: Duration = Duration::from_secs(120);

/// Maximum number of unused new sessions of a connection: some clients create a session with each
/// request.
const BEGUN_COUNT_MAX: usize = 64;

/// Maximum number of searches for owners with idle sessions during [`IDLE_TIME`].
const LOOK_COUNT_MAX: u32 = 100;

/// Cache of the fetch sessions of all connections.
#[derive(Debug)]
pub(crate) struct SessionCache {
    memory: Arc<Limit>,
    idle_time: Duration,
    last_connection: AtomicU64,
    /// Sequence number of the last session put into the cache.
    last_kept: AtomicU64,
    kept: Mutex<KeptSessions>,
}

#[derive(Debug, Default)]
struct KeptSessions {
    by_id: BTreeMap<i32, Kept>,
    /// Sessions by the connection that used them last, and by whether they were continued.
    by_connection: BTreeSet<ConnectionKey>,
    /// Sessions by owner, least recently used first.
    by_owner: BTreeSet<OwnerKey>,
    /// Sessions with a request in progress.
    in_hands: BTreeMap<i32, InHands>,
    /// Time of the last search for owners with idle sessions.
    looked_at: Option<Instant>,
}

/// Connection, whether the session was continued, sequence number in the cache, and session id.
type ConnectionKey = (u64, bool, u64, i32);

/// Owner, sequence number in the cache, and session id.
type OwnerKey = (Owner, u64, i32);

/// State of a session with a request in progress.
#[derive(Debug)]
struct InHands {
    owner: Owner,
    has_ended: bool,
}

#[derive(Debug)]
struct Kept {
    session: Session,
    connection: u64,
    nth: u64,
    used_at: Instant,
}

impl SessionCache {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_idle_time(IDLE_TIME)
    }

    fn with_idle_time(idle_time: Duration) -> Arc<Self> {
        Arc::new(Self {
            memory: Limit::new(SESSIONS_BYTES_MAX),
            idle_time,
            last_connection: AtomicU64::new(0),
            last_kept: AtomicU64::new(0),
            kept: Mutex::default(),
        })
    }

    /// Returns the memory of all sessions, in bytes.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.memory.taken()
    }

    fn lock(&self) -> MutexGuard<'_, KeptSessions> {
        self.kept.lock().expect("no thread panics with this lock")
    }

    /// Removes a session from the cache for a request of its owner that passes `check`.
    fn take(
        self: &Arc<Self>,
        id: i32,
        owner: Owner,
        check: impl FnOnce(&Session) -> Result<(), ResponseError>,
    ) -> Result<Held, ResponseError> {
        let mut kept = self.lock();
        if kept.in_hands.get(&id).is_some_and(|it| it.owner == owner && !it.has_ended) {
            // Two concurrent requests cannot both have the next epoch. As in Kafka, the client then
            // creates another session with a request that names this one.
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        let found = kept.by_id.get(&id).map(|it| &it.session).filter(|it| it.is_of(owner));
        check(found.ok_or(ResponseError::FetchSessionIdNotFound)?)?;
        let session = kept.remove(id).expect("it was just looked at");
        kept.in_hands.insert(id, InHands { owner, has_ended: false });
        drop(kept);
        Ok(Held { session, hand: Hand { cache: Arc::clone(self), id } })
    }

    /// Closes a session, if it exists and belongs to the owner.
    fn end(&self, id: i32, owner: Owner) {
        let mut kept = self.lock();
        if let Some(in_hands) = kept.in_hands.get_mut(&id).filter(|it| it.owner == owner) {
            in_hands.has_ended = true;
        }
        let is_owned = kept.by_id.get(&id).is_some_and(|it| it.session.is_of(owner));
        let ended = if is_owned { kept.remove(id) } else { None };
        drop(kept);
        drop(ended);
    }

    /// Reserves the memory that a session needs. Returns false if there is not enough.
    fn has_room(&self, session: &mut Session) -> bool {
        let bytes = SESSION_BYTES + session.tracked_bytes();
        if session.memory.try_resize(bytes) {
            return true;
        }
        // One owner can never use more than half.
        bytes <= SESSIONS_BYTES_MAX / 2
            && (self.end_idle_own(session, bytes) || self.end_idle_of_others(session, bytes))
    }

    /// Evicts idle sessions of the owner, the oldest first, until `bytes` fit. Returns false if
    /// they still do not fit.
    fn end_idle_own(&self, session: &mut Session, bytes: usize) -> bool {
        let owner = session.memory.owner();
        while let Some(ended) = self.take_idle(owner) {
            drop(ended);
            if session.memory.try_resize(bytes) {
                return true;
            }
        }
        false
    }

    /// Evicts idle sessions of owners with more memory, starting with the owner that has most.
    fn end_idle_of_others(&self, session: &mut Session, bytes: usize) -> bool {
        let owner = session.memory.owner();
        let own_bytes = self.memory.taken_by(owner) - session.memory.amount() + bytes;
        let has_more = |other: Owner| {
            let taken = self.memory.taken_by(other);
            (taken > own_bytes).then_some((taken, other))
        };
        let mut larger: BinaryHeap<(usize, Owner)> =
            self.look_at_owners().into_iter().filter_map(has_more).collect();
        while let Some((_, other)) = larger.pop() {
            let Some(ended) = self.take_idle(other) else { continue };
            drop(ended);
            if session.memory.try_resize(bytes) {
                return true;
            }
            larger.extend(has_more(other));
        }
        false
    }

    /// Removes the least recently used session of an owner, if it is idle.
    fn take_idle(&self, owner: Owner) -> Option<Session> {
        let mut kept = self.lock();
        let (.., id) = *kept.by_owner.range((owner, 0, 0)..=(owner, u64::MAX, i32::MAX)).next()?;
        let is_idle = kept.by_id.get(&id).is_some_and(|it| it.used_at.elapsed() >= self.idle_time);
        if is_idle { kept.remove(id) } else { None }
    }

    /// Returns the owners of cached sessions, or none if the last search was a moment ago.
    fn look_at_owners(&self) -> Vec<Owner> {
        let mut kept = self.lock();
        let now = Instant::now();
        let interval = self.idle_time / LOOK_COUNT_MAX;
        if kept.looked_at.is_some_and(|at| now.duration_since(at) < interval) {
            return Vec::new();
        }
        kept.looked_at = Some(now);
        let first_of = |from: OwnerKey| kept.by_owner.range(from..).next().map(|(it, ..)| *it);
        let next = |owner: &Owner| first_of((Owner(owner.0.checked_add(1)?), 0, 0));
        std::iter::successors(first_of((Owner(0), 0, 0)), next).collect()
    }

    /// Assigns a session id: unique, random and not 0, as in Kafka, so that clients cannot guess
    /// ids of other sessions.
    fn name(self: &Arc<Self>, held: &mut Held) {
        loop {
            let mut id = [0; 4];
            getrandom::fill(&mut id).expect("the kernel has random bytes");
            let id = i32::from_ne_bytes(id) & i32::MAX;
            let mut kept = self.lock();
            let is_free = !kept.by_id.contains_key(&id) && !kept.in_hands.contains_key(&id);
            if id != 0 && is_free {
                let owner = held.session.memory.owner();
                kept.in_hands.insert(id, InHands { owner, has_ended: false });
                (held.session.id, held.hand.id) = (id, id);
                return;
            }
        }
    }
}

/// Session used by a request in progress. Dropping it closes the session.
#[derive(Debug)]
pub(super) struct Held {
    session: Session,
    hand: Hand,
}

#[derive(Debug)]
struct Hand {
    cache: Arc<SessionCache>,
    /// Session id; 0 for a request without a session.
    id: i32,
}

impl Deref for Held {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if self.id != 0 {
            self.cache.lock().in_hands.remove(&self.id);
        }
    }
}

impl Kept {
    fn key(&self) -> ConnectionKey {
        (self.connection, self.session.is_incremental, self.nth, self.session.id)
    }

    fn owner_key(&self) -> OwnerKey {
        (self.session.memory.owner(), self.nth, self.session.id)
    }
}

impl KeptSessions {
    /// Adds a session. Returns the session that it evicts, if any.
    fn insert(&mut self, kept: Kept) -> Option<Session> {
        let connection = kept.connection;
        self.by_connection.insert(kept.key());
        self.by_owner.insert(kept.owner_key());
        self.by_id.insert(kept.session.id, kept);
        let mut begun = self.of(connection, false);
        let oldest = begun.next().filter(|_| begun.count() >= BEGUN_COUNT_MAX);
        oldest.and_then(|id| self.remove(id))
    }

    fn remove(&mut self, id: i32) -> Option<Session> {
        let kept = self.by_id.remove(&id)?;
        self.by_connection.remove(&kept.key());
        self.by_owner.remove(&kept.owner_key());
        Some(kept.session)
    }

    /// Returns the ids of a connection's sessions, in order of their last use.
    fn of(&self, connection: u64, has_gone_on: bool) -> impl Iterator<Item = i32> {
        let key = |nth, id| (connection, has_gone_on, nth, id);
        self.by_connection.range(key(0, 0)..=key(u64::MAX, i32::MAX)).map(|(.., id)| *id)
    }

    fn remove_of(&mut self, connection: u64) -> Vec<Session> {
        let ids: Vec<i32> = self.of(connection, false).chain(self.of(connection, true)).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

/// Handle of one connection to the session cache.
#[derive(Debug)]
pub(super) struct Sessions {
    cache: Arc<SessionCache>,
    connection: u64,
}

impl Sessions {
    pub(super) fn new(cache: &Arc<SessionCache>) -> Self {
        let connection = cache.last_connection.fetch_add(1, Ordering::Relaxed);
        Self { cache: Arc::clone(cache), connection }
    }

    /// Starts a request: applies its changes to its session. The caller must [`Self::keep`] the
    /// session after the reply.
    pub(super) fn begin(
        &self,
        start: &FetchStart,
        changes: Changes,
        owner: Owner,
    ) -> Result<Held, ResponseError> {
        if changes.is_too_many {
            return Err(ResponseError::InvalidRequest);
        }
        let is_new = start.session_epoch == NEW_SESSION_EPOCH;
        if !is_new && start.session_epoch != NO_SESSION_EPOCH {
            return self.go_on(start, changes, owner);
        }
        // Such a request closes the session that it names, if there is one.
        self.cache.end(start.session_id, owner);
        let session = Session::new(start, changes, self.cache.memory.nothing(owner));
        let mut held = Held { session, hand: Hand { cache: Arc::clone(&self.cache), id: 0 } };
        if is_new && self.cache.has_room(&mut held.session) {
            self.cache.name(&mut held);
        }
        Ok(held)
    }

    fn go_on(
        &self,
        start: &FetchStart,
        changes: Changes,
        owner: Owner,
    ) -> Result<Held, ResponseError> {
        let check = |session: &Session| session.check_next(start, &changes);
        let mut held = self.cache.take(start.session_id, owner, check)?;
        let has_others = held.session.go_on(start, changes);
        if held.session.tracked.is_empty() {
            held.session.end();
            return Ok(held);
        }
        // A session without memory for added partitions is closed. The client creates a new one.
        match has_others && !self.cache.has_room(&mut held.session) {
            true => Err(ResponseError::FetchSessionIdNotFound),
            false => Ok(held),
        }
    }

    /// Returns a session to the cache for its next request, unless its client has closed it.
    pub(super) fn keep(&self, held: Held) {
        let Held { mut session, mut hand } = held;
        if session.id == 0 {
            return;
        }
        // Its topics may be deleted before its next request, which looks them up again.
        session.let_go();
        let (connection, used_at) = (self.connection, Instant::now());
        let mut kept = self.cache.lock();
        let nth = self.cache.last_kept.fetch_add(1, Ordering::Relaxed);
        let in_hands = kept.in_hands.remove(&std::mem::take(&mut hand.id));
        let ended = match in_hands.is_some_and(|it| it.has_ended) {
            true => Some(session),
            false => kept.insert(Kept { session, connection, nth, used_at }),
        };
        drop(kept);
        drop(ended);
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let ended = self.cache.lock().remove_of(self.connection);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use kafka::fetch::{FetchPartition, FetchVisitor, TopicRef};

    use super::*;

    const ONE: Owner = Owner(1);
    const OTHER: Owner = Owner(2);

    const UNKNOWN: ResponseError = ResponseError::FetchSessionIdNotFound;

    fn start(session_id: i32, session_epoch: i32) -> FetchStart {
        let (max_wait_ms, min_bytes, max_bytes) = (0, 0, 1);
        let (is_committed_only, is_by_id) = (false, false);
        FetchStart {
            max_wait_ms,
            min_bytes,
            max_bytes,
            is_committed_only,
            session_id,
            session_epoch,
            is_by_id,
        }
    }

    fn want(index: i32) -> FetchPartition {
        let (leader_epoch, offset, last_fetched_epoch, max_bytes) = (-1, 0, -1, 1);
        FetchPartition { index, leader_epoch, offset, last_fetched_epoch, max_bytes }
    }

    fn wanting(topic: &str, index: i32) -> Changes {
        let mut changes = Changes::default();
        changes.want(TopicRef::Name(topic), want(index));
        changes
    }

    /// Serves a request, and keeps the session after the response.
    fn fetch_of(
        sessions: &Sessions,
        owner: Owner,
        start: &FetchStart,
        changes: Changes,
    ) -> Result<(i32, Vec<i32>), ResponseError> {
        let session = sessions.begin(start, changes, owner)?;
        let found = (session.id, session.tracked.iter().map(|it| it.want.index).collect());
        sessions.keep(session);
        Ok(found)
    }

    fn fetch(
        sessions: &Sessions,
        (id, epoch): (i32, i32),
        changes: Changes,
    ) -> Result<(i32, Vec<i32>), ResponseError> {
        fetch_of(sessions, ONE, &start(id, epoch), changes)
    }

    /// Creates a session with this partition, and returns its id.
    fn begin(sessions: &Sessions, index: i32) -> i32 {
        let (id, _) = fetch(sessions, (0, 0), wanting("orders", index)).expect("it is new");
        assert_ne!(id, 0);
        id
    }

    fn begun() -> (Sessions, i32) {
        let sessions = Sessions::new(&SessionCache::new());
        let id = begin(&sessions, 3);
        (sessions, id)
    }

    #[test]
    fn a_fetch_without_a_session_leaves_the_one_there_is() {
        let (sessions, id) = begun();
        let alone = fetch(&sessions, (0, NO_SESSION_EPOCH), wanting("orders", 4));
        assert_eq!(alone, Ok((0, vec![4])));
        assert_eq!(fetch(&sessions, (id, 1), Changes::default()), Ok((id, vec![3])));
    }

    #[test]
    fn the_last_fetch_of_a_session_ends_it() {
        let (sessions, id) = begun();
        let last = fetch(&sessions, (id, NO_SESSION_EPOCH), Changes::default());
        assert_eq!(last, Ok((0, Vec::new())));
        assert_eq!(sessions.cache.taken(), 0);
        assert_eq!(fetch(&sessions, (id, 1), Changes::default()), Err(UNKNOWN));
    }

    #[test]
    fn a_session_ends_with_its_last_partition() {
        let (sessions, id) = begun();
        let mut changes = Changes::default();
        changes.forget(TopicRef::Name("orders"), 3);
        assert_eq!(fetch(&sessions, (id, 1), changes), Ok((0, Vec::new())));
        assert_eq!(sessions.cache.taken(), 0);
        assert_eq!(fetch(&sessions, (id, 2), Changes::default()), Err(UNKNOWN));
    }

    #[test]
    fn what_a_request_forgets_is_not_wanted() {
        let (sessions, id) = begun();
        let mut changes = wanting("orders", 4);
        [3, 4].into_iter().for_each(|index| changes.want(TopicRef::Name("orders"), want(index)));
        changes.want(TopicRef::Name("orders"), want(5));
        [3, 4].into_iter().for_each(|index| changes.forget(TopicRef::Name("orders"), index));
        assert_eq!(fetch(&sessions, (id, 1), changes), Ok((id, vec![5])));
    }

    #[test]
    fn no_epoch_is_below_that_of_no_session() {
        let (sessions, id) = begun();
        assert_eq!(fetch(&sessions, (0, -2), wanting("orders", 0)), Err(UNKNOWN));
        assert_eq!(fetch(&sessions, (0, i32::MIN), Changes::default()), Err(UNKNOWN));
        let wrong = Err(ResponseError::InvalidFetchSessionEpoch);
        assert_eq!(fetch(&sessions, (id, -2), Changes::default()), wrong);
        assert_eq!(fetch(&sessions, (id, 1), Changes::default()), Ok((id, vec![3])));
    }

    #[test]
    fn sessions_of_one_connection_go_on_beside_each_other() {
        let (sessions, first) = begun();
        let second = begin(&sessions, 4);
        for epoch in 1..4 {
            let next = |id| fetch(&sessions, (id, epoch), Changes::default());
            assert_eq!((next(first), next(second)), (Ok((first, vec![3])), Ok((second, vec![4]))));
        }
        let (instead, _) = fetch(&sessions, (first, 0), wanting("orders", 5)).expect("it is new");
        assert_eq!(fetch(&sessions, (first, 4), Changes::default()), Err(UNKNOWN));
        let next = |id, epoch| fetch(&sessions, (id, epoch), Changes::default());
        assert_eq!(next(second, 4), Ok((second, vec![4])));
        assert_eq!(next(instead, 1), Ok((instead, vec![5])));
    }

    #[test]
    fn a_session_goes_on_over_another_connection_of_its_client_and_ends_with_that() {
        let (sessions, id) = begun();
        let others = Sessions::new(&sessions.cache);
        let next = |owner, epoch| fetch_of(&others, owner, &start(id, epoch), Changes::default());
        assert_eq!(next(OTHER, 1), Err(UNKNOWN), "it is somebody else's");
        assert_eq!(next(OTHER, NO_SESSION_EPOCH), Ok((0, Vec::new())), "nor does it end it");
        assert_eq!(next(ONE, 1), Ok((id, vec![3])));
        let cache = Arc::clone(&sessions.cache);
        drop(sessions);
        assert_eq!(next(ONE, 2), Ok((id, vec![3])));
        drop(others);
        assert_eq!(cache.taken(), 0);
        assert_eq!(fetch(&Sessions::new(&cache), (id, 3), Changes::default()), Err(UNKNOWN));
    }

    #[test]
    fn a_session_has_names_of_topics_or_ids_and_never_both() {
        let sessions = Sessions::new(&SessionCache::new());
        for is_by_id in [false, true] {
            let topic = if is_by_id { TopicRef::Id([7; 16]) } else { TopicRef::Name("orders") };
            let mut changes = Changes::default();
            changes.want(topic, want(3));
            let begin = FetchStart { is_by_id, ..start(0, 0) };
            let (id, _) = fetch_of(&sessions, ONE, &begin, changes).expect("it is new");
            let next = |is_by_id| {
                let start = FetchStart { is_by_id, ..start(id, 1) };
                fetch_of(&sessions, ONE, &start, Changes::default())
            };
            assert_eq!(next(!is_by_id), Err(ResponseError::FetchSessionTopicIdError));
            assert_eq!(next(is_by_id), Ok((id, vec![3])), "it is as it was");
        }
    }

    #[test]
    fn a_session_that_grows_beyond_its_share_ends() {
        let (sessions, id) = begun();
        let long = "n".repeat(SESSIONS_BYTES_MAX / 2);
        assert_eq!(fetch(&sessions, (id, 1), wanting(&long, 0)), Err(UNKNOWN));
        assert_eq!(sessions.cache.taken(), 0, "it gave back what it had");
        // A request without a session needs no memory of the cache.
        assert_eq!(fetch(&sessions, (0, 0), wanting(&long, 5)), Ok((0, vec![5])));
        assert_eq!(sessions.cache.taken(), 0);
    }

    /// Creates sessions that take slightly more than 1/64 of the memory each.
    fn begin_large(sessions: &Sessions, owner: Owner, count: usize) -> usize {
        let name = "n".repeat(SESSIONS_BYTES_MAX / 64);
        let begin = || fetch_of(sessions, owner, &start(0, 0), wanting(&name, 0));
        (0..count).filter(|_| begin().expect("it is answered").0 != 0).count()
    }

    #[test]
    fn sessions_of_one_client_leave_room_for_those_of_others() {
        let sessions = Sessions::new(&SessionCache::new());
        assert_eq!(begin_large(&sessions, ONE, 64), 31, "half of all");
        assert_eq!(begin_large(&sessions, OTHER, 1), 1);
        let cache = Arc::clone(&sessions.cache);
        drop(sessions);
        assert_eq!(cache.taken(), 0);
    }

    /// Sessions of an owner.
    fn count(sessions: &Sessions, owner: Owner) -> usize {
        sessions.cache.lock().by_owner.iter().filter(|(it, ..)| *it == owner).count()
    }

    #[test]
    fn the_oldest_idle_sessions_of_an_owner_make_room_for_its_new_ones() {
        let sessions = Sessions::new(&SessionCache::with_idle_time(Duration::ZERO));
        let other = fetch_of(&sessions, OTHER, &start(0, 0), wanting("orders", 7));
        let (other, _) = other.expect("it is new");
        let oldest = begin(&sessions, 1);
        assert_eq!(begin_large(&sessions, ONE, 64), 64);
        assert_eq!(count(&sessions, ONE), 31, "half of all, as where none is idle");
        assert_eq!(fetch(&sessions, (oldest, 1), Changes::default()), Err(UNKNOWN));
        let next = fetch_of(&sessions, OTHER, &start(other, 1), Changes::default());
        assert_eq!(next, Ok((other, vec![7])), "another's has nothing to do with that");
    }

    #[test]
    fn idle_sessions_of_whoever_has_most_make_room_for_those_of_others() {
        let sessions = Sessions::new(&SessionCache::with_idle_time(Duration::ZERO));
        let owners = (1..=8).map(Owner);
        owners.clone().for_each(|owner| assert_eq!(begin_large(&sessions, owner, 32), 32));
        let counts: Vec<usize> = owners.map(|owner| count(&sessions, owner)).collect();
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}: who came first has most");
    }

    #[test]
    fn a_session_may_end_while_a_request_has_it() {
        let (sessions, id) = begun();
        let others = Sessions::new(&sessions.cache);
        for (epoch, more) in [(NO_SESSION_EPOCH, 0), (NEW_SESSION_EPOCH, 1)] {
            let id = if more == 0 { id } else { begin(&sessions, 3) };
            let held = sessions.begin(&start(id, 1), Changes::default(), ONE).expect("the next");
            let of_other = fetch_of(&others, OTHER, &start(id, epoch), wanting("orders", 8));
            assert!(of_other.is_ok(), "it ends none of somebody else");
            let again = fetch(&others, (id, 1), Changes::default());
            assert_eq!(again, Err(ResponseError::InvalidFetchSessionEpoch));
            let (_, indexes) = fetch(&others, (id, epoch), wanting("orders", 9)).expect("an end");
            assert_eq!(indexes, [9]);
            assert_eq!(fetch(&others, (id, 2), Changes::default()), Err(UNKNOWN));
            sessions.keep(held);
            assert_eq!(fetch(&sessions, (id, 2), Changes::default()), Err(UNKNOWN));
        }
        let cache = Arc::clone(&sessions.cache);
        drop((sessions, others));
        assert_eq!((cache.taken(), cache.lock().in_hands.len()), (0, 0));
    }

    #[test]
    fn a_session_ends_with_the_request_that_has_it() {
        let (sessions, id) = begun();
        drop(sessions.begin(&start(id, 1), Changes::default(), ONE).expect("the next"));
        assert_eq!(fetch(&sessions, (id, 2), Changes::default()), Err(UNKNOWN));
        let kept = sessions.cache.lock();
        assert_eq!((kept.by_id.len(), kept.in_hands.len()), (0, 0));
        drop(kept);
        assert_eq!(sessions.cache.taken(), 0);
    }

    #[test]
    fn all_memory_of_partitions_is_counted() {
        let sessions = Sessions::new(&SessionCache::new());
        let mut changes = Changes::default();
        for index in 0..1_000 {
            let id = u128::try_from(index).expect("it is positive").to_ne_bytes();
            changes.want(TopicRef::Id(id), want(index));
        }
        let start = FetchStart { is_by_id: true, ..start(0, 0) };
        let session = sessions.begin(&start, changes, ONE).expect("it is new");
        let tracked = &session.tracked;
        assert_eq!((tracked.len(), tracked.capacity()), (1_000, 1_000));
        let first = &tracked[0].name;
        assert!(tracked.iter().all(|it| Arc::ptr_eq(first, &it.name)), "they have no names");
        assert!(session.memory.amount() > size_of_val(&**tracked) + SESSION_BYTES);
    }

    #[test]
    fn a_connection_has_few_sessions_that_nobody_goes_on_with() {
        let (sessions, first) = begun();
        assert_eq!(fetch(&sessions, (first, 1), Changes::default()), Ok((first, vec![3])));
        let begun: Vec<i32> = (0..1_000).map(|index| begin(&sessions, index)).collect();
        assert_eq!(sessions.cache.lock().by_id.len(), 1 + BEGUN_COUNT_MAX);
        let next = |id, epoch| fetch(&sessions, (id, epoch), Changes::default());
        assert_eq!(next(first, 2), Ok((first, vec![3])));
        assert_eq!(next(begun[999], 1), Ok((begun[999], vec![999])));
        assert_eq!(next(begun[0], 1), Err(UNKNOWN));
    }
}
