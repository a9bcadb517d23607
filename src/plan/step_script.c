// SPDX-License-Identifier: BSD-3-Clause
/* Runs the step's code on a device that counts operations (device/count.h) and on groups of ranks
 * that record collectives. The arena is reserved address space without memory: reading it would
 * fault. */
#define _GNU_SOURCE /* MAP_NORESERVE */
#include "plan/step_script.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "comm/combine.h"
#include "config/options.h"
#include "train/optimizer.h"
#include "train/step.h"

/* The script that is being recorded: the backends' functions have no argument for it. */
static struct {
    struct counter counter;
    struct step_script *script;
    const struct session *session;
    struct comm_backend recording;
    enum step_phase phase;
    int unit, last_unit; /* the running unit or -1; the last unit that ended or -1 */
} active;

static struct script_event *event_add(enum script_event_kind kind)
{
    struct step_script *script = active.script;
    if (script->count == script->capacity) {
        script->capacity = 2 * script->capacity + 256;
        script->event =
            allocate_resized(script->event, (size_t)script->capacity * sizeof *script->event);
    }
    struct script_event *event = &script->event[script->count++];
    *event = (struct script_event){.kind = kind, .phase = active.phase, .unit = active.unit};
    return event;
}

static void record_operation(struct counter *counter, const struct counted *counted)
{
    (void)counter;
    event_add(EVENT_OPERATION)->counted = *counted;
}

/* The wait for reductions after a backward pass belongs to the update. */
static void observe_phase(enum step_phase phase, bool begins)
{
    if (begins)
        active.phase = phase;
    else if (phase == STEP_BACKWARD)
        active.phase = STEP_UPDATE;
}

static void observe_unit(int unit, bool begins)
{
    active.unit = begins ? unit : -1;
    if (!begins)
        active.last_unit = unit;
}

static const struct step_observer observer = {.phase = observe_phase, .unit = observe_unit};

/* Returns the unit whose gradients or weights are in the buffer. A reduce-scatter or an
 * all-to-all starts right after its unit's backward pass, from memory that units share. */
static int unit_served(enum collective_action action, const void *buffer)
{
    const struct flat_model *flat = &active.session->flat;
    if (active.unit >= 0)
        return active.unit;
    if (action == ACTION_SCATTER || action == ACTION_ALL_TO_ALL)
        return active.last_unit;
    for (int u = 0; u < flat->count; u++) {
        const struct flat_buffer *unit = &flat->buffers[u];
        if (action == ACTION_GATHER ? buffer == unit->weights
                                    : buffer == unit->gradient || buffer == unit->gradient_low)
            return u;
    }
    return -1;
}

/* A request is the collective's number, from 1, which is never dereferenced. */
static struct comm_request *record_start(struct comm *comm, const struct comm_call *call)
{
    static const enum collective_action action[] = {[COMM_ALL_REDUCE] = ACTION_SUM,
                                                    [COMM_REDUCE_SCATTER] = ACTION_SCATTER,
                                                    [COMM_ALL_GATHER] = ACTION_GATHER,
                                                    [COMM_ALL_TO_ALL] = ACTION_ALL_TO_ALL};
    const int64_t blocks = call->action == COMM_ALL_TO_ALL ? call->parts[comm->rank] : 1;
    if (comm->size == 1 || blocks == 0)
        return NULL;
    struct script_event *event = event_add(EVENT_START);
    event->unit = unit_served(action[call->action], call->sent);
    event->number = active.script->collectives++;
    event->collective =
        (struct collective){.action = action[call->action],
                            .replica = comm == active.session->mesh.replica_data,
                            .bytes = (double)(blocks * call->count * comm_type_size(call->type))};
    return (struct comm_request *)((uintptr_t)event->number + 1);
}

static void record_wait(struct comm_request *request, struct stream *stream)
{
    (void)stream;
    if (request != NULL)
        event_add(EVENT_WAIT)->number = (int)((uintptr_t)request - 1);
}

static void recording_begin(struct step_script *script, struct session *session)
{
    struct mesh *mesh = &session->mesh;
    ENSURE(mesh->imagined && mesh->shard_data == mesh->shard,
           "only steps of an imagined mesh can be recorded");
    active.counter = (struct counter){.operation = record_operation};
    active.script = script;
    active.session = session;
    active.phase = STEP_DATA;
    active.unit = active.last_unit = -1;
    active.recording = *mesh->shard->backend;
    active.recording.start = record_start;
    active.recording.wait = record_wait;
    mesh->shard->backend = mesh->replica->backend = &active.recording;
    session->observer = &observer;
    count_open(session->device, &active.counter);
}

void step_script_make(struct step_script *script, struct session *session,
                      const struct image_source *source)
{
    const struct comm_backend *backend = session->mesh.shard->backend;
    size_t bytes = session->memory.arena.peak;
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ENSURE(memory != MAP_FAILED, "no address space of %zu bytes to record a step", bytes);
    *script = (struct step_script){0};
    struct error error = {0};
    ENSURE(flat_share(&session->flat, &error), "%s", error.text);
    recording_begin(script, session);
    session_place(session, memory, bytes, source, true);
    struct data_feed feed = {.source = *source};
    struct optimizer optimizer;
    struct step_context step;
    optimizer_open(&optimizer, session->options);
    flat_set_segments(&session->flat, 0, session->accumulate);
    flat_updated(&session->flat); /* as in the middle of a run: by the previous step */
    step_open(&step, session, &feed, &optimizer);
    step_rehearse(&step);
    step_close(&step);
    count_close(session->device);
    session->mesh.shard->backend = session->mesh.replica->backend = backend;
    munmap(memory, bytes);
}

void step_script_close(struct step_script *script)
{
    free(script->event);
    *script = (struct step_script){0};
}
