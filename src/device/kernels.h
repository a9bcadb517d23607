/* Kernels: single-threaded loops over a range. Each kernels_SUBJECT.c is compiled once per
 * instruction set, with -DKERNELS=baseline, avx2 or avx512, and defines one table of functions,
 * KERNEL(SUBJECT_kernels). Functions in it are static. kernels_table.c puts the subjects' tables
 * together; the device picks one table of tables when it is opened. */
#ifndef VITTRAIN_DEVICE_KERNELS_H
#define VITTRAIN_DEVICE_KERNELS_H

#include "device/device.h"

#ifdef KERNELS
#define KERNEL_PASTE_SUFFIX(name, suffix) name##_##suffix
#define KERNEL_PASTE(name, suffix) KERNEL_PASTE_SUFFIX(name, suffix)
#define KERNEL(name) KERNEL_PASTE(name, KERNELS)
#endif

/* Which random mask a range of elements has (device.h, struct dropout), for one sample. */
struct mask_source {
    uint32_t threshold; /* 0: nothing is dropped */
    float scale;        /* of kept elements */
    uint32_t key[2];
    uint32_t counter[3]; /* words 1 to 3 of Philox's counter: index, epoch, purpose + 256 * layer */
};

/* kernels_random.c */
struct random_kernels {
    /* mask[i] = 0 or source->scale for elements 8 * block_begin + i, count a multiple of 8. */
    void (*mask)(const struct mask_source *source, int64_t block_begin, int64_t count, float *mask);
};

/* kernels_convert.c */
struct convert_kernels {
    void (*to_fp32)(float *to, enum data_type from_type, const void *from, int64_t count);
    void (*from_fp32)(enum data_type to_type, void *to, const float *from, int64_t count);
};

/* A row's part of a product and where it goes; all pointers are at the part's first element. `sum`
 * may be y or dx where these are fp32. */
struct linear_row {
    enum data_type type;
    int64_t count;
    const float *sum;
    const float *mask;    /* factors of dropout, or NULL */
    const void *bias;     /* or NULL */
    const void *residual; /* or NULL */
    float path_scale;     /* of drop path, with residual */
    void *pre;            /* or NULL */
    void *y;
};

/* kernels_linear.c */
struct linear_kernels {
    /* device.h, struct linear_forward, after the product. */
    void (*forward)(const struct linear_row *row);
    /* y = sum * mask * gelu'(pre), or just sum without pre. */
    void (*backward)(const struct linear_row *row);
    /* y = residual * mask * path_scale. */
    void (*drop)(const struct linear_row *row);
    /* sums[c] += the sum over rows of x[r * stride + begin + c], in an order that `rows` alone
     * decides. */
    void (*column_sums)(enum data_type type, int64_t rows, int64_t columns, int64_t stride,
                        const void *x, int64_t begin, float *sums);
};

/* One head of one sample; rows of q, k and v lie `stride` elements apart, those of out
 * `out_stride`. Names as in device.h. */
struct attention_head {
    enum data_type type;
    int64_t tokens, queries, head_dim, stride, out_stride;
    float scale;
    const void *q, *k, *v;
    void *out;
    float *lse;
    const float *lse_read; /* backward, and the next four */
    const void *dout;
    void *dq, *dk, *dv;
    struct mask_source mask; /* threshold 0: no dropout */
    int64_t mask_block;      /* of query 0 */
    float *memory;
};

/* kernels_attention.c */
struct attention_kernels {
    /* How many elements `memory` must have. */
    int64_t (*memory)(const struct attention_head *head, bool backward);
    void (*forward)(const struct attention_head *head);
    void (*backward)(const struct attention_head *head);
};

struct cpu_kernels {
    const char *name; /* "AVX2": for people */
    const struct random_kernels *random;
    const struct convert_kernels *convert;
    const struct linear_kernels *linear;
    const struct attention_kernels *attention;
};

extern const struct cpu_kernels cpu_kernels_baseline;
#ifdef __x86_64__
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

#endif
