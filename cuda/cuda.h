// SPDX-License-Identifier: BSD-3-Clause
/* Internal header of the backend "cuda", shared by its operations. An operation launches kernels,
 * or calls a library, on its stream and returns; it reads host memory only before it returns. A
 * copy is the exception: a GPU that accesses pageable memory may read or write it later, so the
 * memory must not change until the stream has executed the copy. Sums have a fixed order: no atomic
 * additions, and no split that depends on the GPU. */
#ifndef VITTRAIN_CUDA_CUDA_H
#define VITTRAIN_CUDA_CUDA_H

#include "portable.h"

struct products; /* product.h */
struct engines;  /* convolution.h */
struct nvml;     /* nvml.h */

struct cuda_device {
    struct device device; /* first member: a struct device * is a struct cuda_device * */
    int number;           /* index among the devices visible to this process */
    int capability;       /* 90: compute capability 9.0 */
    int multiprocessors;
    size_t shared_bytes; /* maximum shared memory of a block */
    int64_t l2_bytes;    /* L2 cache */
    struct device_limits limits;
    double peak_fp32, peak_tf32; /* FLOP/s; limits contains one of them; 0: unknown */
    bool tf32;                   /* fp32 operands may be rounded to TF32 (settings_set) */
    struct products *products;
    struct engines *engines; /* NULL until the first convolution */
    struct nvml *nvml;       /* NULL until the first reading */
    unsigned char *workspace;
};

struct stream {
    struct cuda_device *cuda;
    cudaStream_t handle;
};

struct event {
    cudaEvent_t handle;
};

/* Block the host, and meanwhile check the collectives (watch.h). */
void cuda_wait_for(cudaEvent_t event);

/* Open device `number` modulo the visible ones and query its properties (choice.cu). */
bool choice_open(struct cuda_device *cuda, int number, struct error *error);

/* Make this process's device current in the calling thread. A new thread has device 0, on which its
 * first call would create a context. */
void choice_enter_thread(void);

void choice_survey(const struct cuda_device *cuda, struct device_survey *survey);

/* One part for the library of matrix products, one for partial sums. Operations of one stream use
 * them in order, so only one stream of a device may run operations that need them. Split-K of
 * ViT-B's weight gradients of fc1 and fc2 needs more than 32 MiB. */
enum { WORKSPACE_PRODUCTS = 64 << 20, WORKSPACE_SUMS = 16 << 20 };
void *cuda_workspace_products(const struct cuda_device *cuda);
/* Abort if `bytes` exceeds WORKSPACE_SUMS. */
void *cuda_workspace_sums(const struct cuda_device *cuda, size_t bytes);

/* sum[column] += (or, with overwrite, =) the partial sums of that column in order (columns.cu).
 * partial: the first `width` columns of [chunks, stride]. This is how operations sum over rows:
 * they split the rows into at most SUM_CHUNKS chunks, write each chunk's sums to the workspace,
 * then call this function. */
enum { SUM_CHUNKS = 128 };
/* Return the rows per chunk for `rows` rows; the last chunk may be shorter. */
int64_t sum_chunk_rows(int64_t rows);
void columns_add(struct stream *stream, const float *partial, int64_t chunks, int64_t stride,
                 int64_t width, float *sum, bool overwrite);
/* columns_add for `count` (at most 3) sets of partial sums, [count, chunks, width], in one launch.
 */
void columns_add_sets(struct stream *stream, const float *partial, int64_t chunks, int64_t width,
                      float *const *sums, int count, bool overwrite);
/* sum[column] += (or =) the sum over rows of that column of values, [rows, width]. */
void columns_sum(struct stream *stream, enum data_type type, const void *values, int64_t rows,
                 int64_t width, float *sum, bool overwrite);

/* Epilogues of a product or a convolution, in place. y, [rows, width], = relus ? max(0, y + bias) :
 * y + bias; bias may be NULL. dx becomes 0 where x, the output of a ReLU, is 0. */
void cuda_bias_relu(struct stream *stream, enum data_type type, int64_t rows, int64_t width,
                    const void *bias, bool relus, void *y);
void cuda_relu_gradient(struct stream *stream, enum data_type type, int64_t count, const void *x,
                        void *dx);
/* sum[b, column, row], fp32, += (or =) x[b, row, column] (pool.cu). */
void cuda_transpose_add(struct stream *stream, const struct transpose *args, float *sum,
                        bool overwrite);

#define CUDA_OPERATION(name, kind, parameters, ...) void cuda_##name parameters;
DEVICE_OPERATIONS(CUDA_OPERATION)
bool cuda_attention_fits(struct device *device, int64_t tokens, int64_t head_dim);
size_t cuda_convolution_workspace(struct device *device, enum data_type type,
                                  const struct convolution_shape *shape);

/* comm_nccl.cu: comm_open and comm_keep_order of device.h. */
extern "C" struct comm *nccl_open(struct comm *host, struct error *error);
extern "C" bool nccl_keep_order(struct error *error);

#endif
