//! Settings of the broker, from its options or without effect, and of groups, which use the
//! broker's.

use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;

use super::super::placement::FOLDER;
use super::super::text;
use super::{BOOLEAN, INT, LIST, LONG, STRING, type_of};
use crate::broker::{Broker, NODE_ID};
use crate::broker_settings;
use crate::coordinator::CoordinatorOptions;
use crate::topics::find_setting;

/// Sources of a setting: dynamic for one broker, dynamic for all brokers, and static.
const SET_FOR_BROKER: i8 = 2;
const SET_FOR_ALL: i8 = 3;
const SET_BY_START: i8 = 4;

/// Setting as shown to clients, with Kafka's name.
pub(super) struct Fixed {
    pub(super) name: &'static str,
    kind: i8,
    value: String,
    source: i8,
}

impl Fixed {
    fn new(name: &'static str, kind: i8, value: impl ToString) -> Self {
        Self { name, kind, value: value.to_string(), source: SET_BY_START }
    }

    pub(super) fn show(self) -> DescribeConfigsResourceResult {
        DescribeConfigsResourceResult::default()
            .with_name(text(self.name))
            .with_value(Some(text(self.value)))
            .with_read_only(self.source == SET_BY_START)
            .with_config_source(self.source)
            .with_config_type(self.kind)
            .with_documentation(None)
    }
}

pub(super) fn of_broker(broker: &Broker) -> Vec<Fixed> {
    let mut all = of_storage(broker);
    all.extend(of_listener(broker));
    all.extend(of_coordinator(&broker.coordinator_options));
    let own = set(broker, &NODE_ID.to_string(), SET_FOR_BROKER);
    let is_own = |name: &str| own.iter().any(|it| it.name == name);
    all.extend(set_for_all(broker).into_iter().filter(|it| !is_own(it.name)));
    all.extend(own);
    all.sort_by_key(|it| it.name);
    all
}

/// Returns the settings that requests have set for all brokers.
pub(super) fn set_for_all(broker: &Broker) -> Vec<Fixed> {
    set(broker, "", SET_FOR_ALL)
}

fn set(broker: &Broker, resource: &str, source: i8) -> Vec<Fixed> {
    let set = broker.settings.of(resource);
    let shown = set.into_iter().filter_map(|(name, value)| {
        let setting = broker_settings::find(&name)?;
        Some(Fixed { name: setting.name, kind: type_of(setting.kind), value, source })
    });
    shown.collect()
}

fn of_storage(broker: &Broker) -> Vec<Fixed> {
    let of_topics = |name: &'static str| {
        let default = find_setting(name).expect("it is in the table").default;
        broker.topics.defaults.get(name).map_or(default, |set| set).to_owned()
    };
    vec![
        Fixed::new("auto.create.topics.enable", BOOLEAN, broker.new_topics.are_created_on_demand),
        Fixed::new("broker.id", INT, NODE_ID),
        Fixed::new("compression.type", STRING, of_topics("compression.type")),
        Fixed::new("default.replication.factor", INT, 1),
        Fixed::new("delete.topic.enable", BOOLEAN, true),
        Fixed::new("log.cleanup.policy", LIST, of_topics("cleanup.policy")),
        Fixed::new("log.dirs", STRING, FOLDER),
        Fixed::new("log.message.timestamp.type", STRING, of_topics("message.timestamp.type")),
        Fixed::new("log.retention.bytes", LONG, of_topics("retention.bytes")),
        Fixed::new("log.retention.ms", LONG, of_topics("retention.ms")),
        Fixed::new("log.segment.bytes", INT, of_topics("segment.bytes")),
        Fixed::new("message.max.bytes", INT, of_topics("max.message.bytes")),
        Fixed::new("min.insync.replicas", INT, 1),
        Fixed::new("node.id", INT, NODE_ID),
        Fixed::new("num.partitions", INT, broker.new_topics.partition_count),
        Fixed::new("process.roles", LIST, "broker,controller"),
        Fixed::new("unclean.leader.election.enable", BOOLEAN, false),
    ]
}

fn of_listener(broker: &Broker) -> Vec<Fixed> {
    let policy = &broker.rules.policy;
    let protocol = policy.protocol.name();
    let host = match &*broker.advertised.host {
        host if host.contains(':') => format!("[{host}]"),
        host => host.to_owned(),
    };
    let advertised = format!("{protocol}://{host}:{}", broker.advertised.port);
    // Tools such as ksqlDB check rights themselves if there is an authorizer. The rules of access
    // lists are those of Kafka's class.
    let authorizer = match broker.rules.has_access_lists() {
        true => "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        false => "",
    };
    let mut all = vec![
        Fixed::new("advertised.listeners", STRING, advertised),
        Fixed::new("authorizer.class.name", STRING, authorizer),
        Fixed::new("listeners", STRING, format!("{protocol}://{}", broker.address)),
        Fixed::new("max.connections", INT, broker.limits.connection_count),
        Fixed::new("socket.request.max.bytes", INT, broker.limits.request_bytes),
    ];
    if policy.protocol.has_sasl() {
        let mechanisms: Vec<_> = policy.logins.mechanisms.iter().map(|it| it.name()).collect();
        all.push(Fixed::new("sasl.enabled.mechanisms", LIST, mechanisms.join(",")));
    }
    all
}

fn of_coordinator(options: &CoordinatorOptions) -> Vec<Fixed> {
    let CoordinatorOptions { groups: options, transactions } = options;
    let consumer_heartbeat = options.consumer_heartbeat_interval_ms;
    let offsets_minutes = options.offsets_retention_ms / 60_000;
    let id_expiration = transactions.transactional_id_expiration_ms;
    vec![
        Fixed::new("group.consumer.heartbeat.interval.ms", INT, consumer_heartbeat),
        Fixed::new("group.consumer.migration.policy", STRING, options.migration_policy.name()),
        Fixed::new("group.consumer.session.timeout.ms", INT, options.consumer_session_timeout_ms),
        Fixed::new("group.coordinator.rebalance.protocols", LIST, "classic,consumer"),
        Fixed::new("group.initial.rebalance.delay.ms", INT, options.initial_rebalance_delay_ms),
        Fixed::new("group.max.session.timeout.ms", INT, options.session_timeout_ms_max),
        Fixed::new("group.max.size", INT, options.members_max),
        Fixed::new("group.min.session.timeout.ms", INT, options.session_timeout_ms_min),
        Fixed::new("offset.metadata.max.bytes", INT, options.offset_metadata_bytes_max),
        Fixed::new("offsets.retention.minutes", INT, offsets_minutes),
        Fixed::new("transaction.max.timeout.ms", INT, transactions.transaction_timeout_ms_max),
        Fixed::new("transactional.id.expiration.ms", INT, id_expiration),
    ]
}

/// Returns the settings of any group, whether it exists or not: all groups use the broker's.
pub(super) fn of_groups(options: &consumer_groups::Options) -> Vec<Fixed> {
    vec![
        Fixed::new("consumer.heartbeat.interval.ms", INT, options.consumer_heartbeat_interval_ms),
        Fixed::new("consumer.session.timeout.ms", INT, options.consumer_session_timeout_ms),
    ]
}
