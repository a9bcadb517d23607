/* Checkpoints in the background. Each goes through two stages, in which threads work alone: all
 * ranks write and sync their pieces; rank 0 writes the tables and gives the file its name. Between
 * them the ranks' main threads agree on errors and bring the sums together. Collectives are started
 * by the main thread alone: started by two threads they would come in another order on each rank.
 */
#include "checkpoint/checkpoint_writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_writing.h"
#include "config/phase.h"
#include "config/run_options.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/durable.h"
#include "core/log.h"
#include "core/status.h"
#include "core/thread.h"

enum stage { STAGE_NONE, STAGE_PIECES, STAGE_NAME };

struct checkpoint_writer {
    struct checkpoint_target target;
    const struct flat_model *flat;
    float *snapshot;     /* NULL: all is written at once */
    struct event *taken; /* the snapshot stands */
    double stood, waited;

    /* The checkpoint that is being written. While the thread is busy this is the thread's. */
    enum stage stage;
    struct checkpoint_writing writing;
    char name[NAME_MAX + 1];
    bool best;
    int64_t keep;
    double began, stood_before;
    struct error error; /* the thread's */

    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t work, rest;
    bool busy, stop;
};

/* ---- pieces ---- */

/* Something is done with piece number p, of unit u, of this rank, and its place in the snapshot. */
typedef void piece_action(struct checkpoint_writer *writer, int64_t u, enum vector_kind kind,
                          int64_t p, float *place);

static void own_pieces(struct checkpoint_writer *writer, piece_action *action)
{
    const struct checkpoint_writing *writing = &writer->writing;
    const struct checkpoint_contents *contents = &writing->contents;
    float *place = writer->snapshot;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        int64_t first = contents->layout[u].first_piece, count = contents->layout[u].piece_count;
        for (enum vector_kind kind = 0; kind < VECTOR_KINDS; kind++)
            for (int64_t p = first; checkpoint_has(contents, kind) && p < first + count; p++)
                if (writing->owner[p] == writing->world->rank) {
                    action(writer, u, kind, p, place);
                    place += contents->pieces[p].count;
                }
    }
    ENSURE((size_t)(place - writer->snapshot) * sizeof *place <=
               checkpoint_snapshot_bytes(writer->flat),
           "a snapshot is larger than was planned");
}

static void piece_take(struct checkpoint_writer *writer, int64_t u, enum vector_kind kind,
                       int64_t p, float *place)
{
    const struct checkpoint_piece *piece = &writer->writing.contents.pieces[p];
    vector_take_start(writer->flat, (int)u, kind, piece->begin, piece->count, place);
}

static void piece_write(struct checkpoint_writer *writer, int64_t u, enum vector_kind kind,
                        int64_t p, float *place)
{
    struct checkpoint_writing *writing = &writer->writing;
    struct checkpoint_piece *piece = &writing->contents.pieces[p];
    size_t bytes = (size_t)piece->count * sizeof(float);
    if (writer->error.kind != ERROR_NONE)
        return;
    piece->crc[kind] = crc32c_update(0, place, bytes);
    durable_write(writing->descriptor, writing->part, place, bytes,
                  checkpoint_piece_offset(&writing->contents, u, kind, p), &writer->error);
}

/* ---- the thread ---- */

/* Every rank syncs what it wrote: nobody need wait for the others of its node first. */
static void pieces_work(struct checkpoint_writer *writer)
{
    struct checkpoint_writing *writing = &writer->writing;
    writer->flat->device->backend->event_synchronize(writer->taken);
    own_pieces(writer, piece_write);
    if (writer->error.kind == ERROR_NONE)
        durable_sync(writing->descriptor, writing->part, &writer->error);
    if (writing->world->rank != 0)
        checkpoint_writing_close(writing, &writer->error);
}

/* Rank 0. The rename comes after all bytes of all ranks are on the disk. */
static void name_work(struct checkpoint_writer *writer)
{
    struct checkpoint_writing *writing = &writer->writing;
    struct error *error = &writer->error;
    if (checkpoint_writing_put_tables(writing, error) &&
        durable_sync(writing->descriptor, writing->part, error) &&
        checkpoint_writing_close(writing, error) &&
        durable_rename(writing->part, writing->final, error))
        checkpoint_publish(writer->target.directory, writer->name, writer->best, writer->keep,
                           error);
}

static void *thread_main(void *argument)
{
    struct checkpoint_writer *writer = argument;
    pthread_mutex_lock(&writer->lock);
    while (writer->busy || !writer->stop) {
        if (!writer->busy) {
            pthread_cond_wait(&writer->work, &writer->lock);
            continue;
        }
        pthread_mutex_unlock(&writer->lock);
        status_set_background(writer->stage == STAGE_PIECES ? PHASE_CHECKPOINT_WRITE
                                                            : PHASE_CHECKPOINT_NAME);
        (writer->stage == STAGE_PIECES ? pieces_work : name_work)(writer);
        status_set_background(PHASE_START);
        pthread_mutex_lock(&writer->lock);
        writer->busy = false;
        pthread_cond_signal(&writer->rest);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

static bool thread_open(struct checkpoint_writer *writer, struct error *error)
{
    int failed = thread_start(&writer->thread, thread_main, writer);
    writer->has_thread = failed == 0;
    return writer->has_thread ||
           error_set(error, ERROR_MEMORY,
                     "cannot start the thread that writes checkpoints: %s; set "
                     "checkpoint.background=no",
                     strerror(failed));
}

static void thread_begin(struct checkpoint_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->busy = true;
    pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&writer->lock);
}

static void thread_wait(struct checkpoint_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->busy)
        pthread_cond_wait(&writer->rest, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}

/* ---- what ranks do together ---- */

/* All threads rest: what comes next. */
static bool stage_end(struct checkpoint_writer *writer, struct error *error)
{
    struct checkpoint_writing *writing = &writer->writing;
    if (writer->error.kind != ERROR_NONE)
        *error = writer->error;
    bool good = comm_agree(writing->world, error);
    if (good && writer->stage == STAGE_PIECES) {
        checkpoint_writing_gather_sums(writing);
        writer->stage = STAGE_NAME;
        if (writing->world->rank == 0)
            thread_begin(writer);
        return true;
    }
    checkpoint_writing_end(writing, good);
    writer->stage = STAGE_NONE;
    return good;
}

static void completion_say(const struct checkpoint_writer *writer, double stood)
{
    log_debug("checkpoint %s in %.2f s, for %.2f s of them the run stood still%s", writer->name,
              clock_now() - writer->began, stood - writer->stood_before,
              writer->best ? "; the best so far" : "");
}

static bool finish(struct checkpoint_writer *writer, struct error *error)
{
    double begin = clock_now();
    bool good = true, waits = writer->stage != STAGE_NONE;
    if (waits)
        status_set_phase(PHASE_CHECKPOINT_WAIT);
    while (good && writer->stage != STAGE_NONE) {
        thread_wait(writer);
        good = stage_end(writer, error);
    }
    double seconds = clock_now() - begin;
    writer->waited += seconds;
    if (good && waits)
        completion_say(writer, writer->stood + seconds);
    return good;
}

/* ---- at once ---- */

static bool write_now(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                      struct error *error)
{
    struct comm *world = writer->flat->mesh->world;
    status_set_phase(PHASE_CHECKPOINT_WRITE);
    if (!checkpoint_write(&writer->target, order->name, writer->flat, order->model_name,
                          order->state, order->deck_text, error))
        return false;
    status_set_phase(PHASE_CHECKPOINT_NAME);
    if (world->rank == 0)
        checkpoint_publish(writer->target.directory, order->name, order->best, order->keep, error);
    return comm_agree(world, error);
}

static bool start(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                  struct error *error)
{
    if (!finish(writer, error))
        return false;
    status_set_phase(PHASE_CHECKPOINT_BEGIN);
    snprintf(writer->name, sizeof writer->name, "%s", order->name);
    writer->best = order->best;
    writer->keep = order->keep;
    writer->began = clock_now();
    writer->stood_before = writer->stood;
    error_clear(&writer->error);
    if (writer->snapshot == NULL)
        return write_now(writer, order, error);
    if (!checkpoint_writing_begin(&writer->writing, &writer->target, order->name, writer->flat,
                                  order->model_name, order->state, order->deck_text, error)) {
        checkpoint_writing_end(&writer->writing, false);
        return false;
    }
    own_pieces(writer, piece_take);
    writer->flat->device->backend->event_record(writer->taken, writer->flat->stream);
    writer->stage = STAGE_PIECES;
    thread_begin(writer);
    return true;
}

/* ---- the interface ---- */

struct checkpoint_writer *checkpoint_writer_open(const struct checkpoint_target *target,
                                                 const struct flat_model *flat, float *snapshot,
                                                 struct error *error)
{
    struct checkpoint_writer *writer = calloc(1, sizeof *writer);
    ENSURE(writer != NULL, "no memory for a writer of checkpoints");
    writer->target = *target;
    writer->flat = flat;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->work, NULL);
    pthread_cond_init(&writer->rest, NULL);
    if (snapshot == NULL || target->writers == WRITERS_NODE0)
        return writer;
    writer->snapshot = snapshot;
    writer->taken = flat->device->backend->event_open(flat->device);
    if (thread_open(writer, error))
        return writer;
    checkpoint_writer_close(writer);
    return NULL;
}

bool checkpoint_writer_start(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                             struct error *error)
{
    double begin = clock_now();
    bool good = start(writer, order, error);
    writer->stood += clock_now() - begin;
    if (good && writer->stage == STAGE_NONE)
        completion_say(writer, writer->stood);
    return good;
}

bool checkpoint_writer_is_busy(struct checkpoint_writer *writer)
{
    if (writer->stage == STAGE_NONE)
        return false;
    pthread_mutex_lock(&writer->lock);
    bool busy = writer->busy;
    pthread_mutex_unlock(&writer->lock);
    return busy;
}

bool checkpoint_writer_follow(struct checkpoint_writer *writer, bool busy, struct error *error)
{
    if (writer->stage == STAGE_NONE || busy)
        return true;
    double begin = clock_now();
    bool good = stage_end(writer, error);
    writer->stood += clock_now() - begin;
    if (good && writer->stage == STAGE_NONE)
        completion_say(writer, writer->stood);
    return good;
}

bool checkpoint_writer_finish(struct checkpoint_writer *writer, struct error *error)
{
    double begin = clock_now();
    bool good = finish(writer, error);
    writer->stood += clock_now() - begin;
    return good;
}

void checkpoint_writer_times(const struct checkpoint_writer *writer, double *stood, double *waited)
{
    *stood = writer->stood;
    *waited = writer->waited;
}

void checkpoint_writer_close(struct checkpoint_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->stage != STAGE_NONE) {
        thread_wait(writer);
        checkpoint_writing_end(&writer->writing, false);
    }
    if (writer->has_thread) {
        pthread_mutex_lock(&writer->lock);
        writer->stop = true;
        pthread_cond_signal(&writer->work);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
    }
    if (writer->taken != NULL)
        writer->flat->device->backend->event_close(writer->taken);
    pthread_cond_destroy(&writer->work);
    pthread_cond_destroy(&writer->rest);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}
