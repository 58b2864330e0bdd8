"""A stream of records through a NATS server with its store in files: work RECORDS BYTES SEED
publishes and reads them, check RECORDS BYTES SEED reads them once more from a server that is new.

The protocol: https://docs.nats.io/reference/reference-protocols/nats-protocol and, for the store,
https://docs.nats.io/reference/reference-protocols/nats_api_reference
"""

import contextlib
import glob
import json
import random
import socket
import subprocess
import sys
import time

SETTINGS = 'host: "127.0.0.1"\nport: -1\njetstream { store_dir: "store" }\n'
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
SILENCE_SECONDS_MAX = 60
IN_FLIGHT_MAX = 1024
FETCHED_AT_ONCE = 1024
NOISE_BYTES = 1 << 20


def port_of(server):
    """Where the server listens, as it wrote once it did."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"nats-server ended with {server.returncode}: " + open("server.log").read())
        for path in glob.glob(f"*_{server.pid}.ports"):
            with contextlib.suppress(ValueError):
                return int(json.load(open(path))["nats"][0].rsplit(":", 1)[1])
        time.sleep(0.02)
    sys.exit("nats-server does not listen")


@contextlib.contextmanager
def broker():
    with open("server.conf", "w") as settings:
        settings.write(SETTINGS)
    words = ["nats-server", "-c", "server.conf", "-l", "server.log", "--ports_file_dir", "."]
    with subprocess.Popen(words) as server:
        try:
            yield Connection(port_of(server))
        finally:
            server.terminate()
            try:
                server.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                server.kill()


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), SILENCE_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb", 1 << 16)
        self.line()
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB in 1\r\n')

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        line = self.input.readline()
        if not line:
            sys.exit("nats-server closed the connection: " + open("server.log").read())
        return line.rstrip(b"\r\n")

    def message(self):
        """The next message that came: its headers and its payload."""
        while True:
            words = self.line().split()
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"MSG":
                return b"", self.input.read(int(words[-1]) + 2)[:-2]
            elif words[0] == b"HMSG":
                head, size = int(words[-2]), int(words[-1])
                data = self.input.read(size + 2)[:-2]
                return data[:head], data[head:]
            elif words[0] == b"-ERR":
                sys.exit(f"nats-server: {words}")

    def ask(self, subject, request):
        request = json.dumps(request).encode()
        self.send(b"PUB $JS.API.%s in %d\r\n%s\r\n" % (subject.encode(), len(request), request))
        answer = json.loads(self.message()[1])
        if "error" in answer:
            sys.exit(f"{subject}: {answer['error']}")
        return answer


def records(count, size, seed):
    """Each begins with its number; what follows is noise."""
    noise = random.Random(seed).randbytes(NOISE_BYTES + size)
    for number in range(count):
        at = number * 8191 % NOISE_BYTES
        yield number.to_bytes(8, "big") + noise[at : at + size - 8]


def publish(connection, count, size, seed):
    connection.ask("STREAM.CREATE.records", {"name": "records", "subjects": ["record"],
                                             "storage": "file", "num_replicas": 1})
    batch, in_flight = [], 0
    for record in records(count, size, seed):
        batch.append(b"PUB record in %d\r\n%s\r\n" % (size, record))
        if len(batch) == IN_FLIGHT_MAX // 2:
            in_flight = flush(connection, batch, in_flight)
    in_flight = flush(connection, batch, in_flight)
    acknowledged(connection, in_flight)


def flush(connection, batch, in_flight):
    connection.send(b"".join(batch))
    # The acknowledgements of the batch before this one: so two are under way.
    acknowledged(connection, in_flight)
    in_flight = len(batch)
    batch.clear()
    return in_flight


def acknowledged(connection, count):
    for _ in range(count):
        answer = json.loads(connection.message()[1])
        if "seq" not in answer:
            sys.exit(f"a record was refused: {answer}")


def consume(connection, count, size, seed):
    config = {"durable_name": "reader", "ack_policy": "none", "deliver_policy": "all"}
    connection.ask("CONSUMER.DURABLE.CREATE.records.reader",
                   {"stream_name": "records", "config": config})
    expected = records(count, size, seed)
    left = count
    while left > 0:
        batch = min(left, FETCHED_AT_ONCE)
        request = b'{"batch":%d}' % batch
        subject = b"$JS.API.CONSUMER.MSG.NEXT.records.reader"
        connection.send(b"PUB %s in %d\r\n%s\r\n" % (subject, len(request), request))
        for _ in range(batch):
            head, record = connection.message()
            if head:
                sys.exit(f"{left} records are missing: {head}")
            if record != next(expected):
                sys.exit(f"a record is not what was published, {left} before the end")
        left -= batch


def main(verb, *numbers):
    count, size, seed = (int(number) for number in numbers)
    with broker() as connection:
        if verb == "work":
            publish(connection, count, size, seed)
        else:
            connection.ask("CONSUMER.DELETE.records.reader", {})
        consume(connection, count, size, seed)
        state = connection.ask("STREAM.INFO.records", {})["state"]
        print(f"{state['messages']} records")


main(*sys.argv[1:])
