//! Messages of the node service.

use std::collections::BTreeMap;

use prost::Message;

use super::{CapacityRange, Topology, VolumeCapability};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StageRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) publish_context: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) volume_context: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnstageRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) staging_target_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PublishRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) publish_context: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
    #[prost(string, tag = "4")]
    pub(crate) target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub(crate) readonly: bool,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(crate) volume_context: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnpublishRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) target_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatsRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_path: String,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatsAnswer {
    #[prost(message, repeated, tag = "1")]
    pub(crate) usage: Vec<Usage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Usage {
    #[prost(int64, tag = "1")]
    pub(crate) available: i64,
    #[prost(int64, tag = "2")]
    pub(crate) total: i64,
    #[prost(int64, tag = "3")]
    pub(crate) used: i64,
    #[prost(int32, tag = "4")]
    pub(crate) unit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeExpandRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_path: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) capacity_range: Option<CapacityRange>,
    #[prost(string, tag = "4")]
    pub(crate) staging_target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) volume_capability: Option<VolumeCapability>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeExpandAnswer {
    #[prost(int64, tag = "1")]
    pub(crate) capacity_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeInfo {
    #[prost(string, tag = "1")]
    pub(crate) node_id: String,
    #[prost(int64, tag = "2")]
    pub(crate) max_volumes_per_node: i64,
    #[prost(message, optional, tag = "3")]
    pub(crate) accessible_topology: Option<Topology>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeHealthRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_publish_path: String,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
}
