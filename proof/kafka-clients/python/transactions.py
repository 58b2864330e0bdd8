"""Transactions of librdkafka: all of one is seen, or nothing."""

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from log import WAIT_S, equal, numbered, produce, unique, values_of, wait_until

PARTITIONS = 2


def transactional(broker, name):
    producer = broker.producer(transactional_id=name, transaction_timeout_ms=30_000)
    producer.init_transactions(WAIT_S)
    return producer


def commit_and_abort(broker):
    topic = broker.topic("transactions", PARTITIONS)
    producer = transactional(broker, unique("transactions"))
    expected = []
    for index in range(10):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            produce(producer, topic, partition, numbered(f"{index}/{partition}", 50))
        if index % 3 == 1:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            expected.append(index)
    for isolation, kept in [("read_committed", expected), ("read_uncommitted", range(10))]:
        found = [values_of(it) for it in broker.read_whole(topic, PARTITIONS, isolation)]
        for partition in range(PARTITIONS):
            values = [it for index in kept for it in numbered(f"{index}/{partition}", 50)]
            equal(found[partition], values, f"records of {partition} with {isolation}")


def open_transactions_hold_readers_back(broker):
    """The last stable offset stays before an open transaction, though others go on behind it."""
    topic = broker.topic("open")
    producer = transactional(broker, unique("open"))
    produce(broker.producer(), topic, 0, [b"before"])
    producer.begin_transaction()
    produce(producer, topic, 0, [b"inside"])
    produce(broker.producer(), topic, 0, [b"behind"])
    [committed] = broker.read_whole(topic, 1)
    equal(values_of(committed), [b"before"], "committed while it is open")
    [all_records] = broker.read_whole(topic, 1, "read_uncommitted")
    equal(values_of(all_records), [b"before", b"inside", b"behind"], "all while it is open")
    producer.commit_transaction(WAIT_S)

    def found():
        return values_of(broker.read_whole(topic, 1)[0])

    # Commits are acknowledged before the markers are in every partition.
    wait_until(lambda: len(found()) == 3, "the records of the transaction")
    equal(found(), [b"before", b"inside", b"behind"], "committed after its end")


def fencing(broker):
    """A second producer of one transactional id aborts what the first began, and fences it."""
    topic = broker.topic("fencing")
    name = unique("fencing")
    first = transactional(broker, name)
    first.begin_transaction()
    produce(first, topic, 0, [b"of the first"])
    second = transactional(broker, name)
    try:
        first.commit_transaction(WAIT_S)
        raise AssertionError("the fenced producer could commit")
    except KafkaException as refusal:
        error = refusal.args[0]
        assert error.fatal() and error.code() in (KafkaError._FENCED, 90, 47), error
    second.begin_transaction()
    produce(second, topic, 0, [b"of the second"])
    second.commit_transaction(WAIT_S)
    [found] = broker.read_whole(topic, 1)
    equal(values_of(found), [b"of the second"], "records")


def consume_transform_produce(broker):
    """Offsets are committed with the transaction: restarted after an abort, each input counts once."""
    source, target = broker.topic("source"), broker.topic("target")
    count, group = 400, unique("transform")
    produce(broker.producer(), source, 0, numbered("in", count))
    producer = transactional(broker, unique("transform"))

    def transform(until, ends):
        consumer = broker.consumer(group, isolation_level="read_committed")
        consumer.subscribe([source])
        seen = []
        while len(seen) < until:
            messages = consumer.consume(until - len(seen), timeout=1)
            seen += [it for it in messages if not it.error()]
        producer.begin_transaction()
        produce(producer, target, 0, [b"out of " + it.value() for it in seen])
        position = [TopicPartition(source, 0, seen[-1].offset() + 1)]
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(position, metadata, WAIT_S)
        ends(WAIT_S)
        consumer.close()
        return seen

    equal(transform(150, producer.commit_transaction)[0].offset(), 0, "first offset")
    equal(transform(100, producer.abort_transaction)[0].offset(), 150, "first after a commit")
    equal(transform(250, producer.commit_transaction)[0].offset(), 150, "first after an abort")
    [found] = broker.read_whole(target, 1)
    equal(values_of(found), [b"out of " + it for it in numbered("in", count)], "records")


def timeouts(broker):
    """The broker aborts a transaction whose time is over, and fences its producer."""
    topic = broker.topic("timeouts")
    producer = broker.producer(
        transactional_id=unique("timeouts"), transaction_timeout_ms=1_000, message_timeout_ms=1_000
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    produce(producer, topic, 0, [b"too late"])
    produce(broker.producer(), topic, 0, [b"of another producer"])
    wait_until(
        lambda: values_of(broker.read_whole(topic, 1)[0]) == [b"of another producer"],
        "the end of the transaction that nobody ends",
    )
    try:
        producer.commit_transaction(WAIT_S)
        raise AssertionError("a transaction could be committed after its time")
    except KafkaException as refusal:
        error = refusal.args[0]
        assert error.fatal() or error.txn_requires_abort(), error
