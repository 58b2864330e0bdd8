//! Decoders of `kafka-protocol`, selected by API key.

use kafka_protocol::messages::{self, ApiKey};
use kafka_protocol::protocol::{Decodable, Encodable};

/// Result of decoding a body.
pub(crate) struct Decoded {
    /// Number of bytes that the decoder did not consume.
    pub(crate) left_count: usize,
    /// The decoded request, encoded again.
    pub(crate) encoded: Vec<u8>,
}

macro_rules! decode_by_key {
    ($key:expr, $version:expr, $body:expr, [$($request:ident: $message:ident,)*]) => {
        match $key {
            $(ApiKey::$request => decode_as::<messages::$message>($version, $body),)*
            other => panic!("{other:?} has no decoder here"),
        }
    };
}

/// Decodes a body and encodes the result.
pub(crate) fn decode(api_key: ApiKey, version: i16, body: &[u8]) -> anyhow::Result<Decoded> {
    decode_by_key!(
        api_key,
        version,
        body,
        [
            AddOffsetsToTxn: AddOffsetsToTxnRequest,
            AddPartitionsToTxn: AddPartitionsToTxnRequest,
            AlterClientQuotas: AlterClientQuotasRequest,
            AlterConfigs: AlterConfigsRequest,
            AlterPartitionReassignments: AlterPartitionReassignmentsRequest,
            AlterReplicaLogDirs: AlterReplicaLogDirsRequest,
            AlterUserScramCredentials: AlterUserScramCredentialsRequest,
            ApiVersions: ApiVersionsRequest,
            ConsumerGroupDescribe: ConsumerGroupDescribeRequest,
            ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest,
            CreateAcls: CreateAclsRequest,
            CreatePartitions: CreatePartitionsRequest,
            CreateTopics: CreateTopicsRequest,
            DeleteAcls: DeleteAclsRequest,
            DeleteGroups: DeleteGroupsRequest,
            DeleteRecords: DeleteRecordsRequest,
            DeleteTopics: DeleteTopicsRequest,
            DescribeAcls: DescribeAclsRequest,
            DescribeClientQuotas: DescribeClientQuotasRequest,
            DescribeCluster: DescribeClusterRequest,
            DescribeConfigs: DescribeConfigsRequest,
            DescribeGroups: DescribeGroupsRequest,
            DescribeLogDirs: DescribeLogDirsRequest,
            DescribeProducers: DescribeProducersRequest,
            DescribeQuorum: DescribeQuorumRequest,
            DescribeTopicPartitions: DescribeTopicPartitionsRequest,
            DescribeTransactions: DescribeTransactionsRequest,
            DescribeUserScramCredentials: DescribeUserScramCredentialsRequest,
            ElectLeaders: ElectLeadersRequest,
            EndTxn: EndTxnRequest,
            Fetch: FetchRequest,
            FindCoordinator: FindCoordinatorRequest,
            Heartbeat: HeartbeatRequest,
            IncrementalAlterConfigs: IncrementalAlterConfigsRequest,
            InitProducerId: InitProducerIdRequest,
            JoinGroup: JoinGroupRequest,
            LeaveGroup: LeaveGroupRequest,
            ListConfigResources: ListConfigResourcesRequest,
            ListGroups: ListGroupsRequest,
            ListOffsets: ListOffsetsRequest,
            ListPartitionReassignments: ListPartitionReassignmentsRequest,
            ListTransactions: ListTransactionsRequest,
            Metadata: MetadataRequest,
            OffsetCommit: OffsetCommitRequest,
            OffsetDelete: OffsetDeleteRequest,
            OffsetFetch: OffsetFetchRequest,
            OffsetForLeaderEpoch: OffsetForLeaderEpochRequest,
            Produce: ProduceRequest,
            SaslAuthenticate: SaslAuthenticateRequest,
            SaslHandshake: SaslHandshakeRequest,
            SyncGroup: SyncGroupRequest,
            TxnOffsetCommit: TxnOffsetCommitRequest,
        ]
    )
}

fn decode_as<M: Decodable + Encodable>(version: i16, body: &[u8]) -> anyhow::Result<Decoded> {
    let mut left = body;
    let message = M::decode(&mut left, version)?;
    let mut encoded = Vec::new();
    message.encode(&mut encoded, version)?;
    Ok(Decoded { left_count: left.len(), encoded })
}
