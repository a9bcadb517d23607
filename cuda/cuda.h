// SPDX-License-Identifier: BSD-3-Clause
/* Internal header of the backend "cuda", shared by its operations. An operation launches kernels,
 * or calls a library, on its stream and returns; it reads host memory only before it returns. Sums
 * have a fixed order: no atomic additions, and no split that depends on the GPU. */
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
    struct device_limits limits;
    double peak_fp32, peak_tf32; /* FLOP/s; limits contains one of them; 0: unknown */
    bool tf32;                   /* fp32 operands may be rounded to TF32 (settings_set) */
    struct products *products;
    struct engines *engines; /* NULL until the first convolution or product with GELU */
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

void cuda_zero(struct stream *stream, void *memory, size_t bytes);
void cuda_convert(struct stream *stream, enum data_type to_type, void *to, enum data_type from_type,
                  const void *from, int64_t count);
void cuda_add(struct stream *stream, float *sum, const float *addend, int64_t count);
void cuda_linear_forward(struct stream *stream, const struct linear_forward *args);
void cuda_linear_backward(struct stream *stream, const struct linear_backward *args);
void cuda_norm_forward(struct stream *stream, const struct norm_forward *args);
void cuda_norm_backward(struct stream *stream, const struct norm_backward *args);
bool cuda_attention_fits(struct device *device, int64_t tokens, int64_t head_dim);
void cuda_attention_forward(struct stream *stream, const struct attention_forward *args);
void cuda_attention_backward(struct stream *stream, const struct attention_backward *args);
void cuda_dropout_apply(struct stream *stream, const struct dropout_apply *args);
void cuda_scale_backward(struct stream *stream, const struct scale_backward *args);
void cuda_rotary(struct stream *stream, const struct rotary *args);
void cuda_glu_forward(struct stream *stream, const struct glu_forward *args);
void cuda_glu_backward(struct stream *stream, const struct glu_backward *args);
void cuda_patches_forward(struct stream *stream, const struct patches_forward *args);
void cuda_tokens_forward(struct stream *stream, const struct tokens_forward *args);
void cuda_tokens_backward(struct stream *stream, const struct tokens_backward *args);
void cuda_pool_forward(struct stream *stream, const struct pool_forward *args);
void cuda_pool_backward(struct stream *stream, const struct pool_backward *args);
size_t cuda_convolution_workspace(struct device *device, enum data_type type,
                                  const struct convolution_shape *shape);
void cuda_convolution_forward(struct stream *stream, const struct convolution_forward *args);
void cuda_convolution_backward(struct stream *stream, const struct convolution_backward *args);
void cuda_batch_norm_sums(struct stream *stream, const struct batch_norm_sums *args);
void cuda_batch_norm_forward(struct stream *stream, const struct batch_norm_forward *args);
void cuda_batch_norm_backward_sums(struct stream *stream,
                                   const struct batch_norm_backward_sums *args);
void cuda_batch_norm_backward(struct stream *stream, const struct batch_norm_backward *args);
void cuda_max_pool_forward(struct stream *stream, const struct max_pool_forward *args);
void cuda_max_pool_backward(struct stream *stream, const struct max_pool_backward *args);
void cuda_transpose(struct stream *stream, const struct transpose *args);
void cuda_squared_error(struct stream *stream, const struct squared_error *args);
void cuda_cross_entropy(struct stream *stream, const struct cross_entropy *args);
void cuda_update(struct stream *stream, const struct update *args);
void cuda_scaler_update(struct stream *stream, struct loss_scaler *scaler,
                        const double *norm_squared);
void cuda_sum_squares(struct stream *stream, const float *values, int64_t count,
                      struct exact_sum *sum);
void cuda_sum_value(struct stream *stream, const struct exact_sum *sum, double *value);
void cuda_matrix_sum(struct stream *stream, const struct matrix_sum *args);
void cuda_tree_sums(struct stream *stream, const struct tree_sums *args);
void cuda_hash(struct stream *stream, const struct hash *args);
void cuda_nonfinite(struct stream *stream, const struct nonfinite *args);
void cuda_image_transform(struct stream *stream, const struct image_transform *args);
void cuda_images_mix(struct stream *stream, const struct images_mix *args);

/* comm_nccl.cu: comm_open and comm_keep_order of device.h. */
extern "C" struct comm *nccl_open(struct comm *host, struct error *error);
extern "C" bool nccl_keep_order(struct error *error);

#endif
