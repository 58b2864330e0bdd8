//! The coordinator with temporary failures of its storage, and across restarts of the broker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetFetchRequest, RequestKind, ResponseKind, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use volumes::{Durability, Reduction};

use super::*;
use crate::access_rules::AccessRules;
use crate::storage::{Embedded, EmbeddedPool, Failing, Unreliable};
use crate::topics::{NewTopic, Refusal, Topics};

const TOPIC: &str = "orders";
const COMMIT_VERSION: i16 = 8;
const FETCH_VERSION: i16 = 7;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// State that survives crashes of a broker.
struct World {
    storage: Arc<dyn Storage>,
    failing: Arc<Failing>,
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is made");
        let file = Some(folder.path().join("pool"));
        let pool = Embedded::open(&EmbeddedPool { size_bytes: 64 << 20, file }).expect("it opens");
        let failing = Arc::<Failing>::default();
        let storage = Unreliable { pool: Arc::new(pool), failing: Arc::clone(&failing) };
        Self { storage: Arc::new(storage), failing, _folder: folder }
    }

    fn start(&self) -> Running {
        let topics = Topics::open(Arc::clone(&self.storage), BTreeMap::new());
        let topics = topics.expect("they are read");
        let assignable =
            Assignable { topics: Arc::clone(&topics), rules: AccessRules::open_to_this_host() };
        let class = VolumeClass { durability: Durability::Ram, reduction: Reduction::None };
        let options = CoordinatorOptions::default();
        let (coordinator, thread) =
            start(&*self.storage, class, assignable, options).expect("it starts");
        let runtime = Runtime::new().expect("it starts");
        Running { coordinator, topics, runtime, thread }
    }
}

struct Running {
    coordinator: Coordinator,
    topics: Arc<Topics>,
    runtime: Runtime,
    thread: CoordinatorThread,
}

impl Running {
    /// Stops the broker. Only the log remains.
    fn end(self) {
        drop(self.coordinator);
        self.thread.join();
    }

    fn create(&self, name: &str) -> Result<(), Refusal> {
        let settings = BTreeMap::new();
        let new = NewTopic {
            name: name.to_owned(),
            partition_count: 1,
            settings,
            is_derived: false,
            owner: shares::Owner::NOBODY,
        };
        self.topics.create(&new).map(drop)
    }

    fn ask(&self, request: RequestKind, api_version: i16) -> Option<ResponseKind> {
        self.runtime.block_on(self.coordinator.ask(|reply| Ask {
            request,
            api_version,
            client_id: "client".to_owned(),
            host: "/127.0.0.1".to_owned(),
            principal: "User:ANONYMOUS".to_owned(),
            owner: Owner::NOBODY,
            reply,
        }))
    }

    /// Returns the error code of the response, if there was one.
    fn commit(&self, offset: i64) -> Option<i16> {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic =
            OffsetCommitRequestTopic::default().with_name(topic()).with_partitions(vec![partition]);
        let request =
            OffsetCommitRequest::default().with_group_id(group()).with_topics(vec![topic]);
        match self.ask(RequestKind::OffsetCommit(request), COMMIT_VERSION)? {
            ResponseKind::OffsetCommit(it) => Some(it.topics[0].partitions[0].error_code),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the offset in the response, if there was one. -1 means that no offset is committed.
    fn committed(&self) -> Option<i64> {
        let topic =
            OffsetFetchRequestTopic::default().with_name(topic()).with_partition_indexes(vec![0]);
        let request =
            OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![topic]));
        match self.ask(RequestKind::OffsetFetch(request), FETCH_VERSION)? {
            ResponseKind::OffsetFetch(it) => {
                assert_eq!(it.error_code, 0, "{it:?}");
                Some(it.topics[0].partitions[0].committed_offset)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("group"))
}

#[test]
fn state_that_cannot_be_read_again_is_not_taken_for_an_empty_one() {
    let world = World::new();
    let running = world.start();
    running.create(TOPIC).expect("there is room");
    assert_eq!((running.commit(3), running.committed()), (Some(0), Some(3)));
    world.failing.volumes.store(true, Ordering::Release);
    assert_eq!(running.commit(4), None, "it is not durable");
    // During several attempts to load the log.
    for _ in 0..3 {
        assert_eq!(running.committed(), None, "nobody knows now");
    }
    world.failing.volumes.store(false, Ordering::Release);
    let committed = loop {
        match running.committed() {
            Some(committed) => break committed,
            None => std::thread::sleep(POLL_INTERVAL),
        }
    };
    assert!([3, 4].contains(&committed), "the group is at {committed}");
    assert_eq!((running.commit(5), running.committed()), (Some(0), Some(5)));
    running.end();
}

#[test]
fn a_topic_that_is_made_again_knows_no_offset_of_the_one_before() {
    let world = World::new();
    let running = world.start();
    running.create(TOPIC).expect("there is room");
    assert_eq!((running.commit(3), running.committed()), (Some(0), Some(3)));
    // The broker dies before the coordinator is notified.
    running.topics.delete(TOPIC).expect("it is there");
    running.end();

    let running = world.start();
    running.create(TOPIC).expect("there is room");
    assert_eq!(running.committed(), Some(-1));
    running.end();
    let running = world.start();
    assert_eq!((running.committed(), running.commit(1)), (Some(-1), Some(0)));
    running.end();
}

#[test]
fn a_topic_that_is_not_there_takes_no_offsets() {
    let world = World::new();
    let running = world.start();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    assert_eq!((running.commit(3), running.committed()), (Some(unknown), Some(-1)));
    running.create(TOPIC).expect("there is room");
    assert_eq!((running.commit(3), running.committed()), (Some(0), Some(3)));
    running.topics.delete(TOPIC).expect("it is there");
    assert_eq!(running.commit(4), Some(unknown));
    running.end();
}

#[test]
fn offsets_of_a_deleted_topic_are_gone_when_that_is_said() {
    let world = World::new();
    let running = world.start();
    running.create(TOPIC).expect("there is room");
    assert_eq!(running.commit(3), Some(0));
    running.coordinator.topics_deleted(vec![TOPIC.into()]);
    assert_eq!(running.committed(), Some(3), "the topic is there");
    running.topics.delete(TOPIC).expect("it is there");
    running.coordinator.topics_deleted(vec![TOPIC.into()]);
    running.end();
    let running = world.start();
    assert_eq!(running.committed(), Some(-1));
    running.end();
}

#[test]
fn no_topic_is_made_while_old_offsets_cannot_be_forgotten() {
    let world = World::new();
    let Running { coordinator, topics, thread, .. } = world.start();
    drop(coordinator);
    thread.join();
    let volumes = world.storage.volumes().expect("they are read").len();
    let settings = BTreeMap::new();
    let new = NewTopic {
        name: TOPIC.to_owned(),
        partition_count: 1,
        settings,
        is_derived: false,
        owner: shares::Owner::NOBODY,
    };
    let refusal = topics.create(&new).expect_err("nobody forgets");
    assert_eq!(refusal.error, ResponseError::CoordinatorNotAvailable);
    assert!(refusal.message.contains("cannot delete the offsets"), "{}", refusal.message);
    assert_eq!(world.storage.volumes().expect("they are read").len(), volumes);
    assert!(topics.by_name(TOPIC).is_none());
}
