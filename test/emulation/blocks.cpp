// SPDX-License-Identifier: BSD-3-Clause
/* The blocks of a launch run one after the other. The threads of a block are fibres that run until
 * a barrier or a warp exchange. Their order is reversed at each barrier, so that results that
 * depend on the order change. */
#undef _FORTIFY_SOURCE /* its longjmp reports a change of stacks as an error */
#include "internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

enum { WARP = 32, THREADS_MOST = 1024, STACK_BYTES = 256 << 10 };

enum fibre_state { FIBRE_READY, FIBRE_AT_BARRIER, FIBRE_IN_EXCHANGE, FIBRE_DONE };

struct fibre {
    enum fibre_state state;
    bool started, begun; /* begun: kernel_begin was called */
    struct emulated_thread thread;
    jmp_buf context;
    unsigned char *stack;
    unsigned exchanges; /* number of warp exchanges of this thread */
    const char *file;   /* source position of the barrier at which it waits */
    int line;
    std::vector<uint64_t> proxy_fences; /* the epoch of each */
};

struct warp {
    struct emulated_exchange values[2][WARP]; /* alternating: the other one may still be read */
    unsigned exchanges, arrived, fences;
};

struct emulated_thread emulated_thread;

static struct {
    const char *kernel;
    const struct emulated_call *call;
    unsigned char *shared;
    struct fibre fibres[THREADS_MOST];
    struct warp warps[THREADS_MOST / WARP];
    int threads, current; /* current: -1 between threads */
    bool running;
    uint64_t epoch, launch_epoch, block_epoch;
    jmp_buf scheduler;
    const void *scheduler_stack;
    size_t scheduler_stack_bytes;
} state;

void emulated_fault(const char *format, ...)
{
    char text[1024], place[256] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (state.running) {
        dim3 b = emulated_thread.block_index, t = emulated_thread.thread_index;
        snprintf(place, sizeof place,
                 "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): ", state.kernel, b.x, b.y, b.z,
                 t.x, t.y, t.z);
    }
    error_abort(__FILE__, __LINE__, "emulated GPU: %s%s", place, text);
}

/* True in the host thread that runs the block; other host threads continue meanwhile. */
static thread_local bool runs_here __attribute__((tls_model("initial-exec")));

bool blocks_running(void)
{
    return runs_here && state.current >= 0;
}

bool blocks_own(uintptr_t begin, size_t size)
{
    uintptr_t stack = (uintptr_t)state.fibres[state.current].stack, call = (uintptr_t)state.call;
    return (begin >= stack && begin + size <= stack + STACK_BYTES) ||
           (begin >= call && begin + size <= call + state.call->bytes);
}

bool blocks_begun(void)
{
    return state.fibres[state.current].begun;
}

void kernel_begin(int threads_most)
{
    if (state.threads > threads_most)
        emulated_fault("a block of %d threads, of which __launch_bounds__ allows %d", state.threads,
                       threads_most);
    state.fibres[state.current].begun = true;
}

struct emulated_moment blocks_moment(void)
{
    return (struct emulated_moment){.epoch = state.epoch,
                                    .launch_epoch = state.launch_epoch,
                                    .block_epoch = state.block_epoch,
                                    .thread = (unsigned)state.current,
                                    .warp_epoch = state.warps[state.current / WARP].fences,
                                    .proxy_fences =
                                        (unsigned)state.fibres[state.current].proxy_fences.size()};
}

void emulated_proxy_fence(void)
{
    state.fibres[state.current].proxy_fences.push_back(state.epoch);
}

bool blocks_published(unsigned thread, unsigned fences)
{
    const std::vector<uint64_t> &epochs = state.fibres[thread].proxy_fences;
    return epochs.size() > fences &&
           (epochs[fences] < state.epoch || thread == (unsigned)state.current);
}

unsigned char *emulated_shared_memory(void)
{
    return state.shared;
}

int emulated_lane(void)
{
    return state.current % WARP;
}

/* ---- Switching stacks */
static void stack_leave(struct fibre *fibre)
{
#if defined(__SANITIZE_ADDRESS__)
    void *fake = NULL;
    __sanitizer_start_switch_fiber(fibre->state == FIBRE_DONE ? NULL : &fake, state.scheduler_stack,
                                   state.scheduler_stack_bytes);
#endif
    if (_setjmp(fibre->context) == 0)
        _longjmp(state.scheduler, 1);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &state.scheduler_stack, &state.scheduler_stack_bytes);
#endif
}

static void fibre_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &state.scheduler_stack, &state.scheduler_stack_bytes);
#endif
    state.call->run();
    struct fibre *fibre = &state.fibres[state.current];
    if (!fibre->begun)
        emulated_fault("ends without kernel_begin");
    asynchronous_end();
    fibre->state = FIBRE_DONE;
    stack_leave(fibre);
}

static void fibre_start(struct fibre *fibre)
{
    static ucontext_t context, unused;
    fibre->started = true;
    getcontext(&context);
    context.uc_stack.ss_sp = fibre->stack;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, fibre_main, 0);
    swapcontext(&unused, &context);
}

/* Run a thread until it waits or ends. */
static void fibre_resume(int number)
{
    struct fibre *fibre = &state.fibres[number];
    state.current = number;
    emulated_thread = fibre->thread;
#if defined(__SANITIZE_ADDRESS__)
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, fibre->stack, STACK_BYTES);
#endif
    if (_setjmp(state.scheduler) == 0) {
        if (fibre->started)
            _longjmp(fibre->context, 1);
        fibre_start(fibre);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    state.current = -1;
}

/* ---- Synchronisation of threads */
void emulated_barrier(const char *file, int line)
{
    struct fibre *fibre = &state.fibres[state.current];
    fibre->state = FIBRE_AT_BARRIER;
    fibre->file = file;
    fibre->line = line;
    stack_leave(fibre);
}

const struct emulated_exchange *emulated_warp_exchange(const void *value, size_t size, bool fence)
{
    struct fibre *fibre = &state.fibres[state.current];
    int number = state.current / WARP, first = number * WARP;
    struct warp *warp = &state.warps[number];
    if (state.threads % WARP != 0)
        emulated_fault("an exchange in a block of %d threads, which has an incomplete warp",
                       state.threads);
    struct emulated_exchange *values = warp->values[fibre->exchanges++ % 2];
    if (size > 0)
        memcpy(values[state.current - first].bytes, value, size);
    fibre->state = FIBRE_IN_EXCHANGE;
    if (++warp->arrived < WARP) {
        stack_leave(fibre);
        return values;
    }
    warp->arrived = 0;
    warp->exchanges++;
    warp->fences += fence;
    for (int i = 0; i < WARP; i++)
        state.fibres[first + i].state = FIBRE_READY;
    return values;
}

/* ---- A block */
static void barrier_check(void)
{
    const struct fibre *first = NULL;
    for (int i = 0; i < state.threads; i++) {
        const struct fibre *fibre = &state.fibres[i];
        emulated_thread = fibre->thread;
        if (fibre->state == FIBRE_IN_EXCHANGE)
            emulated_fault("waits for its warp, whose other threads have ended or wait at a "
                           "barrier");
        if (first == NULL)
            first = fibre;
        if (fibre->state != first->state)
            emulated_fault("a barrier is not reached by all threads of the block (%s:%d)",
                           first->file != NULL ? first->file : fibre->file,
                           first->file != NULL ? first->line : fibre->line);
        if (fibre->state == FIBRE_AT_BARRIER &&
            (fibre->line != first->line || fibre->file != first->file))
            emulated_fault("threads of a block wait at different barriers (%s:%d, line %d)",
                           first->file, first->line, fibre->line);
    }
}

static bool threads_turn(bool backwards)
{
    bool moved = false;
    for (int i = 0; i < state.threads; i++) {
        int number = backwards ? state.threads - 1 - i : i;
        if (state.fibres[number].state != FIBRE_READY)
            continue;
        fibre_resume(number);
        moved = true;
    }
    return moved;
}

static void block_run(dim3 grid, dim3 block, dim3 index)
{
    state.block_epoch = ++state.epoch;
    memset(state.warps, 0, sizeof state.warps);
    asynchronous_begin();
    for (int i = 0; i < state.threads; i++) {
        struct fibre *fibre = &state.fibres[i];
        unsigned n = (unsigned)i;
        fibre->state = FIBRE_READY;
        fibre->started = fibre->begun = false;
        fibre->file = NULL;
        fibre->exchanges = 0;
        fibre->proxy_fences.clear();
        fibre->thread.block_index = index;
        fibre->thread.thread_index =
            dim3(n % block.x, n / block.x % block.y, n / (block.x * block.y));
        fibre->thread.block_size = block;
        fibre->thread.grid_size = grid;
    }
    for (bool backwards = false;; backwards = !backwards) {
        while (threads_turn(backwards))
            ;
        barrier_check();
        if (state.fibres[0].state == FIBRE_DONE)
            return;
        state.epoch++;
        for (int i = 0; i < state.threads; i++)
            state.fibres[i].state = FIBRE_READY;
    }
}

static void stacks_allocate(void)
{
    for (int i = 0; i < state.threads; i++) {
        if (state.fibres[i].stack != NULL)
            continue;
        void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ENSURE_MEMORY(stack != MAP_FAILED, "no memory for the stack of an emulated thread");
        state.fibres[i].stack = (unsigned char *)stack;
    }
}

static void blocks_run(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                       const struct emulated_call *call)
{
    ENSURE(!state.running, "a kernel launches a kernel");
    state.kernel = kernel;
    state.call = call;
    state.threads = (int)(block.x * block.y * block.z);
    stacks_allocate();
    state.launch_epoch = state.epoch + 1;
    state.running = runs_here = true;
    state.shared = (unsigned char *)memory_allocate(shared_bytes, EMULATED_SHARED);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                memset(state.shared, 0xff, shared_bytes); /* NaN in every type */
                block_run(grid, block, dim3(x, y, z));
            }
    memory_release(state.shared, EMULATED_SHARED);
    state.running = runs_here = false;
}

/* ---- Launches */

/* Maximum dynamic shared memory (cudaFuncSetAttribute) per kernel. */
static std::map<const void *, size_t> shared_allowed;

cudaError_t emulated_shared_allow(const void *function, int bytes)
{
    RUNTIME_CALL;
    if (bytes < 0 || bytes > SHARED_MOST)
        return cudaErrorInvalidValue;
    shared_allowed[function] = (size_t)bytes;
    return cudaSuccess;
}

static void shared_check(const char *kernel, const void *function, size_t bytes)
{
    EMULATED_CALL;
    const auto found = shared_allowed.find(function);
    const size_t most = found != shared_allowed.end() ? found->second : (size_t)SHARED_PRESET;
    if (bytes > most)
        emulated_fault(
            "kernel %s: %zu bytes of shared memory, of which cudaFuncSetAttribute allows "
            "%zu",
            kernel, bytes, most);
}

/* The limits common to all GPUs. */
void emulated_launch(const char *kernel, const void *function, dim3 grid, dim3 block,
                     size_t shared_bytes, cudaStream_t stream, bool dependent,
                     const struct emulated_call *call)
{
    std::shared_ptr<const struct emulated_call> kept(call);
    size_t threads = (size_t)block.x * block.y * block.z;
    if (threads == 0 || threads > THREADS_MOST || block.z > 64)
        emulated_fault("kernel %s: a block of %ux%ux%u threads", kernel, block.x, block.y, block.z);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535)
        emulated_fault("kernel %s: a grid of %ux%ux%u blocks", kernel, grid.x, grid.y, grid.z);
    if (dependent && device_capability() < 90)
        emulated_fault("kernel %s: a dependent launch needs compute capability 9.0", kernel);
    shared_check(kernel, function, shared_bytes);
    launch_capture(kernel, grid, block);
    emulated_enqueue(stream, kernel,
                     [=]() { blocks_run(kernel, grid, block, shared_bytes, kept.get()); });
}
