"""librdkafka's admin client."""

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from log import WAIT_S, equal, numbered, produce, unique, values_of, wait_until


def refusal_of(future):
    """The name of the error with which a request was refused."""
    try:
        future.result(WAIT_S)
    except KafkaException as refusal:
        return refusal.args[0].name()
    raise AssertionError("the request was not refused")


def topics(broker):
    admin, name = broker.admin, unique("topics")
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(WAIT_S)
    equal(refusal_of(admin.create_topics([NewTopic(name, 3, 1)])[name]), "TOPIC_ALREADY_EXISTS", "")
    bad = "no/slash"
    equal(refusal_of(admin.create_topics([NewTopic(bad, 1, 1)])[bad]), "TOPIC_EXCEPTION", bad)
    for partitions, replicas, error in [
        (0, 1, "INVALID_PARTITIONS"),
        (1, 7, "INVALID_REPLICATION_FACTOR"),
    ]:
        other = unique("refused")
        refused = admin.create_topics([NewTopic(other, partitions, replicas)])[other]
        equal(refusal_of(refused), error, "a topic that cannot be")
    only_checked = unique("checked")
    checked = admin.create_topics([NewTopic(only_checked, 1, 1)], validate_only=True)
    checked[only_checked].result(WAIT_S)
    listed = admin.list_topics(timeout=WAIT_S)
    assert name in listed.topics and only_checked not in listed.topics, listed.topics
    produce(broker.producer(), name, 2, [b"kept"])
    admin.create_partitions([NewPartitions(name, 5)])[name].result(WAIT_S)
    equal(refusal_of(admin.create_partitions([NewPartitions(name, 2)])[name]), "INVALID_PARTITIONS", "")
    wait_until(lambda: len(partitions_of(admin, name)) == 5, "five partitions")
    equal(sorted(partitions_of(admin, name)), list(range(5)), "partitions")
    found = [values_of(it) for it in broker.read_whole(name, 5)]
    equal(found, [[], [], [b"kept"], [], []], "records after partitions were added")
    [described] = admin.describe_topics(TopicCollection([name])).values()
    described = described.result(WAIT_S)
    equal((described.name, len(described.partitions)), (name, 5), "description")
    admin.delete_topics([name])[name].result(WAIT_S)
    wait_until(lambda: name not in admin.list_topics(timeout=WAIT_S).topics, "the deletion")
    equal(refusal_of(admin.delete_topics([name])[name]), "UNKNOWN_TOPIC_OR_PART", "deleted twice")
    # A new topic of the name has nothing of the old one.
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(WAIT_S)
    equal([values_of(it) for it in broker.read_whole(name, 3)], [[], [], []], "records anew")


def partitions_of(admin, topic):
    return admin.list_topics(topic, WAIT_S).topics[topic].partitions


def configs(broker):
    admin = broker.admin
    topic = broker.topic("configs", 1, retention_ms=3_600_000)

    def described():
        resource = ConfigResource(ResourceType.TOPIC, topic)
        [future] = admin.describe_configs([resource]).values()
        return {name: it.value for name, it in future.result(WAIT_S).items()}

    def alter(name, value, operation=AlterConfigOpType.SET):
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        [future] = admin.incremental_alter_configs([resource]).values()
        return future

    equal(described()["retention.ms"], "3600000", "set when the topic was made")
    alter("retention.ms", "7200000").result(WAIT_S)
    alter("cleanup.policy", "compact").result(WAIT_S)
    wait_until(lambda: described()["retention.ms"] == "7200000", "the change")
    equal(described()["cleanup.policy"], "compact", "cleanup.policy")
    alter("cleanup.policy", "delete", AlterConfigOpType.APPEND).result(WAIT_S)
    wait_until(lambda: described()["cleanup.policy"] == "compact,delete", "the appended value")
    alter("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT).result(WAIT_S)
    wait_until(lambda: described()["cleanup.policy"] == "delete", "the value without the other")
    alter("retention.ms", None, AlterConfigOpType.DELETE).result(WAIT_S)
    wait_until(lambda: described()["retention.ms"] == "604800000", "the default")
    equal(refusal_of(alter("retention.ms", "soon")), "INVALID_CONFIG", "a value that is none")
    equal(refusal_of(alter("is.no.setting", "1")), "INVALID_CONFIG", "a setting that is none")
    names = described().keys()
    missing = {"cleanup.policy", "compression.type", "max.message.bytes", "segment.bytes",
               "message.timestamp.type", "min.insync.replicas", "retention.bytes"} - names
    equal(missing, set(), "settings that are not described")
    unknown = ConfigResource(ResourceType.TOPIC, unique("none"))
    [future] = admin.describe_configs([unknown]).values()
    equal(refusal_of(future), "UNKNOWN_TOPIC_OR_PART", "settings of no topic")


def delete_records(broker):
    admin, topic = broker.admin, broker.topic("delete-records")
    produce(broker.producer(), topic, 0, numbered("r", 100))
    place = TopicPartition(topic, 0, 40)
    [future] = admin.delete_records([place]).values()
    equal(future.result(WAIT_S).low_watermark, 40, "first offset that is left")
    [found] = broker.read_whole(topic, 1)
    equal(values_of(found), numbered("r", 100)[40:], "records that are left")
    equal(found[0].offset(), 40, "first offset")
    [future] = admin.delete_records([TopicPartition(topic, 0, 1_000)]).values()
    equal(refusal_of(future), "OFFSET_OUT_OF_RANGE", "records that are not there yet")
    [future] = admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    equal(future.result(WAIT_S).low_watermark, 100, "first offset after all were deleted")
    equal(broker.read_whole(topic, 1), [[]], "records that are left at the end")


def list_offsets(broker):
    admin, topic = broker.admin, broker.topic("offsets")
    producer = broker.producer()
    # The newest record is not the last one.
    for time_ms in [1_000, 5_000, 3_000]:
        producer.produce(topic, b"x", timestamp=time_ms)
        producer.flush(WAIT_S)
    cases = [
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(2_000), 1),
        (OffsetSpec.for_timestamp(6_000), -1),
    ]
    for asked, offset in cases:
        [future] = admin.list_offsets({TopicPartition(topic, 0): asked}).values()
        equal(future.result(WAIT_S).offset, offset, f"offset of {type(asked).__name__}")


def consumer_groups(broker):
    admin, topic, group = broker.admin, broker.topic("admin-group", 2), unique("admin-group")
    produce(broker.producer(), topic, 0, numbered("r", 10))
    consumer = broker.consumer(group, client_id="looked-at")
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.2) is not None, "a record")

    def described():
        [future] = admin.describe_consumer_groups([group]).values()
        return future.result(WAIT_S)

    wait_until(lambda: described().state == ConsumerGroupState.STABLE, "a stable group")
    [member] = described().members
    equal(member.client_id, "looked-at", "client of the member")
    places = {(it.topic, it.partition) for it in member.assignment.topic_partitions}
    equal(places, {(topic, 0), (topic, 1)}, "assignment of the member")
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    listed = admin.list_consumer_groups().result(WAIT_S)
    equal(listed.errors, [], "errors of the list")
    assert group in {it.group_id for it in listed.valid}, listed.valid
    [future] = admin.delete_consumer_groups([group]).values()
    equal(refusal_of(future), "NON_EMPTY_GROUP", "a group with a member")
    consumer.close()
    wait_until(lambda: described().state == ConsumerGroupState.EMPTY, "an empty group")

    def offsets():
        asked = [ConsumerGroupTopicPartitions(group)]
        [future] = admin.list_consumer_group_offsets(asked).values()
        return {(it.partition, it.offset) for it in future.result(WAIT_S).topic_partitions}

    equal(offsets(), {(0, 4)}, "offsets of the group")
    changed = [TopicPartition(topic, 0, 7), TopicPartition(topic, 1, 0)]
    asked = [ConsumerGroupTopicPartitions(group, changed)]
    [future] = admin.alter_consumer_group_offsets(asked).values()
    future.result(WAIT_S)
    equal(offsets(), {(0, 7), (1, 0)}, "offsets that were changed")
    [future] = admin.delete_consumer_groups([group]).values()
    future.result(WAIT_S)
    [future] = admin.delete_consumer_groups([group]).values()
    equal(refusal_of(future), "GROUP_ID_NOT_FOUND", "a group that was deleted")


def cluster(broker):
    described = broker.admin.describe_cluster().result(WAIT_S)
    equal(len(described.nodes), 1, "nodes")
    [node] = described.nodes
    equal(f"{node.host}:{node.port}", broker.address, "address of the node")
    assert described.cluster_id, "the cluster has no id"
    again = broker.admin.describe_cluster().result(WAIT_S)
    equal(again.cluster_id, described.cluster_id, "the id of the cluster")
