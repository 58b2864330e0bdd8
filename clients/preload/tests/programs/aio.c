/* Makes reads and writes through libaio, and prints a transcript of the results.
 *
 * usage: aio VOLUME OTHER SCENARIO
 *
 * The same calls on the same contents produce the same transcript. OTHER is an ordinary file of
 * 1 MiB. Contexts are created and used by libaio's functions if a library provides them, and
 * otherwise by system calls, as in libaio. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define COUNT 64

/* Ring at the address of a context, which QEMU and others read directly (linux/fs/aio.c). */
struct ring {
    unsigned id, nr, head, tail, magic, compat_features, incompat_features, header_length;
    struct io_event events[];
};

static long by_name(const char *name, long number, long a, long b, long c, long d, long e) {
    long (*function)(long, long, long, long, long) = dlsym(RTLD_DEFAULT, name);
    if (function) return (int)function(a, b, c, d, e);
    long result = syscall(number, a, b, c, d, e);
    return result < 0 ? -errno : result;
}

#define AIO(name, a, b, c, d, e) \
    by_name(#name, SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))
#define SETUP(n, place) AIO(io_setup, n, place, 0, 0, 0)
#define DESTROY(context) AIO(io_destroy, context, 0, 0, 0, 0)
#define SUBMIT(context, n, list) AIO(io_submit, context, n, list, 0, 0)
#define COLLECT(context, least, most, events, time) \
    AIO(io_getevents, context, least, most, events, time)

static int volume, file;
static char room[COUNT][BLOCK] __attribute__((aligned(BLOCK)));
static struct iocb requests[COUNT];
static struct iocb *list[COUNT];

static struct iocb *ask(int index, int operation, int fd, long block) {
    requests[index] = (struct iocb){
        .aio_data = 1000 + index,
        .aio_lio_opcode = operation,
        .aio_fildes = fd,
        .aio_buf = (uintptr_t)room[index],
        .aio_nbytes = BLOCK,
        .aio_offset = block * BLOCK,
    };
    return list[index] = &requests[index];
}

static void tell(const struct io_event *event) {
    int index = (int)(event->data - 1000);
    int is_own = index >= 0 && index < COUNT && event->obj == (uintptr_t)&requests[index];
    printf("%d %s %lld %lld %02x\n", index, is_own ? "own" : "other", event->res, event->res2,
           is_own ? (unsigned char)room[index][0] : 0);
}

static aio_context_t context_for(int count) {
    aio_context_t context = 0;
    long result = SETUP(count, &context);
    if (result != 0) printf("setup %ld\n", result);
    return context;
}

/* Takes an event as QEMU does. */
static int take(aio_context_t context, struct io_event *event) {
    struct ring *ring = (struct ring *)context;
    unsigned head = ring->head, tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
    if (head == tail) return 0;
    *event = ring->events[head];
    __atomic_store_n(&ring->head, (head + 1) % ring->nr, __ATOMIC_RELEASE);
    return 1;
}

static int by_data(const void *left, const void *right) {
    const struct io_event *a = left, *b = right;
    return (a->data > b->data) - (a->data < b->data);
}

/* Events have no guaranteed order. */
static void tell_all(struct io_event *events, long count) {
    qsort(events, count, sizeof *events, by_data);
    for (long index = 0; index < count; index++) tell(&events[index]);
}

static void take_all(aio_context_t context, int count) {
    struct io_event events[COUNT];
    for (int taken = 0; taken < count;) taken += take(context, &events[taken]);
    tell_all(events, count);
}

/* Results of io_setup for several numbers of requests, some of which need one more page. */
static void setups(void) {
    for (int count = -1; count < 300; count += count < 55 || count > 75 ? 8 : 1) {
        aio_context_t context = 0;
        long result = SETUP(count, &context);
        struct ring *ring = (struct ring *)context;
        printf("%d %ld", count, result);
        if (result == 0) {
            printf(" %u %x %u %u %u", ring->nr, ring->magic, ring->compat_features,
                   ring->incompat_features, ring->header_length);
            printf(" %u %u", ring->head, ring->tail);
            printf(" %ld", DESTROY(context));
        }
        printf("\n");
    }
    aio_context_t context = 7;
    printf("used %ld", SETUP(1, &context));
    printf(" nowhere %ld\n", SETUP(1, NULL));
}

/* Reads the ring in memory, over several wraparounds. */
static void polled(void) {
    aio_context_t context = context_for(COUNT);
    for (int round = 0; round < 40; round++) {
        int operation = round % 2 ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
        for (int index = 0; index < COUNT; index++) {
            memset(room[index], round % 2 ? 0 : round + index, BLOCK);
            ask(index, operation, volume, index);
        }
        for (int done = 0; done < COUNT;) {
            long result = SUBMIT(context, COUNT - done, list + done);
            if (result <= 0) printf("submit %ld\n", result);
            done += (int)result;
        }
        take_all(context, COUNT);
    }
    printf("destroy %ld\n", DESTROY(context));
}

/* Requests for other files are submitted while events of the volume are not collected yet. */
static void mixed(void) {
    for (int before = 0; before < COUNT / 2; before += 5) {
        aio_context_t context = context_for(COUNT);
        /* The change happens at a different position of the ring each time. */
        int first_other = before % 4;
        for (int round = 0; round < 5; round++) {
            int answers[COUNT] = {0};
            memset(room, 'a' + round, sizeof room);
            for (int index = 0; index < COUNT; index++) {
                int is_other = round > first_other || (round == first_other && index > before);
                ask(index, IOCB_CMD_PWRITE, is_other && index % 3 ? file : volume, index);
            }
            for (int stay = 0, index = 0; index < COUNT; index += 16) {
                printf("submit %ld ", SUBMIT(context, 16, list + index));
                /* Some events are taken, others stay until the end. */
                struct io_event event;
                for (stay += 16; stay > (index < COUNT - 16 ? index / 2 + 7 : 0);) {
                    if (!take(context, &event)) continue;
                    int place = (int)(event.data - 1000);
                    if (event.res == BLOCK && event.obj == (uintptr_t)&requests[place])
                        answers[place]++;
                    stay--;
                }
            }
            for (int index = 0; index < COUNT; index++) putchar('0' + answers[index]);
            putchar('\n');
        }
        printf("destroy %ld\n", DESTROY(context));
    }
}

/* Submits more requests than the context was created for, until it is full; then another file. */
static void filled(void) {
    for (int round = 0; round < 3; round++) {
        aio_context_t context = context_for(COUNT);
        struct io_event event;
        /* Starts at a different position of the ring each time. */
        ask(0, IOCB_CMD_PWRITE, volume, 0);
        for (int index = 0; index < round * COUNT; index++) {
            if (SUBMIT(context, 1, list) != 1) printf("refused\n");
            while (!take(context, &event)) {}
        }
        long count = 0, result;
        while ((result = SUBMIT(context, 1, list)) == 1) count++;
        printf("as asked for %d, then %ld", count >= COUNT, result);
        ask(1, IOCB_CMD_PWRITE, file, 0);
        /* The kernel may have reserved room for an event on the CPU of the completion. */
        long taken = 0, other = -1;
        while (other != 1 && taken < count) {
            if (!take(context, &event)) continue;
            taken++;
            other = SUBMIT(context, 1, list + 1);
        }
        printf(" other %ld", other);
        int own = 0, others = 0;
        while (own + others < count - taken + 1) {
            if (!take(context, &event) || event.res != BLOCK) continue;
            own += event.obj == (uintptr_t)&requests[0];
            others += event.obj == (uintptr_t)&requests[1];
        }
        printf(" came %d, rest %d", others, take(context, &event));
        printf(" destroy %ld\n", DESTROY(context));
    }
}

static void told_by_eventfd(void) {
    aio_context_t context = context_for(COUNT);
    int told = eventfd(0, EFD_NONBLOCK);
    for (int round = 0; round < 20; round++) {
        for (int index = 0; index < COUNT; index++) {
            struct iocb *request = ask(index, IOCB_CMD_PWRITE, volume, index);
            request->aio_flags = IOCB_FLAG_RESFD;
            request->aio_resfd = told;
        }
        printf("submit %ld\n", SUBMIT(context, COUNT, list));
        struct io_event events[COUNT];
        for (uint64_t number = 0, count = 0; count < COUNT;) {
            if (read(told, &number, sizeof number) != sizeof number) continue;
            /* The signalled events are available. */
            for (; number > 0; number--) count += take(context, &events[count]);
        }
        tell_all(events, COUNT);
    }
    printf("destroy %ld\n", DESTROY(context));
}

static void odd(int operation, int fd, uintptr_t buffer, long length, long offset, int flags) {
    aio_context_t context = context_for(4);
    struct iocb *request = ask(0, operation, fd, 0);
    request->aio_buf = buffer, request->aio_nbytes = length;
    request->aio_offset = offset, request->aio_rw_flags = flags;
    ask(1, IOCB_CMD_PREAD, volume, 1);
    /* After a regular request whose event was not collected. */
    printf("ordinary %ld", SUBMIT(context, 1, list + 1));
    long result = SUBMIT(context, 1, list);
    printf(" submit %ld\n", result);
    take_all(context, result == 1 ? 2 : 1);
    printf("destroy %ld\n", DESTROY(context));
}

static void oddities(void) {
    uintptr_t buffer = (uintptr_t)room[0];
    memset(room[0], 'x', BLOCK);
    long end = lseek(volume, 0, SEEK_END);
    int only_read = open("/dev/null", O_RDONLY), pipes[2];
    if (pipe(pipes) != 0) return;
    for (int operation = 0; operation < 12; operation++) {
        if (operation == IOCB_CMD_POLL) continue;
        odd(operation, volume, 0, 0, 0, 0);
        odd(operation, file, 0, 0, 0, 0);
        odd(operation, 999, buffer, BLOCK, 0, 0);
    }
    for (int operation = 0; operation < 2; operation++) {
        odd(operation, volume, buffer, BLOCK, end, 0);
        odd(operation, volume, buffer, BLOCK, end - 512, 0);
        odd(operation, volume, buffer + 1, BLOCK, 0, 0);
        odd(operation, volume, buffer, 511, 0, 0);
        odd(operation, volume, buffer, BLOCK, 513, 0);
        odd(operation, volume, buffer, BLOCK, -BLOCK, 0);
        odd(operation, volume, buffer, -1, 0, 0);
        odd(operation, volume, 16, BLOCK, 0, 0);
        odd(operation, volume, buffer, BLOCK, 0, 0x10000);
        odd(operation, only_read, buffer, BLOCK, 0, 0);
        odd(operation, pipes[operation], buffer, 0, 0, 0);
    }
    odd(IOCB_CMD_FDSYNC, volume, buffer, BLOCK, 0, 0);
}

static void collected(void) {
    struct timespec none = {0}, little = {0, 3000000};
    struct io_event events[COUNT];
    aio_context_t context = context_for(COUNT);
    for (int index = 0; index < 8; index++) ask(index, IOCB_CMD_PWRITE, volume, index);
    printf("%ld", COLLECT(context, 0, 4, events, &none));
    printf(" %ld\n", COLLECT(context, 1, 4, events, &little));
    printf("submit %ld\n", SUBMIT(context, 8, list));
    printf("%ld", COLLECT(context, 5, 4, events, &none));
    printf(" %ld", COLLECT(context, -1, 4, events, &none));
    printf(" %ld", COLLECT(context, 0, 0, events, &none));
    printf(" %ld", COLLECT(context, 0, -1, events, NULL));
    printf(" %ld", COLLECT(context, 3, 3, events, NULL));
    printf(" %ld\n", COLLECT(context, 5, COUNT, events + 3, NULL));
    tell_all(events, 8);
    printf("nobody %ld", COLLECT(context, 1, COUNT, events, &little));
    printf(" none %ld", SUBMIT(context, 0, list));
    printf(" less %ld", SUBMIT(context, -1, list));
    printf(" submit %ld", SUBMIT(context, 3, list));
    printf(" %ld", COLLECT(context, 1, 1, events, NULL));
    printf(" nowhere %ld", COLLECT(context, 1, 2, NULL, NULL));
    struct iocb *nowhere[2] = {list[0], NULL};
    printf(" first %ld", SUBMIT(context, 2, nowhere));
    printf(" second %ld", SUBMIT(context, 1, nowhere + 1));
    printf(" %d\n", COLLECT(context, 2, COUNT, events, NULL) >= 2);
    printf("destroy %ld", DESTROY(context));
    printf(" again %ld", DESTROY(context));
    printf(" submit %ld", SUBMIT(context, 1, list));
    printf(" collect %ld\n", COLLECT(context, 0, 1, events, &none));
}

/* Makes some calls by system call number, without libaio. */
static void by_number(void) {
    struct io_event events[COUNT];
    for (int way = 0; way < 3; way++) {
        aio_context_t context = context_for(COUNT);
        for (int index = 0; index < 8; index++) ask(index, IOCB_CMD_PWRITE, volume, index);
        printf("submit %ld", SUBMIT(context, 8, list));
        if (way == 0) printf(" %ld", syscall(SYS_io_getevents, context, 8, COUNT, events, NULL));
        if (way == 1) printf(" %ld", syscall(SYS_io_submit, context, 8, list));
        if (way == 1) printf(" %ld", COLLECT(context, 16, COUNT, events, NULL));
        if (way < 2) printf(" destroy %ld\n", DESTROY(context));
        else printf(" destroy %ld\n", syscall(SYS_io_destroy, context));
    }
}

/* Contexts belong to one process. */
static void in_children(void) {
    struct io_event events[COUNT];
    struct timespec none = {0};
    for (int way = 0; way < 2; way++) {
        aio_context_t context = context_for(COUNT);
        for (int index = 0; index < 8; index++) ask(index, IOCB_CMD_PWRITE, volume, index);
        printf("submit %ld\n", SUBMIT(context, 4, list));
        fflush(stdout);
        pid_t child = way == 0 ? fork() : _Fork();
        if (child == 0) {
            printf("child %ld", SUBMIT(context, 4, list));
            printf(" %ld", COLLECT(context, 0, 4, events, &none));
            printf(" destroy %ld", DESTROY(context));
            aio_context_t own = context_for(COUNT);
            printf(" submit %ld", SUBMIT(own, 8, list));
            printf(" collect %ld\n", COLLECT(own, 8, 8, events, NULL));
            tell_all(events, 8);
            fflush(stdout);
            _exit(0);
        }
        int status;
        printf("child %d", waitpid(child, &status, 0) == child && status == 0);
        printf(" submit %ld", SUBMIT(context, 4, list + 4));
        printf(" collect %ld\n", COLLECT(context, 8, 8, events, NULL));
        tell_all(events, 8);
        printf("destroy %ld\n", DESTROY(context));
    }
}

static void nothing(int number) { (void)number; }

static pthread_t waiter;
static aio_context_t shared;
static int interrupts;

static void *interrupt(void *unused) {
    (void)unused;
    /* Until the other thread has returned. */
    while (!__atomic_load_n(&interrupts, __ATOMIC_ACQUIRE)) {
        pthread_kill(waiter, SIGUSR1);
        usleep(1000);
    }
    return NULL;
}

static void *submit_all(void *unused) {
    (void)unused;
    for (int round = 0; round < 200; round++) {
        for (int index = 0; index < 8; index++) ask(index, IOCB_CMD_PWRITE, volume, index);
        for (int done = 0; done < 8;) {
            /* Submits requests one by one; near the end they are for another file. */
            if (round == 190) requests[done].aio_fildes = (unsigned)file;
            long result = SUBMIT(shared, 1, list + done);
            if (result == 1) done++;
            else if (result != -EAGAIN) printf("submit %ld\n", result);
        }
        while (!__atomic_exchange_n(&interrupts, 0, __ATOMIC_ACQ_REL)) usleep(100);
    }
    return NULL;
}

/* One thread submits, another waits. */
static void waited_for(void) {
    struct io_event events[COUNT];
    pthread_t thread;
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGUSR1, &action, NULL);
    waiter = pthread_self();
    shared = context_for(COUNT);
    pthread_create(&thread, NULL, interrupt, NULL);
    printf("interrupted %ld\n", COLLECT(shared, 1, 1, events, NULL));
    __atomic_store_n(&interrupts, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    __atomic_store_n(&interrupts, 0, __ATOMIC_RELEASE);
    pthread_create(&thread, NULL, submit_all, NULL);
    for (int round = 0; round < 200; round++) {
        int least = 1 + round % 8, count = 0;
        while (count < 8) {
            if (least > 8 - count) least = 8 - count;
            long result = COLLECT(shared, least, 8 - count, events, NULL);
            if (result < least) printf("collect %ld\n", result);
            for (long index = 0; index < result; index++)
                if (events[index].res != BLOCK) printf("result %lld\n", events[index].res);
            count += (int)result;
        }
        __atomic_store_n(&interrupts, 1, __ATOMIC_RELEASE);
    }
    pthread_join(thread, NULL);
    printf("destroy %ld\n", DESTROY(shared));
}

/* Uses a context with many requests in flight and collects events by calls, as most programs do.
 * Under `memlane run` its requests use a lane from then on. */
static aio_context_t deep_context(void) {
    aio_context_t context = context_for(COUNT);
    struct io_event events[COUNT];
    for (int round = 0; round < 4; round++) {
        for (int index = 0; index < COUNT / 2; index++) {
            memset(room[index], 'A' + round, BLOCK);
            ask(index, IOCB_CMD_PWRITE, volume, index);
            long result = SUBMIT(context, 1, list + index);
            if (result != 1) printf("submit %ld\n", result);
        }
        long result = COLLECT(context, COUNT / 2, COUNT, events, NULL);
        if (result != COUNT / 2) printf("collect %ld\n", result);
        tell_all(events, result);
    }
    int is_ring = ((struct ring *)context)->magic == 0xa10a10a1;
    if (is_ring == (getenv("LD_PRELOAD") != NULL)) printf("not as expected: %d\n", is_ring);
    return context;
}

static void submit_many(aio_context_t context, int first, int count, char letter) {
    for (int index = first; index < first + count; index++) {
        memset(room[index], letter + index % 16, BLOCK);
        ask(index, IOCB_CMD_PWRITE, volume, index);
        long result = SUBMIT(context, 1, list + index);
        if (result != 1) printf("submit %ld\n", result);
    }
}

static void tell_contents(const char *when, int count) {
    static char block[BLOCK] __attribute__((aligned(BLOCK)));
    printf("%s ", when);
    for (int index = 0; index < count; index++) {
        long result = pread(volume, block, BLOCK, (long)index * BLOCK);
        int is_whole = memcmp(block, block + 1, BLOCK - 1) == 0;
        putchar(result == BLOCK && is_whole ? block[0] : '?');
    }
    putchar('\n');
}

static void tell_collected(aio_context_t context, int count) {
    struct io_event events[COUNT];
    int taken = 0;
    while (taken < count) {
        long result = COLLECT(context, 1 + taken % 7 % (count - taken), count - taken,
                              events + taken, NULL);
        if (result <= 0) { printf("collect %ld\n", result); return; }
        taken += (int)result;
    }
    tell_all(events, count);
}

/* Many requests are in flight: reads, writes, and long ones. */
static void deep(void) {
    static char large[4][1 << 18] __attribute__((aligned(BLOCK)));
    aio_context_t context = deep_context();
    for (int round = 0; round < 30; round++) {
        submit_many(context, 0, COUNT, 'a' + round % 10);
        tell_collected(context, COUNT);
        tell_contents("written", COUNT);
        memset(room, 0, sizeof room);
        for (int index = 0; index < COUNT; index++) ask(index, IOCB_CMD_PREAD, volume, index);
        printf("submit %ld\n", SUBMIT(context, COUNT, list));
        tell_collected(context, COUNT);
        for (int index = 0; index < 4; index++) {
            memset(large[index], '0' + round % 10, sizeof large[index]);
            struct iocb *request = ask(index, IOCB_CMD_PWRITE, volume, 64 * index);
            request->aio_buf = (uintptr_t)large[index], request->aio_nbytes = sizeof large[index];
        }
        printf("submit %ld\n", SUBMIT(context, 4, list));
        tell_collected(context, 4);
        tell_contents("long", 4 * 64);
    }
    printf("destroy %ld\n", DESTROY(context));
}

/* Other calls of a program while requests are in flight. */
static void meanwhile(char *path) {
    struct io_event events[COUNT];
    struct timespec none = {0};
    aio_context_t context = deep_context();
    submit_many(context, 0, 32, 'a');
    close(volume);
    volume = open(path, O_RDWR | O_DIRECT);
    tell_collected(context, 32);
    tell_contents("closed", 32);
    submit_many(context, 0, 32, 'b');
    pid_t child = fork();
    if (child == 0) _exit(SUBMIT(context, 1, list) == -EINVAL ? 0 : 1);
    int status;
    printf("child %d\n", waitpid(child, &status, 0) == child && status == 0);
    tell_collected(context, 32);
    tell_contents("forked", 32);
    submit_many(context, 0, 32, 'c');
    printf("cancel %d\n", AIO(io_cancel, context, list[0], events, 0, 0) != 0);
    for (int taken = 0; taken < 32;) {
        long result = COLLECT(context, 0, COUNT, events + taken, &none);
        if (result < 0) printf("collect %ld\n", result);
        taken += (int)result;
    }
    tell_all(events, 32);
    submit_many(context, 0, 32, 'd');
    printf("destroy %ld\n", DESTROY(context));
    /* The program may use the memory again. */
    memset(room, 'z', sizeof room);
    tell_contents("destroyed", 32);
    context = deep_context();
    submit_many(context, 0, 32, 'e');
    ask(32, IOCB_CMD_PWRITE, file, 0);
    printf("other %ld\n", SUBMIT(context, 1, list + 32));
    tell_collected(context, 33);
    submit_many(context, 0, 32, 'f');
    tell_collected(context, 32);
    printf("destroy %ld\n", DESTROY(context));
    context = deep_context();
    submit_many(context, 0, 32, 'g');
    printf("by number %ld\n", syscall(SYS_io_getevents, context, 32, COUNT, events, NULL));
    tell_all(events, 32);
    printf("destroy %ld\n", DESTROY(context));
    context = deep_context();
    submit_many(context, 0, 32, 'h');
    ask(32, IOCB_CMD_PREAD, volume, lseek(volume, 0, SEEK_END) / BLOCK);
    printf("at the end %ld\n", SUBMIT(context, 1, list + 32));
    tell_collected(context, 33);
    tell_contents("at last", 32);
    printf("destroy %ld\n", DESTROY(context));
}

static void *submit_deep(void *unused) {
    (void)unused;
    for (int done = 0; done < 20000;) {
        int index = done % COUNT;
        struct iocb *request = &requests[index];
        /* It can be reused when its event was collected. */
        if (__atomic_load_n(&request->aio_data, __ATOMIC_ACQUIRE) != 0) continue;
        ask(index, done % 3 ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE, volume, done % 512);
        long result;
        while ((result = SUBMIT(shared, 1, list + index)) == -EAGAIN) {}
        if (result != 1) printf("submit %ld\n", result);
        done++;
    }
    return NULL;
}

/* One thread submits continuously, two threads collect. */
static void *collect_deep(void *sum) {
    struct io_event events[COUNT];
    struct timespec little = {0, 20000000};
    long *count = sum, result;
    while ((result = COLLECT(shared, 1, 8, events, &little)) >= 0) {
        for (long index = 0; index < result; index++) {
            if (events[index].res != BLOCK) printf("result %lld\n", events[index].res);
            struct iocb *request = (struct iocb *)(uintptr_t)events[index].obj;
            __atomic_store_n(&request->aio_data, 0, __ATOMIC_RELEASE);
        }
        if (__atomic_add_fetch(count, result, __ATOMIC_RELAXED) >= 20000) break;
    }
    return NULL;
}

static void by_threads(void) {
    pthread_t threads[3];
    long count = 0;
    shared = deep_context();
    memset(requests, 0, sizeof requests);
    pthread_create(&threads[0], NULL, submit_deep, NULL);
    for (int index = 1; index < 3; index++)
        pthread_create(&threads[index], NULL, collect_deep, &count);
    for (int index = 0; index < 3; index++) pthread_join(threads[index], NULL);
    printf("collected %ld destroy %ld\n", count, DESTROY(shared));
}

int main(int count, char **words) {
    if (count != 4) return 2;
    volume = open(words[1], O_RDWR | O_DIRECT);
    file = open(words[2], O_RDWR);
    if (volume < 0 || file < 0) return 1;
    static const struct { const char *name; void (*function)(void); } scenarios[] = {
        {"setups", setups},       {"polled", polled},     {"mixed", mixed},
        {"filled", filled},
        {"eventfd", told_by_eventfd}, {"odd", oddities},  {"collected", collected},
        {"waited-for", waited_for}, {"by-number", by_number}, {"children", in_children},
        {"deep", deep},           {"threads", by_threads},
    };
    if (strcmp(words[3], "meanwhile") == 0) meanwhile(words[1]);
    for (size_t index = 0; index < sizeof scenarios / sizeof *scenarios; index++)
        if (strcmp(words[3], scenarios[index].name) == 0) scenarios[index].function();
    return 0;
}
