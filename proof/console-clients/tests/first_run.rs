//! The guide after the set-up in a browser, with a daemon whose only volumes are those of a broker.

use anyhow::Result;
use console_clients::{Fixture, has_browser};

#[test]
fn a_guide_leads_to_the_first_volume_and_goes_when_nobody_wants_it() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    Fixture::with_broker()?.run("first_run")
}
