// SPDX-License-Identifier: BSD-3-Clause
#include "device/bit_flip.h"

#include <string.h>

#include "base/base.h"

/* Return the bits of element `index`. In all types, the bits without the sign are ordered as the
 * absolute values are. */
static uint32_t bits_of(const unsigned char *memory, size_t width, int64_t index)
{
    uint32_t bits = 0; /* the host is little-endian */
    memcpy(&bits, memory + (size_t)index * width, width);
    return bits;
}

void flip_bit(const struct device_backend *backend, struct stream *stream, enum data_type type,
              void *values, int64_t count, uint64_t seed)
{
    enum { WINDOW = 64 };
    static const uint32_t mantissa[] = {
        [TYPE_FP32] = 1U << 22, [TYPE_BF16] = 1U << 6, [TYPE_FP16] = 1U << 9};
    const size_t width = type_size(type);
    const uint32_t sign = 1U << (8 * width - 1);
    const int64_t first = (int64_t)(seed % (uint64_t)larger(1, count - WINDOW));
    const int64_t window = smaller(WINDOW, count - first);
    unsigned char memory[WINDOW * sizeof(float)];
    int64_t largest = 0;
    backend->copy(stream, memory, element(type, values, first), (size_t)window * width);
    backend->stream_synchronize(stream);
    for (int64_t i = 1; i < window; i++)
        if ((bits_of(memory, width, i) & ~sign) > (bits_of(memory, width, largest) & ~sign))
            largest = i;
    const uint32_t bits = bits_of(memory, width, largest) ^ mantissa[type];
    backend->copy(stream, element_to_write(type, values, first + largest), &bits, width);
    backend->stream_synchronize(stream);
}
