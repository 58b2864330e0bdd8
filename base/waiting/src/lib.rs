//! The one way to wait for work: spin while traffic is recent, then block.
#![forbid(unsafe_code)]
