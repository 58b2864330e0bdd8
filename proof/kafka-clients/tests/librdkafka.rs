//! Current librdkafka, from Python: each test runs one scenario of `python/`.

use std::fs::{self, File};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::{Broker, PythonClient, is_skipped};
use rustix::process::Signal;
use system::{Background, Daemon, DaemonOptions, wait_for};

const PROGRAMS: &[&str] = &["python3"];

const TIME_LIMIT: Duration = Duration::from_secs(120);

fn check(scenario: &str) -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let client = PythonClient::fetched()?;
    let broker = Broker::shared()?;
    broker.check(client.scenario(scenario).arg(broker.address()))?;
    Ok(())
}

#[test]
fn records_without_acknowledgement_arrive() -> Result<()> {
    check("producing.acks_0")
}

#[test]
fn records_acknowledged_by_the_leader_are_there() -> Result<()> {
    check("producing.acks_1")
}

#[test]
fn records_acknowledged_by_all_are_there() -> Result<()> {
    check("producing.acks_all")
}

#[test]
fn every_codec_is_read_as_it_was_written() -> Result<()> {
    check("producing.codecs")
}

#[test]
fn keys_headers_and_times_are_kept() -> Result<()> {
    check("producing.parts_of_records")
}

#[test]
fn a_topic_may_have_the_brokers_time() -> Result<()> {
    check("producing.log_append_time")
}

#[test]
fn an_idempotent_producer_writes_each_record_once() -> Result<()> {
    check("producing.idempotent")
}

#[test]
fn a_record_above_the_limit_is_refused_alone() -> Result<()> {
    check("producing.large_records")
}

#[test]
fn metadata_of_no_topic_is_an_error_of_that_topic() -> Result<()> {
    check("producing.unknown_topics")
}

#[test]
fn transactions_are_seen_whole_or_not_at_all() -> Result<()> {
    check("transactions.commit_and_abort")
}

#[test]
fn open_transactions_hold_readers_back() -> Result<()> {
    check("transactions.open_transactions_hold_readers_back")
}

#[test]
fn a_second_producer_fences_the_first() -> Result<()> {
    check("transactions.fencing")
}

#[test]
fn offsets_are_committed_with_the_transaction() -> Result<()> {
    check("transactions.consume_transform_produce")
}

#[test]
fn a_transaction_ends_when_its_time_is_over() -> Result<()> {
    check("transactions.timeouts")
}

#[test]
fn three_members_share_and_lose_nothing() -> Result<()> {
    check("groups.classic_eager")
}

#[test]
fn cooperative_members_share_and_lose_nothing() -> Result<()> {
    check("groups.classic_cooperative")
}

#[test]
fn members_by_the_next_protocol_share_and_lose_nothing() -> Result<()> {
    check("groups.consumer_protocol")
}

#[test]
fn an_eager_group_changes_its_protocol_and_back_and_loses_nothing() -> Result<()> {
    check("groups.eager_group_changes_protocol")
}

#[test]
fn a_cooperative_group_changes_its_protocol_and_back_and_loses_nothing() -> Result<()> {
    check("groups.cooperative_group_changes_protocol")
}

#[test]
fn a_silent_member_loses_its_partitions() -> Result<()> {
    check("groups.dead_members_are_noticed")
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() -> Result<()> {
    check("groups.static_members")
}

#[test]
fn offsets_are_committed_sought_and_found_by_time() -> Result<()> {
    check("groups.commit_seek_replay")
}

#[test]
fn an_offset_that_is_not_there_is_the_clients_choice() -> Result<()> {
    check("groups.offsets_out_of_range")
}

#[test]
fn a_waiting_fetch_ends_with_a_record() -> Result<()> {
    check("groups.long_polls_end_with_a_record")
}

#[test]
fn topics_are_made_grown_and_deleted() -> Result<()> {
    check("admin.topics")
}

#[test]
fn settings_are_described_and_changed() -> Result<()> {
    check("admin.configs")
}

#[test]
fn records_are_deleted_up_to_an_offset() -> Result<()> {
    check("admin.delete_records")
}

#[test]
fn offsets_are_listed_in_each_way() -> Result<()> {
    check("admin.list_offsets")
}

#[test]
fn groups_are_described_changed_and_deleted() -> Result<()> {
    check("admin.consumer_groups")
}

#[test]
fn the_cluster_is_one_node_with_an_id() -> Result<()> {
    check("admin.cluster")
}

/// Runs a scenario on a broker with a daemon, with kills of one, the other and both.
fn check_over_kills(scenario: &str) -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    let mut broker = system::Broker::on_daemon(&daemon.run_dir(), "")?;
    let folder = tempfile::tempdir()?;
    let said = folder.path().join("said");
    let client = PythonClient::fetched()?.scenario(scenario).arg(broker.address());
    let mut client = Background::start(client.output_to(File::create(&said)?)?)?;
    let told = |error: anyhow::Error| {
        error.context(format!("{scenario}: {}", fs::read_to_string(&said).unwrap_or_default()))
    };
    for victim in ["daemon", "broker", "both"] {
        // Each time during activity of clients.
        wait_for("members to write and read", TIME_LIMIT, || {
            ensure!(client.has_ended()?.is_none(), "it has ended before the kill of {victim}");
            let metrics = broker.ask("/metrics")?;
            Ok(["ConsumerGroupHeartbeat", "Produce", "Fetch"]
                .iter()
                .all(|it| metrics.contains(&format!("requests_total{{request=\"{it}\"}}"))))
        })
        .map_err(told)?;
        if victim != "daemon" {
            broker.kill()?;
        }
        if victim != "broker" {
            daemon.kill()?;
            daemon.start_again()?;
        }
        if victim != "daemon" {
            broker.start_again()?;
        }
    }
    client.finish(TIME_LIMIT).map_err(told)?;
    broker.stop()?;
    daemon.finish().context("after all clients have gone")
}

#[test]
fn members_by_the_next_protocol_lose_nothing_over_kills_of_broker_and_daemon() -> Result<()> {
    check_over_kills("groups.consumer_protocol_over_kills")
}

/// Number of restarts in [`a_consumer_at_the_end_misses_nothing_over_restarts`]: half of them are
/// kills.
const RESTARTS: u32 = 8;

/// Variable that overrides this number, for long runs.
const RESTARTS_VARIABLE: &str = "MEMLANE_RESTARTS";

const PARTITIONS: &str = "100";

#[test]
fn a_consumer_at_the_end_misses_nothing_over_restarts() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let restarts = match std::env::var(RESTARTS_VARIABLE) {
        Ok(number) => number.parse().context(RESTARTS_VARIABLE)?,
        Err(_) => RESTARTS,
    };
    let daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "--no-fuse" })?;
    let mut broker = system::Broker::on_daemon(&daemon.run_dir(), "")?;
    let clients = PythonClient::fetched()?;
    let scenario = |name: &str, number: u32| {
        let scenario = clients.scenario(&format!("waiting.{name}")).arg(broker.address());
        scenario.arg("waiting").arg(number.to_string()).arg(PARTITIONS)
    };
    let folder = tempfile::tempdir()?;
    let said = folder.path().join("said");
    let read_rounds = scenario("read_rounds", restarts).output_to(File::create(&said)?)?;
    let writers: Vec<_> = (0..restarts).map(|it| scenario("write_round", it)).collect();
    let mut consumer = Background::start(read_rounds)?;
    let words = || fs::read_to_string(&said).unwrap_or_default();
    for (number, writer) in writers.into_iter().enumerate() {
        wait_for("the consumer to wait", TIME_LIMIT, || {
            ensure!(consumer.has_ended()?.is_none(), "it has ended before restart {number}");
            Ok(words().contains(&format!("waits {number}\n")))
        })
        .with_context(words)?;
        consumer.signal(Signal::STOP)?;
        if number % 2 == 0 {
            broker.kill()?;
        } else {
            broker.stop()?;
        }
        broker.start_again()?;
        writer.check().context("acknowledged before the consumer asks where it is")?;
        consumer.signal(Signal::CONT)?;
    }
    consumer.finish(TIME_LIMIT).with_context(words)?;
    broker.stop()?;
    daemon.finish()
}

/// Clients ignore an epoch below a known one, and each start of a broker begins an epoch: that of a
/// recreated topic must be a later one.
#[test]
fn a_topic_that_is_made_again_after_a_restart_is_read_from_its_start() -> Result<()> {
    const COUNT: &str = "100";
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    let mut broker = system::Broker::on_daemon(&daemon.run_dir(), "")?;
    let clients = PythonClient::fetched()?;
    let scenario = |name: &str, arguments: &[&str]| {
        let scenario = clients.scenario(&format!("groups.{name}")).arg(broker.address());
        scenario.arg("again").args(arguments)
    };
    let (before, after) =
        (scenario("write_topic", &["before", COUNT]), scenario("topic_made_again", &[COUNT]));
    before.check()?;
    broker.kill()?;
    broker.start_again()?;
    after.check()?;
    broker.stop()?;
    daemon.finish()
}
