"""A child uses the volume that its parent opened, at the same time as its parent.

python3 forked.py LIBRARY /run/memlane/ring.sock VOLUME [fork | _Fork | clone]
"""

import ctypes
import errno
import os
import signal
import sys

from copy_block import BLOCK_BYTES, Volume, load

ROUNDS = 200

# The number of the system call is that of each platform.
CLONE = 56 if os.uname().machine == "x86_64" else 220


class Completion(ctypes.Structure):
    _fields_ = [("token", ctypes.c_uint64), ("result", ctypes.c_int)]


def make_child(way: str) -> int:
    """As fork. Children of the other ways are told nothing by the C library."""
    if way == "fork":
        return os.fork()
    library = ctypes.PyDLL(None)
    if way == "_Fork":
        return library._Fork()
    library.syscall.restype = ctypes.c_long
    number = ctypes.c_long
    return library.syscall(number(CLONE), number(signal.SIGCHLD), *[number(0)] * 4)


def work(volume: Volume, process: int) -> None:
    """Writes blocks of its own and reads them back."""
    for round_number in range(ROUNDS):
        block = bytes([process, round_number % 251]) * (BLOCK_BYTES // 2)
        offset = (2 * (round_number % 16) + process) * BLOCK_BYTES
        volume.write(offset, block)
        assert volume.read(offset, BLOCK_BYTES) == block, f"process {process}: other bytes"


def result_of(volume: Volume, lane: ctypes.c_void_p) -> int:
    """What a request that is under way ends with."""
    completion = Completion()
    while volume.library.memlane_wait(lane, ctypes.byref(completion), 1, ctypes.c_uint64(0)) == 0:
        pass
    return completion.result


def read_by(volume: Volume, lane: ctypes.c_void_p, into: ctypes.Array) -> None:
    number = ctypes.c_uint64
    volume.check(
        volume.library.memlane_submit_read(lane, number(0), into, number(BLOCK_BYTES), number(7))
    )


def main() -> None:
    path, socket, name = sys.argv[1:4]
    way = sys.argv[4] if len(sys.argv) > 4 else "fork"
    volume = Volume(load(path), socket, name)
    work(volume, 0)
    lane, into = ctypes.c_void_p(), ctypes.create_string_buffer(BLOCK_BYTES)
    volume.check(volume.library.memlane_lane_open(volume.device, ctypes.byref(lane)))
    read_by(volume, lane, into)
    child = make_child(way)
    if child == 0:
        # What is under way is the parent's.
        assert result_of(volume, lane) == -errno.ECANCELED
        read_by(volume, lane, into)
        assert result_of(volume, lane) == 0
        work(volume, 1)
        os._exit(0)
    assert result_of(volume, lane) == 0
    work(volume, 0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
    work(volume, 0)
    volume.library.memlane_lane_close(lane)
    volume.close()
    print("both went on")


if __name__ == "__main__":
    main()
