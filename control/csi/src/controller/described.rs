//! Volume descriptions in responses.

use api::Volume;

use crate::driver::Driver;
use crate::wire::{ContentSource, SourceId};

/// Label with the source of a cloned volume.
pub(super) const SOURCE_LABEL: &str = "csi/source";

impl Driver {
    pub(super) fn describe(&self, volume: &Volume) -> crate::wire::Volume {
        crate::wire::Volume {
            capacity_bytes: volume.size_bytes.cast_signed(),
            volume_id: volume.name.clone(),
            content_source: content_source(volume),
            accessible_topology: vec![self.topology()],
            ..crate::wire::Volume::default()
        }
    }
}

/// Returns the source of a cloned volume, as recorded in its labels.
fn content_source(volume: &Volume) -> Option<ContentSource> {
    let id = volume.labels.get(SOURCE_LABEL)?.clone();
    let is_snapshot = id.contains('@');
    let source = Some(SourceId { id });
    Some(match is_snapshot {
        true => ContentSource { snapshot: source, volume: None },
        false => ContentSource { snapshot: None, volume: source },
    })
}
