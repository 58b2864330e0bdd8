"""Writes a block, reads it back and flushes, through libmemlane.

python3 copy_block.py LIBRARY /run/memlane/ring.sock VOLUME
"""

import ctypes
import sys

BLOCK_BYTES = 4096


def load(path: str) -> ctypes.CDLL:
    """The library with the types of the functions that are used here."""
    library = ctypes.CDLL(path)
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    library.memlane_open.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        number,
        ctypes.POINTER(pointer),
    ]
    library.memlane_read.argtypes = [pointer, number, pointer, ctypes.c_size_t]
    library.memlane_write.argtypes = [pointer, number, pointer, ctypes.c_size_t]
    library.memlane_flush.argtypes = [pointer]
    library.memlane_size.argtypes = [pointer]
    library.memlane_size.restype = number
    library.memlane_close.argtypes = [pointer]
    library.memlane_close.restype = None
    library.memlane_last_error.restype = ctypes.c_char_p
    return library


class Volume:
    """An open volume."""

    def __init__(self, library: ctypes.CDLL, socket: str, name: str) -> None:
        self.library = library
        self.device = ctypes.c_void_p()
        self.check(
            library.memlane_open(socket.encode(), name.encode(), 0, ctypes.byref(self.device))
        )

    def read(self, offset: int, length: int) -> bytes:
        into = ctypes.create_string_buffer(length)
        self.check(self.library.memlane_read(self.device, offset, into, length))
        return into.raw

    def write(self, offset: int, data: bytes) -> None:
        self.check(self.library.memlane_write(self.device, offset, data, len(data)))

    def flush(self) -> None:
        self.check(self.library.memlane_flush(self.device))

    def size(self) -> int:
        return self.library.memlane_size(self.device)

    def close(self) -> None:
        self.library.memlane_close(self.device)

    def check(self, code: int) -> None:
        if code < 0:
            raise OSError(-code, self.library.memlane_last_error().decode())


def main() -> None:
    path, socket, name = sys.argv[1:]
    volume = Volume(load(path), socket, name)
    block = bytes(range(256)) * (BLOCK_BYTES // 256)
    volume.write(BLOCK_BYTES, block)
    assert volume.read(BLOCK_BYTES, BLOCK_BYTES) == block, "other bytes came back"
    volume.flush()
    print(f"{name}: {volume.size()} bytes")
    volume.close()


if __name__ == "__main__":
    main()
