"""What Kafka Streams' word count is given, and what must come of it."""

import collections
import random

from log import WAIT_S, equal, produce
from confluent_kafka.admin import NewTopic

PARTITIONS = 2
WORDS = [f"word{index}" for index in range(40)]
WORDS_IN_LINE = 10


def make(broker, source, target):
    topics = [NewTopic(name, PARTITIONS, 1) for name in (source, target)]
    for made in broker.admin.create_topics(topics).values():
        made.result(WAIT_S)


def write(broker, source, line_count):
    producer = broker.producer(enable_idempotence=True)
    for partition in range(PARTITIONS):
        lines = [
            " ".join(random.choices(WORDS, k=WORDS_IN_LINE)).encode()
            for _ in range(int(line_count) // PARTITIONS)
        ]
        produce(producer, source, partition, lines)


def check(broker, source, target):
    """Each word's counts go up by one from one to the number of times that it was written."""
    written = collections.Counter()
    for messages in broker.read_whole(source, PARTITIONS):
        for message in messages:
            written.update(message.value().decode().split(" "))
    counts = collections.defaultdict(list)
    for messages in broker.read_whole(target, PARTITIONS):
        for message in messages:
            counts[message.key().decode()].append(int(message.value()))
    equal(sorted(counts), sorted(written), "words")
    for word, total in written.items():
        equal(counts[word], list(range(1, total + 1)), f"counts of {word}")
