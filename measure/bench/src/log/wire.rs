//! Load on a log in a broker: Kafka's protocol over TCP with several outstanding requests.
//!
//! Each thread of the load consists of a sender and a receiver, so that responses are timed on
//! arrival. Batch `n` has offset `n * 128`, because there is one writer and nothing is sent twice.
//! Records before the log are deleted continuously.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Acks, Client, ClientError, FetchLimits, FetchPipe, FetchReceiver, FetchSender, FetchTarget,
    Isolation, NewTopic, OffsetAt, ProducePipe, ProduceReceiver, ProduceSender, ProduceTarget,
    ResponseError, Settings,
};
use system::Interruption;
use tokio::runtime::Runtime;

use super::batch_form::BatchForm;
use super::broker::{Broker, BrokerKind};
use super::drive::{Gate, Load, Loop, Measured, Sync};
use super::due::Schedule;
use super::message::{BATCH_BYTES, BATCH_MESSAGES, Batches, verify};
use super::meter::{Meter, Moments, Spent, Window};
use super::mix::Tokens;
use super::stop::Stop;
use crate::clock::Random;

/// Maximum number of outstanding requests per thread of the load.
pub(crate) const IN_FLIGHT: usize = 8;

/// Queue capacity between the two threads. In addition, one request was just sent and one response
/// is being awaited.
const QUEUED: usize = IN_FLIGHT - 2;

const TOPIC: &str = "log";
const SEGMENT_BYTES: u64 = 64 << 20;

/// Maximum time for a partition to get a leader.
const LEADER_TIME_LIMIT: Duration = Duration::from_secs(60);

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Number of consecutive batches that a reader replays: 64 MiB.
const REPLAY_BATCHES: u64 = 1024;

/// Inverse of the share of the log that is kept behind it for outstanding requests.
const KEPT_SHARE: u64 = 2;

/// A log on a broker, which runs until this is dropped.
pub(crate) struct WireLog {
    broker: Broker,
    client: Client,
    runtime: Runtime,
    form: BatchForm,
    slots: u64,
    /// Total number of acknowledged batches.
    appended: AtomicU64,
    /// Number of deleted batches.
    deleted: AtomicU64,
    /// Number of additional topics created.
    topics: AtomicU64,
}

/// An outstanding request.
struct Flight {
    due: Option<Instant>,
    sent: Instant,
    batch: u64,
}

fn offset_of(batch: u64) -> i64 {
    i64::try_from(batch * BATCH_MESSAGES as u64).expect("offsets are small")
}

impl WireLog {
    /// Starts a broker and writes the whole log.
    pub(crate) fn fill(
        (kind, sync): (BrokerKind, Sync),
        size_bytes: u64,
        mut batches: Batches,
    ) -> Result<Self> {
        let broker = Broker::start(kind, size_bytes, sync)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::new(broker.address(), Settings::default());
        runtime.block_on(make_topic(&client, TOPIC))?;
        let log = Self {
            broker,
            client,
            runtime,
            form: BatchForm::new()?,
            slots: size_bytes / BATCH_BYTES as u64,
            appended: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            topics: AtomicU64::new(0),
        };
        let mut pipe = log.produce_pipe()?;
        let mut request = log.form.request(&produce_target())?;
        for batch in 0..log.slots + IN_FLIGHT as u64 {
            ensure!(!Interruption::is_asked_for(), "interrupted while the log was filled");
            if let Some(awaited) = batch.checked_sub(IN_FLIGHT as u64) {
                log.acknowledge(&mut pipe.receiver, awaited)?;
            }
            if batch < log.slots {
                log.form.fill(&mut request, batches.make(batch));
                pipe.sender.send(&mut request)?;
            }
        }
        Ok(log)
    }

    pub(crate) fn server_ids(&self) -> Vec<u32> {
        self.broker.server_ids()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.slots * BATCH_BYTES as u64
    }

    pub(crate) fn flags(&self) -> Vec<String> {
        vec![format!("{IN_FLIGHT} requests in flight for each thread of the load")]
    }

    /// Runs the load. Fails if a message differs from what was written.
    pub(crate) fn measure(&self, load: &Load) -> Result<Measured> {
        self.delete_old()?;
        let readers = if load.mix.has_reads() { load.readers } else { 0 };
        let produce = self.produce_pipe()?;
        let fetches =
            (0..readers).map(|_| self.fetch_pipe()).collect::<Result<Vec<FetchPipe>>>()?;
        let window = Window { begin: Instant::now() + load.ramp, length: load.duration };
        let scene = Scene { log: self, load, window, stop: Stop::default() };
        let measured = scene.run(produce, fetches)?;
        ensure!(!Interruption::is_asked_for(), "interrupted during a measurement");
        Ok(measured)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn topic(&self) -> &'static str {
        TOPIC
    }

    /// Returns the offsets of the messages in the log.
    pub(crate) fn offsets(&self) -> Range<i64> {
        let end = self.appended_batches();
        offset_of(end.saturating_sub(self.slots))..offset_of(end)
    }

    /// Blocks on a client operation.
    pub(crate) fn open<T>(&self, done: impl Future<Output = Result<T, ClientError>>) -> Result<T> {
        Ok(self.runtime.block_on(done)?)
    }

    /// Runs `work` with a temporary topic.
    pub(crate) fn with_new_topic<T>(&self, work: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        // Relaxed: the number carries no data.
        let name = format!("{TOPIC}-{}", self.topics.fetch_add(1, Ordering::Relaxed));
        self.runtime.block_on(make_topic(&self.client, &name))?;
        let worked = work(&name);
        let deleted = self.open(self.client.delete_topic(&name));
        let worked = worked?;
        deleted?;
        Ok(worked)
    }

    fn produce_pipe(&self) -> Result<ProducePipe> {
        self.open(ProducePipe::open(&self.client, &produce_target()))
    }

    /// Opens a fetch pipe whose responses have one batch each, because brokers send only as many
    /// whole batches as fit.
    fn fetch_pipe(&self) -> Result<FetchPipe> {
        let bytes = i32::try_from(self.form.len_bytes()).context("batches are too long")?;
        let limits =
            FetchLimits { bytes_max: bytes, partition_bytes_max: bytes, ..FetchLimits::default() };
        let target = FetchTarget { topic: TOPIC.to_owned(), partition: 0, limits };
        self.open(FetchPipe::open(&self.client, &target))
    }

    fn acknowledge(&self, receiver: &mut ProduceReceiver, batch: u64) -> Result<()> {
        let offset = receiver.receive()?;
        let expected = offset_of(batch);
        ensure!(offset == expected, "batch {batch} got offset {offset} instead of {expected}");
        // PAIRS-WITH: appended_batches, "an acknowledged batch".
        self.appended.store(batch + 1, Ordering::Release);
        Ok(())
    }

    fn appended_batches(&self) -> u64 {
        // PAIRS-WITH: acknowledge, "an acknowledged batch".
        self.appended.load(Ordering::Acquire)
    }

    /// Deletes records before the log.
    fn delete_old(&self) -> Result<()> {
        let kept = self.slots + self.slots / KEPT_SHARE;
        let end = self.appended_batches().saturating_sub(kept);
        // Relaxed: only one thread at a time deletes.
        if end > self.deleted.load(Ordering::Relaxed) {
            self.runtime.block_on(self.client.delete_records(TOPIC, 0, offset_of(end)))?;
            self.deleted.store(end, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Creates a topic and waits until its partition's leader responds. A broker may acknowledge a
/// topic earlier and then reject requests, which the load's pipes do not retry.
async fn make_topic(client: &Client, name: &str) -> Result<()> {
    client.create_topic(&new_topic(name)).await?;
    let since = Instant::now();
    loop {
        let asked = client.topic_offsets(name, OffsetAt::Latest, Isolation::ReadUncommitted).await;
        let Err(error) = asked else { return Ok(()) };
        let is_to_come =
            error.is_retriable() || error.refusal() == Some(ResponseError::UnknownTopicOrPartition);
        let is_over = since.elapsed() > LEADER_TIME_LIMIT || Interruption::is_asked_for();
        if !is_to_come || is_over {
            return Err(error).with_context(|| format!("topic {name:?} has no leader"));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Returns the specification of a topic with one partition.
fn new_topic(name: &str) -> NewTopic {
    let config = |name: &str, value: String| (name.to_owned(), value);
    NewTopic {
        name: name.to_owned(),
        partitions: Some(1),
        // Messages have no timestamp and would expire.
        configs: vec![
            config("segment.bytes", SEGMENT_BYTES.to_string()),
            config("retention.ms", (-1).to_string()),
        ],
    }
}

fn produce_target() -> ProduceTarget {
    ProduceTarget { topic: TOPIC.to_owned(), partition: 0, acks: Acks::All }
}

/// Shared state of the threads of a measurement.
struct Scene<'a> {
    log: &'a WireLog,
    load: &'a Load,
    window: Window,
    stop: Stop,
}

impl Scene<'_> {
    fn run(&self, produce: ProducePipe, fetches: Vec<FetchPipe>) -> Result<Measured> {
        let tokens = Tokens::new(self.load.mix);
        let reader_count = fetches.len() as f64;
        let tokens = &tokens;
        thread::scope(|scope| {
            let (ended, all_ended) = mpsc::channel::<()>();
            let ProducePipe { sender, mut receiver } = produce;
            let (flights, landing) = mpsc::sync_channel(QUEUED);
            let guard = ended.clone();
            let mut appends = vec![scope.spawn(move || {
                let gate = self.gate(1.0 - self.load.mix.read_share(), Gate::Appends(tokens));
                self.stop.ask_after(guard, || self.send_appends(gate, sender, flights))
            })];
            let guard = ended.clone();
            appends.push(scope.spawn(move || {
                self.stop.ask_after(guard, || self.receive_appends(&mut receiver, landing))
            }));
            let mut reads = Vec::new();
            for (index, FetchPipe { sender, receiver }) in fetches.into_iter().enumerate() {
                let (flights, landing) = mpsc::sync_channel(QUEUED);
                let guard = ended.clone();
                reads.push(scope.spawn(move || {
                    let share = self.load.mix.read_share() / reader_count;
                    let gate = self.gate(share, Gate::Reads(tokens));
                    let claims = Claims::new(self, index as u64);
                    self.stop.ask_after(guard, || self.send_reads(gate, claims, sender, flights))
                }));
                let guard = ended.clone();
                reads.push(scope.spawn(move || {
                    self.stop.ask_after(guard, || self.receive_reads(receiver, landing))
                }));
            }
            let deleting = scope.spawn(move || self.stop.ask_after(ended, || self.keep_deleting()));
            self.stop.wait_for_end(self.window, &all_ended);
            let appends = self.sum(appends);
            let reads = self.sum(reads);
            let deleted = deleting.join().expect("a thread of the load does not panic");
            // If the broker ran out of space, the other errors are consequences.
            let measured = Measured { appends: appends?, reads: reads?, in_flight: IN_FLIGHT };
            deleted?;
            Ok(measured)
        })
    }

    /// Joins all threads before returning the first error.
    fn sum(&self, threads: Vec<thread::ScopedJoinHandle<'_, Result<Meter>>>) -> Result<Meter> {
        let join = |it: thread::ScopedJoinHandle<'_, Result<Meter>>| {
            it.join().expect("a thread of the load does not panic")
        };
        let meters: Vec<Result<Meter>> = threads.into_iter().map(join).collect();
        let mut all = Meter::new(self.window);
        for meter in meters {
            all.add(&meter?);
        }
        Ok(all)
    }

    /// Returns the start condition of a thread's operations: its share of the rate, or the mix.
    fn gate<'t>(&self, share: f64, in_mix: Gate<'t>) -> Gate<'t> {
        match self.load.pacing {
            Loop::Closed => in_mix,
            Loop::Open { operations_per_s } => Gate::Paced(Schedule::new(operations_per_s * share)),
        }
    }

    fn send_appends(
        &self,
        mut gate: Gate<'_>,
        mut sender: ProduceSender,
        flights: SyncSender<Flight>,
    ) -> Result<Meter> {
        let mut meter = Meter::new(self.window);
        let mut batches = Batches::new(self.load.data, self.load.seed);
        let mut request = self.log.form.request(&produce_target())?;
        let mut batch = self.log.appended_batches();
        while !self.stop.is_asked_for() {
            let begun = Instant::now();
            self.log.form.fill(&mut request, batches.make(batch));
            let made = Instant::now();
            let Some(start) = gate.pass(&self.stop) else { break };
            let sent = Instant::now();
            sender.send(&mut request)?;
            meter.spend(Spent::Generating, begun, made);
            meter.spend(Spent::Waiting, made, sent);
            // Blocks at the limit of outstanding requests. If the receiver is gone, it returns the
            // error.
            if flights.send(Flight { due: start.due, sent, batch }).is_err() {
                break;
            }
            batch += 1;
        }
        Ok(meter)
    }

    fn receive_appends(
        &self,
        receiver: &mut ProduceReceiver,
        landing: Receiver<Flight>,
    ) -> Result<Meter> {
        let mut meter = Meter::new(self.window);
        for Flight { due, sent, batch } in landing {
            self.log.acknowledge(receiver, batch).with_context(|| failed("append", batch))?;
            meter.record(Moments { due, sent, answered: Instant::now() });
        }
        Ok(meter)
    }

    fn send_reads(
        &self,
        mut gate: Gate<'_>,
        mut claims: Claims<'_>,
        mut sender: FetchSender,
        flights: SyncSender<Flight>,
    ) -> Result<Meter> {
        let mut meter = Meter::new(self.window);
        while !self.stop.is_asked_for() {
            let begun = Instant::now();
            let Some(start) = gate.pass(&self.stop) else { break };
            let batch = claims.next();
            let sent = Instant::now();
            sender.send(offset_of(batch))?;
            meter.spend(Spent::Waiting, begun, sent);
            if flights.send(Flight { due: start.due, sent, batch }).is_err() {
                break;
            }
        }
        Ok(meter)
    }

    fn receive_reads(
        &self,
        mut receiver: FetchReceiver,
        landing: Receiver<Flight>,
    ) -> Result<Meter> {
        let mut meter = Meter::new(self.window);
        let mut messages = vec![0; BATCH_BYTES];
        for Flight { due, sent, batch } in landing {
            let fetched = receiver.receive().with_context(|| {
                let deleted = self.log.deleted.load(Ordering::Relaxed);
                let appended = self.log.appended_batches();
                format!("{} of {deleted} to {appended}", failed("read", batch))
            })?;
            let answered = Instant::now();
            let mut found = fetched.batches;
            let found = found.next_batch()?.with_context(|| failed("read", batch))?;
            ensure!(
                found.base_offset == offset_of(batch),
                "received offset {} instead of {}",
                found.base_offset,
                offset_of(batch)
            );
            self.log.form.take(found.bytes, &mut messages)?;
            verify(&messages, batch).with_context(|| failed("read", batch))?;
            meter.record(Moments { due, sent, answered });
            meter.spend(Spent::Generating, answered, Instant::now());
        }
        Ok(meter)
    }

    fn keep_deleting(&self) -> Result<()> {
        while !self.stop.is_asked_for() {
            self.log.delete_old()?;
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

/// Batches that a reader requests: replays from random positions.
struct Claims<'a> {
    log: &'a WireLog,
    random: Random,
    next: u64,
    left: u64,
}

impl<'a> Claims<'a> {
    fn new(scene: &Scene<'a>, index: u64) -> Self {
        let random = Random::new(scene.load.seed.wrapping_add(1 + index));
        Self { log: scene.log, random, next: 0, left: 0 }
    }

    fn next(&mut self) -> u64 {
        let appended = self.log.appended_batches();
        let is_there = (appended.saturating_sub(self.log.slots)..appended).contains(&self.next);
        if self.left == 0 || !is_there {
            self.next = appended - 1 - self.random.below(self.log.slots.min(appended));
            self.left = REPLAY_BATCHES;
        }
        let batch = self.next;
        self.next += 1;
        self.left -= 1;
        batch
    }
}

fn failed(operation: &str, batch: u64) -> String {
    format!("cannot {operation} batch {batch}")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Result as IoResult, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::api_versions_response::ApiVersion;
    use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
    use kafka_protocol::messages::list_offsets_response::{
        ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
    };
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use kafka_protocol::messages::{
        ApiKey, ApiVersionsResponse, BrokerId, CreateTopicsResponse, ListOffsetsResponse,
        MetadataResponse, ResponseHeader, TopicName,
    };
    use kafka_protocol::protocol::{
        Encodable, HeaderVersion, StrBytes, decode_request_header_from_buffer,
    };

    use super::*;

    const NODE: BrokerId = BrokerId(1);

    /// Highest supported version of each request in the stub broker.
    const VERSIONS: [(ApiKey, i16); 4] = [
        (ApiKey::ApiVersions, 3),
        (ApiKey::Metadata, 9),
        (ApiKey::CreateTopics, 4),
        (ApiKey::ListOffsets, 2),
    ];

    /// A stub broker that first responds as a real one does before a partition has a leader.
    #[derive(Clone)]
    struct Electing {
        address: SocketAddr,
        /// Remaining rejections for the topic, its partition and its offsets.
        refusals: Arc<Mutex<[Vec<ResponseError>; 3]>>,
    }

    impl Electing {
        fn start(refusals: [Vec<ResponseError>; 3]) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            let electing = Self { address, refusals: Arc::new(Mutex::new(refusals)) };
            let serving = electing.clone();
            // Ends with the test process.
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let serving = serving.clone();
                    thread::spawn(move || serving.serve(stream));
                }
            });
            electing
        }

        /// Serves until the client disconnects.
        fn serve(&self, mut stream: TcpStream) -> IoResult<()> {
            loop {
                let mut length = [0; 4];
                stream.read_exact(&mut length)?;
                let mut frame = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut frame)?;
                let header = decode_request_header_from_buffer(&mut Bytes::from(frame));
                let header = header.expect("a good header");
                let key = ApiKey::try_from(header.request_api_key).expect("a known request");
                let about = (header.request_api_version, header.correlation_id);
                stream.write_all(&self.answer(key, about))?;
            }
        }

        fn answer(&self, key: ApiKey, about: (i16, i32)) -> Vec<u8> {
            match key {
                ApiKey::ApiVersions => {
                    let known = |&(key, max): &(ApiKey, i16)| {
                        ApiVersion::default().with_api_key(key as i16).with_max_version(max)
                    };
                    let known = VERSIONS.iter().map(known).collect();
                    framed(about, &ApiVersionsResponse::default().with_api_keys(known))
                }
                ApiKey::CreateTopics => {
                    let made = CreatableTopicResult::default().with_name(topic());
                    framed(about, &CreateTopicsResponse::default().with_topics(vec![made]))
                }
                ApiKey::Metadata => framed(about, &self.cluster()),
                ApiKey::ListOffsets => {
                    let code = self.next_refusal(2);
                    let offset = ListOffsetsPartitionResponse::default()
                        .with_error_code(code)
                        .with_offset(0);
                    let offsets = ListOffsetsTopicResponse::default()
                        .with_name(topic())
                        .with_partitions(vec![offset]);
                    framed(about, &ListOffsetsResponse::default().with_topics(vec![offsets]))
                }
                other => panic!("{other:?} was never announced"),
            }
        }

        fn cluster(&self) -> MetadataResponse {
            let broker = MetadataResponseBroker::default()
                .with_node_id(NODE)
                .with_host(StrBytes::from_string(self.address.ip().to_string()))
                .with_port(self.address.port().into());
            let unknown = self.next_refusal(0);
            let mut described = MetadataResponseTopic::default().with_name(Some(topic()));
            described.error_code = unknown;
            if unknown == 0 {
                let leaderless = self.next_refusal(1);
                let leader = if leaderless == 0 { NODE } else { BrokerId(-1) };
                described.partitions = vec![
                    MetadataResponsePartition::default()
                        .with_leader_id(leader)
                        .with_error_code(leaderless),
                ];
            }
            MetadataResponse::default().with_brokers(vec![broker]).with_topics(vec![described])
        }

        fn next_refusal(&self, of: usize) -> i16 {
            let mut refusals = self.refusals.lock().expect("no answer panics");
            refusals[of].pop().map_or(0, |error| error.code())
        }
    }

    fn topic() -> TopicName {
        TopicName(StrBytes::from_static_str(TOPIC))
    }

    fn framed<T: Encodable + HeaderVersion>((version, id): (i16, i32), response: &T) -> Vec<u8> {
        let mut body = BytesMut::new();
        let header = ResponseHeader::default().with_correlation_id(id);
        header.encode(&mut body, T::header_version(version)).expect("a header");
        response.encode(&mut body, version).expect("a response");
        let length = u32::try_from(body.len()).expect("a short body");
        [&length.to_be_bytes()[..], &body].concat()
    }

    #[test]
    fn a_topic_is_made_when_its_leader_answers() {
        let refusals = [
            vec![ResponseError::UnknownTopicOrPartition; 2],
            vec![ResponseError::LeaderNotAvailable; 2],
            vec![ResponseError::NotLeaderOrFollower; 2],
        ];
        let broker = Electing::start(refusals);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let client = Client::new(broker.address.to_string(), Settings::default());
        let made = runtime.expect("a runtime").block_on(make_topic(&client, TOPIC));
        made.expect("a leader comes");
        let left = broker.refusals.lock().expect("no answer panics");
        assert!(left.iter().all(Vec::is_empty), "it was not waited for the leader: {left:?}");
    }
}
