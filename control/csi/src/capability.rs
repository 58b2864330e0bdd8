//! Validation of volume capabilities, and encoding of service capabilities.

use tonic::Status;

use crate::class::Filesystem;
use crate::wire::{Capabilities, Capability, Kind, VolumeCapability, access};

/// Returns the requested capability if it is supported.
pub(crate) fn usable(capability: Option<&VolumeCapability>) -> Result<&VolumeCapability, Status> {
    let missing = || Status::invalid_argument("the request has no volume capability");
    let capability = capability.ok_or_else(missing)?;
    match refusal(capability) {
        Some(why) => Err(Status::invalid_argument(why)),
        None => Ok(capability),
    }
}

/// Returns the reason for which the capability is not supported, if there is one.
pub(crate) fn refusal(capability: &VolumeCapability) -> Option<String> {
    if capability.block.is_some() == capability.mount.is_some() {
        return Some(
            "invalid volume capability: use either mount (file system) or block".to_owned(),
        );
    }
    let modes = [
        access::SINGLE_NODE_WRITER,
        access::SINGLE_NODE_READER_ONLY,
        access::SINGLE_NODE_SINGLE_WRITER,
        access::SINGLE_NODE_MULTI_WRITER,
    ];
    let mode = capability.access_mode.as_ref().map_or(0, |mode| mode.kind);
    if !modes.contains(&mode) {
        let why = "unsupported access mode: a volume is on one node; use ReadWriteOnce or \
                   ReadWriteOncePod";
        return Some(why.to_owned());
    }
    let word = capability.mount.as_ref().map_or("", |mount| mount.fs_type.as_str());
    Filesystem::of_word(word).err().map(|status| status.message().to_owned())
}

/// Encodes a list of capability types.
pub(crate) fn capabilities(kinds: &[i32]) -> Capabilities {
    let capability = |&kind| Capability { rpc: Some(Kind { kind }) };
    Capabilities { capabilities: kinds.iter().map(capability).collect() }
}
