//! Descriptions of requests about topics and their records.

use kafka_protocol::messages::ApiKey;

use super::schema::{
    RequestShape, array, bool, bytes, int8, int16, int32, int32s, int64, request, string, strings,
    structure, uuid,
};

pub(super) const TOPIC_REQUESTS: &[RequestShape] = &[
    request(ApiKey::Produce, 3, 13).flexible_since(9).of(&[
        string("transactional_id").or_null(),
        int16("acks"),
        int32("timeout_ms"),
        array("topic_data").of(&[
            string("name").until(12),
            uuid("topic_id").since(13),
            array("partition_data").of(&[int32("index"), bytes("records").or_null()]),
        ]),
    ]),
    request(ApiKey::Fetch, 4, 18).flexible_since(12).of(&[
        string("cluster_id").since(12).or_null().tagged(0),
        int32("replica_id").until(14),
        structure("replica_state")
            .of(&[int32("replica_id"), int64("replica_epoch")])
            .since(15)
            .tagged(1),
        int32("max_wait_ms"),
        int32("min_bytes"),
        int32("max_bytes"),
        int8("isolation_level"),
        int32("session_id").since(7),
        int32("session_epoch").since(7),
        array("topics").of(&[
            string("topic").until(12),
            uuid("topic_id").since(13),
            array("partitions").of(&[
                int32("partition"),
                int32("current_leader_epoch").since(9),
                int64("fetch_offset"),
                int32("last_fetched_epoch").since(12),
                int64("log_start_offset").since(5),
                int32("partition_max_bytes"),
                uuid("replica_directory_id").since(17).tagged(0),
                int64("high_watermark").since(18).tagged(1),
            ]),
        ]),
        array("forgotten_topics_data").since(7).of(&[
            string("topic").until(12),
            uuid("topic_id").since(13),
            int32s("partitions"),
        ]),
        string("rack_id").since(11),
    ]),
    request(ApiKey::ListOffsets, 1, 10).flexible_since(6).of(&[
        int32("replica_id"),
        int8("isolation_level").since(2),
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[
                int32("partition_index"),
                int32("current_leader_epoch").since(4),
                int64("timestamp"),
            ]),
        ]),
        int32("timeout_ms").since(10),
    ]),
    request(ApiKey::Metadata, 0, 13).flexible_since(9).of(&[
        array("topics")
            .of(&[uuid("topic_id").since(10), string("name").or_null_since(10)])
            .or_null_since(1),
        bool("allow_auto_topic_creation").since(4),
        bool("include_cluster_authorized_operations").since(8).until(10),
        bool("include_topic_authorized_operations").since(8),
    ]),
    request(ApiKey::CreateTopics, 2, 7).flexible_since(5).of(&[
        array("topics").of(&[
            string("name"),
            int32("num_partitions"),
            int16("replication_factor"),
            array("assignments").of(&[int32("partition_index"), int32s("broker_ids")]),
            array("configs").of(&[string("name"), string("value").or_null()]),
        ]),
        int32("timeout_ms"),
        bool("validate_only"),
    ]),
    request(ApiKey::DeleteTopics, 1, 6).flexible_since(4).of(&[
        array("topics").since(6).of(&[string("name").or_null(), uuid("topic_id")]),
        strings("topic_names").until(5),
        int32("timeout_ms"),
    ]),
    request(ApiKey::CreatePartitions, 0, 3).flexible_since(2).of(&[
        array("topics").of(&[
            string("name"),
            int32("count"),
            array("assignments").of(&[int32s("broker_ids")]).or_null(),
        ]),
        int32("timeout_ms"),
        bool("validate_only"),
    ]),
    request(ApiKey::DeleteRecords, 0, 2).flexible_since(2).of(&[
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[int32("partition_index"), int64("offset")]),
        ]),
        int32("timeout_ms"),
    ]),
    request(ApiKey::OffsetForLeaderEpoch, 2, 4).flexible_since(4).of(&[
        int32("replica_id").since(3),
        array("topics").of(&[
            string("topic"),
            array("partitions").of(&[
                int32("partition"),
                int32("current_leader_epoch"),
                int32("leader_epoch"),
            ]),
        ]),
    ]),
    request(ApiKey::DescribeProducers, 0, 0)
        .flexible_since(0)
        .of(&[array("topics").of(&[string("name"), int32s("partition_indexes")])]),
    request(ApiKey::DescribeTopicPartitions, 0, 0).flexible_since(0).of(&[
        array("topics").of(&[string("name")]),
        int32("response_partition_limit"),
        structure("cursor").of(&[string("topic_name"), int32("partition_index")]).or_null(),
    ]),
    request(ApiKey::ListPartitionReassignments, 0, 0).flexible_since(0).of(&[
        int32("timeout_ms"),
        array("topics").of(&[string("name"), int32s("partition_indexes")]).or_null(),
    ]),
    request(ApiKey::ElectLeaders, 0, 2).flexible_since(2).of(&[
        int8("election_type").since(1),
        array("topic_partitions").of(&[string("topic"), int32s("partitions")]).or_null(),
        int32("timeout_ms"),
    ]),
    request(ApiKey::AlterPartitionReassignments, 0, 1).flexible_since(0).of(&[
        int32("timeout_ms"),
        bool("allow_replication_factor_change").since(1),
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[int32("partition_index"), int32s("replicas").or_null()]),
        ]),
    ]),
    request(ApiKey::AlterReplicaLogDirs, 1, 2).flexible_since(2).of(&[array("dirs")
        .of(&[string("path"), array("topics").of(&[string("name"), int32s("partitions")])])]),
];
