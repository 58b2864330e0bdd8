//! The first screen in a browser, with a real broker on a real daemon.

use anyhow::Result;
use console_clients::{Fixture, has_browser};

#[test]
fn the_first_screen_tells_health_first_and_keeps_what_was_told_last() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    Fixture::with_broker()?.run("overview")
}
