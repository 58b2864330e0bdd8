//! Contents of a block while others were reading it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use model::Block;

/// Versions that are remembered: readers that are slower are not judged.
const VERSIONS_MAX: usize = 64;

/// The contents of one block, in order, by their hashes.
#[derive(Debug)]
pub(crate) struct History {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The number of the first remembered version.
    first: u64,
    hashes: VecDeque<u64>,
    /// The last version that was acknowledged.
    done: u64,
}

impl History {
    /// A hole.
    pub(crate) fn new() -> Self {
        let hashes = VecDeque::from([hash(&[0; 4096])]);
        Self { inner: Mutex::new(Inner { first: 0, hashes, done: 0 }) }
    }

    /// The block may have these contents from now on.
    pub(crate) fn begin(&self, contents: &Block) {
        let mut inner = self.lock();
        inner.hashes.push_back(hash(contents));
        if inner.hashes.len() > VERSIONS_MAX {
            inner.hashes.pop_front();
            inner.first += 1;
        }
    }

    /// The block has the contents that were begun last, and no others.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.done = inner.first + inner.hashes.len() as u64 - 1;
    }

    /// The last version that a reader that begins now must see, or a later one.
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
