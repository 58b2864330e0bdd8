//! Rounds of work on many topics: one after the other, on one thread.
//!
//! Work on a topic that takes longer than the patience continues in the background. Another thread
//! goes on with the other topics, and later rounds omit the topic until its work has ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::NO_PANIC;

/// Tells whether work may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waits {
    /// Waits only for the daemon, like all topics.
    Never,
    Perhaps,
}

/// One of the subjects of a round.
#[derive(Debug)]
pub(super) struct Item<T> {
    pub(super) id: Uuid,
    pub(super) waits: Waits,
    pub(super) subject: T,
}

/// Periodic work, and the work of earlier rounds that has not ended.
pub(super) struct Rounds {
    patience: Duration,
    left_max: usize,
    /// Work in the background, and its subject.
    left: Vec<(Uuid, JoinHandle<()>)>,
}

impl Rounds {
    pub(super) const fn new(patience: Duration, left_max: usize) -> Self {
        Self { patience, left_max, left: Vec::new() }
    }

    /// Runs the work on one subject, which may wait for a disk.
    pub(super) async fn run(&mut self, id: Uuid, work: impl Fn() + Clone + Send + 'static) {
        let (_never_sent, stop) = watch::channel(false);
        let items = vec![Item { id, waits: Waits::Perhaps, subject: () }];
        self.run_all(items, &stop, move |()| work()).await;
    }

    /// Runs the work on all items until `stop` is true. Those that wait for no disk are first.
    /// Items whose earlier work has not ended are omitted. Those that may wait are also omitted
    /// while the maximum is in the background.
    pub(super) async fn run_all<T: Send + 'static>(
        &mut self,
        mut items: Vec<Item<T>>,
        stop: &watch::Receiver<bool>,
        work: impl Fn(&T) + Clone + Send + 'static,
    ) {
        self.forget_ended();
        items.retain(|item| self.left.iter().all(|(left, _)| *left != item.id));
        items.sort_by_key(|item| item.waits);
        let queue = Arc::new(Queue::new(items, stop.clone()));
        loop {
            self.forget_ended();
            let is_full = self.left.len() >= self.left_max;
            let thread = queue.begin_thread(is_full);
            let (taken, work) = (Arc::clone(&queue), work.clone());
            let mut worked = tokio::task::spawn_blocking(move || {
                while let Some(subject) = taken.next_for(thread) {
                    work(&subject);
                }
            });
            if is_full {
                return worked.await.expect("the thread does not panic");
            }
            match queue.watch(&mut worked, self.patience).await {
                Some(id) => self.left.push((id, worked)),
                None => return,
            }
        }
    }

    fn forget_ended(&mut self) {
        self.left.retain(|(_, work)| !work.is_finished());
    }
}

/// Items of a round that are left, for the thread of the round.
struct Queue<T> {
    state: Mutex<State<T>>,
    stop: watch::Receiver<bool>,
}

struct State<T> {
    items: VecDeque<Item<T>>,
    /// Item at which the thread of the round is.
    current: Option<Uuid>,
    /// Number of items that were taken.
    taken_count: u64,
    /// Number of the present thread of the round. Earlier ones end after their item.
    thread: u32,
}

impl<T> Queue<T> {
    fn new(items: Vec<Item<T>>, stop: watch::Receiver<bool>) -> Self {
        let state = State { items: items.into(), current: None, taken_count: 0, thread: 0 };
        Self { state: Mutex::new(state), stop }
    }

    /// Numbers another thread, which takes the place of the one before. Drops the items that may
    /// wait if no more are to be in the background.
    fn begin_thread(&self, is_full: bool) -> u32 {
        let mut state = self.lock();
        if is_full {
            state.items.retain(|item| item.waits == Waits::Never);
        }
        state.thread += 1;
        state.thread
    }

    fn next_for(&self, thread: u32) -> Option<T> {
        let mut state = self.lock();
        if state.thread != thread {
            return None;
        }
        let next = state.items.pop_front().filter(|_| !*self.stop.borrow());
        state.current = next.as_ref().map(|item| item.id);
        state.taken_count += 1;
        next.map(|item| item.subject)
    }

    /// Waits for the thread. Returns the item with which it was busy for all of the patience, or
    /// `None` if the round has ended.
    async fn watch(&self, worked: &mut JoinHandle<()>, patience: Duration) -> Option<Uuid> {
        let mut seen_count = self.lock().taken_count;
        loop {
            if let Ok(ended) = tokio::time::timeout(patience, &mut *worked).await {
                ended.expect("the thread does not panic");
                return None;
            }
            let state = self.lock();
            // The count of a thread's first item may have been seen before the item was taken.
            if state.current.is_some() && state.taken_count == seen_count {
                return state.current;
            }
            seen_count = state.taken_count;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect(NO_PANIC)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    const COUNT: u128 = 2000;
    const TIME_LIMIT: Duration = Duration::from_secs(60);

    fn items() -> Vec<Item<u128>> {
        let waits = |number| if number % 2 == 0 { Waits::Never } else { Waits::Perhaps };
        (0..COUNT)
            .map(|number| Item {
                id: Uuid::from_u128(number),
                waits: waits(number),
                subject: number,
            })
            .collect()
    }

    /// Waits until a list has this many elements.
    async fn wait_for(done: &Mutex<Vec<u128>>, count: usize) {
        let begun = Instant::now();
        while done.lock().expect(NO_PANIC).len() < count {
            assert!(begun.elapsed() < TIME_LIMIT, "the work does not end");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_round_takes_one_thread_and_begins_with_what_never_waits() {
        let mut rounds = Rounds::new(TIME_LIMIT, 4);
        let (_stopping, stop) = watch::channel(false);
        let done = Arc::new(Mutex::new(Vec::new()));
        let tasks = Arc::new(Mutex::new(BTreeSet::new()));
        let (noted, ids) = (Arc::clone(&done), Arc::clone(&tasks));
        let work = move |number: &u128| {
            noted.lock().expect(NO_PANIC).push(*number);
            ids.lock().expect(NO_PANIC).insert(tokio::task::id().to_string());
        };
        rounds.run_all(items(), &stop, work).await;
        let evens_first = (0..COUNT).step_by(2).chain((1..COUNT).step_by(2));
        assert_eq!(*done.lock().expect(NO_PANIC), evens_first.collect::<Vec<_>>());
        assert_eq!(tasks.lock().expect(NO_PANIC).len(), 1);
    }

    #[tokio::test]
    async fn work_that_does_not_end_delays_no_other_and_is_not_begun_twice() {
        const STUCK: u128 = 1001;
        let mut rounds = Rounds::new(Duration::from_millis(100), 1);
        let (_stopping, stop) = watch::channel(false);
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let done = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&done);
        let work = move |number: &u128| {
            if *number == STUCK {
                // Fails once the test has dropped the sender.
                let _ended = released.lock().expect(NO_PANIC).recv();
            }
            noted.lock().expect(NO_PANIC).push(*number);
        };
        let all = usize::try_from(COUNT).expect("few");
        rounds.run_all(items(), &stop, work.clone()).await;
        assert_eq!(rounds.left.len(), 1);
        wait_for(&done, all / 2 + 500).await;
        let first = std::mem::take(&mut *done.lock().expect(NO_PANIC));
        assert!(!first.contains(&STUCK), "it does not end");
        // The place in the background is taken: nothing else may wait.
        rounds.run_all(items(), &stop, work.clone()).await;
        let second = std::mem::take(&mut *done.lock().expect(NO_PANIC));
        assert!(second.iter().all(|number| number % 2 == 0), "{second:?}");
        assert_eq!(second.len(), all / 2);
        drop(release);
        wait_for(&done, 1).await;
        while rounds.left.iter().any(|(_, work)| !work.is_finished()) {
            tokio::task::yield_now().await;
        }
        done.lock().expect(NO_PANIC).clear();
        rounds.run_all(items(), &stop, work).await;
        assert_eq!(done.lock().expect(NO_PANIC).len(), all);
    }
}
