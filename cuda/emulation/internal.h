/* What the files of the emulation share. */
#ifndef VITTRAIN_CUDA_EMULATION_INTERNAL_H
#define VITTRAIN_CUDA_EMULATION_INTERNAL_H

#include "emulation.h"

#include <mutex>

extern "C" {
#include "core/error.h"
}

/* Threads of the host call one at a time. */
extern std::recursive_mutex emulated_mutex;
#define EMULATED_CALL std::lock_guard<std::recursive_mutex> emulated_guard(emulated_mutex)

/* Ends the program: "emulated GPU: ..." with the kernel, block and thread where there is one. */
void emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* blocks.cpp */
bool blocks_running(void);
/* The stack of the thread that runs now, or its kernel's arguments. */
bool blocks_own(uintptr_t begin, size_t size);
/* When the thread that runs now does what it does; see check.cpp. */
struct emulated_moment {
    uint64_t epoch;                     /* counts barriers and blocks, over all launches */
    uint64_t launch_epoch, block_epoch; /* the first of this launch, of this block */
    unsigned thread, warp_epoch;        /* warp_epoch: counts fences of the thread's warp */
};
struct emulated_moment blocks_moment(void);

/* check.cpp: memory that kernels may touch. */
enum memory_kind { EMULATED_DEVICE, EMULATED_PINNED, EMULATED_SHARED };
void *memory_allocate(size_t bytes, enum memory_kind kind);
void memory_release(void *memory, enum memory_kind kind);
bool memory_is_known(const void *memory, size_t bytes); /* device or pinned, and inside */
size_t memory_in_use(void);                             /* device's */

/* streams.cpp */
void streams_forget(const void *memory); /* nothing that waits may use it any more */

#endif
