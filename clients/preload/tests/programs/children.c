/* A child process, created in one of many ways, uses a volume concurrently with its parent.
 *
 * usage: children VOLUME OTHER WAY
 *
 * OTHER is an ordinary file of at least 1 MiB. Children created by vfork reuse descriptor numbers
 * for other files, and write to them, before they exit. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 16
#define ROUNDS 300

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            dprintf(2, "%s, line %d: %s: %s\n", way, __LINE__, #condition, strerror(errno));    \
            _exit(1);                                                                           \
        }                                                                                       \
    } while (0)

static const char *way, *volume, *other;
static char room[2][BLOCK] __attribute__((aligned(BLOCK)));

static char *fill(int who, int round) {
    memset(room[0], (who * 101 + round) % 251, BLOCK);
    return room[0];
}

/* Writes blocks that only this process uses, and reads them back. */
static void work(int fd, int who) {
    for (int round = 0; round < ROUNDS; round++) {
        off_t offset = (off_t)(4 * (round % BLOCKS) + who) * BLOCK;
        CHECK(pwrite(fd, fill(who, round), BLOCK, offset) == BLOCK);
        CHECK(pread(fd, room[1], BLOCK, offset) == BLOCK);
        CHECK(memcmp(room[0], room[1], BLOCK) == 0);
    }
}

/* Checks the contents that the last rounds of `work` wrote. */
static void check(int fd, int who) {
    for (int round = ROUNDS - BLOCKS; round < ROUNDS; round++) {
        off_t offset = (off_t)(4 * (round % BLOCKS) + who) * BLOCK;
        CHECK(pread(fd, room[1], BLOCK, offset) == BLOCK);
        CHECK(memcmp(fill(who, round), room[1], BLOCK) == 0);
    }
}

static int open_volume(void) {
    int fd = open(volume, O_RDWR | O_DIRECT);
    CHECK(fd >= 0);
    return fd;
}

static pid_t begin(void) {
    if (strcmp(way, "fork") == 0) return fork();
    if (strcmp(way, "_Fork") == 0) return _Fork();
    if (strcmp(way, "clone") == 0) return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (strcmp(way, "clone3") == 0) {
        struct clone_args arguments = {.exit_signal = SIGCHLD};
        return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    }
    errno = EINVAL;
    return -1;
}

static void wait_for(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fork_child(void) {
    int fd = open_volume();
    work(fd, 0);
    pid_t child = begin();
    CHECK(child >= 0);
    if (child == 0) {
        work(fd, 1);
        /* A grandchild, with or without fork handlers. */
        pid_t grandchild = strcmp(way, "clone") == 0 ? fork() : begin();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            int again = open_volume();
            work(again, 2);
            work(fd, 2);
            _exit(0);
        }
        work(fd, 1);
        wait_for(grandchild);
        CHECK(close(fd) == 0);
        work(open_volume(), 1);
        _exit(0);
    }
    work(fd, 0);
    wait_for(child);
    work(fd, 0);
    for (int who = 0; who < 3; who++) check(fd, who);
}

/* Shares its parent's memory, but has its own descriptors. */
static int in_parents_memory(void *numbers) {
    int fd = ((int *)numbers)[0], file = ((int *)numbers)[1];
    CHECK(pwrite(fd, fill(1, 1), BLOCK, BLOCK) == BLOCK);
    /* Exchanges the descriptors of the volume and the file. */
    CHECK(dup2(file, fd) == fd);
    CHECK(close(file) == 0);
    CHECK(open_volume() == file);
    CHECK(pwrite(file, fill(2, 2), BLOCK, 2 * BLOCK) == BLOCK);
    CHECK(pread(file, room[1], BLOCK, BLOCK) == BLOCK);
    CHECK(pwrite(fd, fill(3, 3), BLOCK, 3 * BLOCK) == BLOCK);
    return 0;
}

static void check_block(const char *path, int place, const char *expected) {
    int fd = open(path, O_RDONLY | O_DIRECT);
    CHECK(fd >= 0);
    CHECK(pread(fd, room[1], BLOCK, (off_t)place * BLOCK) == BLOCK);
    CHECK(memcmp(room[1], expected, BLOCK) == 0);
    CHECK(close(fd) == 0);
}

static void shared_memory(int is_first) {
    static char stack[64 << 10] __attribute__((aligned(64)));
    static char zeros[BLOCK];
    int numbers[2] = {open_volume(), open(other, O_RDWR | O_DIRECT)};
    CHECK(numbers[1] >= 0);
    if (!is_first) {
        CHECK(pwrite(numbers[0], fill(0, 0), BLOCK, 0) == BLOCK);
        CHECK(pwrite(numbers[1], fill(0, 0), BLOCK, 0) == BLOCK);
    }
    pid_t child;
    if (strcmp(way, "vfork") == 0) {
        child = vfork();
        if (child == 0) _exit(in_parents_memory(numbers));
    } else {
        int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
        child = clone(in_parents_memory, stack + sizeof stack, flags, numbers);
    }
    CHECK(child > 0);
    wait_for(child);
    /* The parent's descriptors have not changed. */
    CHECK(pwrite(numbers[0], fill(4, 4), BLOCK, 4 * BLOCK) == BLOCK);
    CHECK(pwrite(numbers[1], fill(5, 5), BLOCK, 5 * BLOCK) == BLOCK);
    work(numbers[0], 0);
    for (int place = 1; place < 6; place++) {
        if (place == 4) continue; /* being written */
        int is_on_volume = place == 1 || place == 2;
        check_block(volume, place, is_on_volume ? fill(place, place) : zeros);
        check_block(other, place, is_on_volume ? zeros : fill(place, place));
    }
}

int main(int count, char **words) {
    if (count != 4) return 2;
    volume = words[1], other = words[2], way = words[3];
    if (strcmp(way, "vfork") == 0 || strcmp(way, "clone-vfork") == 0) {
        shared_memory(0);
    } else if (strcmp(way, "first-vfork") == 0) {
        way = "vfork";
        shared_memory(1);
    } else {
        fork_child();
    }
    return 0;
}
