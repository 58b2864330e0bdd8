//! The daemon and the console are killed while a browser shows a page.

use anyhow::Result;
use console_clients::{Fixture, has_browser};

#[test]
fn the_page_recovers_from_a_killed_daemon_and_a_killed_console() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    Fixture::with_administrator()?.run("recovery")
}
