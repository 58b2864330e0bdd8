//! Requests with a single valid choice on one broker: the placement and leaders of partitions, and
//! the settings of the broker and of groups.

use anyhow::{Result, ensure};
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::{self as of, BrokerId, ResponseKind, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::Fixture;

/// Kafka's types of resources.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Kafka's error codes.
const UNKNOWN_PARTITION: i16 = 3;
const UNSUPPORTED_VERSION: i16 = 35;
const INVALID_REPLICAS: i16 = 39;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;
const LOG_DIR_NOT_FOUND: i16 = 57;
const ELECTION_NOT_NEEDED: i16 = 84;
const NO_REASSIGNMENT: i16 = 85;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Creates a fixture with the topics `seen` and `hidden`, of one partition each.
fn fixture() -> Result<Fixture> {
    let fixture = Fixture::start(Vec::new())?;
    fixture.fill()?;
    Ok(fixture)
}

#[test]
fn a_reassignment_to_the_one_broker_is_granted_and_any_other_refused() -> Result<()> {
    use of::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
    let fixture = fixture()?;
    let cases = [
        ("seen", 0, Some(vec![1]), 0),
        ("seen", 0, Some(vec![2]), INVALID_REPLICAS),
        ("seen", 0, Some(vec![1, 2]), INVALID_REPLICAS),
        ("seen", 0, Some(vec![1, 1]), INVALID_REPLICAS),
        ("seen", 0, Some(Vec::new()), INVALID_REPLICAS),
        ("seen", 0, None, NO_REASSIGNMENT),
        ("seen", 9, Some(vec![1]), UNKNOWN_PARTITION),
        ("missing", 0, Some(vec![1]), UNKNOWN_PARTITION),
    ];
    for (name, number, replicas, expected) in cases {
        let replicas = replicas.map(|it| it.into_iter().map(BrokerId).collect());
        let partition = ReassignablePartition::default()
            .with_partition_index(number)
            .with_replicas(replicas.clone());
        let moved =
            ReassignableTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
        let request = of::AlterPartitionReassignmentsRequest::default().with_topics(vec![moved]);
        let answer = fixture.admin("AlterPartitionReassignments", request)?;
        let ResponseKind::AlterPartitionReassignments(answer) = answer else {
            panic!("{answer:?}")
        };
        let told = &answer.responses[0].partitions[0];
        ensure!(told.error_code == expected, "{name} {number} to {replicas:?}: {answer:?}");
        ensure!(told.error_message.is_some() == (expected != 0), "{answer:?}");
    }
    let request = of::ListPartitionReassignmentsRequest::default().with_topics(None);
    let answer = fixture.admin("ListPartitionReassignments", request)?;
    let ResponseKind::ListPartitionReassignments(answer) = answer else { panic!("{answer:?}") };
    ensure!(answer.error_code == 0 && answer.topics.is_empty(), "{answer:?}");
    Ok(())
}

#[test]
fn no_partition_needs_an_election_of_its_leader() -> Result<()> {
    let fixture = fixture()?;
    let asked = |name: &str, partitions: &[i32]| {
        of::elect_leaders_request::TopicPartitions::default()
            .with_topic(topic(name))
            .with_partitions(partitions.to_vec())
    };
    let ask = |kind, topics| -> Result<(i16, Vec<i16>)> {
        let request = of::ElectLeadersRequest::default()
            .with_election_type(kind)
            .with_topic_partitions(topics);
        let answer = fixture.admin("ElectLeaders", request)?;
        let ResponseKind::ElectLeaders(answer) = answer else { panic!("{answer:?}") };
        let topics = answer.replica_election_results.iter();
        let told = topics.flat_map(|it| it.partition_result.iter().map(|it| it.error_code));
        Ok((answer.error_code, told.collect()))
    };
    for kind in [0, 1] {
        let topics = vec![asked("seen", &[0, 9, 0]), asked("missing", &[0])];
        let told = ask(kind, Some(topics))?;
        let expected = vec![ELECTION_NOT_NEEDED, UNKNOWN_PARTITION, UNKNOWN_PARTITION];
        ensure!(told == (0, expected), "{told:?}");
        let told = ask(kind, None)?;
        ensure!(told == (0, Vec::new()), "{told:?}");
    }
    let told = ask(2, Some(vec![asked("seen", &[0])]))?;
    ensure!(told == (INVALID_REQUEST, vec![INVALID_REQUEST]), "{told:?}");
    Ok(())
}

#[test]
fn partitions_stay_in_the_one_folder() -> Result<()> {
    use of::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
    let fixture = fixture()?;
    let described = fixture.admin("DescribeLogDirs", of::DescribeLogDirsRequest::default())?;
    let ResponseKind::DescribeLogDirs(described) = described else { panic!("{described:?}") };
    let folder = described.results[0].log_dir.clone();
    for (path, name, number, expected) in [
        (folder.clone(), "seen", 0, 0),
        (folder.clone(), "seen", 9, UNKNOWN_PARTITION),
        (folder, "missing", 0, UNKNOWN_PARTITION),
        (text("/elsewhere"), "seen", 0, LOG_DIR_NOT_FOUND),
    ] {
        let moved =
            AlterReplicaLogDirTopic::default().with_name(topic(name)).with_partitions(vec![number]);
        let to = AlterReplicaLogDir::default().with_path(path.clone()).with_topics(vec![moved]);
        let request = of::AlterReplicaLogDirsRequest::default().with_dirs(vec![to]);
        let answer = fixture.admin("AlterReplicaLogDirs", request)?;
        let ResponseKind::AlterReplicaLogDirs(answer) = answer else { panic!("{answer:?}") };
        let code = answer.results[0].partitions[0].error_code;
        ensure!(code == expected, "{name} {number} to {path:?}: {answer:?}");
    }
    Ok(())
}

#[test]
fn the_quorum_is_the_broker_alone() -> Result<()> {
    use of::describe_quorum_request::{PartitionData, TopicData};
    let fixture = fixture()?;
    for (name, number, expected) in [
        ("__cluster_metadata", 0, 0),
        ("__cluster_metadata", 1, UNKNOWN_PARTITION),
        ("seen", 0, UNKNOWN_PARTITION),
    ] {
        let partition = PartitionData::default().with_partition_index(number);
        let log =
            TopicData::default().with_topic_name(topic(name)).with_partitions(vec![partition]);
        let request = of::DescribeQuorumRequest::default().with_topics(vec![log]);
        let answer = fixture.admin("DescribeQuorum", request)?;
        let ResponseKind::DescribeQuorum(answer) = answer else { panic!("{answer:?}") };
        let told = &answer.topics[0].partitions[0];
        ensure!(told.error_code == expected, "{name} {number}: {answer:?}");
        let voters: Vec<i32> = told.current_voters.iter().map(|it| *it.replica_id).collect();
        let is_whole = *told.leader_id == 1 && voters == [1] && *answer.nodes[0].node_id == 1;
        ensure!(is_whole == (expected == 0), "{answer:?}");
    }
    Ok(())
}

fn described(fixture: &Fixture, kind: i8, name: &str) -> Result<DescribeConfigsResult> {
    let resource = of::describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(None);
    let request = of::DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = fixture.admin("DescribeConfigs", request)?;
    let ResponseKind::DescribeConfigs(mut answer) = answer else { panic!("{answer:?}") };
    Ok(answer.results.remove(0))
}

fn value(described: &DescribeConfigsResult, name: &str) -> Option<String> {
    let found = described.configs.iter().find(|it| &*it.name == name)?;
    found.value.as_ref().map(|it| it.to_string())
}

#[test]
fn settings_of_the_broker_and_of_groups_are_shown() -> Result<()> {
    let fixture = fixture()?;
    let broker = described(&fixture, BROKER, "1")?;
    let address = fixture.broker.address();
    for name in ["advertised.listeners", "listeners"] {
        let shown = value(&broker, name);
        ensure!(shown == Some(format!("PLAINTEXT://{address}")), "{name}: {shown:?}");
    }
    ensure!(value(&broker, "group.consumer.session.timeout.ms").is_some(), "{broker:?}");
    // Settings for all brokers: none.
    let of_all = described(&fixture, BROKER, "")?;
    ensure!(of_all.error_code == 0 && of_all.configs.is_empty(), "{of_all:?}");
    for name in ["seen", "is-not-there"] {
        let group = described(&fixture, GROUP, name)?;
        for name in ["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"] {
            let of_broker = value(&broker, &format!("group.{name}"));
            ensure!(of_broker.is_some() && value(&group, name) == of_broker, "{group:?}");
        }
    }
    let metrics = described(&fixture, CLIENT_METRICS, "any")?;
    ensure!(metrics.error_code == 0 && metrics.configs.is_empty(), "{metrics:?}");
    for (kind, name) in
        [(BROKER, "2"), (BROKER, "x"), (GROUP, ""), (CLIENT_METRICS, ""), (LOGGER, "1"), (3, "x")]
    {
        let refused = described(&fixture, kind, name)?;
        ensure!(refused.error_code == INVALID_REQUEST, "{kind} {name:?}: {refused:?}");
        ensure!(refused.error_message.is_some(), "{refused:?}");
    }
    Ok(())
}

#[test]
fn what_has_settings_is_listed() -> Result<()> {
    let fixture = fixture()?;
    let ask = |kinds: &[i8]| -> Result<(i16, Vec<(i8, String)>)> {
        let request = of::ListConfigResourcesRequest::default().with_resource_types(kinds.to_vec());
        let answer = fixture.admin("ListConfigResources", request)?;
        let ResponseKind::ListConfigResources(answer) = answer else { panic!("{answer:?}") };
        let listed = answer.config_resources.iter();
        let listed = listed.map(|it| (it.resource_type, it.resource_name.to_string()));
        Ok((answer.error_code, listed.collect()))
    };
    let topics = ["hidden", "seen"].map(|name| (TOPIC, name.to_owned())).to_vec();
    let broker = vec![(BROKER, "1".to_owned())];
    ensure!(ask(&[])? == (0, [&topics[..], &broker].concat()));
    ensure!(ask(&[TOPIC])? == (0, topics));
    ensure!(ask(&[BROKER, GROUP])? == (0, broker));
    ensure!(ask(&[LOGGER, CLIENT_METRICS, GROUP])? == (0, Vec::new()));
    ensure!(ask(&[TOPIC, 3])? == (UNSUPPORTED_VERSION, Vec::new()));
    Ok(())
}

/// A type, a name, and the settings to apply.
type Wanted<'a> = (i8, &'a str, &'a [(&'a str, Option<&'a str>)]);

/// Sends AlterConfigs for resources with settings. Returns the error codes.
fn replaced(fixture: &Fixture, resources: &[Wanted<'_>]) -> Result<Vec<i16>> {
    use of::alter_configs_request::{AlterConfigsResource, AlterableConfig};
    let resources = resources.iter().map(|(kind, name, settings)| {
        let settings = settings.iter().map(|(name, value)| {
            AlterableConfig::default().with_name(text(name)).with_value(value.map(text))
        });
        AlterConfigsResource::default()
            .with_resource_type(*kind)
            .with_resource_name(text(name))
            .with_configs(settings.collect())
    });
    let request = of::AlterConfigsRequest::default().with_resources(resources.collect());
    let answer = fixture.admin("AlterConfigs", request)?;
    let ResponseKind::AlterConfigs(answer) = answer else { panic!("{answer:?}") };
    Ok(answer.responses.iter().map(|it| it.error_code).collect())
}

#[test]
fn alter_configs_sets_what_it_names_and_nothing_else() -> Result<()> {
    let fixture = fixture()?;
    let shown = || -> Result<[Option<String>; 2]> {
        let topic = described(&fixture, TOPIC, "seen")?;
        Ok(["retention.ms", "segment.bytes"].map(|name| value(&topic, name)))
    };
    let before = shown()?;
    let both = [("retention.ms", Some("1000")), ("segment.bytes", Some("65536"))];
    ensure!(replaced(&fixture, &[(TOPIC, "seen", &both)])? == [0]);
    ensure!(shown()? == ["1000", "65536"].map(|it| Some(it.to_owned())));
    // A rejected request changes nothing.
    let good = ("retention.ms", Some("5000"));
    for (bad, expected) in [
        (("segment.bytes", Some("soon")), INVALID_CONFIG),
        (("is.no.setting", Some("1")), INVALID_CONFIG),
        (("segment.bytes", None), INVALID_REQUEST),
        (("retention.ms", Some("6000")), INVALID_REQUEST),
    ] {
        let told = replaced(&fixture, &[(TOPIC, "seen", &[good, bad])])?;
        ensure!(told == [expected], "{bad:?}: {told:?}");
    }
    let told = replaced(&fixture, &[(TOPIC, "seen", &[good]), (TOPIC, "seen", &[])])?;
    ensure!(told == [INVALID_REQUEST; 2], "a topic that is named twice: {told:?}");
    ensure!(shown()? == ["1000", "65536"].map(|it| Some(it.to_owned())));
    ensure!(replaced(&fixture, &[(TOPIC, "seen", &[good])])? == [0]);
    ensure!(shown()? == [Some("5000".to_owned()), before[1].clone()]);
    let told = replaced(
        &fixture,
        &[
            (TOPIC, "missing", &[]),
            (BROKER, "1", &[("num.partitions", Some("3"))]),
            (BROKER, "2", &[]),
            (GROUP, "seen", &[("consumer.session.timeout.ms", Some("50000"))]),
            (LOGGER, "1", &[]),
        ],
    )?;
    let refused = INVALID_REQUEST;
    ensure!(told == [UNKNOWN_PARTITION, refused, refused, refused, refused], "{told:?}");
    Ok(())
}
