/* Writes a block, reads it back, and does the same with sixteen requests in flight.
 *
 * cc -I clients/libmemlane/include copy_block.c -lmemlane -o copy_block
 * ./copy_block /run/memlane/ring.sock VOLUME */
#include <memlane.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096, COUNT = 16 };

static int fail(const char *what) {
    fprintf(stderr, "cannot %s: %s\n", what, memlane_last_error());
    return 1;
}

static int one_by_one(memlane_device *device) {
    unsigned char out[BLOCK], in[BLOCK];
    memset(out, 0x5a, sizeof out);
    if (memlane_write(device, BLOCK, out, sizeof out) < 0) return fail("write");
    if (memlane_read(device, BLOCK, in, sizeof in) < 0) return fail("read");
    if (memcmp(in, out, sizeof in) != 0) return fprintf(stderr, "other bytes came back\n"), 1;
    if (memlane_flush(device) < 0) return fail("flush");
    return 0;
}

/* Takes completions until all requests have ended. */
static int finish(memlane_lane *lane) {
    memlane_completion done[COUNT];
    for (int left = COUNT; left > 0;) {
        int count = memlane_wait(lane, done, COUNT, 1000);
        if (count < 0) return fail("wait");
        for (int i = 0; i < count; i++)
            if (done[i].result < 0) return fprintf(stderr, "request %llu failed\n",
                                                   (unsigned long long)done[i].token), 1;
        left -= count;
    }
    return 0;
}

static int many_at_once(memlane_device *device) {
    static unsigned char out[COUNT][BLOCK], in[COUNT][BLOCK];
    memlane_lane *lane;
    if (memlane_lane_open(device, &lane) < 0) return fail("open a lane");
    for (int i = 0; i < COUNT; i++) {
        memset(out[i], i + 1, BLOCK);
        if (memlane_submit_write(lane, (uint64_t)i * BLOCK, out[i], BLOCK, (uint64_t)i) < 0)
            return fail("submit a write");
    }
    if (finish(lane)) return 1;
    for (int i = 0; i < COUNT; i++)
        if (memlane_submit_read(lane, (uint64_t)i * BLOCK, in[i], BLOCK, (uint64_t)i) < 0)
            return fail("submit a read");
    if (finish(lane)) return 1;
    memlane_lane_close(lane);
    if (memcmp(in, out, sizeof in) != 0) return fprintf(stderr, "other bytes came back\n"), 1;
    return 0;
}

int main(int count, char **arguments) {
    memlane_device *device;
    if (count != 3) return fprintf(stderr, "usage: copy_block SOCKET VOLUME\n"), 2;
    if (memlane_open(arguments[1], arguments[2], 0, &device) < 0) return fail("open");
    int failed = one_by_one(device) || many_at_once(device);
    printf("%s: %llu bytes\n", arguments[2], (unsigned long long)memlane_size(device));
    memlane_close(device);
    return failed;
}
