"""A store in a B-tree (LMDB): fill FOLDER ROWS, work FOLDER ROWS UPDATES SEED, sum FOLDER.

Each update is a transaction of its own and durable; as many reads of random rows lie between them.
"""

import random
import struct
import sys

import lmdb

VALUE_BYTES = 400
ROWS_EACH_TRANSACTION = 10_000


def key(row):
    return struct.pack(">Q", row)


def value(version, noise):
    return struct.pack(">Q", version) + noise.randbytes(VALUE_BYTES - 8)


def version_of(stored):
    return struct.unpack_from(">Q", stored)[0]


def fill(tree, rows):
    noise = random.Random(rows)
    for first in range(0, rows, ROWS_EACH_TRANSACTION):
        with tree.begin(write=True) as transaction:
            for row in range(first, min(rows, first + ROWS_EACH_TRANSACTION)):
                transaction.put(key(row), value(0, noise), append=True)


def work(tree, rows, updates, seed):
    noise = random.Random(seed)
    for _ in range(updates):
        with tree.begin() as transaction:
            stored = transaction.get(key(noise.randrange(rows)))
            assert len(stored) == VALUE_BYTES
        with tree.begin(write=True) as transaction:
            row = key(noise.randrange(rows))
            version = version_of(transaction.get(row))
            transaction.put(row, value(version + 1, noise))


def versions(tree):
    with tree.begin() as transaction:
        stored = [version_of(stored) for _, stored in transaction.cursor()]
    return f"{len(stored)} rows, {sum(stored)} updates"


def main(verb, folder, *numbers):
    numbers = [int(number) for number in numbers]
    # The size is address space: the file grows as pages are used.
    with lmdb.open(folder, map_size=64 << 30, sync=True, metasync=True) as tree:
        if verb == "fill":
            fill(tree, *numbers)
        elif verb == "work":
            work(tree, *numbers)
        else:
            print(versions(tree))


main(*sys.argv[1:])
