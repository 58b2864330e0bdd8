//! Coordinator of consumer groups and transactions: one thread that owns both, and the log of their
//! state.
//!
//! Requests arrive through a bounded queue. The thread handles queued requests in rounds: one
//! flush makes their changes durable, and only then replies are sent and markers are written. A
//! flush that may wait for a disk runs on another thread, concurrently with further rounds.

mod assignable;
#[cfg(test)]
mod away_tests;
mod deeds;
mod effects;
mod endings;
mod forgetting;
mod fullness;
mod keys;
mod refusals;
mod round;
#[cfg(test)]
mod tests;

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use consumer_groups::GroupView;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{RequestKind, ResponseKind};
use shares::{Limit, Owner, Share};
use tokio::sync::{mpsc, oneshot};
use transactions::{TRANSACTIONAL_ID_BYTES_MAX, Write};
use uuid::Uuid;

use crate::storage::{Storage, VolumeClass};
use crate::topics::{OpenPartition, OpenTopic};
use round::State;

pub(crate) use assignable::Assignable;
pub(crate) use refusals::refuse;

/// Maximum number of queued requests. Beyond it, clients must retry. One owner can use half of it:
/// a rejected request is not handled, so others' members would be removed for lack of heartbeats.
/// Seven owners together can have as many requests as a principal has connections, if its quota has
/// no limit.
const QUEUE_LENGTH: usize = 8_192;

/// A client's request, and the channel for its reply.
pub(crate) struct Ask {
    pub(crate) request: RequestKind,
    pub(crate) api_version: i16,
    pub(crate) client_id: String,
    pub(crate) host: String,
    pub(crate) principal: String,
    /// Owner whose share of the coordinator's limits the request uses.
    pub(crate) owner: Owner,
    pub(crate) reply: oneshot::Sender<ResponseKind>,
}

/// Limits and timeouts of groups and transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoordinatorOptions {
    pub(crate) groups: consumer_groups::Options,
    pub(crate) transactions: transactions::Settings,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        let groups = consumer_groups::Options::default();
        Self { groups, transactions: transactions::Settings::DEFAULTS }
    }
}

impl CoordinatorOptions {
    /// Limits the state of groups to `bytes`, and that of transactions in proportion: one
    /// transactional id for each of the maximum length, and a quarter for participants.
    fn within(self, bytes: usize) -> Self {
        let Self { mut groups, mut transactions } = self;
        groups.total_bytes_max = groups.total_bytes_max.min(bytes);
        let ids = &mut transactions.transactional_id_count_max;
        *ids = bytes.div_ceil(TRANSACTIONAL_ID_BYTES_MAX).min(*ids);
        let participants = &mut transactions.participants_bytes_max;
        *participants = (bytes / 4).min(*participants);
        Self { groups, transactions }
    }
}

enum Command {
    Ask(Box<Ask>),
    /// Asks whether these records may be written in a transaction.
    Admit {
        write: Write,
        partitions: Vec<Arc<OpenPartition>>,
        api_version: i16,
        owner: Owner,
        reply: oneshot::Sender<Admission>,
    },
    /// Deletes committed offsets of topics with these names, unless such a topic exists.
    Forget {
        names: Vec<Arc<str>>,
        done: SyncSender<()>,
    },
    /// Reconciles the state of transactions with a topic that was not served before.
    Meet(Arc<OpenTopic>),
    /// Requests all groups and their committed offsets.
    Groups(oneshot::Sender<Vec<GroupView>>),
}

/// A queued command, and the time at which it was sent.
struct Queued {
    since: Instant,
    command: Command,
    /// The owner's place in the queue.
    _place: Option<Share>,
}

/// Queues an internal command of the broker. Returns `None` if the queue is full or closed.
fn send(queue: &mpsc::Sender<Queued>, command: Command) -> Option<()> {
    queue.try_send(Queued { since: Instant::now(), command, _place: None }).ok()
}

/// Ends of partitions when records for them were admitted to a transaction. A later marker ends the
/// transaction.
pub(crate) type Admission = Result<Vec<i64>, ResponseError>;

/// Reason why the state cannot be stored, if any.
type Trouble = Arc<Mutex<Option<(Instant, String)>>>;

/// Time for which a failed write is reported, unless another one succeeds.
const TROUBLE_TIME: Duration = Duration::from_secs(10);

const NO_PANIC: &str = "no thread panics with this lock";

/// Handle of the coordinator's thread.
pub(crate) struct Coordinator {
    trouble: Trouble,
    queue: mpsc::Sender<Queued>,
    /// Places in the queue.
    places: Arc<Limit>,
    /// Id of the log of its state, which exists as long as the cluster.
    pub(crate) log_id: Uuid,
}

/// The coordinator's thread. It ends when all handles are dropped.
pub(crate) struct CoordinatorThread(JoinHandle<()>);

impl CoordinatorThread {
    /// Waits for the end of the thread, after the last [`Coordinator`] was dropped.
    pub(crate) fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the coordinator's thread panicked");
        }
    }
}

/// Loads the state and starts the thread.
pub(crate) fn start(
    storage: &dyn Storage,
    class: VolumeClass,
    topics: Assignable,
    options: CoordinatorOptions,
) -> anyhow::Result<(Coordinator, CoordinatorThread)> {
    let known = Arc::clone(&topics.topics);
    let mut state = State::open(storage, class, topics, options)
        .context("cannot load the state of groups and transactions")?;
    let (log_id, trouble) = (state.log_id(), Arc::clone(&state.trouble));
    let (queue, commands) = mpsc::channel(QUEUE_LENGTH);
    forgetting::before_topics_are_made(&known, &queue);
    forgetting::when_topics_come_late(&known, &queue);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let work = move || {
        runtime.block_on(state.run(commands));
        // A flush that waits for a disk does not delay the shutdown.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("coordinator".to_owned()).spawn(work)?;
    let places = Limit::new(QUEUE_LENGTH);
    Ok((Coordinator { trouble, queue, places, log_id }, CoordinatorThread(thread)))
}

impl Coordinator {
    /// Returns why commits of offsets and transactions cannot be stored, if the last write failed.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().expect(NO_PANIC);
        let (at, why) = trouble.as_ref()?;
        (at.elapsed() < TROUBLE_TIME).then(|| why.clone())
    }

    /// Creates a coordinator that handles nothing until the other value is dropped, as if its disk
    /// hung.
    #[cfg(test)]
    pub(crate) fn standing() -> (Self, impl Send) {
        let (queue, commands) = mpsc::channel(QUEUE_LENGTH);
        let (trouble, places) = (Trouble::default(), Limit::new(QUEUE_LENGTH));
        (Self { trouble, queue, places, log_id: Uuid::nil() }, commands)
    }

    /// Returns the number of requests in the queue.
    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        self.places.taken()
    }

    /// Queues a client's command. Returns `None` if its owner has used up its places.
    fn send(&self, owner: Owner, command: Command) -> Option<()> {
        let place = self.places.try_take(owner, 1)?;
        self.queue.try_send(Queued { since: Instant::now(), command, _place: Some(place) }).ok()
    }

    /// Sends a request and waits for the reply. Returns `None` if the coordinator is overloaded, or
    /// had to discard the request.
    pub(crate) async fn ask(
        &self,
        ask: impl FnOnce(oneshot::Sender<ResponseKind>) -> Ask,
    ) -> Option<ResponseKind> {
        let (reply, answer) = oneshot::channel();
        let ask = Box::new(ask(reply));
        self.send(ask.owner, Command::Ask(ask))?;
        answer.await.ok()
    }

    /// Returns whether records may be written to these partitions in a transaction.
    pub(crate) async fn admit(
        &self,
        write: Write,
        partitions: Vec<Arc<OpenPartition>>,
        (api_version, owner): (i16, Owner),
    ) -> Admission {
        let (reply, answer) = oneshot::channel();
        let busy = ResponseError::CoordinatorNotAvailable;
        let admit = Command::Admit { write, partitions, api_version, owner, reply };
        self.send(owner, admit).ok_or(busy)?;
        answer.await.unwrap_or(Err(busy))
    }

    /// Returns all groups. `None` if the coordinator is overloaded.
    pub(crate) async fn groups(&self) -> Option<Vec<GroupView>> {
        let (reply, answer) = oneshot::channel();
        send(&self.queue, Command::Groups(reply))?;
        answer.await.ok()
    }

    /// Deletes committed offsets of deleted topics, durably on return. If that takes too long, it
    /// is done when topics of these names are created again. May block.
    pub(crate) fn topics_deleted(&self, names: Vec<Arc<str>>) {
        if !names.is_empty() && !forgetting::forget(&self.queue, &names) {
            tracing::warn!(
                ?names,
                "cannot delete committed offsets of deleted topics now; retrying when the topics \
                 are created again"
            );
        }
    }
}
