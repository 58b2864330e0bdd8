//! A JSON response that is formatted once for all clients.

use std::sync::{Mutex, PoisonError};

use axum::body::Bytes;
use serde::Serialize;

/// The latest list as JSON.
#[derive(Debug)]
pub(crate) struct Told(Mutex<Bytes>);

impl Default for Told {
    fn default() -> Self {
        Self(Mutex::new(Bytes::from_static(b"[]")))
    }
}

impl Told {
    pub(super) fn tell(&self, list: &[impl Serialize]) {
        let text = serde_json::to_vec(list).expect("names and numbers are JSON");
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text.into();
    }

    pub(crate) fn written(&self) -> Bytes {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
