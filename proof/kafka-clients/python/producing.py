"""What producers of librdkafka write is there once, in order, as it was written."""

import os

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaException

from log import WAIT_S, equal, numbered, produce, values_of, wait_until

COUNT = 500
PARTITIONS = 3


def acks(broker, level):
    topic = broker.topic(f"acks-{level}", PARTITIONS)
    # Without acknowledgements, what comes before the partitions are ready is lost.
    broker.read_whole(topic, PARTITIONS)
    producer = broker.producer(acks=level, linger_ms=1)
    for partition in range(PARTITIONS):
        offsets = produce(producer, topic, partition, numbered(partition, COUNT))
        if level != "0":
            equal(offsets, list(range(COUNT)), "offsets that were acknowledged")

    def found():
        return [values_of(it) for it in broker.read_whole(topic, PARTITIONS)]

    # Nothing tells a producer with acks=0 when its records have arrived.
    wait_until(lambda: sum(map(len, found())) >= PARTITIONS * COUNT, "all records")
    equal(found(), [numbered(it, COUNT) for it in range(PARTITIONS)], "records")


def acks_0(broker):
    acks(broker, "0")


def acks_1(broker):
    acks(broker, "1")


def acks_all(broker):
    acks(broker, "all")


def codecs(broker):
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
        topic = broker.topic(f"codec-{codec}")
        values = numbered(codec, COUNT, size=300) + [os.urandom(2000) for _ in range(50)]
        producer = broker.producer(compression_type=codec, linger_ms=50)
        offsets = produce(producer, topic, 0, values)
        equal(offsets, list(range(len(values))), f"offsets with {codec}")
        [found] = broker.read_whole(topic, 1)
        equal(values_of(found), values, f"records with {codec}")
        equal([it.offset() for it in found], offsets, f"offsets read with {codec}")


def parts_of_records(broker):
    """Keys, headers, timestamps; null and empty are different."""
    topic = broker.topic("parts")
    producer = broker.producer()
    written = [
        (b"key", b"value", [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]),
        (None, b"no key", []),
        (b"no value", None, []),
        (b"", b"", [("", b"x")]),
        ("schlüssel".encode(), bytes(range(256)), []),
    ]
    for index, (key, value, headers) in enumerate(written):
        producer.produce(topic, value, key, headers=headers, timestamp=1_000_000 + index)
    equal(producer.flush(WAIT_S), 0, "records that were not delivered")
    [found] = broker.read_whole(topic, 1)
    equal([(it.key(), it.value(), it.headers() or []) for it in found], written, "records")
    times = [(TIMESTAMP_CREATE_TIME, 1_000_000 + index) for index in range(len(written))]
    equal([it.timestamp() for it in found], times, "timestamps")


def log_append_time(broker):
    topic = broker.topic("append-time", message_timestamp_type="LogAppendTime")
    producer = broker.producer()
    producer.produce(topic, b"x", timestamp=1_000_000)
    equal(producer.flush(WAIT_S), 0, "records that were not delivered")
    [[found]] = broker.read_whole(topic, 1)
    kind, time_ms = found.timestamp()
    equal(kind, TIMESTAMP_LOG_APPEND_TIME, "kind of timestamp")
    assert time_ms > 1_600_000_000_000, f"{time_ms} is the producer's time, not the broker's"


def idempotent(broker):
    """Five requests in flight of one idempotent producer, in small batches."""
    topic = broker.topic("idempotent", PARTITIONS)
    producer = broker.producer(enable_idempotence=True, linger_ms=0, batch_num_messages=20)
    for partition in range(PARTITIONS):
        offsets = produce(producer, topic, partition, numbered(partition, 4 * COUNT))
        equal(offsets, list(range(4 * COUNT)), "offsets that were acknowledged")
    found = [values_of(it) for it in broker.read_whole(topic, PARTITIONS)]
    equal(found, [numbered(it, 4 * COUNT) for it in range(PARTITIONS)], "records")


def large_records(broker):
    """A record near the limit is kept; one above the topic's limit is refused, and only that."""
    topic = broker.topic("large", max_message_bytes=500_000)
    producer = broker.producer(message_max_bytes=2_000_000, linger_ms=0)
    large = os.urandom(499_000)
    produce(producer, topic, 0, [large])
    refusals = []
    producer.produce(topic, os.urandom(600_000), on_delivery=lambda error, _: refusals.append(error))
    equal(producer.flush(WAIT_S), 0, "records that were not answered")
    equal([it.name() for it in refusals], ["MSG_SIZE_TOO_LARGE"], "refusals")
    produce(producer, topic, 0, [b"after"])
    [found] = broker.read_whole(topic, 1)
    equal(values_of(found), [large, b"after"], "records")


def unknown_topics(broker):
    """A topic that is not there, where clients may not create it, is an error and no hang."""
    consumer = broker.consumer()
    try:
        listed = consumer.list_topics("is-not-there-" + os.urandom(4).hex(), WAIT_S)
        [error] = [it.error for it in listed.topics.values()]
        known = {"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"}
        assert error is not None and error.name() in known, error
    except KafkaException as failure:
        raise AssertionError(f"metadata failed as a whole: {failure}") from failure
    finally:
        consumer.close()
