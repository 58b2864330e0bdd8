"""Runs one scenario: `scenarios.py MODULE.SCENARIO HOST PORT TABLE`.

The table is a topic of 3 partitions with 30 records: keys `k0` to `k29`, values
`{"name": "n0", "qty": 0, "price": 0.5}` and so on, each record in the partition of its number.
"""

import importlib
import sys


def equal(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: {found!r} instead of {expected!r}")


def main():
    name, host, port, table = sys.argv[1:]
    module, scenario = name.split(".")
    getattr(importlib.import_module(module), scenario)(host, int(port), table)


if __name__ == "__main__":
    main()
