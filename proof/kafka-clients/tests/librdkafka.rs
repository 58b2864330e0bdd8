//! librdkafka as of today, from Python: each test runs one scenario of `python/`.

use anyhow::Result;
use kafka_clients::{Broker, PythonClient, is_skipped};

const PROGRAMS: &[&str] = &["python3"];

fn check(scenario: &str) -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let client = PythonClient::fetched()?;
    let broker = Broker::shared()?;
    broker.check(client.scenario(scenario).arg(broker.address()))?;
    Ok(())
}

macro_rules! scenarios {
    ($($test:ident: $scenario:literal;)*) => {
        $(
            #[test]
            fn $test() -> Result<()> {
                check($scenario)
            }
        )*
    };
}

scenarios! {
    records_without_acknowledgement_arrive: "producing.acks_0";
    records_acknowledged_by_the_leader_are_there: "producing.acks_1";
    records_acknowledged_by_all_are_there: "producing.acks_all";
    every_codec_is_read_as_it_was_written: "producing.codecs";
    keys_headers_and_times_are_kept: "producing.parts_of_records";
    a_topic_may_have_the_brokers_time: "producing.log_append_time";
    an_idempotent_producer_writes_each_record_once: "producing.idempotent";
    a_record_above_the_limit_is_refused_alone: "producing.large_records";
    metadata_of_no_topic_is_an_error_of_that_topic: "producing.unknown_topics";

    transactions_are_seen_whole_or_not_at_all: "transactions.commit_and_abort";
    open_transactions_hold_readers_back: "transactions.open_transactions_hold_readers_back";
    a_second_producer_fences_the_first: "transactions.fencing";
    offsets_are_committed_with_the_transaction: "transactions.consume_transform_produce";
    a_transaction_ends_when_its_time_is_over: "transactions.timeouts";

    three_members_share_and_lose_nothing: "groups.classic_eager";
    cooperative_members_share_and_lose_nothing: "groups.classic_cooperative";
    members_by_the_next_protocol_share_and_lose_nothing: "groups.consumer_protocol";
    a_silent_member_loses_its_partitions: "groups.dead_members_are_noticed";
    a_static_member_comes_back_without_a_rebalance: "groups.static_members";
    offsets_are_committed_sought_and_found_by_time: "groups.commit_seek_replay";
    an_offset_that_is_not_there_is_the_clients_choice: "groups.offsets_out_of_range";
    a_waiting_fetch_ends_with_a_record: "groups.long_polls_end_with_a_record";

    topics_are_made_grown_and_deleted: "admin.topics";
    settings_are_described_and_changed: "admin.configs";
    records_are_deleted_up_to_an_offset: "admin.delete_records";
    offsets_are_listed_in_each_way: "admin.list_offsets";
    groups_are_described_changed_and_deleted: "admin.consumer_groups";
    the_cluster_is_one_node_with_an_id: "admin.cluster";
}
