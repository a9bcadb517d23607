// SPDX-License-Identifier: BSD-3-Clause
/* Declarations shared by the files of the emulation. */
#ifndef VITTRAIN_CUDA_EMULATION_INTERNAL_H
#define VITTRAIN_CUDA_EMULATION_INTERNAL_H

#include "emulation.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

extern "C" {
#include "base/error.h"
}

/* Serialises the host's threads. */
extern std::recursive_mutex emulated_mutex;
#define EMULATED_CALL std::lock_guard<std::recursive_mutex> emulated_guard(emulated_mutex)

/* Begins functions of the runtime library. CUDA fails in a child process that was forked after the
 * first call. */
#define RUNTIME_CALL                                                                               \
    EMULATED_CALL;                                                                                 \
    if (is_forked())                                                                               \
    return cudaErrorInitializationError

/* End the program with "emulated GPU: ..." and the kernel, block and thread, if any. */
void emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Bytes of shared memory per block without and with a call of cudaFuncSetAttribute. */
enum { SHARED_PRESET = 48 * 1024, SHARED_MOST = 227 * 1024 };

/* blocks.cpp */
bool blocks_running(void);
/* True if the current thread has called kernel_begin. */
bool blocks_begun(void);
/* True for the stack of the current thread and its kernel's arguments. */
bool blocks_own(uintptr_t begin, size_t size);
/* Logical time of the current thread's access; see check.cpp. */
struct emulated_moment {
    uint64_t epoch;                     /* counts barriers and blocks, over all launches */
    uint64_t launch_epoch, block_epoch; /* first epoch of this launch, of this block */
    unsigned thread, warp_epoch;        /* warp_epoch: counts fences of the thread's warp */
    unsigned proxy_fences;              /* of the thread */
};
struct emulated_moment blocks_moment(void);
/* True if what `thread` wrote after its first `fences` proxy fences is visible to asynchronous
 * reads of the current thread: a fence followed, and a barrier after it. */
bool blocks_published(unsigned thread, unsigned fences);

/* tensor_core.cpp: a row or column of 16 operands. */
struct operand_line {
    float value[16];
    int exponent[16];
};
void operand_put(struct operand_line *line, int k, float value);
float truncated_sum(float addend, const struct operand_line &a, const struct operand_line &b);

/* asynchronous.cpp: at the start of a block, at the end of a thread. */
void asynchronous_begin(void);
void asynchronous_end(void);

/* check.cpp: memory accessible to kernels. */
enum memory_kind { EMULATED_DEVICE, EMULATED_PINNED, EMULATED_SHARED };
void *memory_allocate(size_t bytes, enum memory_kind kind);
void memory_release(void *memory, enum memory_kind kind);
bool memory_is_known(const void *memory,
                     size_t bytes); /* True if the range is inside device or pinned memory. */
size_t memory_in_use(void);         /* of the device */
/* Check an access of the current thread; a read of shared memory by the asynchronous proxy. */
void memory_access(const void *memory, size_t bytes, bool write);
void memory_read_async(const void *memory, size_t bytes);
/* Fault unless the range is inside device or pinned memory and aligned. */
void memory_must_hold(const void *memory, size_t bytes, size_t alignment, const char *what);
/* Fault if two ranges overlap. */
void memory_must_not_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                             const char *what);
/* Enclose an operation. Other accesses to device memory end the program. */
void memory_begin(void);
void memory_end(void);

/* streams.cpp */
struct operation {
    const char *what;
    std::function<bool(void)> body; /* returns true once it is complete; empty: a wait */
    cudaStream_t waits_for;         /* of a wait: for `until` operations of that stream */
    uint64_t until;
};

/* For each captured stream, the number of its preceding operations. */
typedef std::map<cudaStream_t, uint64_t> captured_order;

struct emulated_stream {
    int device;
    std::deque<struct operation> queue;
    uint64_t done, queued; /* operations since it was created; the difference is in the queue */
    bool running;
    std::shared_ptr<struct capture> capture; /* receives the operations; NULL: not capturing */
    captured_order before;                   /* while capturing */
};

struct emulated_event {
    int device;
    cudaStream_t stream; /* of the newest record; NULL: never recorded */
    uint64_t position;
    std::shared_ptr<struct capture> capture; /* capture that it was recorded in; NULL: none */
    captured_order before;
    bool times;
    double seconds; /* emulated time at which the stream reached it */
};

void stream_push(cudaStream_t stream, const struct operation &operation);
std::vector<cudaStream_t> &streams_all(void);
void streams_finish(void); /* Run everything that is queued. */
/* Add to the emulated time of the running operation, which events measure, in addition to one
 * microsecond per operation. */
void emulated_time_pass(double seconds);

/* graphs.cpp */
struct emulated_graph {
    std::vector<struct operation> operations;
};

struct capture {
    cudaStream_t origin; /* NULL: the capture has ended */
    std::thread::id thread;
    struct emulated_graph *graph;
};

void capture_push(cudaStream_t stream, const struct operation &operation);
void capture_wait(cudaStream_t stream, const struct emulated_event *event);
/* Fault if the stream is being captured. */
void stream_must_not_capture(cudaStream_t stream, const char *call);
/* Fault for calls that CUDA prohibits in a thread that captures any stream in thread-local mode:
 * calls that wait for the device, query it or manage its memory. */
void thread_must_not_capture(const char *call);

/* runtime.cpp */
bool is_forked(void);
cudaError_t fault_of(const char *call); /* as VITTRAIN_EMULATION_FAULT requests */
int device_capability(void);            /* 90: compute capability 9.0 */
int device_current(void);               /* device of the calling thread */
/* Fault if the calling thread has another device. */
void device_must_be(int number, const char *call);
/* Add a launch to the list of captured kernels. */
void launch_capture(const char *kernel, dim3 grid, dim3 block);

#endif
