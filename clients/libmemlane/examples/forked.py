"""A forked child uses the volume that its parent opened, at the same time as its parent.

python3 forked.py LIBRARY /run/memlane/ring.sock VOLUME
"""

import os
import sys

from copy_block import BLOCK_BYTES, Volume, load

ROUNDS = 200


def work(volume: Volume, process: int) -> None:
    """Writes blocks of its own and reads them back."""
    for round_number in range(ROUNDS):
        block = bytes([process, round_number % 251]) * (BLOCK_BYTES // 2)
        offset = (2 * (round_number % 16) + process) * BLOCK_BYTES
        volume.write(offset, block)
        assert volume.read(offset, BLOCK_BYTES) == block, f"process {process}: other bytes"


def main() -> None:
    path, socket, name = sys.argv[1:]
    volume = Volume(load(path), socket, name)
    work(volume, 0)
    child = os.fork()
    if child == 0:
        work(volume, 1)
        os._exit(0)
    work(volume, 0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
    work(volume, 0)
    volume.close()
    print("both went on")


if __name__ == "__main__":
    main()
