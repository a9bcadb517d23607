// SPDX-License-Identifier: BSD-3-Clause
#include "train/grain_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/hash.h"
#include "core/integer.h"
#include "core/log.h"
#include "device/flip.h"

/* Fields of the table, each with one value per rank. CHECK_HASH is the hash of the rank itself,
 * CHECK_FIRST and CHECK_SECOND are those of rounds 1 and 2. */
enum { CHECK_POSITION, CHECK_COUNT, CHECK_HASH, CHECK_FIRST, CHECK_SECOND, CHECK_FIELDS };

/* Return the values of a field, by rank. */
static int64_t *field_of(const struct grain_check *check, int field)
{
    return check->table + (int64_t)field * check->session->mesh.world->size;
}

/* Parts of a grain's input, stored one after another in host memory. */
enum { INPUT_IMAGES, INPUT_LABELS, INPUT_TARGETS, INPUT_TARGET_VALUES, INPUT_PARTS };

struct input_part {
    void *device;
    size_t bytes; /* per sample */
};

static void input_parts(const struct session *session, struct input_part parts[INPUT_PARTS])
{
    const struct input *input = &session->input;
    const int64_t pixels = input->channels * input->image.height * input->image.width;
    const size_t targets = input->targets != NULL ? (size_t)input->classes * sizeof(float) : 0;
    parts[INPUT_IMAGES] =
        (struct input_part){input->images, (size_t)pixels * type_size(input->type)};
    parts[INPUT_LABELS] = (struct input_part){input->labels, sizeof *input->labels};
    parts[INPUT_TARGETS] = (struct input_part){input->targets, targets};
    parts[INPUT_TARGET_VALUES] = (struct input_part){input->target_values, input->target_bytes};
}

void grain_check_open(struct grain_check *check, struct session *session)
{
    struct input_part parts[INPUT_PARTS];
    *check = (struct grain_check){.session = session};
    if (session->options->train.check_every == 0 || session->grains == NULL)
        return;
    input_parts(session, parts);
    for (int i = 0; i < INPUT_PARTS; i++)
        check->bytes += parts[i].bytes * (size_t)session->grain;
    check->own = allocate(2, check->bytes);
    check->table = allocate((size_t)session->mesh.world->size, CHECK_FIELDS * sizeof *check->table);
    check->received = check->own + check->bytes;
}

void grain_check_close(struct grain_check *check)
{
    free(check->own);
    free(check->table);
    *check = (struct grain_check){0};
}

bool grain_check_due(const struct grain_check *check, int64_t number)
{
    return check->own != NULL && (number + 1) % check->session->options->train.check_every == 0;
}

/* ---- the grain of this rank */

/* Return a number that is different for each check and rank. */
static uint64_t check_random(const struct grain_check *check, int rank)
{
    return hash_element((uint64_t)(check->number * check->session->mesh.world->size + rank), 0);
}

/* Return the kind of the faults that debug.flip injects on this rank. */
static enum flip_choice flip_here(const struct grain_check *check)
{
    const struct session *session = check->session;
    const bool here = session->options->debug.flip_rank == session->mesh.world->rank;
    return here ? session->options->debug.flip : FLIP_OFF;
}

/* Inverts a bit of this rank's copy of the largest tensor of the first unit. */
static void weights_flip(struct session *session, uint64_t random)
{
    struct flat_model *flat = &session->flat;
    const struct unit *unit = &session->model->units[0];
    int largest = 0;
    for (int t = 1; t < unit->tensor_count; t++)
        if (unit->tensors[t].count > unit->tensors[largest].count)
            largest = t;
    flat_gather_wait(flat, 0); /* a later gather would undo the flip */
    flip_bit(session->device->backend, session->stream, flat->type,
             element_to_write(flat->type, flat->buffers[0].weights, unit->tensors[largest].offset),
             unit->tensors[largest].count, random);
}

void grain_check_begin(struct grain_check *check, int64_t position, int64_t count)
{
    struct session *session = check->session;
    const int64_t grain = session->grain, grains = round_up_division(count, grain);
    const uint64_t random = check_random(check, session->mesh.world->rank);
    const int64_t chosen = grains > 0 ? (int64_t)(random % (uint64_t)grains) * grain : 0;
    check->offset = chosen;
    check->position = position + chosen;
    check->count = smaller(grain, count - chosen);
    if (flip_here(check) == FLIP_WEIGHT)
        weights_flip(session, random);
    grains_watch(session->grains, session->stream, count > 0 ? check->position / grain : -1,
                 flip_here(check), random);
}

/* Copies `count` samples, from sample `first` of the session's input, to the host. upload: in the
 * other direction. */
static void grain_copy(const struct grain_check *check, unsigned char *host, int64_t first,
                       int64_t count, bool upload)
{
    const struct session *session = check->session;
    struct input_part parts[INPUT_PARTS];
    input_parts(session, parts);
    for (int i = 0; i < INPUT_PARTS; i++) {
        size_t bytes = (size_t)count * parts[i].bytes;
        if (bytes == 0)
            continue;
        unsigned char *device = (unsigned char *)parts[i].device + (size_t)first * parts[i].bytes;
        session->device->backend->copy(session->stream, upload ? (void *)device : host,
                                       upload ? (void *)host : device, bytes);
        host += (size_t)session->grain * parts[i].bytes;
    }
    session->device->backend->stream_synchronize(session->stream);
}

void grain_check_take(struct grain_check *check)
{
    grain_copy(check, check->own, check->offset, check->count, false);
    check->hash = grains_hash(check->session->grains, check->session->stream);
}

/* ---- rounds */

/* Computes the grain of rank - shift and all-reduces the hashes into `field` of the table. */
static void check_round(struct grain_check *check, int shift, int field, grain_compute *compute,
                        void *context)
{
    struct session *session = check->session;
    struct comm *world = session->mesh.world;
    const int from = (world->rank + world->size - shift) % world->size;
    const int64_t count = field_of(check, CHECK_COUNT)[from];
    struct input_part parts[INPUT_PARTS];
    input_parts(session, parts);
    comm_shift(world, check->own, check->received, check->bytes, shift);
    grain_copy(check, check->received, 0, count, true);
    if (field == CHECK_FIRST && flip_here(check) == FLIP_MESSAGE && count > 0)
        flip_bit(session->device->backend, session->stream, session->compute, session->input.images,
                 count * (int64_t)(parts[INPUT_IMAGES].bytes / type_size(session->compute)),
                 check_random(check, from));
    field_of(check, field)[from] =
        (int64_t)compute(context, field_of(check, CHECK_POSITION)[from], count);
    comm_all_reduce(world, field_of(check, field), world->size, COMM_INT64, COMM_SUM);
}

/* Gathers the fields that are known before round 1. */
static void table_gather(struct grain_check *check)
{
    struct comm *world = check->session->mesh.world;
    memset(check->table, 0, (size_t)world->size * CHECK_FIELDS * sizeof *check->table);
    field_of(check, CHECK_POSITION)[world->rank] = check->position;
    field_of(check, CHECK_COUNT)[world->rank] = check->count;
    field_of(check, CHECK_HASH)[world->rank] = (int64_t)check->hash;
    comm_all_reduce(world, check->table, (int64_t)world->size * CHECK_FIRST, COMM_INT64, COMM_SUM);
}

/* ---- verdict */

static bool is_different(const struct grain_check *check, int rank)
{
    return field_of(check, CHECK_COUNT)[rank] > 0 &&
           field_of(check, CHECK_HASH)[rank] != field_of(check, CHECK_FIRST)[rank];
}

/* Writes the verdict on the grain of `rank`. first, second: shifts of the rounds. */
static void verdict_print(const struct grain_check *check, int rank, int first, int second,
                          int64_t number, char *text, size_t size)
{
    const long long grain =
        (long long)(field_of(check, CHECK_POSITION)[rank] / check->session->grain);
    const int checker = (rank + first) % check->session->mesh.world->size;
    const int64_t decides = field_of(check, CHECK_SECOND)[rank];
    const int wrong = decides == field_of(check, CHECK_FIRST)[rank]  ? rank
                      : decides == field_of(check, CHECK_HASH)[rank] ? checker
                                                                     : -1;
    if (wrong < 0 || (first > 0 && second == 0 && wrong != rank))
        snprintf(text, size,
                 "step %lld: ranks %d on %s and %d on %s computed different gradients of grain "
                 "%lld; which one is wrong cannot be decided",
                 (long long)number + 1, rank, comm_host_of(rank), checker, comm_host_of(checker),
                 grain);
    else
        snprintf(text, size,
                 "step %lld: rank %d on %s computed a wrong gradient of grain %lld: two other "
                 "computations agree; test the memory and processors of that host",
                 (long long)number + 1, wrong, comm_host_of(wrong), grain);
}

bool grain_check_end(struct grain_check *check, int64_t number, grain_compute *compute,
                     void *context, struct error *error)
{
    const struct session *session = check->session;
    const int ranks = session->mesh.world->size;
    const int first = ranks > 1 ? 1 + (int)(check->number % (ranks - 1)) : 0;
    const int second = ranks > 2 ? 1 + first % (ranks - 1) : 0;
    char text[ERROR_TEXT_SIZE];
    bool different = false;
    table_gather(check);
    check_round(check, first, CHECK_FIRST, compute, context);
    for (int rank = 0; rank < ranks; rank++)
        different = different || is_different(check, rank);
    check->number++;
    if (!different)
        return true;
    check_round(check, second, CHECK_SECOND, compute, context);
    for (int rank = 0; rank < ranks; rank++) {
        if (!is_different(check, rank))
            continue;
        verdict_print(check, rank, first, second, number, text, sizeof text);
        if (session->options->train.check_action == CHECK_STOP) {
            error_set(error, ERROR_DIFFERENT, "%s", text);
            error->agreed = true;
            return false;
        }
        if (session->mesh.world->rank == 0)
            log_warn("%s", text);
    }
    return true;
}
