// SPDX-License-Identifier: BSD-3-Clause
/* A session: what every command that runs a model needs. Device, mesh, model, its flat buffers and
 * the memory of a pass. All device memory is in one arena, which is measured before it is
 * allocated. */
#ifndef VITTRAIN_TRAIN_SESSION_H
#define VITTRAIN_TRAIN_SESSION_H

#include "config/options.h"
#include "core/arena.h"
#include "device/device.h"
#include "device/grains.h"
#include "device/profile.h"
#include "mesh/flat.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "train/input.h"

/* This rank's memory. */
struct session_memory {
    struct arena arena;
    size_t (*rows)[MEMORY_CLASSES]; /* [ARENA_UNIT_ROWS + units] the arena's bytes by unit */
    void *allocation;               /* holds the arena */
    size_t loader_bytes;            /* host memory of batches that are loaded ahead */
    size_t snapshot_bytes;          /* host memory of background checkpoints; 0: none */
    size_t shared_bytes;            /* /dev/shm for checkpoints in memory; 0: none */
    float *snapshot;                /* pinned; NULL if snapshot_bytes is 0 */
    size_t base;                    /* used before the allocation: libraries, a GPU's context */
    size_t activations_mark; /* where activations start: training's and evaluation's overlap */
};

/* Seconds of this rank in a unit, summed over the training steps. */
struct unit_seconds {
    double forward, backward;                 /* without waiting */
    double forward_waiting, backward_waiting; /* for other ranks, in the unit or before it */
};

/* Phases of a step. The waits for gradient reductions belong to none. */
enum step_phase { STEP_DATA, STEP_FORWARD, STEP_BACKWARD, STEP_UPDATE, STEP_PHASES };

/* Called as the host queues the phases of a step and the units in them. */
struct step_observer {
    void (*phase)(enum step_phase phase, bool begins);
    void (*unit)(int unit, bool begins);
};

struct step_timer {
    struct unit_seconds *seconds; /* [units]; NULL if the host cannot measure them */
    int phase;                    /* enum step_phase, or STEP_PHASES between phases */
    int unit;                     /* -1: none */
    double unit_begin;            /* clock */
    double exposed; /* seconds waited for other ranks, when a phase or unit last began or ended */
};

struct session {
    const struct options *options;
    struct mesh mesh;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    enum data_type compute;
    struct model *model;
    struct flat_model flat;
    int64_t batch; /* samples that one pass of this rank can hold */
    struct session_memory memory;
    struct input input;
    struct step_io io;
    void *logits; /* device, [batch, classes, output height, output width] compute type */
    void *
        unflipped_logits; /* the same, of the images that are not mirrored; NULL if eval.flip=off */
    int32_t *predicted;
    float *probabilities;              /* or the outputs, if the loss is not that of labels */
    float *loss_weights, *row_weights; /* device, [classes] and [output height], or NULL */
    int64_t *nonfinite_index;
    struct grains *grains; /* NULL: train.exact=off */
    int64_t grain;         /* samples of a grain, or 0 */
    int64_t accumulate; /* micro-batches of a step: train.accumulate, or more with mesh.elastic */
    struct profile *profile; /* NULL: debug.profile=off */
    struct step_timer timer;
    const struct step_observer *observer; /* or NULL */
};

/* Collective. Opens device and model and checks that they fit each other and the data. Allocates no
 * device memory. training: with gradients and optimizer state. */
MUST_CHECK bool session_open(struct session *session, const struct options *options,
                             struct comm *world, bool training, struct error *error);

/* As session_open, for rank 0 of `ranks` ranks that do not exist, `node_ranks` on each node: for
 * session_measure. Threads and compute type are those of this machine. Local. */
MUST_CHECK bool session_imagine(struct session *session, const struct options *options, int ranks,
                                int node_ranks, bool training, struct error *error);

/* Sets the normalisation of images and targets by the options or the model's statistics. dataset:
 * its origins (dataset.h) are subtracted from the values; NULL: they are 0. */
MUST_CHECK bool session_set_normalisation(struct session *session, const struct dataset *dataset,
                                          struct error *error);

/* Measures without allocating: sets session->memory to what session_allocate would allocate for
 * passes of `batch` samples. rows: NULL, or zeros [ARENA_UNIT_ROWS + units] to which the arena's
 * bytes are added by unit. Call before session_allocate. */
void session_measure(struct session *session, int64_t batch, const struct image_source *source,
                     bool training, size_t (*rows)[MEMORY_CLASSES]);

/* Collective. Measures, prints the table of memory, checks that the memory is available, allocates.
 * The error for too little memory is the same on all ranks. */
MUST_CHECK bool session_allocate(struct session *session, int64_t batch,
                                 const struct image_source *source, bool training,
                                 struct error *error);

/* A session that did not fit into memory. For fit_advise. */
struct memory_shortage {
    struct options options;
    struct image_source source;
    bool training;
    int ranks, node_ranks;
    int64_t room; /* bytes per rank, on the rank with the least */
};
/* Return the session of the last session_allocate if it did not fit, else NULL. */
const struct memory_shortage *session_shortage(void);

/* Lays out what session_measure has measured in `bytes` bytes of device memory. */
void session_place(struct session *session, void *memory, size_t bytes,
                   const struct image_source *source, bool training);

/* Sets the loss scaler; waits for the stream. Without loss scaling only the number of skipped
 * updates is kept. session_allocate starts with train.loss_scale. */
void session_set_scaler(struct session *session, const struct loss_scaler *scaler);

/* Number of grains of a full global batch. Requires train.exact=layout. */
int64_t session_grains(const struct session *session);

/* Bytes that the session needs, after session_measure: of the GPU's memory, else of the host's with
 * loaders and snapshot. */
size_t session_needs(const struct session *session);
/* Releases the memory for background checkpoints. */
void session_drop_snapshot(struct session *session);
/* Returns the memory in use now, or its peak so far (hardware.h), with this rank's part of the
 * memory that ranks share. */
size_t session_memory_used(const struct session *session, bool peak);
/* Logs rank 0's memory next to the planned size. */
void session_log_memory(const struct session *session);
void session_close(struct session *session);

/* Lays out the activations of training or evaluation, whose memory overlaps: the previous contents
 * are lost. */
void session_activations(struct session *session, bool training);

/* A pass over the `count` samples in session->input. */
struct model_pass session_pass(struct session *session, int64_t count, bool training);

/* Collective. Makes the algorithms that GPU libraries choose by measurement the same on all ranks:
 * the lowest rank with new choices sends them to all others, until no rank has any. Then a resumed
 * run can use them again, for the same bits (device.h: choices_adopt). Waits for the stream. Costs
 * one all-reduce of 8 bytes if no rank has new choices. A recorded step keeps its algorithms, so
 * call this before recording. */
void session_agree_algorithms(const struct session *session);

/* True if the host's clock can measure phases and units: on a CPU, or with debug.profile. A GPU
 * runs behind the host. */
bool session_sees_times(const struct session *session);

/* Collective. Reads weights from a safetensors file or a checkpoint (by the file's suffix) and
 * warns if they contain NaN. accepts_other_head: see safetensors_read. */
MUST_CHECK bool session_read_weights(struct session *session, const char *path,
                                     bool accepts_other_head, struct error *error);

#endif
