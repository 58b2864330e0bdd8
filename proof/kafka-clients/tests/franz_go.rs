//! franz-go: each test runs one scenario of `go/`.

use anyhow::Result;
use kafka_clients::{Broker, GoClient, is_skipped};

const PROGRAMS: &[&str] = &["go"];

fn check(scenario: &str) -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let client = GoClient::fetched()?;
    let broker = Broker::shared()?;
    broker.check(client.scenario(scenario).arg(broker.address()))?;
    Ok(())
}

#[test]
fn every_codec_is_read_as_it_was_written() -> Result<()> {
    check("produce")
}

#[test]
fn two_members_share_and_lose_nothing() -> Result<()> {
    check("groups")
}

#[test]
fn members_by_the_next_protocol_share_and_lose_nothing() -> Result<()> {
    check("groups-next")
}

#[test]
fn records_and_offsets_change_together_or_not_at_all() -> Result<()> {
    check("transform")?;
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    Broker::shared()?.check_transactions_begin_with_records()
}

#[test]
fn topics_settings_groups_and_records_are_administered() -> Result<()> {
    check("admin")
}
