//! Descriptions of requests about transactions and producer ids.

use kafka_protocol::messages::ApiKey;

use super::schema::{
    RequestShape, array, bool, int16, int32, int32s, int64, int64s, request, string, strings,
};

pub(super) const TRANSACTION_REQUESTS: &[RequestShape] = &[
    request(ApiKey::InitProducerId, 0, 5).flexible_since(2).of(&[
        string("transactional_id").or_null(),
        int32("transaction_timeout_ms"),
        int64("producer_id").since(3),
        int16("producer_epoch").since(3),
    ]),
    request(ApiKey::AddPartitionsToTxn, 0, 5).flexible_since(3).of(&[
        array("transactions").since(4).of(&[
            string("transactional_id"),
            int64("producer_id"),
            int16("producer_epoch"),
            bool("verify_only"),
            array("topics").of(&[string("name"), int32s("partitions")]),
        ]),
        string("v3_and_below_transactional_id").until(3),
        int64("v3_and_below_producer_id").until(3),
        int16("v3_and_below_producer_epoch").until(3),
        array("v3_and_below_topics").until(3).of(&[string("name"), int32s("partitions")]),
    ]),
    request(ApiKey::AddOffsetsToTxn, 0, 4).flexible_since(3).of(&[
        string("transactional_id"),
        int64("producer_id"),
        int16("producer_epoch"),
        string("group_id"),
    ]),
    request(ApiKey::EndTxn, 0, 5).flexible_since(3).of(&[
        string("transactional_id"),
        int64("producer_id"),
        int16("producer_epoch"),
        bool("committed"),
    ]),
    request(ApiKey::TxnOffsetCommit, 0, 5).flexible_since(3).of(&[
        string("transactional_id"),
        string("group_id"),
        int64("producer_id"),
        int16("producer_epoch"),
        int32("generation_id").since(3),
        string("member_id").since(3),
        string("group_instance_id").since(3).or_null(),
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[
                int32("partition_index"),
                int64("committed_offset"),
                int32("committed_leader_epoch").since(2),
                string("committed_metadata").or_null(),
            ]),
        ]),
    ]),
    request(ApiKey::DescribeTransactions, 0, 0)
        .flexible_since(0)
        .of(&[strings("transactional_ids")]),
    request(ApiKey::ListTransactions, 0, 2).flexible_since(0).of(&[
        strings("state_filters"),
        int64s("producer_id_filters"),
        int64("duration_filter").since(1),
        string("transactional_id_pattern").since(2).or_null(),
    ]),
];
