//! Descriptions of requests about consumer groups and committed offsets.

use kafka_protocol::messages::ApiKey;

use super::schema::{
    RequestShape, array, bool, bytes, int8, int32, int32s, int64, request, string, strings, uuid,
};

pub(super) const GROUP_REQUESTS: &[RequestShape] = &[
    request(ApiKey::OffsetCommit, 2, 9).flexible_since(8).of(&[
        string("group_id"),
        int32("generation_id_or_member_epoch"),
        string("member_id"),
        string("group_instance_id").since(7).or_null(),
        int64("retention_time_ms").until(4),
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[
                int32("partition_index"),
                int64("committed_offset"),
                int32("committed_leader_epoch").since(6),
                string("committed_metadata").or_null(),
            ]),
        ]),
    ]),
    request(ApiKey::OffsetFetch, 1, 9).flexible_since(6).of(&[
        string("group_id").until(7),
        array("topics")
            .of(&[string("name"), int32s("partition_indexes")])
            .until(7)
            .or_null_since(2),
        array("groups").since(8).of(&[
            string("group_id"),
            string("member_id").since(9).or_null(),
            int32("member_epoch").since(9),
            array("topics").of(&[string("name"), int32s("partition_indexes")]).or_null(),
        ]),
        bool("require_stable").since(7),
    ]),
    request(ApiKey::FindCoordinator, 0, 6).flexible_since(3).of(&[
        string("key").until(3),
        int8("key_type").since(1),
        strings("coordinator_keys").since(4),
    ]),
    request(ApiKey::JoinGroup, 0, 9).flexible_since(6).of(&[
        string("group_id"),
        int32("session_timeout_ms"),
        int32("rebalance_timeout_ms").since(1),
        string("member_id"),
        string("group_instance_id").since(5).or_null(),
        string("protocol_type"),
        array("protocols").of(&[string("name"), bytes("metadata")]),
        string("reason").since(8).or_null(),
    ]),
    request(ApiKey::Heartbeat, 0, 4).flexible_since(4).of(&[
        string("group_id"),
        int32("generation_id"),
        string("member_id"),
        string("group_instance_id").since(3).or_null(),
    ]),
    request(ApiKey::LeaveGroup, 0, 5).flexible_since(4).of(&[
        string("group_id"),
        string("member_id").until(2),
        array("members").since(3).of(&[
            string("member_id"),
            string("group_instance_id").or_null(),
            string("reason").since(5).or_null(),
        ]),
    ]),
    request(ApiKey::SyncGroup, 0, 5).flexible_since(4).of(&[
        string("group_id"),
        int32("generation_id"),
        string("member_id"),
        string("group_instance_id").since(3).or_null(),
        string("protocol_type").since(5).or_null(),
        string("protocol_name").since(5).or_null(),
        array("assignments").of(&[string("member_id"), bytes("assignment")]),
    ]),
    request(ApiKey::DescribeGroups, 0, 6)
        .flexible_since(5)
        .of(&[strings("groups"), bool("include_authorized_operations").since(3)]),
    request(ApiKey::ListGroups, 0, 5)
        .flexible_since(3)
        .of(&[strings("states_filter").since(4), strings("types_filter").since(5)]),
    request(ApiKey::DeleteGroups, 0, 2).flexible_since(2).of(&[strings("groups_names")]),
    request(ApiKey::OffsetDelete, 0, 0).of(&[
        string("group_id"),
        array("topics").of(&[string("name"), array("partitions").of(&[int32("partition_index")])]),
    ]),
    request(ApiKey::ConsumerGroupHeartbeat, 0, 1).flexible_since(0).of(&[
        string("group_id"),
        string("member_id"),
        int32("member_epoch"),
        string("instance_id").or_null(),
        string("rack_id").or_null(),
        int32("rebalance_timeout_ms"),
        strings("subscribed_topic_names").or_null(),
        string("subscribed_topic_regex").since(1).or_null(),
        string("server_assignor").or_null(),
        array("topic_partitions").of(&[uuid("topic_id"), int32s("partitions")]).or_null(),
    ]),
    request(ApiKey::ConsumerGroupDescribe, 0, 1)
        .flexible_since(0)
        .of(&[strings("group_ids"), bool("include_authorized_operations")]),
];
