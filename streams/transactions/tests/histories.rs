//! Random histories with several producers per transactional id, a coordinator that crashes at any
//! effect, and a state log that sometimes rejects records. Invariants: no producer identity is
//! assigned twice, no transaction has both markers, acknowledged commits are committed, fenced
//! producers never commit, each request is answered once, and rejected records leave no state
//! behind. Without faults, each transaction ends in a bounded number of steps, and each id serves a
//! new producer.

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kafka_protocol::ResponseError::{
    self, ConcurrentTransactions, CoordinatorLoadInProgress, InvalidProducerEpoch,
    InvalidProducerIdMapping, InvalidTxnState, NotEnoughReplicas, ProducerFenced,
};
use kafka_protocol::messages::{AddOffsetsToTxnRequest, InitProducerIdRequest, TransactionalId};
use model::for_each_seed_at_once;
use random::Random;
use support::{add_request, end_request, group, id, init_request, outcome_of, topic};
use transactions::{
    Caller, Effect, Markers, Outcome, Participants, Producer, Record, Response, Settings, Ticket,
    Transactions, Write,
};

const COMMAND: &str = "cargo test -p transactions --test histories";
const STEP_COUNT: usize = 500;
const TRANSACTIONAL_ID_COUNT: usize = 2;
const INSTANCE_COUNT_MAX: usize = 12;
/// Three partitions and a group.
const PLACE_COUNT: usize = 4;
const GROUP: usize = 3;
const TIMEOUT_MS: i64 = support::TIMEOUT_MS as i64;

/// Maximum steps to finish each started transaction: its record, its response, its markers, the
/// record of their completion, and the requests that wait for it.
const STEPS_EACH: usize = 10;

/// Maximum steps in which a single producer commits a transaction.
const STEPS_TO_COMMIT_MAX: usize = 1_000;

const SETTINGS: Settings =
    Settings { transactional_id_expiration_ms: 10 * TIMEOUT_MS, ..Settings::DEFAULTS };

/// Number of a transaction, assigned by its client.
type Number = usize;

/// State of a producer id in a partition or group.
#[derive(Default)]
struct Known {
    epoch: i16,
    open: Option<Number>,
}

/// A partition as in the record log: fences by epoch, and ends transactions by markers.
#[derive(Default)]
struct Place {
    producers: BTreeMap<i64, Known>,
    written: BTreeSet<Number>,
    ended: BTreeMap<Number, Outcome>,
}

impl Place {
    fn append(&mut self, producer: Producer, number: Number) -> bool {
        let known = self.producers.entry(producer.id.0).or_default();
        if producer.epoch < known.epoch {
            return false;
        }
        let open = *known.open.get_or_insert(number);
        assert_eq!(open, number, "two transactions are open at once");
        assert!(!self.ended.contains_key(&number), "it is written to after its end");
        known.epoch = producer.epoch;
        self.written.insert(number);
        true
    }

    fn end(&mut self, producer: Producer, outcome: Outcome) {
        let known = self.producers.entry(producer.id.0).or_default();
        assert!(producer.epoch >= known.epoch, "a marker is fenced");
        known.epoch = producer.epoch;
        if let Some(number) = known.open.take() {
            let earlier = self.ended.insert(number, outcome);
            assert_eq!(earlier, None, "a transaction ends once");
        }
    }
}

/// Old clients add partitions explicitly, new ones have the broker add them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Old,
    New,
}

/// Pending request of a producer instance.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Init,
    Add(usize),
    Write(usize),
    End(Outcome),
}

#[derive(Debug)]
struct Instance {
    /// Index of the transactional id.
    of: usize,
    protocol: Protocol,
    producer: Option<Producer>,
    /// Producer that it claims when it recovers.
    claim: Option<Producer>,
    transaction: Option<Number>,
    started_ms: i64,
    added: BTreeSet<usize>,
    has_written: bool,
    /// Outcome that it requests for its transaction, possibly without a response yet.
    ending: Option<Outcome>,
    asked: Option<Asked>,
    asked_ms: i64,
    /// Time of its last request that was acknowledged.
    heard_ms: i64,
    /// Time of its first request to end the transaction. A retry changes nothing, so the id expires
    /// as without it.
    end_asked_ms: Option<i64>,
    /// A later instance was acknowledged.
    is_fenced: bool,
    /// Value of `is_fenced` when the pending request was sent.
    asked_when_fenced: bool,
    is_dead: bool,
}

/// Markers in progress.
struct Job {
    markers: Markers,
    left: Vec<usize>,
}

/// An admitted write that was not appended yet.
struct Append {
    instance: usize,
    producer: Producer,
    number: Number,
    place: usize,
}

struct World {
    random: Random,
    now_ms: i64,
    coordinator: Transactions,
    /// The state log.
    log: Vec<Record>,
    places: Vec<Place>,
    queue: VecDeque<Effect>,
    jobs: Vec<Job>,
    appends: Vec<Append>,
    instances: Vec<Instance>,
    tickets: u64,
    /// Unanswered requests by instance; `None` for an InitProducerId without a transactional id.
    outstanding: BTreeMap<Ticket, Option<usize>>,
    /// Instance to which each producer identity was assigned.
    given: BTreeMap<(i64, i16), usize>,
    id_of: BTreeMap<i64, Option<usize>>,
    numbers: Number,
    asked_to_commit: BTreeSet<Number>,
    committed: BTreeSet<Number>,
    aborted: BTreeSet<Number>,
    appended: BTreeSet<(Number, usize)>,
    effects: u64,
    dies_after: Option<u64>,
    crashes: u64,
    fenced: u64,
    /// Number of subsequent records that the log rejects.
    refusals: u64,
    refused: u64,
    /// Length of the log when all records were durable, and the coordinator's state at that time.
    durable: (usize, Vec<Record>),
}

fn remembered(coordinator: &Transactions) -> Vec<Record> {
    coordinator.state().collect()
}

fn transactional_id(of: usize) -> TransactionalId {
    id(["first", "second"][of])
}

/// Returns a state log in which the first transactional id has almost exhausted its epochs.
fn first_log() -> Vec<Record> {
    let mut ids = vec![1];
    ids.extend(1_000_i64.to_le_bytes());
    let mut value = vec![1, 0];
    value.extend(0_i64.to_le_bytes());
    value.extend((i16::MAX - 4).to_le_bytes());
    value.extend((-1_i64).to_le_bytes());
    value.extend((-1_i16).to_le_bytes());
    value.extend(support::TIMEOUT_MS.to_le_bytes());
    value.extend(0_i64.to_le_bytes());
    let key = [b"t", transactional_id(0).as_bytes()].concat();
    vec![Record { key: b"p".to_vec(), value: Some(ids) }, Record { key, value: Some(value) }]
}

impl World {
    fn new(seed: u64, dies_after: Option<u64>) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            now_ms: 0,
            coordinator: Transactions::new(SETTINGS),
            log: first_log(),
            places: (0..PLACE_COUNT).map(|_| Place::default()).collect(),
            queue: VecDeque::new(),
            jobs: Vec::new(),
            appends: Vec::new(),
            instances: Vec::new(),
            tickets: 0,
            outstanding: BTreeMap::new(),
            given: BTreeMap::new(),
            id_of: BTreeMap::from([(0, Some(0))]),
            numbers: 0,
            asked_to_commit: BTreeSet::new(),
            committed: BTreeSet::new(),
            aborted: BTreeSet::new(),
            appended: BTreeSet::new(),
            effects: 0,
            dies_after,
            crashes: 0,
            fenced: 0,
            refusals: 0,
            refused: 0,
            durable: (0, Vec::new()),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        self.coordinator = Transactions::new(SETTINGS);
        for record in &self.log {
            self.coordinator.load(&record.key, record.value.as_deref()).expect("it is whole");
        }
        if self.durable.0 == self.log.len() {
            assert_eq!(remembered(&self.coordinator), self.durable.1, "something is left behind");
        }
        let mut out = Vec::new();
        self.coordinator.resume(self.now_ms, &mut out);
        self.queue.extend(out);
    }

    /// Simulates a crash: everything that was not durable is lost. Clients lose their connections.
    fn crash(&mut self) {
        self.crashes += 1;
        self.queue.clear();
        self.jobs.clear();
        self.appends.clear();
        self.outstanding.clear();
        for instance in &mut self.instances {
            if let Some(asked) = instance.asked.take() {
                instance.lose(asked);
            }
        }
        if self.random.one_in(2) {
            // Compaction retains the last record of each key.
            let mut seen = BTreeSet::new();
            self.log.reverse();
            self.log.retain(|record| seen.insert(record.key.clone()));
            self.log.reverse();
            self.durable.0 = 0;
        }
        self.start();
    }

    fn run(&mut self) {
        for _ in 0..STEP_COUNT {
            self.step();
        }
        (self.dies_after, self.refusals) = (None, 0);
        self.settle();
        self.begin_again();
        self.settle();
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..8 => self.carry_out_one(),
            8..14 => self.act(),
            14..16 => self.write_marker(),
            16..18 => self.append(),
            18 if self.random.one_in(15) => self.pass(TIMEOUT_MS / 2),
            18 if self.random.one_in(100) => self.pass(11 * TIMEOUT_MS),
            18 if self.random.one_in(20) => self.refusals = 1 + self.random.below(10),
            18 => self.pass(20),
            _ if self.dies_after.is_none() && self.random.one_in(10) => self.crash(),
            _ => self.ask_for_plain_id(),
        }
    }

    fn call(
        &mut self,
        from: Option<usize>,
        api_version: i16,
        call: impl FnOnce(&mut Transactions, Caller, &mut Vec<Effect>),
    ) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.outstanding.insert(ticket, from);
        if let Some(index) = from {
            let instance = &mut self.instances[index];
            instance.asked_when_fenced = instance.is_fenced;
            instance.asked_ms = self.now_ms;
        }
        let mut out = Vec::new();
        let (owner, now_ms) = (shares::Owner::NOBODY, self.now_ms);
        call(&mut self.coordinator, Caller { ticket, api_version, owner, now_ms }, &mut out);
        self.queue.extend(out);
    }

    fn ask_for_plain_id(&mut self) {
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        self.call(None, 5, |it, caller, out| it.init_producer_id(caller, &request, out));
    }

    fn pass(&mut self, duration_ms: i64) {
        self.now_ms += duration_ms;
        let mut out = Vec::new();
        self.coordinator.tick(self.now_ms, &mut out);
        self.queue.extend(out);
        assert!(self.coordinator.next_deadline_ms().is_none_or(|it| it > self.now_ms));
    }

    fn carry_out_one(&mut self) {
        let Some(effect) = self.queue.pop_front() else { return };
        match effect {
            Effect::Persist(record) if self.refusals > 0 => {
                return self.refuse_record(record);
            }
            Effect::Persist(record) => self.log.push(record),
            Effect::WriteMarkers(markers) => {
                let partitions = markers.participants.topics.values().flatten();
                let mut left: Vec<usize> =
                    partitions.map(|it| usize::try_from(*it).expect("small")).collect();
                left.extend(markers.participants.groups.iter().map(|_| GROUP));
                self.jobs.push(Job { markers, left });
            }
            Effect::Reply(ticket, response) => {
                let from = self.outstanding.remove(&ticket).expect("it is answered once");
                self.answer(from, &response);
            }
        }
        if self.queue.is_empty() {
            self.durable = (self.log.len(), remembered(&self.coordinator));
        }
        self.effects += 1;
        if self.dies_after == Some(self.effects) {
            self.crash();
        }
    }

    /// The log rejects a record. Later effects wait until it is accepted, or the owner reloads the
    /// log.
    fn refuse_record(&mut self, record: Record) {
        self.refusals -= 1;
        self.refused += 1;
        if self.random.one_in(4) {
            self.crash();
        } else {
            self.queue.push_front(Effect::Persist(record));
        }
    }

    fn write_marker(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let index = self.random.index(self.jobs.len());
        let job = &mut self.jobs[index];
        if !job.left.is_empty() {
            let place = job.left.swap_remove(self.random.index(job.left.len()));
            self.places[place].end(job.markers.producer, job.markers.outcome);
            return;
        }
        let job = self.jobs.swap_remove(index);
        let mut out = Vec::new();
        self.coordinator.markers_written(job.markers.ticket, self.now_ms, &mut out);
        self.queue.extend(out);
    }

    fn append(&mut self) {
        if self.appends.is_empty() {
            return;
        }
        let append = self.appends.swap_remove(self.random.index(self.appends.len()));
        let done = self.places[append.place].append(append.producer, append.number);
        let instance = &mut self.instances[append.instance];
        instance.asked = None;
        match done {
            true => {
                instance.has_written = true;
                self.appended.insert((append.number, append.place));
            }
            false => self.refuse(append.instance, InvalidProducerEpoch),
        }
    }

    /// Performs a random action of a client, or starts a new one.
    fn act(&mut self) {
        let is_new = self.instances.iter().all(|it| it.is_dead)
            || self.random.one_in(30) && self.instances.len() < INSTANCE_COUNT_MAX;
        if is_new {
            let of = self.random.index(TRANSACTIONAL_ID_COUNT);
            let protocol = self.random.pick(&[Protocol::Old, Protocol::New]);
            self.instances.push(Instance::new(of, protocol));
        }
        let index = self.random.index(self.instances.len());
        self.act_of(index);
    }

    fn act_of(&mut self, index: usize) {
        let instance = &self.instances[index];
        if instance.is_dead || instance.asked.is_some() {
            return;
        }
        match (instance.producer, instance.ending) {
            (None, _) => self.initialize(index),
            (Some(producer), Some(outcome)) => self.end(index, producer, outcome),
            (Some(producer), None) => self.go_on(index, producer),
        }
    }

    fn initialize(&mut self, index: usize) {
        let instance = &mut self.instances[index];
        instance.asked = Some(Asked::Init);
        let request = init_request(&transactional_id(instance.of), instance.claim);
        self.call(Some(index), 4, |it, caller, out| it.init_producer_id(caller, &request, out));
    }

    fn go_on(&mut self, index: usize, producer: Producer) {
        let place = self.random.index(PLACE_COUNT);
        let choice = self.random.below(8);
        let (now_ms, number) = (self.now_ms, self.numbers);
        let instance = &mut self.instances[index];
        if instance.transaction.is_none() {
            if choice == 0 {
                // The client recovers from an error.
                (instance.claim, instance.producer) = (Some(producer), None);
                return self.initialize(index);
            }
            self.numbers += 1;
            instance.transaction = Some(number);
            (instance.started_ms, instance.has_written) = (now_ms, false);
            instance.added.clear();
        }
        match choice {
            0 => instance.ending = Some(Outcome::Abort),
            1 | 2 if instance.has_written => {
                instance.ending = Some(Outcome::Commit);
                let number = instance.transaction.expect("there is one");
                self.asked_to_commit.insert(number);
            }
            _ if instance.protocol == Protocol::Old && !instance.added.contains(&place) => {
                self.add(index, producer, place);
            }
            _ => self.write(index, producer, place),
        }
    }

    fn add(&mut self, index: usize, producer: Producer, place: usize) {
        self.instances[index].asked = Some(Asked::Add(place));
        let id = transactional_id(self.instances[index].of);
        if place == GROUP {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(id)
                .with_producer_id(producer.id)
                .with_producer_epoch(producer.epoch)
                .with_group_id(group("readers"));
            self.call(Some(index), 3, |it, caller, out| it.add_offsets(caller, &request, out));
            return;
        }
        let request = add_request(&id, producer, &[i32::try_from(place).expect("small")]);
        self.call(Some(index), 3, |it, caller, out| it.add_partitions(caller, &request, out));
    }

    fn write(&mut self, index: usize, producer: Producer, place: usize) {
        let instance = &mut self.instances[index];
        instance.asked = Some(Asked::Write(place));
        let transactional_id = transactional_id(instance.of);
        let is_old = instance.protocol == Protocol::Old;
        if place == GROUP {
            let participants = Participants::of_group(&group("readers"));
            let write = Write { transactional_id, producer, participants };
            let version = if is_old { 3 } else { 5 };
            self.call(Some(index), version, |it, caller, out| {
                it.admit_offset_commit(caller, write, out);
            });
            return;
        }
        let partition = i32::try_from(place).expect("small");
        let participants = Participants::of_partitions(&topic("orders"), [partition]);
        let write = Write { transactional_id, producer, participants };
        let version = if is_old { 9 } else { 12 };
        self.call(Some(index), version, |it, caller, out| it.admit_produce(caller, write, out));
    }

    fn end(&mut self, index: usize, producer: Producer, outcome: Outcome) {
        let instance = &mut self.instances[index];
        instance.asked = Some(Asked::End(outcome));
        instance.end_asked_ms.get_or_insert(self.now_ms);
        let request = end_request(&transactional_id(instance.of), producer, outcome);
        let version = if instance.protocol == Protocol::Old { 4 } else { 5 };
        self.call(Some(index), version, |it, caller, out| it.end(caller, &request, out));
    }

    fn answer(&mut self, from: Option<usize>, response: &Response) {
        let result = outcome_of(response);
        let Some(index) = from else {
            let producer = result.expect("it always may").expect("it says so");
            let earlier = self.id_of.insert(producer.id.0, None);
            assert_eq!(earlier, None, "the producer id was given before");
            return;
        };
        let instance = &self.instances[index];
        let asked = instance.asked.expect("it waits for this");
        // After a transactional id expired, any claim is accepted.
        let begins_anew = result
            .is_ok_and(|it| it.is_some_and(|producer| !self.id_of.contains_key(&producer.id.0)));
        let is_right = result.is_err() || !instance.asked_when_fenced || begins_anew;
        assert!(is_right, "{instance:?} is fenced and succeeds");
        if let Asked::Write(place) = asked
            && result.is_ok()
        {
            let producer = instance.producer.expect("it has begun");
            let number = instance.transaction.expect("there is one");
            return self.appends.push(Append { instance: index, producer, number, place });
        }
        self.instances[index].asked = None;
        match result {
            Ok(producer) => self.succeed(index, asked, producer),
            Err(error) => self.refuse(index, error),
        }
    }

    fn succeed(&mut self, index: usize, asked: Asked, producer: Option<Producer>) {
        let instance = &mut self.instances[index];
        instance.heard_ms = match asked {
            // The coordinator may not know the transaction, and treat this as a retry of the
            // previous end.
            Asked::End(_) if instance.protocol == Protocol::Old && !instance.has_written => {
                instance.heard_ms
            }
            Asked::End(_) => instance.end_asked_ms.take().unwrap_or(instance.asked_ms),
            _ => instance.asked_ms,
        };
        match asked {
            Asked::Init => {
                let producer = producer.expect("it says so");
                let takes_over =
                    self.instances[index].claim.is_none() || self.instances[index].is_fenced;
                self.give(index, producer);
                let instance = &mut self.instances[index];
                (instance.producer, instance.is_fenced) = (Some(producer), false);
                let of = instance.of;
                if takes_over {
                    for (other, it) in self.instances.iter_mut().enumerate() {
                        it.is_fenced |= it.of == of && other != index && it.has_begun();
                    }
                }
            }
            Asked::Add(place) => {
                self.instances[index].added.insert(place);
            }
            Asked::Write(_) => unreachable!("a write is answered when it is appended"),
            Asked::End(outcome) => {
                if let Some(producer) = producer {
                    self.give(index, producer);
                    self.instances[index].producer = Some(producer);
                }
                let instance = &mut self.instances[index];
                instance.ending = None;
                let number = instance.transaction.take().expect("there was one");
                match outcome {
                    Outcome::Commit => self.committed.insert(number),
                    Outcome::Abort => self.aborted.insert(number),
                };
            }
        }
    }

    /// Checks that no other instance has had this identity.
    fn give(&mut self, index: usize, producer: Producer) {
        let holder = *self.given.entry((producer.id.0, producer.epoch)).or_insert(index);
        assert_eq!(holder, index, "{producer:?} was given before");
        let of = self.instances[index].of;
        let owner = *self.id_of.entry(producer.id.0).or_insert(Some(of));
        assert_eq!(owner, Some(of), "{producer:?} is of another transactional id");
    }

    fn refuse(&mut self, index: usize, error: ResponseError) {
        let now_ms = self.now_ms;
        let instance = &self.instances[index];
        match error {
            ConcurrentTransactions | NotEnoughReplicas | CoordinatorLoadInProgress => {}
            ProducerFenced | InvalidProducerEpoch | InvalidProducerIdMapping => {
                let has_rival = self
                    .instances
                    .iter()
                    .enumerate()
                    .any(|(other, it)| other != index && it.of == instance.of);
                let is_late = now_ms - instance.started_ms.min(instance.heard_ms) >= TIMEOUT_MS;
                assert!(has_rival || is_late, "{instance:?} was refused: {error}");
                self.instances[index].is_dead = true;
                self.fenced += 1;
            }
            // An old client cannot know whether its transaction had begun.
            InvalidTxnState
                if instance.protocol == Protocol::Old
                    && instance.ending == Some(Outcome::Abort)
                    && !instance.has_written =>
            {
                let instance = &mut self.instances[index];
                (instance.ending, instance.end_asked_ms) = (None, None);
                instance.transaction = None;
            }
            other => panic!("{instance:?} was refused: {other}"),
        }
    }

    /// Lets everything finish, and checks the result.
    fn settle(&mut self) {
        self.drain();
        assert!(self.outstanding.is_empty(), "every request is answered");
        self.pass(TIMEOUT_MS);
        self.drain();
        let mut outcomes: BTreeMap<Number, Outcome> = BTreeMap::new();
        for place in &self.places {
            assert!(place.producers.values().all(|known| known.open.is_none()), "all have ended");
            for number in &place.written {
                let outcome = place.ended[number];
                let elsewhere = *outcomes.entry(*number).or_insert(outcome);
                assert_eq!(elsewhere, outcome, "a transaction has both markers");
            }
        }
        for (number, outcome) in &outcomes {
            assert!(*outcome == Outcome::Abort || self.asked_to_commit.contains(number));
            assert!(*outcome == Outcome::Abort || !self.aborted.contains(number));
        }
        for number in &self.committed {
            let written: Vec<_> = self.appended.range((*number, 0)..(*number + 1, 0)).collect();
            assert!(!written.is_empty(), "only what was written to is committed");
            for (_, place) in written {
                assert_eq!(self.places[*place].ended[number], Outcome::Commit);
            }
        }
    }

    fn drain(&mut self) {
        let places: usize = self.jobs.iter().map(|it| it.left.len() + 1).sum();
        let begun = self.queue.len() + places + self.appends.len() + self.outstanding.len();
        let mut steps = 0;
        while !(self.queue.is_empty() && self.jobs.is_empty() && self.appends.is_empty()) {
            assert!(steps < STEPS_EACH * (begun + TRANSACTIONAL_ID_COUNT), "it does not end");
            self.go_forward();
            steps += 1;
        }
    }

    fn go_forward(&mut self) {
        self.carry_out_one();
        self.write_marker();
        self.append();
    }

    /// Checks that a new producer of each transactional id can commit, whatever happened before.
    fn begin_again(&mut self) {
        for of in 0..TRANSACTIONAL_ID_COUNT {
            self.instances.iter_mut().for_each(|it| it.is_dead = true);
            let (index, committed_before) = (self.instances.len(), self.committed.len());
            self.instances
                .push(Instance::new(of, self.random.pick(&[Protocol::Old, Protocol::New])));
            let mut steps = 0;
            while self.committed.len() == committed_before {
                assert!(steps < STEPS_TO_COMMIT_MAX, "{:?} gets no further", self.instances[index]);
                self.act_of(index);
                self.go_forward();
                steps += 1;
            }
        }
    }
}

impl Instance {
    fn new(of: usize, protocol: Protocol) -> Self {
        Self {
            of,
            protocol,
            producer: None,
            claim: None,
            transaction: None,
            started_ms: 0,
            added: BTreeSet::new(),
            has_written: false,
            ending: None,
            asked: None,
            asked_ms: 0,
            heard_ms: 0,
            end_asked_ms: None,
            is_fenced: false,
            asked_when_fenced: false,
            is_dead: false,
        }
    }

    fn has_begun(&self) -> bool {
        self.producer.is_some() || self.claim.is_some()
    }

    /// The response was lost. Partial work is retried or aborted.
    fn lose(&mut self, asked: Asked) {
        match asked {
            Asked::Init | Asked::End(_) => {}
            Asked::Add(_) | Asked::Write(_) => self.ending = Some(Outcome::Abort),
        }
    }
}

#[test]
fn a_history_that_dies_now_and_then_keeps_its_promises() {
    let mut total = [0; 4];
    let counts = std::sync::Mutex::new(&mut total);
    for_each_seed_at_once(COMMAND, 2_000, |seed| {
        let mut world = World::new(seed, None);
        world.run();
        let mut counts = counts.lock().expect("no thread panics with it locked");
        counts[0] += world.crashes;
        counts[1] += world.committed.len() as u64;
        counts[2] += world.fenced;
        counts[3] += world.refused;
    });
    let [crashes, commits, fenced, refused] = total;
    eprintln!(
        "{crashes} crashes, {commits} commits, {fenced} fenced producers, {refused} records refused"
    );
    let is_whole = std::env::var_os(model::SEED_VARIABLE).is_none();
    assert!(!is_whole || total.iter().all(|it| *it >= 100), "too little happened");
}

#[test]
fn a_history_that_dies_at_any_effect_keeps_its_promises() {
    for_each_seed_at_once(COMMAND, 40, |seed| {
        let mut whole = World::new(seed, Some(u64::MAX));
        whole.run();
        for dies_after in 1..=whole.effects {
            let mut world = World::new(seed, Some(dies_after));
            world.run();
        }
    });
}
