"""A consumer that waits at the end of every partition while its broker is started again and again.

The test stops the consumer during each restart, so that records are there before it asks where it
is. Some partitions stay empty over many restarts.
"""

import json

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from log import WAIT_S, Deadline, equal, produce, unique, wait_until

ROUNDS_OF_A_FIRST_RECORD = 10


def written_in(number, partitions):
    """The partitions that get a record in this round: some their first, some another one."""
    first = number % ROUNDS_OF_A_FIRST_RECORD
    return [it for it in range(partitions) if it % ROUNDS_OF_A_FIRST_RECORD == first or (
        it % ROUNDS_OF_A_FIRST_RECORD < number and (it + number) % 3 == 0
    )]


def value(number, partition):
    return f"{number}-{partition}".encode()


def write_round(broker, topic, number, partitions):
    producer = broker.producer(linger_ms=0)
    for partition in written_in(int(number), int(partitions)):
        produce(producer, topic, partition, [value(number, partition)])


def read_rounds(broker, topic, rounds, partitions):
    """Says `waits N` when it is at the end of all partitions before round N."""
    partitions = int(partitions)
    broker.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    active = set()

    def note(statistics):
        found = json.loads(statistics)["topics"].get(topic, {"partitions": {}})["partitions"]
        active.update(it for it, state in found.items() if state["fetch_state"] == "active")

    options = {"auto_offset_reset": "latest", "fetch_wait_max_ms": 50, "statistics_interval_ms": 50}
    config = broker.config(group_id=unique("waiting"), enable_auto_commit=False, **options)
    consumer = Consumer(config | {"stats_cb": note})
    consumer.assign([TopicPartition(topic, it) for it in range(partitions)])
    wait_until(lambda: consumer.poll(0.05) is None and len(active) == partitions, "all positions")
    for number in range(int(rounds)):
        print(f"waits {number}", flush=True)
        expected = {(it, value(number, it)) for it in written_in(number, partitions)}
        found, deadline = [], Deadline(f"the records of round {number}")
        while len(found) < len(expected):
            deadline.check()
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                found.append((message.partition(), message.value()))
        equal(sorted(found), sorted(expected), f"records of round {number}")
    consumer.close()
