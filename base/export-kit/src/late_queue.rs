//! Queue of requests that may block on a disk, for threads that may block.
//!
//! The thread of a connection pushes. Other threads take either all queued requests, for one flush,
//! or one request at a time. The queue needs no limit of its own if the slots of a ring or of the
//! kernel's queue limit the number of requests.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Queue of work for a thread that may block.
#[derive(Debug)]
pub struct LateQueue<T> {
    state: Mutex<State<T>>,
    /// Notified when work was queued or the queue was closed.
    changed: Condvar,
    /// Notified when no work is in progress.
    idle: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// Number of calls of `serve` in progress.
    served_count: usize,
    end: Option<QueueEnd>,
}

/// Treatment of queued work when a queue is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// Queued work is still served.
    Drained,
    /// Queued work is dropped.
    Dropped,
}

impl<T> Default for LateQueue<T> {
    fn default() -> Self {
        let state = State { waiting: VecDeque::new(), served_count: 0, end: None };
        Self { state: Mutex::new(state), changed: Condvar::new(), idle: Condvar::new() }
    }
}

impl<T> LateQueue<T> {
    pub fn push(&self, work: T) {
        self.lock().waiting.push_back(work);
        self.changed.notify_one();
    }

    /// Pushes as [`LateQueue::push`] does, but returns `work` if `count_max` entries are queued.
    pub fn push_bounded(&self, work: T, count_max: usize) -> Result<(), T> {
        let mut state = self.lock();
        if state.waiting.len() >= count_max {
            return Err(work);
        }
        state.waiting.push_back(work);
        self.changed.notify_one();
        Ok(())
    }

    /// Closes the queue: the serving threads end after their current work. A queue that was closed
    /// with [`QueueEnd::Dropped`] keeps that setting.
    pub fn close(&self, end: QueueEnd) {
        let mut state = self.lock();
        if state.end != Some(QueueEnd::Dropped) {
            state.end = Some(end);
        }
        self.changed.notify_all();
    }

    /// Serves queued work one entry at a time with `serve`, until the queue is closed. Several
    /// threads may call this.
    pub fn serve_each(&self, serve: impl FnMut(T)) -> QueueEnd {
        let take = |waiting: &mut VecDeque<T>| waiting.pop_front().expect("something waits");
        self.serve(take, serve)
    }

    /// Serves all queued work at once with `serve`, repeatedly, until the queue is closed.
    pub fn serve_together(&self, serve: impl FnMut(VecDeque<T>)) -> QueueEnd {
        self.serve(mem::take, serve)
    }

    /// Drops queued work. Work in progress continues.
    pub fn clear(&self) {
        self.lock().waiting.clear();
    }

    /// Waits until no work is in progress.
    pub fn wait_until_idle(&self) {
        let is_busy = |state: &mut State<T>| state.served_count > 0;
        drop(self.idle.wait_while(self.lock(), is_busy).expect(NOT_POISONED));
    }

    fn serve<W>(&self, take: impl Fn(&mut VecDeque<T>) -> W, mut serve: impl FnMut(W)) -> QueueEnd {
        let mut state = self.lock();
        loop {
            match state.end {
                Some(QueueEnd::Dropped) => return QueueEnd::Dropped,
                _ if !state.waiting.is_empty() => {
                    let work = take(&mut state.waiting);
                    state.served_count += 1;
                    drop(state);
                    serve(work);
                    state = self.lock();
                    state.served_count -= 1;
                    if state.served_count == 0 {
                        self.idle.notify_all();
                    }
                }
                Some(QueueEnd::Drained) => return QueueEnd::Drained,
                None => state = self.changed.wait(state).expect(NOT_POISONED),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect(NOT_POISONED)
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn what_waits_is_taken_together_or_one_by_one_in_order() {
        let queue = LateQueue::default();
        (1..=3).for_each(|work| queue.push(work));
        queue.close(QueueEnd::Drained);
        let mut batches = Vec::new();
        assert_eq!(queue.serve_together(|batch| batches.push(batch)), QueueEnd::Drained);
        assert_eq!(batches, [[1, 2, 3]]);
        (4..=5).for_each(|work| queue.push(work));
        let mut served = Vec::new();
        assert_eq!(queue.serve_each(|work| served.push(work)), QueueEnd::Drained);
        assert_eq!(served, [4, 5]);
    }

    #[test]
    fn a_queue_that_is_dropped_serves_nothing_more() {
        let queue = LateQueue::default();
        queue.push(1);
        queue.push(2);
        let mut served = Vec::new();
        let end = queue.serve_each(|work| {
            served.push(work);
            queue.close(QueueEnd::Dropped);
            queue.close(QueueEnd::Drained);
        });
        assert_eq!((end, served), (QueueEnd::Dropped, vec![1]));
    }

    #[test]
    fn a_bounded_queue_gives_back_what_is_too_much() {
        let queue = LateQueue::default();
        assert_eq!(queue.push_bounded(1, 1), Ok(()));
        assert_eq!(queue.push_bounded(2, 1), Err(2));
    }

    #[test]
    fn an_idle_queue_is_one_that_serves_nothing_any_more() {
        let queue = LateQueue::default();
        let (begun, has_begun) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                queue.serve_each(|work: u32| {
                    begun.send(()).expect("it is waited for");
                    thread::yield_now();
                    done.send(work).expect("it is looked at");
                })
            });
            queue.push(1);
            has_begun.recv().expect("it begins");
            queue.push(2);
            queue.clear();
            queue.wait_until_idle();
            assert_eq!(is_done.try_recv(), Ok(1));
            queue.close(QueueEnd::Drained);
        });
    }
}
