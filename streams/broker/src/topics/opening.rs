//! Topics that are opened beside each other when the broker starts: those whose volumes may wait
//! for a disk. A start goes on without the ones whose disk takes nothing, which are served when it
//! does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shares::Owner;

use super::unserved::List;
use super::{NO_PANIC, OpenTopic, Refusal, Topics, is_half_made, of_storage};
use crate::storage::StoredVolume;

/// Threads that open them; the others wait in turn.
const THREAD_COUNT_MAX: usize = 8;

/// When none was opened for so long, the start goes on.
const PATIENCE: Duration = Duration::from_secs(10);

impl Topics {
    /// Opens topics on threads of their own, and returns when all are open that can be, or none
    /// was for a while.
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

    /// Opens one that waits; `false` where there is none.
    fn open_next(&self) -> bool {
        let Some(next) = self.unserved.lock().open_next() else { return false };
        let name = next.name.clone();
        let opened = self.open_found(next);
        let mut list = self.unserved.lock();
        match opened {
            Ok(Some(topic)) if list.are_late => {
                drop(list);
                // It may have begun before, without knowing of this topic.
                self.meet.wait();
                self.serve_late(topic);
                list = self.unserved.lock();
            }
            // Whoever is told of topics after the start is told of this one.
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

    /// Opens the topic of a volume; `None` where that was not made to the end.
    fn open_found(&self, volume: StoredVolume) -> Result<Option<OpenTopic>, Refusal> {
        let StoredVolume { name, class } = volume;
        if !is_half_made(&name) {
            let topic = self.open_volume(&name)?;
            return self.reconcile(topic, class).map(Some);
        }
        // The broker died while it made the topic, before it said so.
        tracing::info!(volume = name, "deleting a topic whose creation did not finish");
        if let Err(error) = self.storage.delete(&name).map_err(of_storage) {
            tracing::warn!(volume = name, error = error.message, "cannot delete it");
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
