//! The chunks that were read last, verified: a touch of one page often brings the next of its leaf.
//!
//! The lock is not held while a chunk is read. A thread that wants a chunk that another reads waits
//! for that one. A chunk that could not be had is not asked for again at once: until then requests
//! for it fail without waiting for the store.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::VerifiedChunk;
use crate::names::ChunkNumber;

/// Chunks kept, of 2 MiB at most.
const CHUNKS_MAX: usize = 8;

/// How long a chunk that could not be had is not asked for: at first, and at most. It doubles with
/// each failure.
const WAIT_MIN: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Failures that are remembered. When there are more, all may be asked for again.
const FAILURES_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct ChunkCache {
    state: Mutex<State>,
    is_loaded: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Last used last.
    ready: Vec<(ChunkNumber, Arc<VerifiedChunk>)>,
    loading: Vec<ChunkNumber>,
    failed: HashMap<ChunkNumber, Failure>,
}

/// Why a chunk could not be had.
#[derive(Debug)]
struct Failure {
    kind: ImageErrorKind,
    cause: String,
    wait: Duration,
    until: Instant,
}

impl ChunkCache {
    /// The chunk, read with `load` if it is not here.
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

    /// The chunk was read past the cache, or could not be.
    pub(crate) fn note(&self, number: ChunkNumber, read: Result<(), &ImageError>) {
        let mut state = self.lock();
        match read {
            Ok(()) => drop(state.failed.remove(&number)),
            Err(error) => state.note_failure(number, error),
        }
    }

    /// All chunks may be asked for again.
    pub(crate) fn forget_failures(&self) {
        self.lock().failed.clear();
    }

    /// Chunks that could not be read for this reason at the last attempt.
    pub(crate) fn failed(&self, kind: ImageErrorKind) -> HashSet<ChunkNumber> {
        let state = self.lock();
        let failed = state.failed.iter().filter(|(_, failure)| failure.kind == kind);
        failed.map(|(number, _)| *number).collect()
    }

    /// Error of the last attempt to read the chunk, if it failed.
    pub(crate) fn cause(&self, number: ChunkNumber) -> Option<String> {
        self.lock().failed.get(&number).map(|failure| failure.cause.clone())
    }

    /// The chunk; or `None`, and it is for the caller to load.
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
