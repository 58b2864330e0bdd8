//! Messages of the identity service and of the registration with the kubelet.

use std::collections::BTreeMap;

use prost::Message;

/// An empty message.
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

/// Exactly one field is set.
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

/// Reply to the kubelet: name and socket of the driver.
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
