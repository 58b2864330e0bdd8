//! Cache of recently read, verified chunks. A fault of one page is often followed by faults in the
//! same leaf.
//!
//! The lock is not held while a chunk is read. A thread that wants a chunk being read by another
//! waits for it. A chunk that could not be read is not retried for a while: until then requests
//! fail without accessing the store.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::VerifiedChunk;
use crate::names::ChunkNumber;

/// Number of cached chunks, each at most 2 MiB.
const CHUNKS_MAX: usize = 8;

/// Minimum and maximum time without retries after a failed read. It doubles with each failure.
const WAIT_MIN: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Maximum number of remembered failures. Beyond it all are forgotten.
const FAILURES_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct ChunkCache {
    state: Mutex<State>,
    is_loaded: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// In LRU order, the most recently used last.
    ready: Vec<(ChunkNumber, Arc<VerifiedChunk>)>,
    loading: Vec<ChunkNumber>,
    failed: HashMap<ChunkNumber, Failure>,
}

/// Failed read of a chunk.
#[derive(Debug)]
struct Failure {
    kind: ImageErrorKind,
    cause: String,
    wait: Duration,
    until: Instant,
}

impl ChunkCache {
    /// Returns the chunk, reading it with `load` on a miss.
    pub(crate) fn get(
        &self,
        number: ChunkNumber,
        load: impl FnOnce() -> Result<VerifiedChunk, ImageError>,
    ) -> Result<Arc<VerifiedChunk>, ImageError> {
        if let Some(chunk) = self.find_or_begin(number)? {
            return Ok(chunk);
        }
        let loaded = load().map(Arc::new);
        let mut state = self.lock();
        state.loading.retain(|known| *known != number);
        match &loaded {
            Ok(chunk) => {
                if state.ready.len() == CHUNKS_MAX {
                    state.ready.remove(0);
                }
                state.ready.push((number, Arc::clone(chunk)));
                state.failed.remove(&number);
            }
            Err(error) => state.note_failure(number, error),
        }
        self.is_loaded.notify_all();
        loaded
    }

    /// Records that the chunk was read without the cache, or that this failed.
    pub(crate) fn note(&self, number: ChunkNumber, read: Result<(), &ImageError>) {
        let mut state = self.lock();
        match read {
            Ok(()) => drop(state.failed.remove(&number)),
            Err(error) => state.note_failure(number, error),
        }
    }

    /// Forgets failures, so that all chunks may be retried.
    pub(crate) fn forget_failures(&self) {
        self.lock().failed.clear();
    }

    /// Returns chunks whose last read failed with this kind.
    pub(crate) fn failed(&self, kind: ImageErrorKind) -> HashSet<ChunkNumber> {
        let state = self.lock();
        let failed = state.failed.iter().filter(|(_, failure)| failure.kind == kind);
        failed.map(|(number, _)| *number).collect()
    }

    /// Returns the error of the last attempt to read the chunk, if it failed.
    pub(crate) fn cause(&self, number: ChunkNumber) -> Option<String> {
        self.lock().failed.get(&number).map(|failure| failure.cause.clone())
    }

    /// Returns the cached chunk, or `None` if the caller must load it.
    fn find_or_begin(&self, number: ChunkNumber) -> Result<Option<Arc<VerifiedChunk>>, ImageError> {
        let mut state = self.lock();
        loop {
            if let Some(place) = state.ready.iter().position(|(known, _)| *known == number) {
                let found = state.ready.remove(place);
                let chunk = Arc::clone(&found.1);
                state.ready.push(found);
                return Ok(Some(chunk));
            }
            if let Some(failure) = state.failed.get(&number)
                && Instant::now() < failure.until
            {
                let error = ImageError::new(failure.kind, format!("read {number}"));
                return Err(error.with_source(failure.cause.clone()));
            }
            if !state.loading.contains(&number) {
                state.loading.push(number);
                return Ok(None);
            }
            state = self.is_loaded.wait(state).expect("no thread panics with the cache locked");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the cache locked")
    }
}

impl State {
    fn note_failure(&mut self, number: ChunkNumber, error: &ImageError) {
        let before = self.failed.remove(&number).map(|failure| failure.wait);
        if self.failed.len() >= FAILURES_MAX {
            self.failed.clear();
        }
        let wait = before.map_or(WAIT_MIN, |wait| (wait * 2).min(WAIT_MAX));
        let failure = Failure {
            kind: error.kind,
            cause: error.to_string(),
            wait,
            until: Instant::now() + wait,
        };
        self.failed.insert(number, failure);
    }
}
