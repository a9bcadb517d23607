// SPDX-License-Identifier: BSD-3-Clause
#include "train/step.h"

#include <stdlib.h>

#include "base/base.h"
#include "base/log.h"
#include "options/options.h"

/* Parts of a grain's input, stored one after another in host memory. */
enum { INPUT_PARTS = 4 };

struct input_part {
    void *device;
    size_t bytes; /* per sample */
};

static void input_parts(const struct batch_upload *input, struct input_part parts[INPUT_PARTS])
{
    const size_t targets = input->targets != NULL ? (size_t)input->classes * sizeof(float) : 0;
    parts[0] = (struct input_part){input->images, input->image_bytes};
    parts[1] = (struct input_part){input->labels, sizeof *input->labels};
    parts[2] = (struct input_part){input->targets, targets};
    parts[3] = (struct input_part){input->target_values, input->target_bytes};
}

void grain_check_open(struct session *session)
{
    struct grain_check *check = &session->step.check;
    struct input_part parts[INPUT_PARTS];
    if (session->options.train.check_every == 0 || session->grains == NULL)
        return;
    input_parts(&session->input, parts);
    for (int i = 0; i < INPUT_PARTS; i++)
        check->bytes += parts[i].bytes * (size_t)session->grain;
    check->own = allocate(2, check->bytes);
    check->received = check->own + check->bytes;
    check->table = allocate((size_t)session->world->size, sizeof *check->table);
}

void grain_check_close(struct grain_check *check)
{
    free(check->own);
    free(check->table);
    *check = (struct grain_check){0};
}

/* Return a number that is different for each check and rank. */
static uint64_t check_random(const struct session *session, int rank)
{
    return hash_element((uint64_t)(session->step.check.number * session->world->size + rank), 0);
}

/* Return the kind of the faults that debug.flip injects on this rank. */
static enum flip_choice flip_here(const struct session *session)
{
    const bool here = session->options.debug.flip_rank == session->world->rank;
    return here ? session->options.debug.flip : FLIP_OFF;
}

/* Inverts a bit of this rank's copy of the largest tensor of the first unit. */
static void weights_flip(struct session *session, uint64_t random)
{
    struct flat_model *flat = &session->flat;
    const struct unit_tensor *tensors = session->model->units[0].tensors, *largest = tensors;
    for (int t = 1; t < session->model->units[0].tensor_count; t++)
        if (tensors[t].count > largest->count)
            largest = &tensors[t];
    flat_gather_wait(flat, 0); /* a later gather would undo the flip */
    flip_bit(session->device->backend, session->stream, flat->type,
             element_to_write(flat->type, flat->buffers[0].weights, largest->offset),
             largest->count, random);
}

void grain_check_begin(struct session *session, int64_t position, int64_t count)
{
    struct grain_check *check = &session->step.check;
    const int rank = session->world->rank;
    const int64_t grain = session->grain, grains = round_up_division(count, grain);
    const uint64_t random = check_random(session, rank);
    check->offset = grains > 0 ? (int64_t)(random % (uint64_t)grains) * grain : 0;
    check->table[rank] = (struct grain_record){.position = position + check->offset,
                                               .count = smaller(grain, count - check->offset)};
    if (flip_here(session) == FLIP_WEIGHT)
        weights_flip(session, random);
    grains_watch(session->grains, session->stream,
                 count > 0 ? check->table[rank].position / grain : -1, flip_here(session), random);
}

/* Copies `count` samples, from sample `first` of the session's input, to the host. upload: in the
 * other direction. */
static void grain_copy(const struct session *session, unsigned char *host, int64_t first,
                       int64_t count, bool upload)
{
    struct input_part parts[INPUT_PARTS];
    input_parts(&session->input, parts);
    for (int i = 0; i < INPUT_PARTS; i++) {
        size_t bytes = (size_t)count * parts[i].bytes;
        if (bytes == 0)
            continue;
        unsigned char *device = (unsigned char *)parts[i].device + (size_t)first * parts[i].bytes;
        session->device->backend->copy(session->stream, upload ? device : host,
                                       upload ? host : device, bytes);
        host += (size_t)session->grain * parts[i].bytes;
    }
    session->device->backend->stream_synchronize(session->stream);
}

void grain_check_take(struct session *session)
{
    struct grain_check *check = &session->step.check;
    struct grain_record *own = &check->table[session->world->rank];
    grain_copy(session, check->own, check->offset, own->count, false);
    own->hash = grains_hash(session->grains, session->stream);
}

/* Computes the grain of rank - shift and gathers the records of all ranks. */
static void check_round(struct session *session, int round, int shift)
{
    struct grain_check *check = &session->step.check;
    struct comm *world = session->world;
    const int from = (world->rank + world->size - shift) % world->size;
    const int64_t count = check->table[from].count;
    comm_shift(world, check->own, check->received, check->bytes, shift);
    grain_copy(session, check->received, 0, count, true);
    if (round == 0 && flip_here(session) == FLIP_MESSAGE && count > 0)
        flip_bit(session->device->backend, session->stream, session->compute, session->input.images,
                 count * (int64_t)(session->input.image_bytes / type_size(session->compute)),
                 check_random(session, from));
    check->table[world->rank].computed[round] =
        step_recompute(session, check->table[from].position, count);
    comm_all_gather(world, check->table, sizeof *check->table, COMM_BYTE);
}

/* Writes the verdict on the grain of `rank`, of which other ranks computed hash[round] of
 * computer[round]. */
static void verdict_print(const struct session *session, int rank, const int computer[2],
                          char *text, size_t size)
{
    const struct grain_check *check = &session->step.check;
    const struct grain_record *record = &check->table[rank];
    const long long grain = (long long)(record->position / session->grain);
    const uint64_t first = check->table[computer[0]].computed[0];
    const uint64_t decides = check->table[computer[1]].computed[1];
    const int wrong = decides == first ? rank : decides == record->hash ? computer[0] : -1;
    if (wrong < 0 || (computer[0] != rank && computer[1] == rank && wrong != rank))
        snprintf(text, size,
                 "step %lld: ranks %d on %s and %d on %s computed different gradients of grain "
                 "%lld; which one is wrong cannot be decided",
                 (long long)session->step.number + 1, rank, comm_host_of(rank), computer[0],
                 comm_host_of(computer[0]), grain);
    else
        snprintf(text, size,
                 "step %lld: rank %d on %s computed a wrong gradient of grain %lld: two other "
                 "computations agree; test the memory and processors of that host",
                 (long long)session->step.number + 1, wrong, comm_host_of(wrong), grain);
}

bool grain_check_end(struct session *session, struct error *error)
{
    struct grain_check *check = &session->step.check;
    struct comm *world = session->world;
    const int ranks = world->size;
    const int first = ranks > 1 ? 1 + (int)(check->number % (ranks - 1)) : 0;
    const int second = ranks > 2 ? 1 + first % (ranks - 1) : 0;
    bool decided = false;
    char text[ERROR_TEXT_SIZE];
    comm_all_gather(world, check->table, sizeof *check->table, COMM_BYTE);
    check_round(session, 0, first);
    check->number++;
    for (int rank = 0; rank < ranks; rank++) {
        const int computer[] = {(rank + first) % ranks, (rank + second) % ranks};
        if (check->table[rank].count == 0 ||
            check->table[rank].hash == check->table[computer[0]].computed[0])
            continue;
        if (!decided)
            check_round(session, 1, second);
        decided = true;
        verdict_print(session, rank, computer, text, sizeof text);
        if (session->options.train.check_action == CHECK_STOP) {
            error_set(error, ERROR_DIFFERENT, "%s", text);
            error->agreed = true;
            return false;
        }
        if (world->rank == 0)
            log_warn("%s", text);
    }
    return true;
}

/* ---- hashes for receipts */

void grain_hashes_add(struct session *session, int64_t position, int64_t count,
                      int64_t global_count)
{
    const struct device_backend *backend = session->device->backend;
    struct grain_hashes *hashes = session->step.hashes;
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
