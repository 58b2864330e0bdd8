//! End of the offsets that groups committed to a topic, with the topic: a topic that is made later
//! under its name begins without.
//!
//! The deletion of a topic and that of its offsets are in two logs, and a broker may die between.
//! So they are forgotten when the topic is gone, and once more before one of that name is there.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use kafka_protocol::error::ResponseError;
use tokio::sync::mpsc;

use super::{Command, Queued, send};
use crate::topics::{Refusal, Topics};

/// Whoever makes or deletes topics waits for the coordinator so long.
const FORGET_TIME_MAX: Duration = Duration::from_secs(10);

/// Before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Has topics made only when what groups committed to earlier ones is forgotten. The way to the
/// coordinator ends with the others: its thread holds the topics.
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

/// Has what is known of transactions brought in line with a topic that could not be opened with the
/// others.
pub(super) fn when_topics_come_late(topics: &Topics, queue: &mpsc::Sender<Queued>) {
    let queue = queue.downgrade();
    topics.set_meet(Box::new(move |topic| {
        let until = Instant::now() + FORGET_TIME_MAX;
        // Where it reads its log again it meets all topics.
        while let Some(queue) = queue.upgrade() {
            let is_sent = send(&queue, Command::Meet(Arc::clone(topic))).is_some();
            if is_sent || queue.is_closed() || until <= Instant::now() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }));
}

/// Returns whether that is durable: not where the coordinator takes too long. May wait.
pub(super) fn forget(queue: &mpsc::Sender<Queued>, names: &[Arc<str>]) -> bool {
    let until = Instant::now() + FORGET_TIME_MAX;
    loop {
        let (done, is_done) = sync_channel(1);
        let command = Command::Forget { names: names.to_vec(), done };
        if send(queue, command).is_some() {
            match is_done.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
                // It has lost what it knew, and reads it again.
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        if queue.is_closed() || until <= Instant::now() {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
