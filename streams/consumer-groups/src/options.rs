//! Times and limits of the coordinator.

/// Times in milliseconds and limits. The names that Apache Kafka's broker has for them stand
/// beside them; defaults are Kafka's where it has one.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i32,
    /// `group.min.session.timeout.ms`
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`
    pub session_timeout_ms_max: i32,
    /// `group.consumer.heartbeat.interval.ms`
    pub consumer_heartbeat_interval_ms: i32,
    /// `group.consumer.session.timeout.ms`
    pub consumer_session_timeout_ms: i32,
    /// `group.consumer.migration.policy`
    pub migration_policy: MigrationPolicy,
    /// `offsets.retention.minutes`, but in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`
    pub offsets_check_interval_ms: i64,
    /// `offset.metadata.max.bytes`
    pub offset_metadata_bytes_max: usize,
    /// `group.max.size`: members of a group, those that were only given an id included.
    pub members_max: usize,
    /// Groups, those with nothing but offsets included. One owner alone gets half.
    pub groups_max: usize,
    /// Names, subscriptions and assignments of a group's members: what a client sent, not what
    /// the coordinator adds.
    pub group_bytes_max: usize,
    /// Offsets of a group, pending ones included.
    pub group_offsets_max: usize,
    /// Members' bytes and offsets of all groups together. One owner alone gets half.
    pub total_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            initial_rebalance_delay_ms: 3_000,
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            consumer_heartbeat_interval_ms: 5_000,
            consumer_session_timeout_ms: 45_000,
            migration_policy: MigrationPolicy::Bidirectional,
            offsets_retention_ms: 7 * 24 * 3_600 * 1_000,
            offsets_check_interval_ms: 600_000,
            offset_metadata_bytes_max: 4_096,
            members_max: 2_000,
            groups_max: 20_000,
            group_bytes_max: 4 << 20,
            group_offsets_max: 100_000,
            total_bytes_max: 256 << 20,
        }
    }
}

/// Changes of protocol that groups with members may make (KIP-848). A group without members is free
/// to be one of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationPolicy {
    /// From the classic protocol to that of KIP-848, and back.
    Bidirectional,
    /// From the classic protocol to that of KIP-848.
    Upgrade,
    /// From the protocol of KIP-848 to the classic one.
    Downgrade,
    Disabled,
}

impl MigrationPolicy {
    /// All there are.
    pub const ALL: [Self; 4] =
        [Self::Bidirectional, Self::Upgrade, Self::Downgrade, Self::Disabled];

    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bidirectional => "bidirectional",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Disabled => "disabled",
        }
    }

    /// The policy of this name, in letters of either case as in Kafka.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn has_upgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Upgrade)
    }

    pub(crate) fn has_downgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Downgrade)
    }
}

/// Ids of groups, members and instances may be so long.
pub(crate) const ID_BYTES_MAX: usize = 1_024;

/// A client's id and host are kept up to this length; they are only shown.
pub(crate) const SHOWN_BYTES_MAX: usize = 255;

/// The longest name of a topic.
pub(crate) const TOPIC_BYTES_MAX: usize = 249;

/// A member of a classic group that never joined before is dropped after waiting so long for the
/// others: its client may have gone, and it has no id to come back with.
pub(crate) const NEW_MEMBER_WAIT_MS: i64 = 300_000;

/// Memory that an offset, a member or a group takes beside the bytes of its names.
pub(crate) const ENTRY_BYTES: usize = 128;
