//! Entity tags of a volume's settings, which prevent lost updates by concurrent clients.

use std::hash::{DefaultHasher, Hash, Hasher};

use api::{Problem, ProblemKind};

/// Entity tag of the settings that a request can change. The volume's usage is not included,
/// because it changes constantly.
pub(crate) fn entity_tag(volume: &api::Volume) -> String {
    let mut hasher = DefaultHasher::new();
    let api::Volume { id, name, size_bytes, sector_bytes, users, owner, labels, .. } = volume;
    (id, name, size_bytes, u32::from(*sector_bytes), users, owner, labels).hash(&mut hasher);
    let classes = (&volume.reduction, &volume.durability, &volume.capacity, &volume.mirror);
    serde_json::to_string(&classes).expect("they are plain data").hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// Precondition of a request (`If-Match`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Precondition {
    /// Tags of which one must match. Empty: no precondition.
    tags: Vec<String>,
}

impl Precondition {
    pub(crate) fn of(tags: Vec<String>) -> Self {
        Self { tags }
    }

    /// Refuses a request whose precondition does not match the current state.
    pub(super) fn check(&self, now: impl FnOnce() -> api::Volume) -> Result<(), Problem> {
        if self.tags.is_empty() {
            return Ok(());
        }
        let volume = now();
        let tag_now = entity_tag(&volume);
        if self.tags.iter().any(|tag| *tag == tag_now || tag == "*") {
            return Ok(());
        }
        let name = &volume.name;
        let detail =
            format!("volume {name:?} has changed since it was read; read it again and retry");
        Err(Problem::new(ProblemKind::PreconditionFailed, detail))
    }
}
