//! Values that do not share a cache line with their neighbours.

use std::ops::Deref;

/// `T` on cache lines of its own (two, because processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
