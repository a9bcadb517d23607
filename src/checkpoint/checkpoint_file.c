// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/file.h"

enum {
    WRITER_ALIGNMENT = 1024 /* elements: writers begin at multiples of 4 KiB of their shard */
};

void checkpoint_contents_open(struct checkpoint_contents *contents, const struct unit *units,
                              int unit_count, const char *model, const char *compute,
                              const char *deck)
{
    size_t count = (size_t)unit_count;
    *contents = (struct checkpoint_contents){.deck = strdup(deck),
                                             .units = calloc(count, sizeof *contents->units),
                                             .units_borrowed = true,
                                             .unit_count = unit_count,
                                             .layout = calloc(count, sizeof *contents->layout)};
    ENSURE_MEMORY(contents->deck != NULL && contents->units != NULL && contents->layout != NULL,
                  "no memory for a checkpoint's plan");
    snprintf(contents->model, sizeof contents->model, "%s", model);
    snprintf(contents->compute, sizeof contents->compute, "%s", compute);
    snprintf(contents->program, sizeof contents->program, "%s", PACKAGE_STRING);
    clock_stamp(contents->date, sizeof contents->date);
    memcpy(contents->units, units, count * sizeof *units);
    for (size_t u = 0; u < count; u++) {
        snprintf(contents->layout[u].name, TENSOR_NAME, "%s", units[u].name);
        contents->layout[u].count = units[u].count;
    }
}

bool checkpoint_has(const struct checkpoint_contents *contents, enum flat_vector kind)
{
    switch (kind) {
    case FLAT_MASTER:
        return true;
    case FLAT_MOMENT1:
        return contents->moments >= 1;
    case FLAT_MOMENT2:
        return contents->moments >= 2;
    default:
        return contents->averaged != 0;
    }
}

int64_t checkpoint_piece_offset(const struct checkpoint_contents *contents, int64_t u,
                                enum flat_vector kind, int64_t p)
{
    return contents->layout[u].offset[kind] + contents->pieces[p].begin * (int64_t)sizeof(float);
}

/* The first element of writer `number` of `writers` in a shard of this length. */
static int64_t writer_begin(int64_t length, int64_t number, int64_t writers)
{
    if (number == writers)
        return length;
    return length * number / writers / WRITER_ALIGNMENT * WRITER_ALIGNMENT;
}

void checkpoint_range(const struct checkpoint_contents *contents, int64_t u, int64_t shard,
                      int64_t replica, int64_t *begin, int64_t *end)
{
    int64_t count = contents->units[u].count;
    int64_t length = flat_shard_count(count, (int)contents->shard);
    int64_t first = shard * length;
    if (length > count - first)
        length = count > first ? count - first : 0;
    *begin = first + writer_begin(length, replica, contents->replica);
    *end = first + writer_begin(length, replica + 1, contents->replica);
}

bool checkpoint_piece_read(int descriptor, const char *path,
                           const struct checkpoint_contents *contents, int64_t u, int64_t p,
                           enum flat_vector kind, float *block, struct error *error)
{
    const struct checkpoint_piece *piece = &contents->pieces[p];
    size_t bytes = (size_t)piece->count * sizeof(float);
    int64_t offset = checkpoint_piece_offset(contents, u, kind, p);
    if (!durable_read(descriptor, path, block, bytes, offset, error))
        return false;
    if (crc32c_update(0, block, bytes) == piece->crc[kind])
        return true;
    return error_set(
        error, ERROR_CHECKPOINT,
        "%s is damaged: the checksum of bytes %lld to %lld is wrong (%s of unit %s); use "
        "another checkpoint",
        path, (long long)offset, (long long)offset + (long long)bytes - 1, flat_vector_name[kind],
        contents->layout[u].name);
}

void checkpoint_contents_free(struct checkpoint_contents *contents)
{
    for (int64_t unit = 0; !contents->units_borrowed && unit < contents->unit_count; unit++)
        if (contents->units != NULL)
            free(contents->units[unit].tensors);
    free(contents->units);
    free(contents->layout);
    free(contents->pieces);
    free(contents->deck);
    free(contents->metadata);
    free(contents->data);
    free(contents->algorithms);
    memset(contents, 0, sizeof *contents);
}
