//! Concurrent opening of topics whose volumes may wait for a disk, when the broker starts. The
//! start does not wait for topics whose disk does not respond. They are served later.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shares::Owner;

use super::unserved::List;
use super::{NO_PANIC, OpenTopic, Refusal, Topics, is_half_made, of_storage};
use crate::storage::StoredVolume;

/// Maximum number of threads that open topics.
const THREAD_COUNT_MAX: usize = 8;

/// Time without progress after which the start continues.
const PATIENCE: Duration = Duration::from_secs(10);

impl Topics {
    /// Opens topics on separate threads. Returns when all are opened or have failed, or after a
    /// time without progress.
    pub(super) fn open_beside(self: &Arc<Self>, volumes: Vec<StoredVolume>) -> anyhow::Result<()> {
        let thread_count = volumes.len().min(THREAD_COUNT_MAX);
        self.unserved.lock().queue.extend(volumes);
        for _ in 0..thread_count {
            let topics = Arc::clone(self);
            let open_all = move || while topics.open_next() {};
            let thread = std::thread::Builder::new().name("open-topic".to_owned()).spawn(open_all);
            thread.context("cannot start a thread that opens topics")?;
        }
        let mut list = self.unserved.lock();
        let mut ended_count = list.ended_count;
        while !(list.queue.is_empty() && list.opening.is_empty()) {
            let waited = self.unserved.ended.wait_timeout(list, PATIENCE);
            let (now, timeout) = waited.expect(NO_PANIC);
            list = now;
            if timeout.timed_out() && list.ended_count == ended_count {
                let count = list.queue.len() + list.opening.len();
                tracing::warn!(count, opening = ?list.opening, "topics are not available yet: \
                    opening their volumes takes long; they may wait for a disk");
                break;
            }
            ended_count = list.ended_count;
        }
        list.are_late = true;
        Ok(())
    }

    /// Opens the next queued topic. Returns `false` if there is none.
    fn open_next(&self) -> bool {
        let Some(next) = self.unserved.lock().open_next() else { return false };
        let name = next.name.clone();
        let opened = self.open_found(next);
        let mut list = self.unserved.lock();
        match opened {
            Ok(Some(topic)) if list.are_late => {
                drop(list);
                // The coordinator may have started before without this topic.
                self.meet.wait();
                self.serve_late(topic);
                list = self.unserved.lock();
            }
            // Hooks that are set after the start see this topic among all.
            Ok(Some(topic)) => drop(self.insert(topic, Owner::NOBODY)),
            Ok(None) => {}
            Err(refusal) => {
                tracing::error!(volume = name, error = refusal.message, "cannot open the topic");
                list.failed.push_back(name.clone());
            }
        }
        list.end_opening(&name);
        self.unserved.ended.notify_all();
        true
    }

    /// Opens the topic of a volume. Returns `None` for an incomplete creation.
    fn open_found(&self, volume: StoredVolume) -> Result<Option<OpenTopic>, Refusal> {
        let StoredVolume { name, class } = volume;
        if !is_half_made(&name) {
            let topic = self.open_volume(&name)?;
            return self.reconcile(topic, class).map(Some);
        }
        // The broker died during the creation of the topic, before it replied.
        tracing::info!(volume = name, "deleting a topic whose creation did not finish");
        if let Err(error) = self.storage.delete(&name).map_err(of_storage) {
            tracing::warn!(
                volume = name,
                error = error.message,
                "cannot delete a topic whose creation did not finish"
            );
        }
        Ok(None)
    }
}

impl List {
    fn open_next(&mut self) -> Option<StoredVolume> {
        let next = self.queue.pop_front()?;
        self.opening.push(next.name.clone());
        Some(next)
    }

    fn end_opening(&mut self, volume: &str) {
        self.opening.retain(|it| it != volume);
        self.ended_count += 1;
    }
}
