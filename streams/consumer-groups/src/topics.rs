//! Topic metadata that the coordinator requests from its owner.

use std::ops::ControlFlow;

use uuid::Uuid;

/// Id and partition count of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicShape {
    pub id: Uuid,
    pub partition_count: u32,
}

/// Identity of a member for authorization to see topics: see [`Caller`](crate::Caller).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewer<'a> {
    /// Empty if a record of an earlier version lacks it.
    pub principal: &'a str,
    pub host: &'a str,
}

/// Predicate that decides whether a viewer may see a topic name.
pub type Sight<'a> = Box<dyn Fn(&str) -> bool + 'a>;

/// Access to topic metadata.
pub trait Topics {
    /// Returns a number that changes whenever a topic was created, deleted or extended, or the
    /// visibility of topics has changed.
    fn version(&self) -> u64;

    /// Returns which topic names patterns may reveal to a viewer.
    fn sight(&self, viewer: Viewer<'_>) -> Sight<'_>;

    fn by_name(&self, name: &str) -> Option<TopicShape>;

    fn name_of(&self, id: Uuid) -> Option<String>;

    /// Calls `visit` with every name, until it breaks.
    fn each_name(&self, visit: &mut dyn FnMut(&str) -> ControlFlow<()>);
}
