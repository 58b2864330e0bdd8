//! Pool of buffers for reading logs. They are large, and few are in use at a time.

use std::sync::Mutex;

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum number of buffers in the pool, and their maximum size.
const KEPT_COUNT_MAX: usize = 32;
const KEPT_BYTES_MAX: usize = 2 << 20;

#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Returns a buffer of any length and contents.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().expect(NO_PANIC).pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock().expect(NO_PANIC);
        if kept.len() < KEPT_COUNT_MAX && buffer.capacity() <= KEPT_BYTES_MAX {
            kept.push(buffer);
        }
    }
}
