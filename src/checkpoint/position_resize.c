/* Bicubic interpolation as in PIL and torch (antialias=True): Keys' kernel with a = -1/2, widened
 * by the ratio if the grid shrinks, with weights normalised at the border. */
#include "checkpoint/position_resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

/* Keys (1981), a = -0.5. */
static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return 0;
}

/* weight[i * from + j]: weight of old position j in new position i. */
static void fill_weights(double *weight, int64_t from, int64_t to)
{
    double scale = (double)from / (double)to;
    double stretch = scale > 1 ? scale : 1;
    for (int64_t i = 0; i < to; i++) {
        double *row = weight + i * from;
        double center = scale * ((double)i + 0.5), sum = 0;
        int64_t first = (int64_t)fmax(center - 2 * stretch + 0.5, 0);
        int64_t last = (int64_t)fmin(center + 2 * stretch + 0.5, (double)from);
        memset(row, 0, (size_t)from * sizeof *row);
        for (int64_t j = first; j < last; j++) {
            row[j] = cubic(((double)j - center + 0.5) / stretch);
            sum += row[j];
        }
        for (int64_t j = first; j < last; j++)
            row[j] /= sum;
    }
}

/* to[i] = sum over j of weight[i, j] * from[j]; elements have `width` numbers and are `stride`
 * apart.
 */
static void resize_line(const double *weight, int64_t from_count, int64_t to_count,
                        const float *from, float *to, int64_t stride, int64_t width)
{
    for (int64_t i = 0; i < to_count; i++) {
        memset(to + i * stride, 0, (size_t)width * sizeof *to);
        for (int64_t j = 0; j < from_count; j++) {
            float factor = (float)weight[i * from_count + j];
            for (int64_t k = 0; factor != 0 && k < width; k++)
                to[i * stride + k] += factor * from[j * stride + k];
        }
    }
}

void position_resize(const float *from, int64_t from_side, float *to, int64_t to_side,
                     int64_t prefix, int64_t width)
{
    double *weight = malloc((size_t)(from_side * to_side) * sizeof *weight);
    float *rows = malloc((size_t)(from_side * to_side * width) * sizeof *rows);
    ENSURE(weight != NULL && rows != NULL, "no memory to resize position embeddings");
    memcpy(to, from, (size_t)(prefix * width) * sizeof *to);
    from += prefix * width;
    to += prefix * width;
    fill_weights(weight, from_side, to_side);
    for (int64_t y = 0; y < from_side; y++) /* along x: rows is [from_side, to_side, width] */
        resize_line(weight, from_side, to_side, from + y * from_side * width,
                    rows + y * to_side * width, width, width);
    for (int64_t x = 0; x < to_side; x++) /* along y */
        resize_line(weight, from_side, to_side, rows + x * width, to + x * width, to_side * width,
                    width);
    free(rows);
    free(weight);
}
