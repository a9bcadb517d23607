// SPDX-License-Identifier: BSD-3-Clause
/* Internal header of the CPU backend: declarations shared by its operations (cpu_*.c). An operation
 * distributes its work over threads and calls kernels (kernels.h), single-threaded loops compiled
 * once per instruction set. Partial sums cover blocks of fixed size, so that results do not depend
 * on the number of threads. */
#ifndef VITTRAIN_CPU_CPU_H
#define VITTRAIN_CPU_CPU_H

#include "base/base.h"
#include "cpu/cpu_product.h"
#include "cpu/tiles/tiles.h"
#include "device/device.h"

struct choices;

struct cpu_device {
    struct device device; /* first member: a struct device * can be cast to struct cpu_device * */
    int threads;
    const struct cpu_kernels *kernels;
    struct onednn *onednn;
    const struct tile_kernels *tiles; /* AMX or its emulation; NULL without */
    struct choices *choices;          /* identifies the kernels */
    int64_t l1_bytes, l2_bytes;       /* data caches of a core */
    unsigned char *workspace;
    struct device_limits limits;
};

/* The CPU completes every operation before it returns, so streams and events have no state. */
struct stream {
    struct cpu_device *cpu;
};

/* Elements that a thread handles at once in memory-bound operations. */
enum { CPU_BLOCK = 1 << 14 };

/* For `#pragma omp parallel num_threads(...)`: all threads of the device, or one if the work
 * (roughly, in elements) is less than starting threads costs. */
static inline int cpu_threads_for(const struct cpu_device *cpu, int64_t elements)
{
    enum { ELEMENTS_WORTH_THREADS = 8192 };
    return elements < ELEMENTS_WORTH_THREADS ? 1 : cpu->threads;
}

/* A multiplication in a matrix product costs much less than an element of other operations. */
static inline int cpu_threads_for_product(const struct cpu_device *cpu, int64_t multiplications)
{
    enum { MULTIPLICATIONS_PER_ELEMENT = 64 };
    return cpu_threads_for(cpu, multiplications / MULTIPLICATIONS_PER_ELEMENT);
}

/* True if oneDNN multiplies this type on the processor. Operands of other types are converted to
 * fp32 unless tiles multiply them. */
static inline bool is_native(const struct cpu_device *cpu, enum data_type type)
{
    return type == TYPE_FP32 ||
           (type == TYPE_BF16 && cpu->limits.multiplies_bf16 && product_multiplies_bf16());
}

/* True if tiles multiply this type. */
static inline bool has_tiles(const struct cpu_device *cpu, enum data_type type)
{
    return type == TYPE_BF16 && cpu->tiles != NULL && cpu->limits.multiplies_bf16;
}

/* The workspace has one part shared by all threads and one part per thread. Their sizes are fixed
 * because the device does not know the model; larger problems are processed in blocks. */
enum { WORKSPACE_SHARED = 16 << 20, WORKSPACE_THREAD = 4 << 20 };

/* Abort if `bytes` exceeds WORKSPACE_SHARED. */
void *cpu_workspace_shared(const struct cpu_device *cpu, size_t bytes);
/* Return the calling thread's part in a parallel region; abort if `bytes` exceeds it. */
void *cpu_workspace_thread(const struct cpu_device *cpu, size_t bytes);

/* Abort if a label is not in [0, classes): it would access memory outside the logits. */
void cpu_labels_check(const int32_t *labels, int64_t count, int64_t classes);

/* Return the source of sample `sample`'s mask for a dropout with rate > 0. */
struct mask_source cpu_mask_source(const struct dropout *dropout, int64_t sample);
/* Return the mask of `count` columns from `column` (a multiple of 8) in row `row` of a matrix of
 * this width; NULL without dropout. mask: memory for round_up(count, 8) floats. */
const float *cpu_row_mask(const struct cpu_device *cpu, const struct dropout *dropout,
                          int64_t rows_per_sample, int64_t width, int64_t row, int64_t column,
                          int64_t count, float *mask);
/* Return the drop path factor of this sample's branch: 1 if drop path is off. */
float cpu_path_scale(const struct dropout *drop_path, int64_t sample);

#define CPU_OPERATION(name, kind, parameters, ...) void cpu_##name parameters;
DEVICE_OPERATIONS(CPU_OPERATION)
double cpu_measure_peak(struct device *device, enum data_type type);
bool cpu_attention_fits(struct device *device, int64_t tokens, int64_t head_dim);
size_t cpu_convolution_workspace(struct device *device, enum data_type type,
                                 const struct convolution_shape *shape);
/* Direct convolution for few channels, without workspace (cpu_convolution_direct.c). The shape
 * alone decides. */
bool cpu_convolution_is_direct(const struct convolution_shape *shape);
void cpu_convolution_direct_forward(const struct cpu_device *cpu,
                                    const struct convolution_forward *args);
void cpu_convolution_direct_backward(const struct cpu_device *cpu,
                                     const struct convolution_backward *args);

#endif
