//! Resizing of the pool while it is in use.
//!
//! A pool grows at once. To shrink it, walks over all maps empty the slabs past the new end, as
//! evacuation does. The new size takes effect when nothing is left there. Requests continue, and
//! their new pages are stored in slabs before the end.

use std::ops::ControlFlow;
use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

use page_store::{Leaving, ResizeError, ResizeErrorKind};
use region::RegionError;

use crate::admin::engine::Engine;
use crate::walks::evacuation::Evacuation;
use crate::walks::node_moves::NodeMoves;

/// Number of walks without progress before a shrink is given up, and the pause after each. Readers,
/// captures and copies that are being given up delay the freeing of pages and nodes.
const IDLE_ROUNDS_MAX: u32 = 100;
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// Number of leaves whose nodes one step checks, and limits on the freeing of deleted maps.
const LEAVES_A_STEP: u64 = 64;
const NODES_A_STEP: usize = 256;
const DROPS_MAX: usize = 1 << 20;

/// Progress of a resize of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeProgress {
    /// Target size of the pool.
    pub size_bytes: u64,
    /// Memory past the new end that is still in use.
    pub left_bytes: u64,
}

impl Engine {
    /// Size of the pool in bytes, including memory that is still to be taken from the host.
    pub fn size_bytes(&self) -> u64 {
        self.pool.store.size_bytes()
    }

    /// Maximum size of the pool in bytes, fixed when the pool was created.
    pub fn capacity_bytes(&self) -> u64 {
        self.pool.store.capacity_bytes()
    }

    /// Takes a part of the pool's memory from the host, which takes some milliseconds. Returns
    /// `false` when no part is left that no other thread is taking. Any number of threads may call
    /// it. Without these calls writers take memory as they need it.
    pub fn take_memory(&self) -> Result<bool, RegionError> {
        let result = self.pool.store.take_memory();
        let shortage = match &result {
            Ok(true) => None,
            Ok(false) => return result,
            Err(error) => Some(error.to_string()),
        };
        *self.lock_shortage() = shortage;
        result
    }

    /// Bytes of the pool's size that are not yet taken from the host: see [`Engine::take_memory`].
    pub fn untaken_bytes(&self) -> u64 {
        self.pool.store.untaken_bytes()
    }

    /// Bytes of memory that are taken from the host and free.
    pub fn ready_bytes(&self) -> u64 {
        self.pool.store.ready_bytes()
    }

    /// Reason for which the host refuses memory for the pool, while it does. Writes that need it
    /// fail for lack of space until the host has memory again.
    pub fn memory_shortage(&self) -> Option<String> {
        self.lock_shortage().clone().filter(|_| self.untaken_bytes() > 0)
    }

    fn lock_shortage(&self) -> MutexGuard<'_, Option<String>> {
        self.memory_shortage.lock().expect("nothing panics with it locked")
    }

    /// Resizes the pool to a multiple of 2 MiB. Growing takes the memory at once or fails.
    /// Shrinking moves the pages and nodes past the new end, and takes as long as that needs.
    /// Before each step it calls `watch`, which may cancel it. On failure or cancellation the pool
    /// keeps its size. After a kill the pool has the old size or the new one.
    pub fn set_size(
        &self,
        size_bytes: u64,
        watch: &mut dyn FnMut(ResizeProgress) -> ControlFlow<()>,
    ) -> Result<(), ResizeError> {
        let _resizing = self.resizing.lock().expect("a panic while resizing ends the process");
        let store = &self.pool.store;
        if size_bytes >= store.size_bytes() {
            return store.grow(size_bytes);
        }
        // The counts of the last opening refer to slabs and nodes by their former positions.
        self.end_leak_check();
        {
            let mut maintenance = self.maintenance();
            maintenance.is_shrinking = true;
            maintenance.stop(&self.space);
        }
        let result = self.shrink(size_bytes, watch);
        self.maintenance().is_shrinking = false;
        result
    }

    fn shrink(
        &self,
        size_bytes: u64,
        watch: &mut dyn FnMut(ResizeProgress) -> ControlFlow<()>,
    ) -> Result<(), ResizeError> {
        let store = &self.pool.store;
        let leaving = store.begin_shrinking(size_bytes)?;
        if leaving.dropped_index() {
            self.maintenance().refill_index();
        }
        let mut idle_rounds = 0;
        let mut left_bytes = store.leaving_bytes(&leaving);
        while left_bytes > 0 && idle_rounds < IDLE_ROUNDS_MAX {
            let mut progress = |left_bytes| watch(ResizeProgress { size_bytes, left_bytes });
            if self.empty_leaving(&leaving, &mut progress).is_break() {
                store.cancel_shrinking(leaving);
                let kind = ResizeErrorKind::Cancelled;
                return Err(ResizeError { kind, asked_bytes: size_bytes, source: None });
            }
            let left_before = std::mem::replace(&mut left_bytes, store.leaving_bytes(&leaving));
            let is_idle = left_bytes > 0 && left_bytes >= left_before;
            idle_rounds = if is_idle { idle_rounds + 1 } else { 0 };
            if is_idle {
                thread::sleep(IDLE_PAUSE);
            }
        }
        store.end_shrinking(leaving)
    }

    /// Walks over all maps twice: once for the pages, once for the nodes.
    fn empty_leaving(
        &self,
        leaving: &Leaving,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let store = &self.pool.store;
        let mut evacuation = Evacuation::of_leaving(self.space.maps.all());
        let mut result = progress(store.leaving_bytes(leaving));
        while result.is_continue() && evacuation.step() {
            result = progress(store.leaving_bytes(leaving));
        }
        evacuation.end(&self.pool);
        if result.is_continue() {
            let mut progress = || progress(store.leaving_bytes(leaving));
            result = self.move_nodes(&mut progress);
        }
        store.wait_for_readers();
        // The rest is left to the next walk.
        let _dropped = (0..DROPS_MAX).take_while(|_| store.reclaim_deferred(NODES_A_STEP)).count();
        store.reclaim();
        result
    }

    fn move_nodes(&self, progress: &mut dyn FnMut() -> ControlFlow<()>) -> ControlFlow<()> {
        let all = || self.space.maps.all();
        let mut moves = NodeMoves::new(&self.pool, &all);
        let mut result = ControlFlow::Continue(());
        for map in all() {
            let mut next = Some(0);
            while let Some(from) = next.filter(|_| result.is_continue()) {
                next = moves.move_next_leaf(&map, from);
                if from % LEAVES_A_STEP == 0 {
                    result = progress();
                }
            }
            if result.is_continue() {
                moves.move_inner_nodes(&map);
            }
        }
        moves.end();
        result
    }
}
