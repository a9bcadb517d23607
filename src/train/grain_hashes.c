// SPDX-License-Identifier: BSD-3-Clause
#include "train/grain_hashes.h"

#include <stdlib.h>

#include "core/hash.h"
#include "core/integer.h"

void grain_hashes_add(struct grain_hashes *hashes, struct session *session, int64_t position,
                      int64_t count, int64_t global_count)
{
    const struct device_backend *backend = session->device->backend;
    const int64_t outputs = model_output_count(session->model), values = count * outputs;
    hashes->count = round_up_division(global_count, session->grain);
    if (count == 0)
        return;
    float *gradient = allocate((size_t)values, sizeof *gradient);
    /* The memory of probabilities is free in training. */
    backend->convert(session->stream, TYPE_FP32, session->probabilities, session->compute,
                     session->logits, values);
    backend->copy(session->stream, gradient, session->probabilities,
                  (size_t)values * sizeof *gradient);
    backend->stream_synchronize(session->stream);
    for (int64_t i = 0; i < values; i++)
        hashes->hash[(position + i / outputs) / session->grain] +=
            hash_element((uint64_t)(position * outputs + i), gradient[i]);
    free(gradient);
}
