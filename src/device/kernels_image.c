/* Pixels: resizing by PIL's integer arithmetic, following augmented pixels back to where they come
 * from, and looking up their normalised value. */
#include "device/kernels.h"

enum { PRECISION_BITS = 22 };

static inline uint8_t clip(int32_t sum)
{
    int32_t value = sum >> PRECISION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void resize_horizontal(const struct resize_axis *axis, int64_t rows, const uint8_t *from,
                              uint8_t *to)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < axis->size; i++) {
            const int32_t *weights = axis->weights + i * axis->taps;
            const uint8_t *pixels = from + row * axis->source + axis->first[i];
            int32_t sum = 1 << (PRECISION_BITS - 1);
            for (int32_t k = 0; k < axis->count[i]; k++)
                sum += pixels[k] * weights[k];
            to[row * axis->size + i] = clip(sum);
        }
}

/* Columns side by side: this loop is the one that the compiler makes vectors of. */
enum { COLUMNS = 64 };

static void resize_vertical(const struct resize_axis *axis, int64_t width, const uint8_t *from,
                            uint8_t *to)
{
    for (int64_t i = 0; i < axis->size; i++)
        for (int64_t x = 0; x < width; x += COLUMNS) {
            int64_t columns = width - x < COLUMNS ? width - x : COLUMNS;
            int32_t sums[COLUMNS];
            for (int64_t j = 0; j < COLUMNS; j++)
                sums[j] = 1 << (PRECISION_BITS - 1);
            for (int32_t k = 0; k < axis->count[i]; k++) {
                const int32_t weight = axis->weights[i * axis->taps + k];
                const uint8_t *pixels = from + (axis->first[i] + k) * width + x;
                for (int64_t j = 0; j < columns; j++)
                    sums[j] += pixels[j] * weight;
            }
            for (int64_t j = 0; j < columns; j++)
                to[i * width + x + j] = clip(sums[j]);
        }
}

static inline int32_t inside(int32_t x, int32_t y, int32_t width, int32_t height)
{
    return x >= 0 && x < width && y >= 0 && y < height;
}

static void follow(const struct pixel_plan *plan, int32_t width, int32_t height, int32_t x,
                   int32_t y, int32_t count, int32_t *origin)
{
    const int32_t *m = plan->matrix;
    for (int32_t i = 0; i < count; i++) {
        int32_t erase_x = x + i - plan->erase_x, erase_y = y - plan->erase_y;
        int32_t erased = erase_x >= 0 && erase_x < plan->erase_width && erase_y >= 0 &&
                         erase_y < plan->erase_height;
        int32_t from_x = x + i - plan->translate_x, from_y = y - plan->translate_y;
        int32_t seen = !erased && inside(from_x, from_y, width, height);
        if (plan->rotate) {
            /* 64-bit: what is not seen may lie far outside. */
            int64_t turned_x = (m[0] * (int64_t)from_x + m[1] * (int64_t)from_y + m[2]) >> 16;
            int64_t turned_y = (m[3] * (int64_t)from_x + m[4] * (int64_t)from_y + m[5]) >> 16;
            from_x = (int32_t)turned_x;
            from_y = (int32_t)turned_y;
            seen = seen && inside(from_x, from_y, width, height);
        }
        from_x = (plan->flip ? width - 1 - from_x : from_x) + plan->shift_x;
        from_y += plan->shift_y;
        seen = seen && inside(from_x, from_y, width, height);
        origin[i] = seen ? from_y * width + from_x : -1;
    }
}

static void look_up(enum data_type type, const union pixel_table *table, const uint8_t *plane,
                    const int32_t *origin, int64_t count, void *images)
{
    for (int64_t i = 0; i < count; i++) {
        uint8_t level = origin == NULL ? plane[i] : origin[i] < 0 ? 0 : plane[origin[i]];
        if (type == TYPE_FP32)
            ((float *)images)[i] = table->fp32[level];
        else
            ((uint16_t *)images)[i] = table->half[level];
    }
}

extern const struct image_kernels KERNEL(image_kernels);
const struct image_kernels KERNEL(image_kernels) = {
    .resize_horizontal = resize_horizontal,
    .resize_vertical = resize_vertical,
    .follow = follow,
    .look_up = look_up,
};
