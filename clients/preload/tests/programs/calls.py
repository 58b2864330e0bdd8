"""Makes random calls on a file or device and writes down what each returned.

usage: calls.py PATH SEED COUNT

Whoever makes the same calls on the same contents gets the same transcript.
"""

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import random
import sys

PATH, SEED, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PART_BYTES_MAX = 1 << 18
PARTS_MAX = 3
DESCRIPTORS_MAX = 6

rng = random.Random(SEED)
memory = mmap.mmap(-1, PARTS_MAX * PART_BYTES_MAX)
room = memoryview(memory)
descriptors = []
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
libc.pread64.argtypes = [*libc.read.argtypes, ctypes.c_int64]
libc.read.restype = libc.pread64.restype = ctypes.c_ssize_t
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
size = os.lseek(opened := os.open(PATH, os.O_RDONLY), 0, os.SEEK_END)
os.close(opened)


def pick_length():
    odd = rng.choice([1, 100, 511, 4095, 5000])
    even = 4096 * rng.choice([1, 1, 1, 2, 5, 16, 32])
    return rng.choices([odd, even, 512, 0], [2, 10, 2, 1])[0]


def pick_offset():
    near_end = size - rng.choice([0, 1, 512, 4096, 8192, 65536])
    block = 4096 * rng.randrange(size // 4096)
    odd = rng.randrange(size)
    behind = size + rng.choice([0, 1, 4096, 1 << 20])
    return rng.choices([block, near_end, odd, behind], [10, 3, 2, 1])[0]


def pick_part(number):
    """Parts do not overlap: what is read into two at once is anybody's guess."""
    start = number * PART_BYTES_MAX + rng.choices([0, 4096, 512, 1], [8, 4, 2, 1])[0]
    return room[start : start + pick_length()]


def pick_parts():
    return [pick_part(number) for number in range(rng.choice([1, 1, 2, PARTS_MAX]))]


def fill(part):
    part[:] = rng.randbytes(len(part)) if rng.random() < 0.7 else bytes([rng.randrange(3)]) * len(part)
    return part


def digest(parts, count):
    joined = b"".join(bytes(part) for part in parts)[: max(count, 0)]
    return hashlib.sha1(joined).hexdigest()[:12]


def read(name, call, parts):
    for part in parts:
        part[:] = b"\x55" * len(part)
    count = call()
    return f"{name} {count} {digest(parts, count)}"


def read_flat(name, length, call):
    """Python's own functions read to wherever it has memory, which is aligned by chance."""

    def checked():
        count = call()
        if count < 0:
            raise OSError(ctypes.get_errno(), name)
        return count

    return read(name, checked, [room[:length]])


def open_one():
    flags = rng.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR])
    # Without it a block device has a page cache, which this is not about.
    flags |= os.O_DIRECT if is_device or rng.random() < 0.5 else 0
    flags |= rng.choices([0, os.O_DSYNC, os.O_SYNC, os.O_APPEND], [12, 1, 1, 1])[0]
    if len(descriptors) >= DESCRIPTORS_MAX:
        os.close(descriptors.pop(rng.randrange(len(descriptors))))
    descriptors.append(os.open(PATH, flags))
    return f"open {len(descriptors)}"


def duplicate(fd):
    if len(descriptors) >= DESCRIPTORS_MAX:
        other = rng.choice(descriptors)
        return f"dup2 {os.dup2(fd, other) == other}"
    descriptors.append(os.dup(fd))
    return "dup"


def close(fd):
    os.close(fd)
    # Once in a while a number is used that is not open.
    if rng.random() < 0.8:
        descriptors.remove(fd)
    return "close"


def change_flags(fd):
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    changed = rng.choice([os.O_APPEND, os.O_NONBLOCK] + ([] if is_device else [os.O_DIRECT]))
    return f"setfl {fcntl.fcntl(fd, fcntl.F_SETFL, flags ^ changed)}"


def in_child(fd):
    """A forked child shares the offset."""
    part = [room[:4096]]
    fill(part[0])
    writes = rng.random() < 0.5
    child = os.fork()
    if child == 0:
        try:
            count = os.writev(fd, part) if writes else os.readv(fd, part)
            os._exit(0 if count == 4096 else 100)
        except OSError as error:
            os._exit(error.errno)
    _, status = os.waitpid(child, 0)
    return f"child {os.waitstatus_to_exitcode(status)}"


def allocate(fd):
    mode = rng.choice([0x3, 0x10, 0x11, 0x1, 0x0])
    result = libc.fallocate(fd, mode, pick_offset() // 4096 * 4096, 4096 * rng.choice([1, 3, 100]))
    if result != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
    return f"fallocate {mode}"


def step():
    if not descriptors or rng.random() < 0.05:
        return open_one()
    fd = rng.choice(descriptors)
    parts = pick_parts()
    offset = pick_offset()
    wish = rng.choice([0, 0, 0, os.RWF_DSYNC, os.RWF_SYNC, os.RWF_HIPRI])
    flat = pick_length()
    table = [
        (8, lambda: read("preadv", lambda: os.preadv(fd, parts, offset), parts)),
        (8, lambda: f"pwritev {os.pwritev(fd, [fill(part) for part in parts], offset)}"),
        (2, lambda: read("preadv2", lambda: os.preadv(fd, parts, offset, wish), parts)),
        (2, lambda: f"pwritev2 {os.pwritev(fd, [fill(part) for part in parts], offset, wish)}"),
        (3, lambda: read("readv", lambda: os.readv(fd, parts), parts)),
        (3, lambda: f"writev {os.writev(fd, [fill(part) for part in parts])}"),
        (2, lambda: read_flat("pread", flat, lambda: libc.pread64(fd, start, flat, offset))),
        (2, lambda: read_flat("read", flat, lambda: libc.read(fd, start, flat))),
        (2, lambda: f"pwrite {os.pwrite(fd, fill(room[:flat]), offset)}"),
        (2, lambda: f"write {os.write(fd, fill(room[:flat]))}"),
        (3, lambda: f"lseek {os.lseek(fd, min(offset, size), os.SEEK_SET)}"),
        (1, lambda: f"lseek {os.lseek(fd, rng.choice([-4096, 0, 4096]), os.SEEK_CUR)}"),
        (1, lambda: f"tell {os.lseek(fd, 0, os.SEEK_CUR)}"),
        (1, lambda: f"end {os.lseek(fd, 0, os.SEEK_END)}"),
        (1, lambda: f"fsync {os.fsync(fd)}"),
        (1, lambda: f"fdatasync {os.fdatasync(fd)}"),
        (1, lambda: duplicate(fd)),
        (1, lambda: close(fd)),
        (1, lambda: change_flags(fd)),
        (1, lambda: f"truncate {os.ftruncate(fd, rng.choice([size, size - 4096]))}"),
        (1, lambda: allocate(fd)),
        (1, lambda: f"advise {os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)}"),
        (0.3, lambda: in_child(fd)),
    ]
    weights, actions = zip(*table)
    return rng.choices(actions, weights)[0]()


is_device = not os.path.isfile(PATH)
for number in range(COUNT):
    try:
        print(number, step())
    except OSError as error:
        print(number, errno.errorcode.get(error.errno, error.errno))
