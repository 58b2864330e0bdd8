"""Runs one scenario: `scenarios.py MODULE.SCENARIO ADDRESS [ARGUMENT]...`."""

import importlib
import sys

from log import Broker


def main():
    name, address, *arguments = sys.argv[1:]
    module, scenario = name.split(".")
    getattr(importlib.import_module(module), scenario)(Broker(address), *arguments)


if __name__ == "__main__":
    main()
