//! Questions of the coordinator about topics.

use std::ops::ControlFlow;

use uuid::Uuid;

/// A topic's identity and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicShape {
    pub id: Uuid,
    pub partition_count: u32,
}

/// A member, as far as it matters which topics it may know of: see [`Caller`](crate::Caller).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewer<'a> {
    /// Empty where a record of an earlier version does not say.
    pub principal: &'a str,
    pub host: &'a str,
}

/// Says whether a viewer may know of a topic of this name.
pub type Sight<'a> = Box<dyn Fn(&str) -> bool + 'a>;

/// The topics there are.
pub trait Topics {
    /// A number that differs whenever a topic was created, deleted or given partitions since, or
    /// what viewers may know of has changed.
    fn version(&self) -> u64;

    /// What patterns may show to a viewer.
    fn sight(&self, viewer: Viewer<'_>) -> Sight<'_>;

    fn by_name(&self, name: &str) -> Option<TopicShape>;

    fn name_of(&self, id: Uuid) -> Option<String>;

    /// Calls `visit` with every name, until it breaks.
    fn each_name(&self, visit: &mut dyn FnMut(&str) -> ControlFlow<()>);
}
