//! The chunks that were read last, verified: a touch of one page often brings the next of its leaf.
//!
//! The lock is not held while a chunk is read. Who wants a chunk that another thread reads waits
//! for that one.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::chunk_reader::VerifiedChunk;
use crate::error::ImageError;
use crate::names::ChunkNumber;

/// Chunks kept, of 2 MiB at most.
const CHUNKS_MAX: usize = 8;

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
}

impl ChunkCache {
    /// The chunk, read with `load` if it is not here.
    pub(crate) fn get(
        &self,
        number: ChunkNumber,
        load: impl FnOnce() -> Result<VerifiedChunk, ImageError>,
    ) -> Result<Arc<VerifiedChunk>, ImageError> {
        if let Some(chunk) = self.find_or_begin(number) {
            return Ok(chunk);
        }
        let loaded = load().map(Arc::new);
        let mut state = self.lock();
        state.loading.retain(|known| *known != number);
        if let Ok(chunk) = &loaded {
            if state.ready.len() == CHUNKS_MAX {
                state.ready.remove(0);
            }
            state.ready.push((number, Arc::clone(chunk)));
        }
        self.is_loaded.notify_all();
        loaded
    }

    /// The chunk; or `None`, and it is for the caller to load.
    fn find_or_begin(&self, number: ChunkNumber) -> Option<Arc<VerifiedChunk>> {
        let mut state = self.lock();
        loop {
            if let Some(place) = state.ready.iter().position(|(known, _)| *known == number) {
                let found = state.ready.remove(place);
                let chunk = Arc::clone(&found.1);
                state.ready.push(found);
                return Some(chunk);
            }
            if !state.loading.contains(&number) {
                state.loading.push(number);
                return None;
            }
            state = self.is_loaded.wait(state).expect("nobody panics with the cache locked");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the cache locked")
    }
}
