//! Timeouts and limits of the coordinator.

/// Timeouts in milliseconds, and limits. The corresponding settings of Apache Kafka's broker are
/// named, and their defaults are used.
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
    /// `group.max.size`: maximum members of a group, including those that only have been assigned
    /// an id.
    pub members_max: usize,
    /// Maximum number of groups, including those with only offsets. A single owner gets at most
    /// half.
    pub groups_max: usize,
    /// Maximum bytes of names, subscriptions and assignments of a group's members, as sent by
    /// clients.
    pub group_bytes_max: usize,
    /// Maximum offsets of a group, including pending ones.
    pub group_offsets_max: usize,
    /// Maximum bytes of members and offsets of all groups. A single owner gets at most half.
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

/// Allowed protocol conversions of groups with members (KIP-848). A group without members can
/// always be converted.
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
    /// All policies.
    pub const ALL: [Self; 4] =
        [Self::Bidirectional, Self::Upgrade, Self::Downgrade, Self::Disabled];

    /// Returns Kafka's name of the policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bidirectional => "bidirectional",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Disabled => "disabled",
        }
    }

    /// Parses a policy by name, case-insensitively as in Kafka.
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

/// Maximum length of group ids, member ids and instance ids.
pub(crate) const ID_BYTES_MAX: usize = 1_024;

/// Maximum stored length of a client's id and host, which are only displayed.
pub(crate) const SHOWN_BYTES_MAX: usize = 255;

/// Maximum length of a topic name.
pub(crate) const TOPIC_BYTES_MAX: usize = 249;

/// Maximum wait of a new member of a classic group for the others. Its client may have
/// disconnected, and knows no member id to return with.
pub(crate) const NEW_MEMBER_WAIT_MS: i64 = 300_000;

/// Memory of an offset, a member or a group in addition to its strings.
pub(crate) const ENTRY_BYTES: usize = 128;
