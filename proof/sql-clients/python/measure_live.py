"""Measures live queries of a broker that runs: `measure_live.py HOST PORT KAFKA-ADDRESS [SECONDS]`.

Latency: records are published at 5,000 a second; how long until kcat, a Kafka consumer, and psql, by
`COPY (SUBSCRIBE …) TO STDOUT`, have each. Throughput: how fast both read a log of 500,000 records
of 300 bytes, psql with filters of several selectivities. Needs kcat, psql and stdbuf.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time

RATE = 5_000
RECORDS = 500_000
RECORD_BYTES = 300


class Broker:
    def __init__(self, host, port, kafka):
        self.kafka = kafka
        self.environment = os.environ | {
            "PGHOST": host, "PGPORT": port, "PGUSER": "measure", "PGDATABASE": "memlane",
        }

    def kcat(self, *options):
        return ["kcat", "-b", self.kafka, *options]

    def subscribe(self, query, options="", end=""):
        copy = f"COPY (SUBSCRIBE TO ({query}) {options} {end}) TO STDOUT"
        return ["stdbuf", "-oL", "psql", "--no-psqlrc", "-q", "-c", copy]


def follow(command, environment, latencies):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)

    def run():
        for line in process.stdout:
            at = line.find(b"at=")
            if at >= 0:
                latencies.append(time.time_ns() - int(line[at + 3:at + 22]))

    threading.Thread(target=run, daemon=True).start()
    return process


def at(latencies, share):
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6


def latency(broker, seconds):
    topic = f"latency{time.time_ns()}"
    subprocess.run(broker.kcat("-P", "-t", topic), input=b"first\n", check=True)
    consumed, subscribed = [], []
    query = f"SELECT value FROM {topic}"
    processes = [
        follow(broker.kcat("-C", "-t", topic, "-o", "end", "-u", "-q",
                           "-X", "fetch.wait.max.ms=500"), None, consumed),
        follow(broker.subscribe(query, "WITH (SNAPSHOT = false)"), broker.environment, subscribed),
    ]
    time.sleep(3)
    producer = subprocess.Popen(
        broker.kcat("-P", "-t", topic, "-X", "linger.ms=0"), stdin=subprocess.PIPE, bufsize=0
    )
    begun = time.monotonic()
    for number in range(RATE * seconds):
        wait = begun + number / RATE - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        producer.stdin.write(b"at=%d\n" % time.time_ns())
    producer.stdin.close()
    producer.wait()
    time.sleep(2)
    for process in processes:
        process.kill()
    figures = {
        name: {"rows": len(of), "p50_ms": at(of, 0.5), "p99_ms": at(of, 0.99)}
        for name, of in [("consumer", consumed), ("live", subscribed)] if of
    }
    print(json.dumps({"latency": figures}))


def throughput(broker):
    topic = f"throughput{time.time_ns()}"
    with tempfile.NamedTemporaryFile() as file:
        for number in range(RECORDS):
            start = b'{"n": %d, "pad": "' % (number % 100)
            file.write(start + b"x" * (RECORD_BYTES - len(start) - 2) + b'"}\n')
        file.flush()
        command = broker.kcat("-P", "-t", topic, "-p", "0", "-l", file.name)
        subprocess.run(command, check=True)
    print(json.dumps({"throughput": "consumer", "records_per_second": timed(
        broker.kcat("-C", "-t", topic, "-p", "0", "-e", "-q"), None)}))
    for percent in [0, 1, 50, 100]:
        query = f"SELECT value FROM {topic} WHERE (value->>'n')::int < {percent}"
        command = broker.subscribe(query, end=f"UP TO OFFSET {RECORDS}")[2:]
        speed = timed(command, broker.environment)
        print(json.dumps({"throughput": f"live {percent} %", "records_per_second": speed}))


def timed(command, environment):
    begun = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True)
    return round(RECORDS / (time.monotonic() - begun))


def main():
    host, port, kafka, *rest = sys.argv[1:]
    broker = Broker(host, port, kafka)
    latency(broker, int(rest[0]) if rest else 20)
    throughput(broker)


if __name__ == "__main__":
    main()
