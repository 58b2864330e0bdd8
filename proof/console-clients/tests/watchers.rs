//! Many browsers watch at a time: all are told of changes, and what the console uses is measured.

use anyhow::Result;
use console_clients::{Fixture, has_node};

/// `MEMLANE_WATCHERS` and `MEMLANE_WATCHED_SECONDS` ask for others than 50 watchers for 20 s.
#[test]
fn fifty_browsers_watch() -> Result<()> {
    if !has_node() {
        return Ok(());
    }
    Fixture::start()?.run("watching")
}
