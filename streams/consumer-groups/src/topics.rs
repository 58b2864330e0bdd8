//! What the coordinator asks about topics.

use std::ops::ControlFlow;

use uuid::Uuid;

/// A topic's identity and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicShape {
    pub id: Uuid,
    pub partition_count: u32,
}

/// The topics there are. Names of topics that members must not see are left out by the owner.
pub trait Topics {
    /// A number that differs whenever a topic was created, deleted or given partitions since.
    fn version(&self) -> u64;

    fn by_name(&self, name: &str) -> Option<TopicShape>;

    fn name_of(&self, id: Uuid) -> Option<String>;

    /// Calls `visit` with every name, until it breaks.
    fn each_name(&self, visit: &mut dyn FnMut(&str) -> ControlFlow<()>);
}
