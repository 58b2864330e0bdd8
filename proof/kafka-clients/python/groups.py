"""Consumer groups of librdkafka, by the classic protocol and by that of KIP-848."""

import collections
import threading
import time

from confluent_kafka import (
    OFFSET_BEGINNING, ConsumerGroupType, KafkaError, KafkaException, TopicPartition,
)
from confluent_kafka.admin import NewTopic

from log import WAIT_S, Deadline, equal, numbered, produce, unique, values_of, wait_until

PARTITIONS = 6
# So often the broker, the daemon below it or both are killed where a scenario lives through kills.
KILLS = 3
COUNT = 100


class Member(threading.Thread):
    """A consumer that commits what it has before it gives partitions up."""

    def __init__(self, broker, topic, group, seen, **options):
        super().__init__(daemon=True)
        self.consumer = broker.consumer(group, **options)
        self.topic = topic
        self.seen = seen
        self.owned = set()
        self.revoke_count = 0
        self.is_leaving = threading.Event()
        self.failure = None
        self.start()

    def run(self):
        try:
            self.consumer.subscribe([self.topic], on_assign=self.assigned, on_revoke=self.revoked)
            while not self.is_leaving.is_set():
                message = self.consumer.poll(0.1)
                if message is None:
                    continue
                if message.error():
                    raise KafkaException(message.error())
                place = (message.partition(), message.offset())
                self.seen.append((place, message.value()))
            # Leaves the group, by way of `revoked`.
            self.consumer.close()
        except Exception as failure:
            self.failure = failure

    def assigned(self, consumer, partitions):
        incremental = consumer.memberid() and self.is_cooperative
        (consumer.incremental_assign if incremental else consumer.assign)(partitions)
        self.owned |= {it.partition for it in partitions}

    def revoked(self, consumer, partitions):
        self.revoke_count += 1
        positions = [it for it in consumer.position(partitions) if it.offset >= 0]
        if positions:
            consumer.commit(offsets=positions, asynchronous=False)
        incremental = self.is_cooperative
        consumer.incremental_unassign(partitions) if incremental else consumer.unassign()
        self.owned -= {it.partition for it in partitions}

    is_cooperative = False

    def leave(self):
        self.is_leaving.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "a member could not leave"


class CooperativeMember(Member):
    is_cooperative = True


def balanced(members):
    """Whether every partition has one owner, and each member as many as the others."""
    for member in members:
        if member.failure is not None:
            raise member.failure
    shares = [frozenset(member.owned) for member in members]
    owned = [it for share in shares for it in share]
    each = PARTITIONS // len(members)
    return sorted(owned) == list(range(PARTITIONS)) and all(len(it) == each for it in shares)


def rebalances(broker, kind, is_killed=False, **options):
    """Three members join, one leaves: at no time is a record lost, nor seen by two of them, unless
    the broker is killed between a record and the commit of its offset."""
    topic, group = broker.topic("group", PARTITIONS), unique("group")
    producer = broker.producer(enable_idempotence=True)
    written, seen = collections.Counter(), []

    def write(label):
        for partition in range(PARTITIONS):
            values = numbered(f"{label}/{partition}", COUNT)
            offsets = produce(producer, topic, partition, values)
            written.update(((partition, offset), it) for offset, it in zip(offsets, values))

    def all_are_seen():
        balanced(members)
        return len(set(seen)) >= len(written)

    members = []
    for label in ["one", "two", "three"]:
        members.append(kind(broker, topic, group, seen, **options))
        wait_until(lambda: balanced(members), f"{len(members)} members with a share each")
        write(label)
        wait_until(all_are_seen, "the records of three members")
    write("while one leaves")
    members.pop(0).leave()
    # Two members share six partitions as three did: evenly.
    wait_until(lambda: balanced(members), "two members with a share each")
    write("two again")
    wait_until(all_are_seen, "the records of two members")
    for member in members:
        member.leave()
    if is_killed:
        equal(set(seen), set(written), "records that were seen")
        # Each kill may come between a record and the commit of its offset.
        most = max(collections.Counter(seen).values())
        assert most <= 1 + KILLS, f"a record was seen {most} times, over {KILLS} kills"
    else:
        equal(collections.Counter(seen), written, "records and how often they were seen")
    places = [TopicPartition(topic, it) for it in range(PARTITIONS)]
    consumer = broker.consumer(group)
    committed = [it.offset for it in consumer.committed(places, WAIT_S)]
    consumer.close()
    equal(committed, [5 * COUNT] * PARTITIONS, "committed offsets")


def classic_eager(broker):
    rebalances(broker, Member, partition_assignment_strategy="range", session_timeout_ms=10_000)


def classic_cooperative(broker):
    strategy = "cooperative-sticky"
    rebalances(broker, CooperativeMember, partition_assignment_strategy=strategy)


def consumer_protocol(broker):
    rebalances(broker, CooperativeMember, group_protocol="consumer")


def consumer_protocol_over_kills(broker):
    rebalances(broker, CooperativeMember, is_killed=True, group_protocol="consumer")


def changes_protocol(broker, kind, **options):
    """Members of a classic group are replaced one by one by members of the protocol of KIP-848, and
    these by classic ones again, while records come: each is seen once."""
    topic, group = broker.topic("protocols", PARTITIONS), unique("protocols")
    producer = broker.producer(enable_idempotence=True)
    written, seen = collections.Counter(), []

    def write(label):
        for partition in range(PARTITIONS):
            values = numbered(f"{label}/{partition}", COUNT)
            offsets = produce(producer, topic, partition, values)
            written.update(((partition, offset), it) for offset, it in zip(offsets, values))

    def kind_of_group():
        listed = broker.admin.list_consumer_groups().result(WAIT_S)
        return {it.group_id: it.type for it in listed.valid}[group]

    def all_are_seen():
        balanced(members)
        return len(set(seen)) >= len(written)

    def classic():
        options.update(session_timeout_ms=10_000, heartbeat_interval_ms=500)
        return kind(broker, topic, group, seen, **options)

    def modern():
        return CooperativeMember(broker, topic, group, seen, group_protocol="consumer")

    members = [classic() for _ in range(3)]
    wait_until(lambda: balanced(members), "three classic members with a share each")
    equal(kind_of_group(), ConsumerGroupType.CLASSIC, "type of the group")
    write("classic")
    for number, come in enumerate([modern] * 3 + [classic] * 3):
        members.append(come())
        write(f"while {number} comes")
        members.pop(0).leave()
        write(f"while {number} is there")
        wait_until(lambda: balanced(members), f"a share each after change {number}")
        wait_until(all_are_seen, f"the records after change {number}")
        expected = ConsumerGroupType.CLASSIC if number == 5 else ConsumerGroupType.CONSUMER
        equal(kind_of_group(), expected, f"type of the group after change {number}")
    for member in members:
        member.leave()
    equal(collections.Counter(seen), written, "records and how often they were seen")


def eager_group_changes_protocol(broker):
    changes_protocol(broker, Member, partition_assignment_strategy="range")


def cooperative_group_changes_protocol(broker):
    strategy = "cooperative-sticky"
    changes_protocol(broker, CooperativeMember, partition_assignment_strategy=strategy)


def dead_members_are_noticed(broker, **options):
    """A member that sends nothing more loses its partitions to the other one."""
    topic, group = broker.topic("dead", PARTITIONS), unique("dead")
    produce(broker.producer(), topic, 0, [b"x"])
    options.setdefault("session_timeout_ms", 6_000)
    options.setdefault("heartbeat_interval_ms", 500)
    # Polls no more after this time: the client leaves the group by itself.
    silent = broker.consumer(group, max_poll_interval_ms=6_000, **options)
    revoked = []
    silent.subscribe([topic], on_revoke=lambda consumer, partitions: revoked.extend(partitions))
    wait_until(lambda: silent.poll(0.1) is not None, "the record of the first member")
    other = Member(broker, topic, group, [], **options)
    wait_until(lambda: len(other.owned) == PARTITIONS, "the partitions of the silent member")
    other.leave()

    # Comes back when it polls. It is not closed before: librdkafka's close() may wait for ever
    # where a rebalance was not polled for (its issue 4884).
    def is_back():
        silent.poll(0.1)
        return revoked and len(silent.assignment()) == PARTITIONS

    wait_until(is_back, "the silent member to come back")
    silent.close()


def static_members(broker):
    """One that comes back under its instance id gets its partitions, without a rebalance."""
    topic, group = broker.topic("static", PARTITIONS), unique("static")
    seen = []
    options = {"partition_assignment_strategy": "range", "session_timeout_ms": 30_000}
    stays = Member(broker, topic, group, seen, group_instance_id="stays", **options)
    goes = Member(broker, topic, group, seen, group_instance_id="goes", **options)
    wait_until(lambda: balanced([stays, goes]), "two members with a share each")
    before = set(stays.owned), set(goes.owned)
    revoke_count = stays.revoke_count
    # A static member leaves nothing behind but its place.
    goes.leave()
    again = Member(broker, topic, group, seen, group_instance_id="goes", **options)
    wait_until(lambda: len(again.owned) == len(before[1]), "the share of the one that came back")
    equal((set(stays.owned), set(again.owned)), before, "shares")
    # What was written since is read by both, which polled and saw no rebalance.
    for partition in range(PARTITIONS):
        produce(broker.producer(), topic, partition, [b"x"])
    wait_until(lambda: len(seen) == PARTITIONS, "a record of each partition")
    equal(stays.revoke_count, revoke_count, "rebalances that the other one saw")
    again.leave()
    stays.leave()


def commit_seek_replay(broker):
    topic, group = broker.topic("replay"), unique("replay")
    base_ms, count = 1_700_000_000_000, 300
    values = numbered("at", count)
    producer = broker.producer()
    for index, value in enumerate(values):
        # Ten milliseconds from one to the next.
        producer.produce(topic, value, timestamp=base_ms + 10 * index)
    equal(producer.flush(WAIT_S), 0, "records that were not delivered")

    def read(consumer, number):
        found, deadline = [], Deadline(f"{number} records")
        while len(found) < number:
            deadline.check()
            found += consumer.consume(number - len(found), timeout=0.2)
        equal([it.error() for it in found if it.error()], [], "errors")
        return values_of(found)

    consumer = broker.consumer(group)
    consumer.subscribe([topic])
    equal(read(consumer, 120), values[:120], "the first records")
    consumer.commit(offsets=[TopicPartition(topic, 0, 120, metadata="note")], asynchronous=False)
    consumer.close()

    consumer = broker.consumer(group)
    consumer.subscribe([topic])
    equal(read(consumer, 30), values[120:150], "records behind the committed offset")
    [kept] = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
    equal((kept.offset, kept.metadata), (120, "note"), "what was committed")
    consumer.seek(TopicPartition(topic, 0, 50))
    equal(read(consumer, 20), values[50:70], "records behind the place that was sought")
    # Between the records 199 and 200, exactly at 200, and behind the last.
    asked = [base_ms + 1995, base_ms + 2000, base_ms + 10 * count]
    for time_ms, offset in zip(asked, [200, 200, -1]):
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], WAIT_S)
        equal(found.offset, offset, f"offset for the time {time_ms - base_ms}")
    consumer.seek(TopicPartition(topic, 0, 200))
    equal(read(consumer, 100), values[200:], "records from that time on")
    equal(consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S), (0, count), "range")
    consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    equal(read(consumer, 10), values[:10], "records from the beginning")
    consumer.close()


def offsets_out_of_range(broker):
    """A committed offset that is gone: by the client's choice an error, or the earliest record."""
    topic, group = broker.topic("range"), unique("range")
    produce(broker.producer(), topic, 0, numbered("in", 10))
    for reset, expected in [("error", None), ("earliest", b"in-0")]:
        consumer = broker.consumer(group, auto_offset_reset=reset)
        consumer.assign([TopicPartition(topic, 0, 1_000)])
        deadline, message = Deadline("an answer"), None
        while message is None:
            deadline.check()
            message = consumer.poll(0.2)
        if expected is None:
            equal(message.error().code(), KafkaError._AUTO_OFFSET_RESET, "error")
        else:
            equal(message.value(), expected, "record")
        consumer.close()


def long_polls_end_with_a_record(broker):
    """A waiting fetch is answered when the record comes, long before its time is over."""
    topic = broker.topic("poll")
    consumer = broker.consumer(fetch_wait_max_ms=30_000, fetch_min_bytes=1)
    consumer.assign([TopicPartition(topic, 0, 0)])
    equal(consumer.poll(1), None, "record of an empty topic")
    began = time.monotonic()
    produce(broker.producer(), topic, 0, [b"now"])
    message = consumer.poll(WAIT_S)
    assert message is not None and message.value() == b"now", message
    waited = time.monotonic() - began
    assert waited < 25, f"the record came after {waited} s, when the fetch was over"
    consumer.close()


def write_topic(broker, topic, label, count):
    made = broker.admin.create_topics([NewTopic(topic, 1, 1)])
    made[topic].result(WAIT_S)
    produce(broker.producer(), topic, 0, numbered(label, int(count)))


def topic_made_again(broker, topic, count):
    """A consumer reads a topic that was deleted and made again, with fewer records, from its start."""
    consumer = broker.consumer(topic_metadata_refresh_interval_ms=500)
    consumer.subscribe([topic])

    def read(label, count):
        found = []

        def are_read():
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                found.append(message.value())
            return len(found) >= count

        wait_until(are_read, f"{count} records {label}")
        equal(found, numbered(label, count), f"records {label}")

    count = int(count)
    read("before", count)
    broker.admin.delete_topics([topic])[topic].result(WAIT_S)
    write_topic(broker, topic, "after", count // 2)
    read("after", count // 2)
    consumer.close()
