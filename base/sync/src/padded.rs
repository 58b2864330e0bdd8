//! Padding of values to separate cache lines.

use std::ops::Deref;

/// `T` on separate cache lines (two, because processors prefetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
