//! Identity of the driver, and its registration with the kubelet.

use std::collections::BTreeMap;

use prost::Message;

/// A request that says nothing.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) vendor_version: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) manifest: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginCapabilities {
    #[prost(message, repeated, tag = "1")]
    pub(crate) capabilities: Vec<PluginCapability>,
}

/// One of both is there.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) service: Option<Kind>,
    #[prost(message, optional, tag = "2")]
    pub(crate) volume_expansion: Option<Kind>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Kind {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Readiness {
    #[prost(message, optional, tag = "1")]
    pub(crate) ready: Option<Flag>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Flag {
    #[prost(bool, tag = "1")]
    pub(crate) value: bool,
}

/// Answer to the kubelet of where and what the driver is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Registration {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub(crate) plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}
