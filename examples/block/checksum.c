/* Prints the 64-bit FNV-1a checksum of a volume, which it reads with sixteen requests in flight.
 *
 * cargo build --release -p libmemlane
 * cc -I clients/libmemlane/include examples/block/checksum.c -L target/release -lmemlane -o checksum
 * LD_LIBRARY_PATH=target/release ./checksum /run/memlane/ring.sock VOLUME
 *
 * The package memlane-dev has the library in /usr/lib/memlane. */
#include <memlane.h>
#include <stdio.h>

enum { CHUNK = 64 * 1024, DEPTH = 16 };

static unsigned char chunks[DEPTH][CHUNK];

static int fail(const char *what) {
    fprintf(stderr, "cannot %s: %s\n", what, memlane_last_error());
    return 1;
}

static size_t length_at(uint64_t offset, uint64_t size) {
    return size - offset < CHUNK ? (size_t)(size - offset) : CHUNK;
}

static int submit(memlane_lane *lane, uint64_t number, uint64_t size) {
    uint64_t offset = number * CHUNK;
    return memlane_submit_read(lane, offset, chunks[number % DEPTH], length_at(offset, size), number);
}

/* Reads may end in any order. Chunk N is taken in when all before it were, and its buffer is then
 * used for chunk N + DEPTH. */
static int checksum(memlane_lane *lane, uint64_t size, uint64_t *sum) {
    uint64_t count = (size + CHUNK - 1) / CHUNK, asked = 0, next = 0;
    int has_come[DEPTH] = {0};
    *sum = 0xcbf29ce484222325u;
    for (; asked < count && asked < DEPTH; asked++)
        if (submit(lane, asked, size) < 0) return fail("submit a read");
    while (next < count) {
        memlane_completion done[DEPTH];
        int done_count = memlane_wait(lane, done, DEPTH, 1000);
        if (done_count < 0) return fail("wait");
        for (int i = 0; i < done_count; i++) {
            if (done[i].result < 0) return fprintf(stderr, "a read failed\n"), 1;
            has_come[done[i].token % DEPTH] = 1;
        }
        for (; next < count && has_come[next % DEPTH]; next++) {
            size_t length = length_at(next * CHUNK, size);
            for (size_t i = 0; i < length; i++)
                *sum = (*sum ^ chunks[next % DEPTH][i]) * 0x100000001b3u;
            has_come[next % DEPTH] = 0;
            if (asked < count && submit(lane, asked++, size) < 0) return fail("submit a read");
        }
    }
    return 0;
}

int main(int count, char **arguments) {
    memlane_device *device;
    memlane_lane *lane;
    uint64_t sum;
    if (count != 3) return fprintf(stderr, "usage: checksum SOCKET VOLUME\n"), 2;
    if (memlane_open(arguments[1], arguments[2], 0, &device) < 0) return fail("open the volume");
    if (memlane_lane_open(device, &lane) < 0) return fail("open a lane");
    int failed = checksum(lane, memlane_size(device), &sum);
    if (!failed) printf("%016llx  %s\n", (unsigned long long)sum, arguments[2]);
    memlane_lane_close(lane);
    memlane_close(device);
    return failed;
}
