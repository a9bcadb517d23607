/* The step's code runs on a device that counts and on groups that note. The arena lies in addresses
 * without memory behind them: whoever looked at a number in it would fall. */
#define _GNU_SOURCE /* MAP_NORESERVE */
#include "plan/step_script.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/options.h"
#include "config/phase.h"
#include "train/optimizer.h"
#include "train/step.h"

/* Whose calls are noted, one at a time: the tables of device and groups have no word for it. */
static struct {
    struct counter counter;
    struct step_script *script;
    const struct session *session;
    struct comm_backend noting;
    enum rehearsed_phase phase;
    int depth, unit, last_unit; /* last_unit: that has ended */
} active;

static struct rehearsed *event_add(enum rehearsed_kind kind)
{
    struct step_script *script = active.script;
    if (script->count == script->capacity) {
        script->capacity = 2 * script->capacity + 256;
        script->event = realloc(script->event, (size_t)script->capacity * sizeof *script->event);
        ENSURE(script->event != NULL, "no memory for a script");
    }
    struct rehearsed *event = &script->event[script->count++];
    *event = (struct rehearsed){.kind = kind, .phase = active.phase, .unit = active.unit};
    return event;
}

static void operation_note(struct counter *counter, const struct counted *counted)
{
    (void)counter;
    event_add(REHEARSED_OPERATION)->counted = *counted;
}

static void phase_begin(const char *name)
{
    static const struct {
        enum phase status;
        enum rehearsed_phase phase;
    } phases[] = {{PHASE_DATA, REHEARSED_DATA},
                  {PHASE_FORWARD, REHEARSED_FORWARD},
                  {PHASE_BACKWARD, REHEARSED_BACKWARD},
                  {PHASE_UPDATE, REHEARSED_UPDATE}};
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++)
        if (strcmp(name, status_phase_name(phases[i].status)) == 0)
            active.phase = phases[i].phase;
}

/* Phases hold units. What follows a backward pass, waiting for sums, is the update's. */
static void range_note(struct counter *counter, const char *name)
{
    const struct model *model = active.session->model;
    (void)counter;
    if (name == NULL) {
        active.depth--;
        if (active.unit >= 0)
            active.last_unit = active.unit;
        active.unit = -1;
        if (active.depth == 0 && active.phase == REHEARSED_BACKWARD)
            active.phase = REHEARSED_UPDATE;
        return;
    }
    if (active.depth++ == 0)
        phase_begin(name);
    for (int u = 0; active.depth == 2 && u < model->unit_count; u++)
        if (strcmp(name, model->units[u].name) == 0)
            active.unit = u;
}

static double element_bytes(enum comm_type type)
{
    switch (type) {
    case COMM_BYTE:
        return 1;
    case COMM_BF16:
    case COMM_FP16:
        return 2;
    case COMM_FP32:
        return 4;
    case COMM_INT64:
    case COMM_FP64:
        break;
    }
    return 8;
}

/* For which unit: whose gradients or weights lie there. What is scattered lies in memory that units
 * have by turns, and goes off right after its unit's backward pass. */
static int unit_served(enum collective_action action, const void *buffer)
{
    const struct flat_model *flat = &active.session->flat;
    if (active.unit >= 0)
        return active.unit;
    if (action == ACTION_SCATTER)
        return active.last_unit;
    for (int u = 0; u < flat->count; u++) {
        const struct flat_buffer *unit = &flat->buffers[u];
        if (action == ACTION_GATHER ? buffer == unit->weights
                                    : buffer == unit->gradient || buffer == unit->narrow_part)
            return u;
    }
    return -1;
}

/* A ticket is the collective's number, from 1, that nobody follows as a pointer. */
static struct ticket *collective_note(const struct comm *comm, enum collective_action action,
                                      const void *buffer, int64_t count, enum comm_type type)
{
    if (comm->size == 1 || count == 0)
        return NULL;
    struct rehearsed *event = event_add(REHEARSED_START);
    event->unit = unit_served(action, buffer);
    event->number = active.script->collectives++;
    event->collective = (struct collective){.action = action,
                                            .replica = comm == active.session->mesh.replica_data,
                                            .bytes = (double)count * element_bytes(type)};
    return (struct ticket *)((uintptr_t)event->number + 1);
}

static struct ticket *note_all_reduce(struct comm *comm, void *buffer, int64_t count,
                                      enum comm_type type, enum comm_operation operation,
                                      struct event *after)
{
    (void)operation, (void)after;
    return collective_note(comm, ACTION_SUM, buffer, count, type);
}

static struct ticket *note_reduce_scatter(struct comm *comm, void *buffer, int64_t count,
                                          enum comm_type type, enum comm_operation operation,
                                          struct event *after)
{
    (void)operation, (void)after;
    return collective_note(comm, ACTION_SCATTER, buffer, count, type);
}

static struct ticket *note_all_gather(struct comm *comm, void *buffer, int64_t count,
                                      enum comm_type type, struct event *after)
{
    (void)after;
    return collective_note(comm, ACTION_GATHER, buffer, count, type);
}

static void note_wait(struct ticket *ticket, struct stream *stream)
{
    (void)stream;
    if (ticket != NULL)
        event_add(REHEARSED_WAIT)->number = (int)((uintptr_t)ticket - 1);
}

static void noting_begin(struct step_script *script, struct session *session)
{
    struct mesh *mesh = &session->mesh;
    ENSURE(mesh->imagined && mesh->shard_data == mesh->shard, "a script on a mesh that is real");
    active.counter = (struct counter){.operation = operation_note, .range = range_note};
    active.script = script;
    active.session = session;
    active.phase = REHEARSED_DATA;
    active.depth = 0;
    active.unit = active.last_unit = -1;
    active.noting = *mesh->shard->backend;
    active.noting.all_reduce = note_all_reduce;
    active.noting.reduce_scatter = note_reduce_scatter;
    active.noting.all_gather = note_all_gather;
    active.noting.wait = note_wait;
    mesh->shard->backend = mesh->replica->backend = &active.noting;
    count_open(session->device, &active.counter);
}

/* Begins as a step in the middle of a run does: the one before has updated the weights. */
static void step_note(struct session *session, const struct image_source *source)
{
    struct data_feed feed = {.source = *source};
    struct optimizer optimizer;
    struct step_context step;
    optimizer_open(&optimizer, session->options);
    flat_set_segments(&session->flat, 0, session->options->train.accumulate);
    flat_updated(&session->flat);
    step_open(&step, session, &feed, &optimizer);
    step_rehearse(&step);
    step_close(&step);
}

void step_script_make(struct step_script *script, struct session *session,
                      const struct image_source *source)
{
    const struct comm_backend *silent = session->mesh.shard->backend;
    size_t bytes = session->arena.peak;
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ENSURE(memory != MAP_FAILED, "no addresses for a script of %zu bytes", bytes);
    *script = (struct step_script){0};
    noting_begin(script, session);
    session_place(session, memory, bytes, source, true);
    step_note(session, source);
    count_close(session->device);
    session->mesh.shard->backend = session->mesh.replica->backend = silent;
    munmap(memory, bytes);
}

void step_script_close(struct step_script *script)
{
    free(script->event);
    *script = (struct step_script){0};
}
