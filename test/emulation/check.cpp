// SPDX-License-Identifier: BSD-3-Clause
/* Memory of the emulated GPU, and checks of kernel accesses. Kernel sources are compiled as if for
 * ThreadSanitizer, whose callbacks before each access are implemented here. They check that the
 * access is inside an allocation, aligned, initialised (shared memory), and ordered with other
 * threads' accesses to the same bytes. Two blocks of a launch are never ordered; a barrier orders
 * the threads of a block, a warp fence its lanes. In a build for AddressSanitizer, that sanitizer
 * checks instead. */
#include "internal.h"

#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

/* The last write and read of a byte: epoch, warp_epoch, flags, thread. Flags are set if several
 * threads have read it since the last barrier, or several lanes of one warp since its last fence.
 */
struct shadow {
    uint64_t write, read;
};
enum {
    THREAD_MASK = 0x3ff,
    SEVERAL_LANES = 1 << 10,
    SEVERAL_THREADS = 1 << 11,
    WARP_EPOCH_SHIFT = 12,
    EPOCH_SHIFT = 22
};

struct allocation {
    unsigned char *begin;
    size_t bytes;
    enum memory_kind kind;
    struct shadow *shadow;
    uint8_t *fences; /* shared memory: proxy fences of the writing thread before its write */
    bool *filled;    /* guarded memory: chunks that have been accessed */
    struct allocation *next;
};

static struct allocation *allocations;
static size_t device_bytes;

#ifdef EMULATION_CHECKS
enum { CHECKS = 1 };
#else
enum { CHECKS = 0 };
#endif

/* ---- The host must not access device memory, and its pages are inaccessible. An operation that
 * accesses a chunk gets a signal, which makes the chunk accessible until the operation ends. */
enum { CHUNK = 1 << 16 };
static thread_local int operations; /* of this thread, nested */
static std::vector<unsigned char *> opened;

static bool is_guarded(enum memory_kind kind)
{
    return CHECKS && kind == EMULATED_DEVICE;
}

static void pages_protect(void *begin, size_t bytes, int protection)
{
    ENSURE_MEMORY(mprotect(begin, bytes, protection) == 0,
                  "no memory to protect that of the emulated GPU; check the limit on mappings "
                  "(vm.max_map_count)");
}

static struct allocation *allocation_of(uintptr_t address);

/* For SIGSEGV. */
static void chunk_open(int, siginfo_t *info, void *)
{
    unsigned char *at = (unsigned char *)info->si_addr;
    const struct allocation *in = allocation_of((uintptr_t)at);
    if (in == NULL || !is_guarded(in->kind)) {
        signal(SIGSEGV, SIG_DFL); /* the access is repeated */
        return;
    }
    const size_t byte = (size_t)(at - in->begin);
    if (operations == 0)
        emulated_fault("the host accesses device memory, byte %zu of %zu", byte, in->bytes);
    opened.push_back(in->begin + byte / CHUNK * CHUNK);
    pages_protect(opened.back(), CHUNK, PROT_READ | PROT_WRITE);
    if (!in->filled[byte / CHUNK])
        memset(opened.back(), 0xff, CHUNK); /* NaN in every type */
    in->filled[byte / CHUNK] = true;
}

/* Repeated for each operation, because test frameworks and the program replace the handler. */
static void handler_install(void)
{
    struct sigaction action = {};
    action.sa_sigaction = chunk_open;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
}

void memory_begin(void)
{
    if (CHECKS && operations++ == 0)
        handler_install();
}

void memory_end(void)
{
    if (!CHECKS || --operations > 0)
        return;
    for (unsigned char *chunk : opened)
        pages_protect(chunk, CHUNK, PROT_NONE);
    opened.clear();
}

static size_t chunks_of(size_t bytes)
{
    return (bytes + CHUNK - 1) / CHUNK * CHUNK;
}

static void *chunks_allocate(size_t bytes)
{
    handler_install();
    void *memory = mmap(NULL, chunks_of(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* ---- Allocation */
void *memory_allocate(size_t bytes, enum memory_kind kind)
{
    struct allocation *made = (struct allocation *)calloc(1, sizeof *made);
    void *memory = NULL;
    size_t alignment = kind == EMULATED_SHARED ? 16 : 256;
    ENSURE_MEMORY(made != NULL, "no memory for the emulated GPU");
    if (is_guarded(kind))
        memory = chunks_allocate(bytes);
    else if (posix_memalign(&memory, alignment, bytes + (bytes == 0)) != 0)
        memory = NULL;
    ENSURE_MEMORY(memory != NULL, "no memory for the emulated GPU");
    if (is_guarded(kind)) {
        made->filled = (bool *)calloc(chunks_of(bytes) / CHUNK + 1, sizeof *made->filled);
        ENSURE_MEMORY(made->filled != NULL, "no memory for the emulated GPU");
    } else
        memset(memory, 0xff, bytes); /* NaN in every type */
    made->begin = (unsigned char *)memory;
    made->bytes = bytes;
    made->kind = kind;
    if (CHECKS) {
        made->shadow = (struct shadow *)calloc(bytes + 1, sizeof *made->shadow);
        made->fences = (uint8_t *)calloc(kind == EMULATED_SHARED ? bytes + 1 : 1, 1);
        ENSURE_MEMORY(made->shadow != NULL && made->fences != NULL,
                      "no memory to watch the emulated GPU");
    }
    made->next = allocations;
    allocations = made;
    device_bytes += kind == EMULATED_DEVICE ? bytes : 0;
    return memory;
}

void memory_release(void *memory, enum memory_kind kind)
{
    if (kind != EMULATED_SHARED)
        streams_finish(); /* as in the runtime library: queued work may use the memory */
    struct allocation **at = &allocations;
    while (*at != NULL && (*at)->begin != memory)
        at = &(*at)->next;
    struct allocation *found = *at;
    if (found == NULL || found->kind != kind)
        emulated_fault("release of memory that was not allocated by this call");
    *at = found->next;
    device_bytes -= kind == EMULATED_DEVICE ? found->bytes : 0;
    free(found->shadow);
    free(found->fences);
    free(found->filled);
    if (is_guarded(kind))
        munmap(found->begin, chunks_of(found->bytes));
    else
        free(found->begin);
    free(found);
}

void memory_must_hold(const void *memory, size_t bytes, size_t alignment, const char *what)
{
    if (bytes > 0 && !memory_is_known(memory, bytes))
        emulated_fault("%s is not in device memory", what);
    if ((uintptr_t)memory % alignment != 0)
        emulated_fault("%s is not aligned", what);
}

void memory_must_not_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                             const char *what)
{
    uintptr_t a_begin = (uintptr_t)a, b_begin = (uintptr_t)b;
    if (a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes)
        emulated_fault("%s lies in another tensor", what);
}

size_t memory_in_use(void)
{
    return device_bytes;
}

/* Return the allocation that contains the first byte, and move it to the front of the list. */
static struct allocation *allocation_of(uintptr_t address)
{
    for (struct allocation **at = &allocations; *at != NULL; at = &(*at)->next) {
        struct allocation *here = *at;
        if (address - (uintptr_t)here->begin >= here->bytes)
            continue;
        *at = here->next;
        here->next = allocations;
        allocations = here;
        return here;
    }
    return NULL;
}

bool memory_is_known(const void *memory, size_t bytes)
{
    EMULATED_CALL; /* the list of allocations is reordered */
    const struct allocation *in = allocation_of((uintptr_t)memory);
    return in != NULL && bytes <= in->bytes - (size_t)((const unsigned char *)memory - in->begin);
}

#ifdef EMULATION_CHECKS

/* A mapped segment of the program's files, from which constants may be read. */
struct segment {
    uintptr_t address, begin, bytes;
};

static int segment_find(struct dl_phdr_info *info, size_t, void *argument)
{
    struct segment *wanted = (struct segment *)argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || wanted->address - begin >= part->p_memsz)
            continue;
        wanted->begin = begin;
        wanted->bytes = part->p_memsz;
        return 1;
    }
    return 0;
}

/* Nearly always the same segment as in the last call. */
static bool in_program(uintptr_t address)
{
    static struct segment last;
    if (address - last.begin < last.bytes)
        return true;
    struct segment wanted = {address, 0, 0};
    if (dl_iterate_phdr(segment_find, &wanted) == 0)
        return false;
    last = wanted;
    return true;
}

/* An access up to this far past an allocation is reported as an overrun of it. */
enum { NEAR_BYTES = 1 << 16 };

static void outside_report(uintptr_t address, size_t size, const char *what)
{
    const struct allocation *nearest = NULL;
    for (const struct allocation *at = allocations; at != NULL; at = at->next)
        if (address >= (uintptr_t)at->begin && (nearest == NULL || at->begin > nearest->begin))
            nearest = at;
    if (nearest == NULL || address - (uintptr_t)nearest->begin > nearest->bytes + NEAR_BYTES)
        emulated_fault("%s %zu bytes of memory that is not the device's", what, size);
    emulated_fault("%s %zu bytes outside of memory: %zu bytes after the start of %zu bytes", what,
                   size, (size_t)(address - (uintptr_t)nearest->begin), nearest->bytes);
}

static unsigned stamp_warp_epoch(uint64_t stamp)
{
    return (unsigned)(stamp >> WARP_EPOCH_SHIFT) & THREAD_MASK;
}

/* True if another thread's access is not ordered before this one. */
static bool is_race(uint64_t stamp, const struct emulated_moment *now, bool shared)
{
    uint64_t epoch = stamp >> EPOCH_SHIFT;
    unsigned thread = stamp & THREAD_MASK;
    if (epoch < now->launch_epoch)
        return false;
    if (epoch < now->block_epoch) /* by another block, which has its own shared memory */
        return !shared;
    if (epoch != now->epoch)
        return false;
    if (stamp & SEVERAL_THREADS)
        return true;
    if (thread == now->thread && !(stamp & SEVERAL_LANES))
        return false;
    return thread / 32 != now->thread / 32 ||
           stamp_warp_epoch(stamp) == (now->warp_epoch & THREAD_MASK);
}

static uint64_t stamp_of(const struct emulated_moment *now)
{
    return now->epoch << EPOCH_SHIFT |
           (uint64_t)(now->warp_epoch & THREAD_MASK) << WARP_EPOCH_SHIFT | now->thread;
}

/* Return the read stamp of the byte after this thread's read. */
static uint64_t read_stamp(uint64_t before, const struct emulated_moment *now)
{
    unsigned thread = before & THREAD_MASK;
    uint64_t mine = stamp_of(now);
    if (before >> EPOCH_SHIFT != now->epoch)
        return mine;
    if (before & SEVERAL_THREADS || thread / 32 != now->thread / 32)
        return mine | SEVERAL_THREADS;
    if (stamp_warp_epoch(before) != (now->warp_epoch & THREAD_MASK))
        return mine;
    return thread == now->thread ? before : mine | SEVERAL_LANES;
}

static void bytes_check(struct allocation *in, size_t at, size_t size, bool write)
{
    struct emulated_moment now = blocks_moment();
    bool shared = in->kind == EMULATED_SHARED;
    const char *where = shared ? "shared" : "device";
    uint64_t mine = stamp_of(&now);
    for (size_t i = at; i < at + size; i++) {
        struct shadow *shadow = &in->shadow[i];
        if (write && shared)
            in->fences[i] = (uint8_t)now.proxy_fences;
        if (write && shadow->write == mine && shadow->read < mine)
            continue; /* try again */
        if (is_race(shadow->write, &now, shared))
            emulated_fault("race: %s %s memory that thread %u has written, byte %zu of %zu",
                           write ? "writes" : "reads", where,
                           (unsigned)(shadow->write & THREAD_MASK), i, in->bytes);
        if (write && is_race(shadow->read, &now, shared))
            emulated_fault("race: writes %s memory that thread %u has read, byte %zu of %zu", where,
                           (unsigned)(shadow->read & THREAD_MASK), i, in->bytes);
        if (!write && shared && shadow->write >> EPOCH_SHIFT < now.block_epoch)
            emulated_fault("reads shared memory that was not written, byte %zu of %zu", i,
                           in->bytes);
        if (write)
            shadow->write = mine;
        else
            shadow->read = read_stamp(shadow->read, &now);
    }
}

static void access_check(void *memory, size_t size, bool write)
{
    uintptr_t address = (uintptr_t)memory;
    const char *what = write ? "writes" : "reads";
    if (!blocks_running() || blocks_own(address, size))
        return;
    struct allocation *in = allocation_of(address);
    if (in == NULL && !write && in_program(address))
        return;
    if (in == NULL || size > in->bytes - (size_t)(address - (uintptr_t)in->begin))
        outside_report(address, size, what);
    if (in->kind != EMULATED_SHARED && !blocks_begun())
        emulated_fault("%s device memory before kernel_begin", what);
    if (size <= 16 && (size & (size - 1)) == 0 && address % size != 0) /* larger ones are several */
        emulated_fault("%s %zu bytes at an address that is not a multiple of %zu", what, size,
                       size);
    bytes_check(in, (size_t)(address - (uintptr_t)in->begin), size, write);
}

void memory_access(const void *memory, size_t bytes, bool write)
{
    access_check((void *)memory, bytes, write);
}

void memory_read_async(const void *memory, size_t bytes)
{
    memory_access(memory, bytes, false);
    const struct allocation *in = allocation_of((uintptr_t)memory);
    const size_t at = (size_t)((const unsigned char *)memory - in->begin);
    if (!blocks_published(in->shadow[at].write & THREAD_MASK, in->fences[at]))
        emulated_fault("reads shared memory, byte %zu of %zu, asynchronously that was written "
                       "without a proxy fence and a barrier",
                       at, in->bytes);
}

#define HOOKS(size)                                                                                \
    extern "C" void __tsan_read##size(void *memory)                                                \
    {                                                                                              \
        access_check(memory, size, false);                                                         \
    }                                                                                              \
    extern "C" void __tsan_write##size(void *memory)                                               \
    {                                                                                              \
        access_check(memory, size, true);                                                          \
    }                                                                                              \
    extern "C" void __tsan_unaligned_read##size(void *memory)                                      \
        __attribute__((alias("__tsan_read" #size)));                                               \
    extern "C" void __tsan_unaligned_write##size(void *memory)                                     \
        __attribute__((alias("__tsan_write" #size)));
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" void __tsan_read_range(void *memory, size_t size)
{
    access_check(memory, size, false);
}
extern "C" void __tsan_write_range(void *memory, size_t size)
{
    access_check(memory, size, true);
}
extern "C" void __tsan_init(void)
{
}
extern "C" void __tsan_vptr_update(void **, void *)
{
}
extern "C" void __tsan_func_entry(void *)
{
}
extern "C" void __tsan_func_exit(void)
{
}

#else

void memory_access(const void *, size_t, bool)
{
}

void memory_read_async(const void *, size_t)
{
}

#endif
