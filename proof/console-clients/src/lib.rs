//! A real browser on the pages of `memlane-console`, with a real daemon behind it.
//!
//! What it does on them is in `browser/`, by Playwright; here is what it needs: the built page,
//! the daemon, the console, and somebody who writes to volumes and kills the daemon when a
//! scenario asks for it. Packages come from the npm registry in the versions and with the hashes
//! of the lock files.
#![forbid(unsafe_code)]

mod fixture;
mod packages;
mod scenario;

pub use fixture::Fixture;
pub use packages::{browser, page, page_sources};

/// Returns whether what builds and checks the page is there; a test that misses it says so.
pub fn has_node() -> bool {
    !kafka_clients::is_skipped(&["node", "npm"])
}

/// Returns whether there is a browser besides.
pub fn has_browser() -> bool {
    !kafka_clients::is_skipped(&["node", "npm", "chromium"])
}
