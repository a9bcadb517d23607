// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/decode.h"

#include <jansson.h>
#include <math.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#include "arrays/path.h"
#include "base/base.h"

enum { BLOCK = 512, TILE = 4096 };

/* Return the value of an IEEE half-precision number. */
static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = mantissa * 0x1p-24;
    if (exponent == 31)
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    else if (exponent > 0)
        value = (double)(uint32_t)(1 << exponent) * (1 + mantissa * 0x1p-10) * 0x1p-15;
    return bits >> 15 ? -value : value;
}

#define SWAP8(word) (word)
#define SWAP16 __builtin_bswap16
#define SWAP32 __builtin_bswap32
#define SWAP64 __builtin_bswap64

/* Load words of `bits` bits as numbers of this type and end the switch. */
#define LOAD(bits, type)                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                          \
        uint##bits##_t word;                                                                       \
        type number;                                                                               \
        memcpy(&word, from + i * (bits / 8), sizeof word);                                         \
        if (swapped)                                                                               \
            word = SWAP##bits(word);                                                               \
        memcpy(&number, &word, sizeof number);                                                     \
        to[i] = (double)number;                                                                    \
    }                                                                                              \
    break

/* `type`: kind and bytes of the elements, TYPE('f', 4). */
#define TYPE(kind, bytes) ((kind) << 4 | (bytes))

VECTORISED static void numbers_load(int type, const uint8_t *from, bool swapped, int64_t count,
                                    double *to)
{
    switch (type) {
    case TYPE('i', 1):
        LOAD(8, int8_t);
    case TYPE('i', 2):
        LOAD(16, int16_t);
    case TYPE('i', 4):
        LOAD(32, int32_t);
    case TYPE('i', 8):
        LOAD(64, int64_t);
    case TYPE('u', 1):
        LOAD(8, uint8_t);
    case TYPE('u', 2):
        LOAD(16, uint16_t);
    case TYPE('u', 4):
        LOAD(32, uint32_t);
    case TYPE('u', 8):
        LOAD(64, uint64_t);
    case TYPE('f', 2):
        for (int64_t i = 0; i < count; i++) {
            uint16_t word;
            memcpy(&word, from + 2 * i, sizeof word);
            to[i] = half_value(swapped ? SWAP16(word) : word);
        }
        break;
    case TYPE('f', 4):
        LOAD(32, float);
    default:
        LOAD(64, double);
    }
}

VECTORISED static void rule_apply(const struct array_rule *rule, double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(values[i] >= rule->least && values[i] <= rule->most))
            values[i] = (double)NAN;
    for (int n = 0; n < rule->missing_count; n++)
        for (int64_t i = 0; i < count; i++)
            if (values[i] == rule->missing[n])
                values[i] = (double)NAN;
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i] * rule->scale + rule->offset;
}

/* Convert float32 numbers with the results of rule_apply, which computes with double. */
VECTORISED static void floats_convert(const struct array *array, const uint8_t *from, int64_t count,
                                      float *to)
{
    const struct array_rule *rule = &array->rule;
    const double scale = rule->scale, offset = rule->offset;
    memcpy(to, from, (size_t)count * sizeof *to);
    for (int64_t i = 0; array->swapped && i < count; i++) {
        uint32_t word;
        memcpy(&word, &to[i], sizeof word);
        word = SWAP32(word);
        memcpy(&to[i], &word, sizeof word);
    }
    if (!rule->active)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double value = (double)to[i];
        to[i] = value >= rule->least && value <= rule->most ? to[i] : NAN;
    }
    for (int n = 0; n < rule->missing_count; n++)
        for (int64_t i = 0; i < count; i++)
            to[i] = (double)to[i] == rule->missing[n] ? NAN : to[i];
    if (scale == 1 && offset == 0)
        for (int64_t i = 0; i < count; i++)
            to[i] += 0.0F; /* -0 becomes 0 */
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)((double)to[i] * scale + offset);
}

void array_values_convert(const struct array *array, const uint8_t *from, int64_t count,
                          struct array_target to, int64_t first, int64_t stride)
{
    double values[BLOCK];
    if (array->kind == 'f' && array->element_bytes == sizeof(float) && from != NULL &&
        to.floats != NULL && stride == 1) {
        for (int64_t done = 0; done < count; done += TILE)
            floats_convert(array, from + done * (int64_t)sizeof(float), smaller(count - done, TILE),
                           to.floats + first + done);
        return;
    }
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t block = smaller(count - done, BLOCK);
        if (from != NULL)
            numbers_load(TYPE(array->kind, (int)array->element_bytes),
                         from + done * array->element_bytes, array->swapped, block, values);
        for (int64_t i = 0; from == NULL && i < block; i++)
            values[i] = array->fill;
        if (array->rule.active)
            rule_apply(&array->rule, values, block);
        if (to.floats != NULL)
            for (int64_t i = 0; i < block; i++)
                to.floats[first + (done + i) * stride] = (float)values[i];
        else
            for (int64_t i = 0; i < block; i++)
                to.doubles[first + (done + i) * stride] = values[i];
    }
}

VECTORISED void array_values_transpose(const struct array *array, const uint8_t *from, int64_t rows,
                                       int64_t columns, float *to, int64_t stride)
{
    float tile[TILE];
    const int64_t most = larger(1, TILE / columns);
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t count = smaller(most, rows - row);
        for (int64_t begin = 0; begin < columns; begin += TILE) {
            const int64_t width = smaller(TILE, columns - begin);
            const int64_t place = row * columns + begin;
            array_values_convert(array, from == NULL ? NULL : from + place * array->element_bytes,
                                 count * width, (struct array_target){.floats = tile}, 0, 1);
            for (int64_t column = 0; column < width; column++)
                for (int64_t i = 0; i < count; i++)
                    to[(begin + column) * stride + row + i] = tile[i * width + column];
        }
    }
}

/* ---- conventions of NetCDF ---- */

static void missing_add(struct array *array, double value)
{
    struct array_rule *rule = &array->rule;
    if (rule->missing_count == ARRAY_MISSING || isnan(value))
        return;
    /* The attribute may be a double such as 1e20, whose float is what the data contain. */
    if (array->kind == 'f' && array->element_bytes == sizeof(float))
        value = (double)(float)value;
    rule->missing[rule->missing_count++] = value;
}

/* Read the attribute _FillValue. In Zarr stores, xarray writes that of floating-point arrays as a
 * little-endian double in base64. */
static bool fill_read(const json_t *attributes, double *value)
{
    enum { LENGTH = 12, BYTES = 9 };
    uint8_t bytes[BYTES + 1];
    uint64_t bits = 0;
    const char *text = array_attribute_text(attributes, "_FillValue");
    if (array_attribute_numbers(attributes, "_FillValue", value, 1) > 0)
        return true;
    if (strlen(text) != LENGTH || EVP_DecodeBlock(bytes, (const uint8_t *)text, LENGTH) != BYTES)
        return false;
    for (int b = sizeof bits; b-- > 0;)
        bits = bits << 8 | bytes[b];
    memcpy(value, &bits, sizeof *value);
    return true;
}

bool array_rule_set(struct array *array, const json_t *attributes, struct error *error)
{
    static const char *const names[] = {"scale_factor", "add_offset"};
    struct array_rule *rule = &array->rule;
    double values[ARRAY_MISSING];
    *rule = (struct array_rule){.scale = 1, .least = (double)-INFINITY, .most = (double)INFINITY};
    for (int n = 0; n < 2; n++) {
        if (json_object_get(attributes, names[n]) == NULL)
            continue;
        if (array_attribute_numbers(attributes, names[n], values, 2) != 1 || !isfinite(values[0]))
            return array_refuse(array, error,
                                "its attribute %s is not one finite number: write it as a number",
                                names[n]);
        *(n == 0 ? &rule->scale : &rule->offset) = values[0];
    }
    array_attribute_numbers(attributes, "valid_min", &rule->least, 1);
    array_attribute_numbers(attributes, "valid_max", &rule->most, 1);
    if (array_attribute_numbers(attributes, "valid_range", values, 2) == 2) {
        rule->least = values[0];
        rule->most = values[1];
    }
    if (fill_read(attributes, values))
        missing_add(array, values[0]);
    const int count = array_attribute_numbers(attributes, "missing_value", values, ARRAY_MISSING);
    for (int n = 0; n < count; n++)
        missing_add(array, values[n]);
    /* With _Unsigned, the file has the bits of unsigned numbers in a signed type; its attributes
     * do, too. */
    if (array->kind == 'i' &&
        (strcasecmp(array_attribute_text(attributes, "_Unsigned"), "true") == 0 ||
         (array_attribute_numbers(attributes, "_Unsigned", values, 1) > 0 && values[0] == 1))) {
        double *const numbers[] = {&array->fill,      &rule->least,      &rule->most,
                                   &rule->missing[0], &rule->missing[1], &rule->missing[2],
                                   &rule->missing[3]};
        array->kind = 'u';
        for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++)
            if (*numbers[n] < 0 && isfinite(*numbers[n]))
                *numbers[n] += ldexp(1, (int)array->element_bytes * 8);
    }
    /* NetCDF's default fill value of the type; one byte has none. */
    const double half = ldexp(1, (int)array->element_bytes * 8 - 1);
    const double distance = array->element_bytes == 8 ? 2 : 1; /* from the end of the range */
    if (array->fill == (array->kind == 'f'          ? (double)9.9692099683868690e+36f
                        : array->element_bytes == 1 ? (double)NAN
                        : array->kind == 'u'        ? 2 * half - distance
                                                    : distance - half))
        missing_add(array, array->fill);
    rule->active = rule->scale != 1 || rule->offset != 0 || rule->least > (double)-INFINITY ||
                   rule->most < (double)INFINITY || rule->missing_count > 0;
    return true;
}
