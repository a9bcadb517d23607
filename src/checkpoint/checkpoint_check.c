// SPDX-License-Identifier: BSD-3-Clause
/* Checks of all values that the program uses, after HDF5 has read them. */
#include "checkpoint/checkpoint_check.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint_format.h"
#include "config/options.h"

static bool number_in_range(const struct checkpoint_number *number, const void *value, char *text,
                            size_t size)
{
    double real = 0;
    if (number->type == NUMBER_INTEGER) {
        int64_t integer;
        memcpy(&integer, value, sizeof integer);
        real = (double)integer;
        snprintf(text, size, "%lld", (long long)integer);
    } else {
        memcpy(&real, value, sizeof real);
        snprintf(text, size, "%g", real);
    }
    return number->any || (real >= number->least && real <= number->most);
}

static bool numbers_check(const char *path, const struct checkpoint_contents *contents,
                          struct error *error)
{
    char text[64];
    for (int n = 0; n < CHECKPOINT_NUMBERS; n++) {
        const struct checkpoint_number *number = &checkpoint_numbers[n];
        if (contents->format >= number->since &&
            !number_in_range(number, (const char *)contents + number->offset, text, sizeof text))
            return error_set(error, ERROR_CHECKPOINT,
                             "%s cannot be used as a checkpoint: its attribute %s=%s is not in the "
                             "range of %.16g to %.16g",
                             path, number->name, text, number->least, number->most);
    }
    if (contents->replica * contents->shard > CHECKPOINT_MOST_RANKS)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s cannot be used as a checkpoint: its mesh of replica=%lld x shard=%lld "
                         "has more than %d ranks",
                         path, (long long)contents->replica, (long long)contents->shard,
                         CHECKPOINT_MOST_RANKS);
    const struct training_state *state = &contents->state;
    if (state->epoch_step > state->step || state->epoch > state->step)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s cannot be used as a checkpoint: its attributes step=%lld, epoch=%lld "
                         "and epoch_step=%lld contradict each other",
                         path, (long long)state->step, (long long)state->epoch,
                         (long long)state->epoch_step);
    return true;
}

static bool text_ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool texts_end(const struct checkpoint_contents *contents)
{
    return contents->deck != NULL && text_ends(contents->model, sizeof contents->model) &&
           text_ends(contents->compute, sizeof contents->compute) &&
           text_ends(contents->program, sizeof contents->program) &&
           text_ends(contents->date, sizeof contents->date);
}

/* True if the tensors do not overlap, are inside the unit, and have the size of their shape. */
static bool tensors_fit(const struct unit *unit)
{
    int64_t end = 0;
    for (int t = 0; t < unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &unit->tensors[t];
        int64_t count = 1;
        if (!text_ends(tensor->name, sizeof tensor->name) || tensor->dimensions < 0 ||
            tensor->dimensions > TENSOR_DIMENSIONS)
            return false;
        for (int d = 0; d < tensor->dimensions; d++)
            if (tensor->shape[d] < 1 || __builtin_mul_overflow(count, tensor->shape[d], &count))
                return false;
        if (count != tensor->count || tensor->offset < end ||
            tensor->count > unit->count - tensor->offset)
            return false;
        end = tensor->offset + tensor->count;
    }
    return true;
}

/* True if the pieces cover the unit's `count` elements in order, without gaps or overlaps. */
static bool pieces_cover(const struct checkpoint_piece *pieces, int64_t piece_count, int64_t count)
{
    int64_t next = 0;
    for (int64_t p = 0; p < piece_count; p++) {
        if (pieces[p].begin != next || pieces[p].count < 1 || pieces[p].count > STATE_BLOCK ||
            pieces[p].count > count - next)
            return false;
        next += pieces[p].count;
    }
    return next == count;
}

/* True if all vectors of the unit are inside the file. */
static bool vectors_fit(const struct checkpoint_contents *contents,
                        const struct checkpoint_layout *layout)
{
    for (enum state_kind kind = 0; kind < STATE_KINDS; kind++)
        if (checkpoint_has(contents, kind) &&
            (layout->offset[kind] < 0 || layout->offset[kind] > contents->bytes ||
             layout->count > (contents->bytes - layout->offset[kind]) / (int64_t)sizeof(float)))
            return false;
    return true;
}

/* Return the name of the first invalid part of a unit whose pieces begin at first_piece, or NULL.
 */
static const char *unit_fault(const struct checkpoint_contents *contents, int64_t u,
                              int64_t first_piece)
{
    const struct unit *unit = &contents->units[u];
    const struct checkpoint_layout *layout = &contents->layout[u];
    if (unit->count < 1 || unit->count != layout->count || !vectors_fit(contents, layout))
        return "the length of the vectors";
    if (!tensors_fit(unit))
        return "the table of tensors";
    if (layout->first_piece != first_piece || layout->piece_count < 0 ||
        layout->piece_count > contents->piece_count - first_piece ||
        !pieces_cover(contents->pieces + first_piece, layout->piece_count, layout->count))
        return "the table of pieces";
    return NULL;
}

static bool units_check(const char *path, const struct checkpoint_contents *contents,
                        struct error *error)
{
    int64_t pieces = 0;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const char *name = contents->units[u].name, *fault;
        if (!text_ends(name, TENSOR_NAME) ||
            memcmp(name, contents->layout[u].name, TENSOR_NAME) != 0)
            return error_set(error, ERROR_CHECKPOINT,
                             "%s cannot be used as a checkpoint: the name of unit %lld is invalid",
                             path, (long long)u);
        fault = unit_fault(contents, u, pieces);
        if (fault != NULL)
            return error_set(error, ERROR_CHECKPOINT,
                             "%s cannot be used as a checkpoint: %s of unit %s is invalid: the "
                             "file is damaged",
                             path, fault, name);
        pieces += contents->layout[u].piece_count;
    }
    return contents->unit_count > 0 ||
           error_set(error, ERROR_CHECKPOINT, "%s cannot be used as a checkpoint: it has no units",
                     path);
}

bool checkpoint_check(const char *path, const struct checkpoint_contents *contents,
                      struct error *error)
{
    if (!texts_end(contents))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s cannot be used as a checkpoint: one of its texts is invalid", path);
    return numbers_check(path, contents, error) && units_check(path, contents, error);
}

bool checkpoint_deck_parse(const char *text, const char *path, struct options *options,
                           struct error *error)
{
    struct error fault = {.kind = ERROR_NONE};
    return options_read_text(text, path, options, &fault) ||
           error_set(error, ERROR_CHECKPOINT, "the deck in %s", fault.text);
}
