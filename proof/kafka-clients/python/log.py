"""Topics as scenarios see them: written, and read back whole, record by record.

A scenario fails by an exception; every wait ends with one when it takes longer than WAIT_S.
"""

import time
import uuid

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 60


class Broker:
    """The broker under test."""

    def __init__(self, address):
        self.address = address
        # One for all requests: those of a client that is gone are never answered.
        self.admin = AdminClient(self.config())

    def config(self, **options):
        """Settings of a client; `acks=1` stands for `acks`, `enable_idempotence` has dots."""
        named = {name.replace("_", "."): value for name, value in options.items()}
        return {"bootstrap.servers": self.address, **named}

    def producer(self, **options):
        return Producer(self.config(**options))

    def consumer(self, group=None, **options):
        options.setdefault("enable_auto_commit", False)
        options.setdefault("auto_offset_reset", "earliest")
        return Consumer(self.config(group_id=group or unique("group"), **options))

    def topic(self, name, partitions=1, **config):
        """Makes a topic of this name and something that no other has."""
        topic = unique(name)
        named = {key.replace("_", "."): str(value) for key, value in config.items()}
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=named)])
        made[topic].result(WAIT_S)
        return topic

    def read_whole(self, topic, partitions, isolation="read_committed"):
        """All records of each partition, up to the end that the isolation level allows."""
        options = {"enable_partition_eof": True, "fetch_wait_max_ms": 20}
        consumer = self.consumer(isolation_level=isolation, **options)
        places = [TopicPartition(topic, it, OFFSET_BEGINNING) for it in range(partitions)]
        consumer.assign(places)
        found = [[] for _ in range(partitions)]
        ended = set()
        deadline = Deadline("the end of each partition")
        while len(ended) < partitions:
            deadline.check()
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                equal(message.error().code(), KafkaError._PARTITION_EOF, "error of a consumer")
                ended.add(message.partition())
                continue
            found[message.partition()].append(message)
        consumer.close()
        return found


class Deadline:
    """The end of a wait."""

    def __init__(self, waits_for):
        self.waits_for = waits_for
        self.end = time.monotonic() + WAIT_S

    def check(self):
        if time.monotonic() > self.end:
            raise TimeoutError(f"waited {WAIT_S} s for {self.waits_for}")


def wait_until(condition, waits_for):
    deadline = Deadline(waits_for)
    while not condition():
        deadline.check()
        time.sleep(0.02)


def unique(name):
    return f"{name}-{uuid.uuid4().hex[:8]}"


def equal(found, expected, what):
    """Fails with the first difference where both are long."""
    if found == expected:
        return
    if isinstance(found, list) and isinstance(expected, list):
        pairs = enumerate(zip(found, expected))
        place = next((at for at, (one, other) in pairs if one != other), None)
        if place is None:
            place = min(len(found), len(expected))
        lengths = f"{len(found)} found, {len(expected)} expected"
        found, expected = found[place : place + 2], expected[place : place + 2]
        raise AssertionError(f"{what} ({lengths}), at {place}: {found!r} is not {expected!r}")
    raise AssertionError(f"{what}: {found!r} is not {expected!r}")


def produce(producer, topic, partition, values):
    """Produces and waits; returns the offsets that were acknowledged, in order."""
    offsets = []

    def delivered(error, message):
        if error is not None:
            raise AssertionError(f"{topic}/{partition}: {error}")
        offsets.append(message.offset())

    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    equal(producer.flush(WAIT_S), 0, "records that were not delivered")
    return offsets


def values_of(messages):
    return [message.value() for message in messages]


def numbered(label, count, size=0):
    """Distinct values, of `size` bytes at least."""
    return [f"{label}-{index}".encode().ljust(size, b".") for index in range(count)]
