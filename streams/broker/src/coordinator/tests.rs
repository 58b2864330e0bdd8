//! Tests of the coordinator without its thread, with topics that fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use access::{Principal, Users};
use block_device::BlockDevice;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    GroupId, HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest, OffsetCommitRequest,
    ProducerId, RequestKind, ResponseKind, SyncGroupRequest, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use record_batch::{BatchOptions, BatchProducer, NewRecord, encode_batch};
use record_log::Batch;
use shares::Owner;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::deeds::WaitsFor;
use super::effects::Effects;
use super::round::State;
use super::{Ask, Assignable, Command, Coordinator, CoordinatorOptions, QUEUE_LENGTH, send};
use crate::access_rules::AccessRules;
use crate::clock::epoch_now;
use crate::storage::{Embedded, EmbeddedPool, Storage, state_bytes_max};
use crate::topics::{NewTopic, OpenTopic, Topics};

/// Time limit, far above the usual duration.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Maximum length of an offset's metadata.
const METADATA_BYTES: usize = 4_096;

/// State that survives crashes of a broker.
struct World {
    storage: Arc<Embedded>,
    _folder: TempDir,
}

/// A broker between two crashes.
struct Life {
    topics: Arc<Topics>,
    state: State,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is there");
        let file = Some(folder.path().join("pool"));
        let pool = EmbeddedPool { size_bytes: 64 << 20, file };
        let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
        Self { storage, _folder: folder }
    }

    fn open(&self) -> Life {
        self.open_with(consumer_groups::Options::default())
    }

    fn open_with(&self, options: consumer_groups::Options) -> Life {
        let storage = Arc::clone(&self.storage) as Arc<dyn Storage>;
        let topics = Topics::open(storage, BTreeMap::new()).expect("it opens");
        let class = topics.state_class();
        let rules = AccessRules::open_to_this_host();
        let assignable = Assignable { topics: Arc::clone(&topics), rules };
        let coordinator = CoordinatorOptions { groups: options, ..CoordinatorOptions::default() };
        let state = State::open(&*self.storage, class, assignable, coordinator).expect("it loads");
        Life { topics, state }
    }

    /// Returns the first block of a volume, which contains the log's header.
    fn first_block(&self, volume: &str) -> (Arc<dyn BlockDevice>, Vec<u8>) {
        let device = self.storage.open(volume).expect("it is there");
        let mut block = vec![0; 4 << 10];
        device.read(0, &mut block).expect("memory");
        (device, block)
    }
}

impl Life {
    fn create(&self, name: &str) -> Arc<OpenTopic> {
        let settings = BTreeMap::new();
        let new = NewTopic {
            name: name.to_owned(),
            partition_count: 1,
            settings,
            is_derived: false,
            owner: shares::Owner::NOBODY,
        };
        self.topics.create(&new).expect("there is room")
    }

    /// Passes a request to the coordinator without applying the effects.
    fn take(
        &mut self,
        api_version: i16,
        request: impl Into<RequestKind>,
    ) -> (Effects, oneshot::Receiver<ResponseKind>) {
        let (reply, answer) = oneshot::channel();
        let ask = Ask {
            request: request.into(),
            api_version,
            client_id: "client".to_owned(),
            host: "/127.0.0.1".to_owned(),
            principal: "User:a".to_owned(),
            owner: Owner::NOBODY,
            reply,
        };
        let mut effects = Effects::default();
        self.state.take(Command::Ask(Box::new(ask)), &mut effects);
        (effects, answer)
    }

    fn ask(&mut self, api_version: i16, request: impl Into<RequestKind>) -> ResponseKind {
        let (effects, mut answer) = self.take(api_version, request);
        self.state.settle(effects);
        answer.try_recv().expect("it is answered")
    }

    /// Commits an offset of topic `news`. Returns the error code.
    fn commit_offset(&mut self, group: &str, metadata: &str) -> i16 {
        let partition = OffsetCommitRequestPartition::default()
            .with_committed_offset(1)
            .with_committed_metadata(Some(StrBytes::from_string(metadata.to_owned())));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(name("news"))
            .with_partitions(vec![partition]);
        let group = GroupId(StrBytes::from_string(group.to_owned()));
        let request = OffsetCommitRequest::default().with_group_id(group).with_topics(vec![topic]);
        let ResponseKind::OffsetCommit(it) = self.ask(8, request) else {
            unreachable!("it is another answer")
        };
        it.topics[0].partitions[0].error_code
    }

    /// Applies pending effects, like a round without requests.
    fn pass(&mut self) {
        self.state.settle(Effects::default());
    }

    fn transaction_state(&mut self) -> String {
        let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]);
        let ResponseKind::DescribeTransactions(mut it) = self.ask(0, request) else {
            unreachable!("it is another answer")
        };
        it.transaction_states.remove(0).transaction_state.to_string()
    }

    fn add(&mut self, producer: BatchProducer, topics: &[&str]) {
        let added = topics.iter().map(|topic| {
            AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![0])
        });
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(id())
            .with_v3_and_below_producer_id(ProducerId(producer.id))
            .with_v3_and_below_producer_epoch(producer.epoch)
            .with_v3_and_below_topics(added.collect());
        self.ask(3, request);
    }

    /// Begins a transaction with a record in each of these topics.
    fn begin(&mut self, topics: &[&Arc<OpenTopic>]) -> BatchProducer {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(id()))
            .with_transaction_timeout_ms(60_000);
        let ResponseKind::InitProducerId(made) = self.ask(4, request) else {
            unreachable!("it is another answer")
        };
        let producer =
            BatchProducer { id: made.producer_id.0, epoch: made.producer_epoch, sequence: 0 };
        self.add(producer, &topics.iter().map(|it| &*it.name).collect::<Vec<_>>());
        for topic in topics {
            let record = NewRecord {
                key: None,
                value: Some("v".into()),
                headers: Vec::new(),
                timestamp_ms: 0,
            };
            let options = BatchOptions {
                producer: Some(producer),
                is_transactional: true,
                ..BatchOptions::default()
            };
            let mut bytes = encode_batch(&[record], &options).expect("a batch").to_vec();
            let (mut batch, _) = Batch::split_first(&mut bytes).expect("a batch");
            let partition = topic.partition(0).expect("there is one");
            partition.log.append(&mut batch, 0).expect("there is room");
            topic.flush().expect("memory");
        }
        producer
    }
}

fn commit(producer: BatchProducer) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_committed(true)
}

fn id() -> TransactionalId {
    TransactionalId(StrBytes::from_static_str("id"))
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Returns the stable offset and the last stable offset.
fn ends(topic: &OpenTopic) -> (i64, i64) {
    let partition = topic.partition(0).expect("there is one");
    (partition.log.stable_offset(), partition.log.last_stable_offset())
}

#[test]
fn a_committed_transaction_waits_for_a_topic_that_is_not_served_now() {
    let world = World::new();
    // One name exceeds the length of a volume's name, the other does not.
    let long = "long".repeat(30);
    for hidden in ["hidden", &long] {
        let mut life = world.open();
        let (seen, unseen) = (life.create("seen"), life.create(hidden));
        let producer = life.begin(&[&seen, &unseen]);
        let (effects, _) = life.take(4, commit(producer));
        life.state.persist(&effects).expect("memory");
        let volume = unseen.volume.clone();
        drop((seen, unseen, life));

        // The broker died before it wrote a marker, and one topic cannot be opened.
        let (device, block) = world.first_block(&volume);
        device.write(0, &vec![0xFF; block.len()]).expect("memory");
        let mut life = world.open();
        life.pass();
        let seen = life.topics.by_name("seen").expect("it is there");
        assert_eq!(ends(&seen), (2, 2), "one marker is where it can be");
        assert_eq!(life.transaction_state(), "PrepareCommit");
        let new = NewTopic {
            name: hidden.to_owned(),
            partition_count: 1,
            settings: BTreeMap::new(),
            is_derived: false,
            owner: shares::Owner::NOBODY,
        };
        let told = life.topics.create(&new).expect_err("there is one").message;
        assert!(told.contains("cannot be opened"), "{told}");
        let told = life.topics.delete(hidden).expect_err("it is not served").message;
        assert!(told.contains("cannot be opened"), "{told}");
        drop((seen, life));

        device.write(0, &block).expect("memory");
        let mut life = world.open();
        life.pass();
        assert_eq!(life.transaction_state(), "CompleteCommit");
        let unseen = life.topics.by_name(hidden).expect("it is served again");
        assert_eq!(ends(&unseen), (2, 2));
        life.topics.delete("seen").expect("it is there");
        life.topics.delete(hidden).expect("it is there");
    }
}

/// A topic that cannot be opened may have a class that waits for a disk.
#[test]
fn a_group_is_added_on_the_disk_to_a_transaction_that_is_on_one() {
    for (names, expected) in
        [(&["seen"][..], WaitsFor::Nothing), (&["seen", "hidden"], WaitsFor::Everything)]
    {
        let world = World::new();
        let mut life = world.open();
        let topics: Vec<_> = names.iter().map(|name| life.create(name)).collect();
        let volume = topics.last().expect("there is one").volume.clone();
        life.begin(&topics.iter().collect::<Vec<_>>());
        drop((topics, life));
        let (device, block) = world.first_block(&volume);
        if names.contains(&"hidden") {
            device.write(0, &vec![0xFF; block.len()]).expect("memory");
        }
        let life = world.open();
        let group = GroupId(StrBytes::from_static_str("group"));
        let request =
            AddOffsetsToTxnRequest::default().with_transactional_id(id()).with_group_id(group);
        assert_eq!(life.state.waits_for(&request.into()), expected, "{names:?}");
    }
}

/// An epoch lost with the memory would be assigned to two instances.
#[test]
fn epochs_of_a_transactional_id_that_was_on_a_disk_wait_for_the_disk() {
    let init = || InitProducerIdRequest::default().with_transactional_id(Some(id()));
    let waits = |life: &Life, producer| {
        [init().into(), commit(producer).into()].map(|request| life.state.waits_for(&request))
    };
    let world = World::new();
    let life = world.open();
    let (seen, hidden) = (life.create("seen"), life.create("hidden"));
    let volume = hidden.volume.clone();
    drop((seen, hidden, life));
    // A topic that cannot be opened may have a class that waits for a disk.
    let (device, block) = world.first_block(&volume);
    device.write(0, &vec![0xFF; block.len()]).expect("memory");

    let mut life = world.open();
    let seen = life.topics.by_name("seen").expect("it is there");
    let producer = life.begin(&[&seen]);
    assert_eq!(waits(&life, producer), [WaitsFor::ProducerIds; 2], "in memory alone");
    life.add(producer, &["hidden"]);
    assert_eq!(waits(&life, producer), [WaitsFor::Everything; 2], "in this transaction");
    drop((seen, life));
    let life = world.open();
    assert_eq!(waits(&life, producer), [WaitsFor::Everything; 2], "before the start");
    let other = init().with_transactional_id(Some(TransactionalId::default())).into();
    assert_eq!(life.state.waits_for(&other), WaitsFor::ProducerIds, "another id");
}

#[test]
fn members_are_heard_before_they_are_dropped() {
    /// Less than the time that counts as a stall.
    const SESSION: Duration = Duration::from_millis(1_500);
    /// More commands than fit into one round.
    const BEFORE: usize = 3_000;
    let group = || GroupId(StrBytes::from_static_str("group"));
    let mut life = World::new().open_with(consumer_groups::Options {
        initial_rebalance_delay_ms: 0,
        session_timeout_ms_min: 1,
        ..consumer_groups::Options::default()
    });
    let request = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(i32::try_from(SESSION.as_millis()).expect("it is short"))
        .with_rebalance_timeout_ms(60_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range")),
        ]);
    let ResponseKind::JoinGroup(joined) = life.ask(3, request) else {
        unreachable!("it is another answer")
    };
    let request = SyncGroupRequest::default()
        .with_group_id(group())
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id);
    life.ask(3, request);

    // The coordinator is stalled, and many commands precede the heartbeat in the queue.
    let (queue, commands) = mpsc::channel(BEFORE + 1);
    for _ in 0..BEFORE {
        send(&queue, Command::Groups(oneshot::channel().0)).expect("there is room");
    }
    let (reply, mut answer) = oneshot::channel();
    let heartbeat = HeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(joined.member_id)
        .with_generation_id(joined.generation_id);
    let ask = Ask {
        request: heartbeat.into(),
        api_version: 3,
        client_id: "client".to_owned(),
        host: "/127.0.0.1".to_owned(),
        principal: "User:a".to_owned(),
        owner: Owner::NOBODY,
        reply,
    };
    send(&queue, Command::Ask(Box::new(ask))).expect("there is room");
    let sent = Instant::now();
    while sent.elapsed() <= SESSION {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(queue);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("it starts").block_on(life.state.run(commands));
    let ResponseKind::Heartbeat(heard) = answer.try_recv().expect("it is answered") else {
        unreachable!("it is another answer")
    };
    assert_eq!(heard.error_code, 0);
}

#[test]
fn a_topic_that_is_gone_holds_no_transaction_up() {
    let world = World::new();
    let mut life = world.open();
    let (left, gone) = (life.create("left"), life.create("gone"));
    let producer = life.begin(&[&left, &gone]);
    life.topics.delete("gone").expect("it is there");
    life.ask(4, commit(producer));
    assert_eq!(life.transaction_state(), "CompleteCommit");
    assert_eq!(ends(&left), (2, 2));
}

#[test]
fn a_partition_gets_one_marker_however_often_another_fails() {
    let world = World::new();
    let mut life = world.open();
    let (good, bad) = (life.create("good"), life.create("bad"));
    let producer = life.begin(&[&good, &bad]);
    // The volume is gone, but the broker does not know it yet.
    world.storage.delete(&bad.volume).expect("it is there");
    life.ask(4, commit(producer));
    assert_eq!(ends(&good), (2, 2), "what is healthy waits for nothing");
    let begin = Instant::now();
    let mut rounds = 0;
    // Three more attempts are made in that time if nothing else is done.
    while begin.elapsed() < Duration::from_secs(1) || rounds < 4 {
        life.pass();
        rounds += 1;
    }
    assert_eq!(ends(&good), (2, 2), "a round wrote another marker");
    assert_eq!(life.transaction_state(), "PrepareCommit");
    life.topics.delete("bad").expect("it is known");
    let begin = Instant::now();
    while life.transaction_state() != "CompleteCommit" {
        assert!(begin.elapsed() < TIME_LIMIT, "the transaction does not end");
        std::thread::yield_now();
        life.pass();
    }
    assert_eq!(ends(&good), (2, 2));
}

#[test]
fn offsets_with_long_metadata_take_no_more_than_their_share_of_the_pool() {
    let world = World::new();
    let mut life = world.open();
    life.create("news");
    let metadata = "m".repeat(METADATA_BYTES);
    let mut error_of = |number: usize| life.commit_offset(&format!("group-{number}"), &metadata);
    let most = state_bytes_max(&*world.storage).expect("it is part of this") / METADATA_BYTES;
    let taken = (0..2 * most).take_while(|number| error_of(*number) == 0).count();
    assert!((most / 2..=most).contains(&taken), "{taken} of {most}");
    assert_eq!(error_of(taken), ResponseError::InvalidCommitOffsetSize.code());
    assert_eq!(error_of(0), 0, "a group continues with what it has");
}

#[test]
fn a_topic_that_is_created_again_after_a_start_has_a_later_epoch_also_ahead_of_the_clock() {
    let epoch_of = |topic: &OpenTopic| topic.partition(0).expect("there is one").log.epoch();
    for is_rewritten in [false, true] {
        let world = World::new();
        let mut life = world.open();
        life.create("news");
        // As if the clock had been set back.
        life.topics.raise_epoch(epoch_now() + 1_000_000);
        let known = epoch_of(&life.create("orders"));
        life.topics.delete("orders").expect("it is there");
        let (done, is_done) = sync_channel(1);
        let mut effects = Effects::default();
        life.state.take(Command::Forget { names: vec!["orders".into()], done }, &mut effects);
        life.state.settle(effects);
        is_done.try_recv().expect("it is stored");
        // The log is rewritten after 512 KiB.
        let (metadata, commit_count) = ("m".repeat(METADATA_BYTES), [0, 256]);
        for _ in 0..commit_count[usize::from(is_rewritten)] {
            assert_eq!(life.commit_offset("group", &metadata), 0);
        }
        drop(life);
        let epoch = epoch_of(&world.open().create("orders"));
        assert!(epoch > known, "clients know {known} and are told {epoch}: {is_rewritten}");
    }
}

#[test]
fn requests_of_one_client_leave_places_in_the_queue_for_those_of_others() {
    let fill = |coordinator: &Coordinator, owner: u64, most: usize| {
        let ask = || coordinator.send(Owner(owner), Command::Groups(oneshot::channel().0));
        (0..most).take_while(|_| ask().is_some()).count()
    };
    let (coordinator, _queue) = Coordinator::standing();
    assert_eq!(fill(&coordinator, 1, QUEUE_LENGTH), QUEUE_LENGTH / 2);
    assert_eq!(fill(&coordinator, 2, QUEUE_LENGTH), QUEUE_LENGTH / 4);
    let (coordinator, _queue) = Coordinator::standing();
    let connections = Users::none().quota_of(&Principal::anonymous()).connections;
    let connections = usize::try_from(connections).expect("not so many");
    for owner in 1..=7 {
        assert_eq!(fill(&coordinator, owner, connections), connections, "owner {owner}");
    }
}
