//! Deletion of committed offsets together with their topic, so that a new topic of the same name
//! starts without offsets.
//!
//! The topic and its offsets are deleted in two logs, and the broker may die in between. Therefore
//! the offsets are deleted after the topic, and again before a topic of that name is created.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use kafka_protocol::error::ResponseError;
use tokio::sync::mpsc;

use super::{Command, Queued, send};
use crate::topics::{Refusal, Topics};

/// Maximum wait for the coordinator when topics are created or deleted.
const FORGET_TIME_MAX: Duration = Duration::from_secs(10);

/// Delay before a retry.
const PAUSE: Duration = Duration::from_millis(50);

/// Has the creation of topics delete committed offsets of earlier topics first. The queue is held
/// weakly, because the coordinator's thread holds the topics.
pub(super) fn before_topics_are_made(topics: &Topics, queue: &mpsc::Sender<Queued>) {
    let queue = queue.downgrade();
    topics.set_forget(Box::new(move |name| {
        let forgotten = queue.upgrade().is_some_and(|queue| forget(&queue, &[name.into()]));
        let what = "cannot delete the offsets that groups committed to an earlier topic of this \
                    name: the group coordinator does not respond; retry later";
        let refusal = || Refusal::new(ResponseError::CoordinatorNotAvailable, what);
        forgotten.then_some(()).ok_or_else(refusal)
    }));
}

/// Has the coordinator reconcile transactions with topics that are opened later than others.
pub(super) fn when_topics_come_late(topics: &Topics, queue: &mpsc::Sender<Queued>) {
    let queue = queue.downgrade();
    topics.set_meet(Box::new(move |topic| {
        let until = Instant::now() + FORGET_TIME_MAX;
        // If the coordinator reloads its log, it reconciles all topics anyway.
        while let Some(queue) = queue.upgrade() {
            let is_sent = send(&queue, Command::Meet(Arc::clone(topic))).is_some();
            if is_sent || queue.is_closed() || until <= Instant::now() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }));
}

/// Deletes committed offsets. Returns whether that is durable, which fails if it takes too long.
/// May block.
pub(super) fn forget(queue: &mpsc::Sender<Queued>, names: &[Arc<str>]) -> bool {
    let until = Instant::now() + FORGET_TIME_MAX;
    loop {
        let (done, is_done) = sync_channel(1);
        let command = Command::Forget { names: names.to_vec(), done };
        if send(queue, command).is_some() {
            match is_done.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
                // The coordinator has discarded its state, and reloads it.
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        if queue.is_closed() || until <= Instant::now() {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
