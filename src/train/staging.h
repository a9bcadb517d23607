/* The way of a batch to the device. Where the device runs behind the host, a batch is uploaded on a
 * stream of its own while the one before is computed: to one of two places on the device by turns,
 * from pinned memory that goes back to the loader when the upload is over. On a CPU there is one
 * place, and an upload is a copy that is over at once. */
#ifndef VITTRAIN_TRAIN_STAGING_H
#define VITTRAIN_TRAIN_STAGING_H

#include "core/arena.h"
#include "data/loader.h"
#include "device/device.h"

enum { STAGING_MOST = 2 };

struct staging {
    struct device *device;
    struct stream *stream; /* uploads */
    int count, turn;       /* places; the one that holds the newest batch */
    struct {
        uint8_t *pixels;
        struct pixel_plan *plans;
        struct mix_plan *mixes;
        int32_t *labels;
        struct event *uploaded, *used; /* its batch is there; the device needs it no more */
        struct loader *loader;         /* whose batch is on its way, or NULL */
        struct batch *batch;
    } place[STAGING_MOST];
};

void staging_open(struct staging *staging, struct device *device);
void staging_close(struct staging *staging);

/* Takes the places' memory from the arena: batches of at most `samples` of so many bytes. */
void staging_allocate(struct staging *staging, struct arena *arena, int64_t samples,
                      size_t sample_bytes);

/* Queues the upload of a batch; what is put on `stream` from now on finds it in
 * staging->place[staging->turn]. All that was put on `stream` before may still use the batch
 * before. loader: gets the batch back when the upload is over (here, or in staging_finish); NULL:
 * the caller keeps it and waits for the stream. augmented: pixel plans, too; mixed: how pairs are
 * mixed. */
void staging_upload(struct staging *staging, struct stream *stream, struct batch *batch,
                    size_t sample_bytes, bool augmented, bool mixed, struct loader *loader);

/* Waits for the uploads, gives all batches back. */
void staging_finish(struct staging *staging);

#endif
