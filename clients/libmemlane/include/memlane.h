/* Client library for volumes of the Memlane daemon on this host, through shared memory.
 *
 * Functions return 0, or a negative error number such as -ENOSPC. memlane_last_error() returns the
 * message of the calling thread's last error. A device may be used by any number of threads, a lane
 * by one thread at a time. When the daemon exits, calls wait for its restart and repeat unanswered
 * requests. A child process may continue to use devices and lanes, whichever way it was created.
 * Requests of lanes that were in flight belong to its parent; in the child they end with
 * -ECANCELED. */
#ifndef MEMLANE_H
#define MEMLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memlane_device memlane_device;
typedef struct memlane_lane memlane_lane;

/* Opens a volume. The socket is usually /run/memlane/ring.sock. A request waits patience_ms for the
 * restart of the daemon, or one minute if it is 0. */
int memlane_open(const char *socket, const char *volume, uint64_t patience_ms,
                 memlane_device **device);
void memlane_close(memlane_device *device);

int memlane_read(const memlane_device *device, uint64_t offset, void *into, size_t length);
int memlane_write(const memlane_device *device, uint64_t offset, const void *from, size_t length);

/* Zeroed blocks stay allocated; without this flag they become holes. */
#define MEMLANE_KEEP_ALLOCATED 1u
int memlane_write_zeroes(const memlane_device *device, uint64_t offset, uint64_t length,
                         uint32_t flags);

/* Discards whole blocks of 4 KiB inside the range: they read as zeros and their memory is freed. */
int memlane_discard(const memlane_device *device, uint64_t offset, uint64_t length);

/* Makes all acknowledged writes as durable as the volume's class guarantees. */
int memlane_flush(const memlane_device *device);

/* Returns the size in bytes, which changes when the volume is resized; 0 without a daemon. */
uint64_t memlane_size(const memlane_device *device);
int memlane_is_read_only(const memlane_device *device);

const char *memlane_last_error(void);

/* Completion of a request of a lane. The token is that of the request. */
typedef struct memlane_completion {
    uint64_t token;
    int result; /* 0, or a negative error number */
} memlane_completion;

int memlane_lane_open(const memlane_device *device, memlane_lane **lane);
void memlane_lane_close(memlane_lane *lane);

/* The memory must stay valid until the request has completed. -EAGAIN: too many requests are in
 * flight; wait first. */
int memlane_submit_read(memlane_lane *lane, uint64_t offset, void *into, size_t length,
                        uint64_t token);
int memlane_submit_write(memlane_lane *lane, uint64_t offset, const void *from, size_t length,
                         uint64_t token);
int memlane_submit_flush(memlane_lane *lane, uint64_t token);

/* Stores completions and returns their number. Waits at most timeout_ms for the first one; 0 does
 * not wait. */
int memlane_wait(memlane_lane *lane, memlane_completion *completions, size_t count_max,
                 uint64_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
