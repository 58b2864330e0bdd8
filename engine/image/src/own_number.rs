//! Highest number that a claim has taken, for the thread that looks for claims of other writers.
//!
//! A claim takes every number after its own, one after the other, and each creation fails if
//! another writer has the number. So the first claim of another writer has the next number. That
//! manifest stays: its owner keeps it ([`ClaimedStore`](crate::ClaimedStore)), and a fenced writer
//! removes nothing.
//!
//! A writer may itself take the next number, and even remove it again, while it looks. Then the
//! number here differs before and after.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::ImageError;
use crate::store::ImageStore;

/// Highest number that a claim has taken. Clones share it.
#[derive(Clone, Debug)]
pub struct OwnNumber(Arc<Mutex<u32>>);

impl OwnNumber {
    pub(crate) fn new(number: u32) -> Self {
        Self(Arc::new(Mutex::new(number)))
    }

    /// Notes a manifest that the claim has created. Called before anything is removed after it.
    pub(crate) fn set(&self, number: u32) {
        *self.lock() = number;
    }

    pub fn get(&self) -> u32 {
        *self.lock()
    }

    /// Returns whether another writer may have claimed the store before `has_image` was asked about
    /// the number after that of the claim. If it may have, or if that call fails, only a listing
    /// tells.
    pub fn may_be_replaced(
        &self,
        has_image: impl FnOnce(u32) -> Result<bool, ImageError>,
    ) -> Result<bool, ImageError> {
        let own = self.get();
        let is_taken = has_image(own + 1)?;
        Ok(is_taken || self.get() != own)
    }

    /// Returns whether another writer may have claimed the store. Unlike a listing, this is one
    /// short request.
    pub fn may_be_replaced_in(&self, store: &dyn ImageStore) -> Result<bool, ImageError> {
        self.may_be_replaced(|number| store.has_image(number))
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.0.lock().expect("no thread panics with this lock")
    }
}
