//! A real browser on the pages of `memlane-console`, with a real daemon behind it.
//!
//! Scenarios for the browser are in `browser/`, with Playwright. This crate provides what they
//! need: the built page, the daemon, the console, and clients that write to volumes and kill the
//! daemon on request. Packages come from the npm registry in the versions and with the hashes of
//! the lock files.
#![forbid(unsafe_code)]

mod fixture;
mod packages;
mod scenario;

pub use fixture::Fixture;
pub use packages::{browser, page, page_sources};

/// Returns whether the programs that build and check the page are installed. A test without them
/// reports a skip.
pub fn has_node() -> bool {
    !kafka_clients::is_skipped(&["node", "npm"])
}

/// Returns whether a browser is installed, too.
pub fn has_browser() -> bool {
    !kafka_clients::is_skipped(&["node", "npm", "chromium"])
}
