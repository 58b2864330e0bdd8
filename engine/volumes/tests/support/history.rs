//! History of a block's contents while others read it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use model::Block;

/// Maximum number of remembered versions. Slower readers are not checked.
const VERSIONS_MAX: usize = 64;

/// Hashes of the contents of one block, in order.
#[derive(Debug)]
pub(crate) struct History {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Number of the first remembered version.
    first: u64,
    hashes: VecDeque<u64>,
    /// Number of the last acknowledged version.
    done: u64,
}

impl History {
    /// Creates the history of a hole.
    pub(crate) fn new() -> Self {
        let hashes = VecDeque::from([hash(&[0; 4096])]);
        Self { inner: Mutex::new(Inner { first: 0, hashes, done: 0 }) }
    }

    /// Adds contents that the block may have from now on.
    pub(crate) fn begin(&self, contents: &Block) {
        let mut inner = self.lock();
        inner.hashes.push_back(hash(contents));
        if inner.hashes.len() > VERSIONS_MAX {
            inner.hashes.pop_front();
            inner.first += 1;
        }
    }

    /// Records that the block has only the contents begun last.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.done = inner.first + inner.hashes.len() as u64 - 1;
    }

    /// Returns the version that a reader that begins now must see, unless it sees a later one.
    pub(crate) fn done(&self) -> u64 {
        self.lock().done
    }

    /// Returns whether a reader that began when `done` was the last version may see these contents
    /// now.
    pub(crate) fn allows(&self, done: u64, contents: &Block) -> bool {
        let inner = self.lock();
        let Some(skipped) = done.checked_sub(inner.first) else { return true };
        let skipped = usize::try_from(skipped).expect("few versions");
        let seen = hash(contents);
        inner.hashes.iter().skip(skipped).any(|&allowed| allowed == seen)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics with a history locked")
    }
}

fn hash(contents: &Block) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}
