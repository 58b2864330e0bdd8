//! The coordinator of consumer groups and of transactions: one thread that owns both, and the log
//! of their state.
//!
//! Requests come over a bounded queue. Those that have come together are handled in one round: what
//! they change is made durable by one flush, and only then are they answered and markers written.
//! A flush that may wait for a disk is made on another thread, and rounds go on meanwhile.

mod assignable;
#[cfg(test)]
mod away_tests;
mod deeds;
mod effects;
mod endings;
mod forgetting;
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
use transactions::Write;
use uuid::Uuid;

use crate::storage::{Storage, VolumeClass};
use crate::topics::{OpenPartition, OpenTopic};
use round::State;

pub(crate) use assignable::Assignable;
pub(crate) use refusals::refuse;

/// Requests that wait for the thread; beyond it clients are told to come again. One owner alone
/// gets half: whoever is told so is not heard, and others' members would be dropped for it. Seven
/// owners together may have as many as a principal has connections, where its quota says nothing.
const QUEUE_LENGTH: usize = 8_192;

/// A request, and where its answer goes.
pub(crate) struct Ask {
    pub(crate) request: RequestKind,
    pub(crate) api_version: i16,
    pub(crate) client_id: String,
    pub(crate) host: String,
    pub(crate) principal: String,
    /// Whose share of the coordinator's limits it takes.
    pub(crate) owner: Owner,
    pub(crate) reply: oneshot::Sender<ResponseKind>,
}

/// Limits and times of both that the thread owns.
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

enum Command {
    Ask(Box<Ask>),
    /// May these records be written for a transaction?
    Admit {
        write: Write,
        partitions: Vec<Arc<OpenPartition>>,
        api_version: i16,
        owner: Owner,
        reply: oneshot::Sender<Admission>,
    },
    /// Forgets what groups committed to topics of these names, as far as there are none.
    Forget {
        names: Vec<Arc<str>>,
        done: SyncSender<()>,
    },
    /// Brings what is known of transactions in line with a topic that was not served before.
    Meet(Arc<OpenTopic>),
    /// What groups there are, and what they committed.
    Groups(oneshot::Sender<Vec<GroupView>>),
}

/// What waits in the queue, and since when.
struct Queued {
    since: Instant,
    command: Command,
    /// Place in the queue that counts as its owner's.
    _place: Option<Share>,
}

/// Puts a command of the broker itself into the queue; not where that is full, or nobody takes
/// anything out any more.
fn send(queue: &mpsc::Sender<Queued>, command: Command) -> Option<()> {
    queue.try_send(Queued { since: Instant::now(), command, _place: None }).ok()
}

/// Where partitions ended when records for them were admitted to a transaction: a marker that comes
/// later than that ends the transaction.
pub(crate) type Admission = Result<Vec<i64>, ResponseError>;

/// Why the state cannot be stored, if it cannot.
type Trouble = Arc<Mutex<Option<(Instant, String)>>>;

/// For so long a write that failed is told of, unless another one succeeds.
const TROUBLE_TIME: Duration = Duration::from_secs(10);

const NO_PANIC: &str = "no thread panics with this lock";

/// The way to the coordinator's thread.
pub(crate) struct Coordinator {
    trouble: Trouble,
    queue: mpsc::Sender<Queued>,
    /// Places in the queue.
    places: Arc<Limit>,
    /// Id of the log of its state, which lasts as long as the cluster does.
    pub(crate) log_id: Uuid,
}

/// The thread; it ends when all ways to it are gone.
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
        // A flush that waits for a disk holds up no end.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("coordinator".to_owned()).spawn(work)?;
    let places = Limit::new(QUEUE_LENGTH);
    Ok((Coordinator { trouble, queue, places, log_id }, CoordinatorThread(thread)))
}

impl Coordinator {
    /// Why commits of offsets and transactions cannot be stored, if the last write failed.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().expect(NO_PANIC);
        let (at, why) = trouble.as_ref()?;
        (at.elapsed() < TROUBLE_TIME).then(|| why.clone())
    }

    /// One whose thread takes nothing, as while its disk hangs, until the other value is dropped.
    #[cfg(test)]
    pub(crate) fn standing() -> (Self, impl Send) {
        let (queue, commands) = mpsc::channel(QUEUE_LENGTH);
        let (trouble, places) = (Trouble::default(), Limit::new(QUEUE_LENGTH));
        (Self { trouble, queue, places, log_id: Uuid::nil() }, commands)
    }

    /// Requests that wait for the thread.
    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        self.places.taken()
    }

    /// Puts a client's command into the queue; not where its owner has all that it may have there.
    fn send(&self, owner: Owner, command: Command) -> Option<()> {
        let place = self.places.try_take(owner, 1)?;
        self.queue.try_send(Queued { since: Instant::now(), command, _place: Some(place) }).ok()
    }

    /// Has a request answered; `None` where the coordinator has too much to do, or has lost what
    /// the request was about.
    pub(crate) async fn ask(
        &self,
        ask: impl FnOnce(oneshot::Sender<ResponseKind>) -> Ask,
    ) -> Option<ResponseKind> {
        let (reply, answer) = oneshot::channel();
        let ask = Box::new(ask(reply));
        self.send(ask.owner, Command::Ask(ask))?;
        answer.await.ok()
    }

    /// Returns whether records may be written to these partitions for a transaction.
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

    /// All groups; `None` where the coordinator has too much to do.
    pub(crate) async fn groups(&self) -> Option<Vec<GroupView>> {
        let (reply, answer) = oneshot::channel();
        send(&self.queue, Command::Groups(reply))?;
        answer.await.ok()
    }

    /// Forgets what groups committed to topics that are gone, which is durable when this returns.
    /// Where that takes too long it is done when topics of these names are made again. May wait.
    pub(crate) fn topics_deleted(&self, names: Vec<Arc<str>>) {
        if !names.is_empty() && !forgetting::forget(&self.queue, &names) {
            tracing::warn!(?names, "offsets of deleted topics are kept until they are made again");
        }
    }
}
