// SPDX-License-Identifier: BSD-3-Clause
/* Weights of the rows of a map of the globe. */
#ifndef VITTRAIN_CORE_LATITUDE_H
#define VITTRAIN_CORE_LATITUDE_H

#include <math.h>
#include <stdint.h>

/* Set weights[i] to the cosine of the latitude at the centre of row i, of `rows` rows of equal
 * height from pole to pole, divided by the mean of all (WeatherBench, Rasp et al. 2020). */
static inline void latitude_weights(int64_t rows, float *weights)
{
    const double pi = 3.14159265358979323846;
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += sin(pi * ((double)i + 0.5) / (double)rows);
    for (int64_t i = 0; i < rows; i++)
        weights[i] = (float)(sin(pi * ((double)i + 0.5) / (double)rows) * (double)rows / sum);
}

#endif
