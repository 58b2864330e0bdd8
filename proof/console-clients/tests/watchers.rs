//! Many concurrent browsers: all are notified of changes, and the console's resources are measured.

use anyhow::Result;
use console_clients::{Fixture, has_node};

/// `MEMLANE_WATCHERS` and `MEMLANE_WATCHED_SECONDS` override the 50 watchers and 20 s.
#[test]
fn fifty_browsers_watch() -> Result<()> {
    if !has_node() {
        return Ok(());
    }
    Fixture::start()?.run("watching")
}
