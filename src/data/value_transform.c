// SPDX-License-Identifier: BSD-3-Clause
#include "data/value_transform.h"

#include <math.h>
#include <string.h>

static float power_of_10(float value)
{
    return powf(10, value);
}

static float square(float value)
{
    return value < 0 ? 0 : value * value;
}

static const struct {
    const char *name;
    float (*apply)(float), (*undo)(float);
} transforms[] = {[TRANSFORM_LOG1P] = {"log1p", log1pf, expm1f},
                  [TRANSFORM_LOG10] = {"log10", log10f, power_of_10},
                  [TRANSFORM_SQRT] = {"sqrt", sqrtf, square}};

enum value_transform value_transform_find(const char *name, size_t length)
{
    int t = TRANSFORM_SQRT;
    while (t > TRANSFORM_NONE &&
           (strlen(transforms[t].name) != length || strncmp(transforms[t].name, name, length) != 0))
        t--;
    return (enum value_transform)t;
}

void value_transform_apply(enum value_transform transform, float *values, int64_t count)
{
    for (int64_t i = 0; transform != TRANSFORM_NONE && i < count; i++)
        if (!isinf(values[i])) {
            const float value = transforms[transform].apply(values[i]);
            values[i] = isfinite(value) ? value : NAN;
        }
}

void value_transform_undo(enum value_transform transform, float *values, int64_t count)
{
    for (int64_t i = 0; transform != TRANSFORM_NONE && i < count; i++)
        values[i] = transforms[transform].undo(values[i]);
}
