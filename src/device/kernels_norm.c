/* Layer normalisation of a row at a time. The row stays in the first-level cache between the passes
 * over it, so the variance is taken around the mean (two passes) and not from a sum of squares. */
#include "device/kernels.h"
#include "device/vector.h"

/* Sums run in several vectors side by side, because one would wait for itself. */
enum { SUMS = 4, STEP = SUMS * VECTOR_WIDTH };

KERNEL_INLINE float sums_total(const vector_float sums[SUMS])
{
    return vector_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

KERNEL_INLINE float row_mean(enum data_type type, const void *x, int64_t width)
{
    vector_float sums[SUMS] = {{0}};
    int64_t i = 0;

    for (; i + STEP <= width; i += STEP)
        for (int k = 0; k < SUMS; k++)
            sums[k] += typed_load(type, x, i + k * VECTOR_WIDTH);
    for (; i < width; i += VECTOR_WIDTH)
        sums[0] += typed_load_row(type, x, i, width);
    return sums_total(sums) / (float)width;
}

KERNEL_INLINE float row_variance(enum data_type type, const void *x, int64_t width, float mean)
{
    vector_float sums[SUMS] = {{0}};
    float rest = 0;
    int64_t i = 0;

    for (; i + STEP <= width; i += STEP)
        for (int k = 0; k < SUMS; k++) {
            vector_float difference = typed_load(type, x, i + k * VECTOR_WIDTH) - mean;
            sums[k] += difference * difference;
        }
    for (; i + VECTOR_WIDTH <= width; i += VECTOR_WIDTH) {
        vector_float difference = typed_load(type, x, i) - mean;
        sums[0] += difference * difference;
    }
    if (i < width) {
        vector_float difference = typed_load_part(type, x, i, width - i) - mean;
        for (int lane = 0; lane < width - i; lane++)
            rest += difference[lane] * difference[lane];
    }
    return (sums_total(sums) + rest) / (float)width;
}

KERNEL_INLINE void forward_typed(enum data_type type, const struct norm_forward *args,
                                 int64_t begin, int64_t end)
{
    int64_t width = args->width;

    for (int64_t row = begin; row < end; row++) {
        const char *x = (const char *)args->x + (size_t)(row * width) * type_size(type);
        char *y = (char *)args->y + (size_t)(row * width) * type_size(type);
        float mean = row_mean(type, x, width);
        float rstd = 1 / __builtin_sqrtf(row_variance(type, x, width, mean) + args->epsilon);
        for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
            vector_float normal = (typed_load_row(type, x, i, width) - mean) * rstd;
            normal = normal * typed_load_row(type, args->gamma, i, width) +
                     typed_load_row(type, args->beta, i, width);
            typed_store_row(type, y, i, width, normal);
        }
        if (args->mean != NULL) {
            args->mean[row] = mean;
            args->rstd[row] = rstd;
        }
    }
}

static void forward(const struct norm_forward *args, int64_t begin, int64_t end)
{
    TYPED_CALL(forward_typed, args->type, args, begin, end);
}

/* The two means over a row that the gradient needs: of g = dy * gamma and of g * x^, where x^ is
 * the normalised x. On the way dy * x^ and dy are added to dgamma and dbeta. */
KERNEL_INLINE void row_sums(enum data_type type, const struct norm_backward *args, int64_t row,
                            float *restrict dgamma, float *restrict dbeta, float means[2])
{
    int64_t width = args->width;
    const char *x = (const char *)args->x + (size_t)(row * width) * type_size(type);
    const char *dy = (const char *)args->dy + (size_t)(row * width) * type_size(type);
    float mean = args->mean[row], rstd = args->rstd[row];
    vector_float sums[2] = {{0}}, products[2] = {{0}};
    int turn = 0;

    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        vector_float normal = (typed_load_row(type, x, i, width) - mean) * rstd;
        vector_float dy_part = typed_load_row(type, dy, i, width);
        vector_float g = dy_part * typed_load_row(type, args->gamma, i, width);
        sums[turn] += g;
        products[turn] += g * normal;
        turn ^= 1;
        if (dgamma != NULL) {
            typed_store_row(TYPE_FP32, dgamma, i, width,
                            typed_load_row(TYPE_FP32, dgamma, i, width) + dy_part * normal);
            typed_store_row(TYPE_FP32, dbeta, i, width,
                            typed_load_row(TYPE_FP32, dbeta, i, width) + dy_part);
        }
    }
    means[0] = vector_sum(sums[0] + sums[1]) / (float)width;
    means[1] = vector_sum(products[0] + products[1]) / (float)width;
}

/* dx = add + rstd (g - mean(g) - x^ mean(g x^)) */
KERNEL_INLINE void row_gradient(enum data_type type, const struct norm_backward *args, int64_t row,
                                const float means[2])
{
    int64_t width = args->width;
    size_t offset = (size_t)(row * width) * type_size(type);
    const char *x = (const char *)args->x + offset, *dy = (const char *)args->dy + offset;
    const char *add = args->add != NULL ? (const char *)args->add + offset : NULL;
    char *dx = (char *)args->dx + offset;
    float mean = args->mean[row], rstd = args->rstd[row];

    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        vector_float normal = (typed_load_row(type, x, i, width) - mean) * rstd;
        vector_float g =
            typed_load_row(type, dy, i, width) * typed_load_row(type, args->gamma, i, width);
        vector_float gradient = (g - means[0] - normal * means[1]) * rstd;
        if (add != NULL)
            gradient += typed_load_row(type, add, i, width);
        typed_store_row(type, dx, i, width, gradient);
    }
}

KERNEL_INLINE void backward_typed(enum data_type type, const struct norm_backward *args,
                                  int64_t begin, int64_t end, float *dgamma, float *dbeta)
{
    for (int64_t row = begin; row < end; row++) {
        float means[2];
        row_sums(type, args, row, dgamma, dbeta, means);
        row_gradient(type, args, row, means);
    }
}

static void backward(const struct norm_backward *args, int64_t begin, int64_t end, float *dgamma,
                     float *dbeta)
{
    TYPED_CALL(backward_typed, args->type, args, begin, end, dgamma, dbeta);
}

extern const struct norm_kernels KERNEL(norm_kernels);
const struct norm_kernels KERNEL(norm_kernels) = {forward, backward};
