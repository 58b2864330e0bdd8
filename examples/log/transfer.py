"""Reads orders, adds up their lines and writes the totals, each exactly once.

python3 transfer.py BROKER INPUT OUTPUT

An order is a JSON object such as {"lines": [{"quantity": 2, "price": 5}]}.

Offsets of the input are committed in the transaction that writes the output: after a crash the next
run continues where the last committed transaction ended. Ends when the input has been read.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

GROUP = "transfer"
BATCH = 100
TIMEOUT_S = 60


def total(order):
    return sum(line["quantity"] * line["price"] for line in order["lines"])


def read_batch(consumer, partitions_left):
    """Up to BATCH records; none when all partitions have been read to their ends."""
    records = []
    while len(records) < BATCH and partitions_left:
        message = consumer.poll(TIMEOUT_S)
        if message is None:
            raise SystemExit("the broker does not answer")
        if message.error() is None:
            records.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            partitions_left.discard(message.partition())
        else:
            raise KafkaException(message.error())
    return records


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    broker, source, target = sys.argv[1:]
    consumer = Consumer({
        "bootstrap.servers": broker,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })
    partitions = set(consumer.list_topics(source, TIMEOUT_S).topics[source].partitions)
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": broker, "transactional.id": GROUP})
    producer.init_transactions(TIMEOUT_S)
    count = 0
    while records := read_batch(consumer, partitions):
        producer.begin_transaction()
        for record in records:
            value = json.dumps({"total": total(json.loads(record.value()))})
            producer.produce(target, value, record.key())
        positions = [it for it in consumer.position(consumer.assignment()) if it.offset >= 0]
        producer.send_offsets_to_transaction(
            positions, consumer.consumer_group_metadata(), TIMEOUT_S
        )
        producer.commit_transaction(TIMEOUT_S)
        count += len(records)
    consumer.close()
    print(f"{count} orders")


if __name__ == "__main__":
    main()
