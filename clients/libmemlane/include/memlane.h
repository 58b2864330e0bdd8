/* Volumes of the Memlane daemon on this host, over memory that is shared with it.
 *
 * Functions return 0, or a negative error number such as -ENOSPC; memlane_last_error() tells what
 * the calling thread's last error was in words. A device may be used by any number of threads, a
 * lane by one at a time. When the daemon goes, calls wait for it to come back and repeat what was
 * not answered. A forked child, however it was made, may go on using devices and lanes; requests of
 * lanes that were under way are its parent's, and end with -ECANCELED in the child. */
#ifndef MEMLANE_H
#define MEMLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memlane_device memlane_device;
typedef struct memlane_lane memlane_lane;

/* Opens a volume. The socket is most often /run/memlane/ring.sock. A request waits patience_ms for
 * a daemon that has gone, a minute if that is 0. */
int memlane_open(const char *socket, const char *volume, uint64_t patience_ms,
                 memlane_device **device);
void memlane_close(memlane_device *device);

int memlane_read(const memlane_device *device, uint64_t offset, void *into, size_t length);
int memlane_write(const memlane_device *device, uint64_t offset, const void *from, size_t length);

/* What is written with zeros stays allocated; otherwise it becomes a hole. */
#define MEMLANE_KEEP_ALLOCATED 1u
int memlane_write_zeroes(const memlane_device *device, uint64_t offset, uint64_t length,
                         uint32_t flags);

/* Whole blocks of 4 KiB inside the range read as zeros and give their memory back. */
int memlane_discard(const memlane_device *device, uint64_t offset, uint64_t length);

/* Makes everything acknowledged as durable as the volume's class promises. */
int memlane_flush(const memlane_device *device);

/* The size in bytes, which changes when the volume is resized; 0 when there is no daemon. */
uint64_t memlane_size(const memlane_device *device);
int memlane_is_read_only(const memlane_device *device);

const char *memlane_last_error(void);

/* Many requests in flight. The token comes back with the completion. */
typedef struct memlane_completion {
    uint64_t token;
    int result; /* 0, or a negative error number */
} memlane_completion;

int memlane_lane_open(const memlane_device *device, memlane_lane **lane);
void memlane_lane_close(memlane_lane *lane);

/* Memory must stay until the request has ended. -EAGAIN: too many are in flight, wait first. */
int memlane_submit_read(memlane_lane *lane, uint64_t offset, void *into, size_t length,
                        uint64_t token);
int memlane_submit_write(memlane_lane *lane, uint64_t offset, const void *from, size_t length,
                         uint64_t token);
int memlane_submit_flush(memlane_lane *lane, uint64_t token);

/* Stores completions and returns how many; waits timeout_ms at most for the first, 0 not at all. */
int memlane_wait(memlane_lane *lane, memlane_completion *completions, size_t count_max,
                 uint64_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
