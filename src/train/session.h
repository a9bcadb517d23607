// SPDX-License-Identifier: BSD-3-Clause
/* A session: what every command that runs a model needs. Options, data, mesh, device, model, its
 * flat buffers and the memory of a pass. All device memory is in one arena, which is measured
 * before it is allocated. */
#ifndef VITTRAIN_TRAIN_SESSION_H
#define VITTRAIN_TRAIN_SESSION_H

#include "base/arena.h"
#include "device/device.h"
#include "device/grains.h"
#include "device/profile.h"
#include "mesh/flat.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "options/options.h"
#include "train/batch_upload.h"
#include "train/optimizer.h"
#include "train/split_loader.h"

struct model_metadata;

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

/* What the host queues now, and how long it took. */
struct step_timer {
    struct unit_seconds *seconds; /* [units]; NULL if the host cannot measure them */
    int phase;                    /* enum step_phase, or STEP_PHASES between phases */
    int unit;                     /* -1: none */
    double unit_begin;            /* clock */
    double exposed; /* seconds waited for other ranks, when a phase or unit last began or ended */
};

/* A check of the gradients of grains (train.check_every). */
struct grain_check {
    size_t bytes;                  /* of the input of a grain */
    unsigned char *own, *received; /* [bytes]; NULL: no checks */
    struct grain_record *table;    /* [ranks] */
    int64_t number;                /* of the check, from 0 */
    int64_t offset;                /* of this rank's grain in the session's input */
};

/* Hashes of the gradient of the loss with respect to the logits, for receipts with
 * train.exact=layout. A different hash shows a different forward pass. */
struct grain_hashes {
    int64_t count;              /* grains of the step's global batch */
    uint64_t hash[GRAINS_MOST]; /* 0: a grain of another rank */
};

/* The training step (step.c). */
struct step {
    bool records;        /* steps are recorded as a graph and replayed */
    struct graph *graph; /* the recorded step, or NULL */
    int64_t regular_steps;
    struct grain_check check;
    /* The step in progress, for the passes of a check. */
    bool checked; /* train.check_every checks this step */
    int64_t number;
    struct step_params params;
    struct grain_hashes *hashes; /* passes add the hashes of their grains; NULL: no receipt */
    struct error wrong;          /* the error that a check found */
    struct error unread; /* a queued step has an unreadable record: reported with its result */
};

struct session {
    struct comm *world;
    struct options options;         /* resolved; not changed after session_open */
    struct split_loader train;      /* not open without training */
    struct split_loader validation; /* the split that is evaluated; open if `validates` */
    bool validates;
    int64_t global_batch; /* samples of a step */
    struct mesh mesh;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    enum data_type compute;
    struct model *model;
    struct flat_model flat;
    int64_t batch; /* samples that one pass of this rank can hold */
    struct session_memory memory;
    struct batch_upload input;
    struct step_io io;
    void *logits;           /* device, [batch, classes, output height, output width] compute type */
    void *unflipped_logits; /* the same, of images that are not mirrored; NULL: eval.flip=off */
    int32_t *predicted;
    float *probabilities;              /* or the outputs, if the loss is not that of labels */
    float *class_weights;              /* host, [classes], or NULL: 1 */
    float *loss_weights, *row_weights; /* device, [classes] and [source.rows], or NULL */
    int64_t *nonfinite_index;
    struct grains *grains; /* NULL: train.exact=off */
    int64_t grain;         /* samples of a grain, or 0 */
    int64_t accumulate; /* micro-batches of a step: train.accumulate, or more with mesh.elastic */
    struct profile *profile; /* NULL: debug.profile=off */
    struct step_timer timer;
    /* With training, after session_start. */
    struct optimizer optimizer;
    struct step step;
};

/* Collective. Opens the training data, unless data.val=none the validation data, and the model for
 * training. Close the session also after a failure of this function and of the next ones. */
MUST_CHECK bool session_open(struct session *session, const struct options *options,
                             struct comm *world, struct error *error);

/* Collective. Opens another split for evaluations during the training. Its samples must have the
 * shape of the training samples, and it takes their weights of rows. */
MUST_CHECK bool session_open_split(struct session *session, enum data_split split,
                                   struct split_loader *feed, struct error *error);

/* Collective. Opens the model for a split that the caller has opened: `train` or, without training,
 * `validation`. The caller has set world, options and validates. Allocates no device memory.
 * training: with gradients and optimizer state. weights: metadata of the initial weights, or NULL.
 */
MUST_CHECK bool session_open_model(struct session *session, bool training,
                                   const struct model_metadata *weights, struct error *error);

/* Collective. Allocates the memory and starts the loaders. The caller may have changed global_batch
 * and accumulate. */
MUST_CHECK bool session_start(struct session *session, struct error *error);

/* True if records are normalised by statistics of the training samples, as the options do not have
 * the values, or have no room for them. */
bool session_needs_statistics(const struct session *session, const struct dataset *dataset);

/* Collective. Uses the statistics for the data set, which is that of the training or of
 * predictions, and for the validation split. */
MUST_CHECK bool session_use_statistics(struct session *session, struct dataset *dataset,
                                       const struct value_statistics *statistics,
                                       struct error *error);

/* Collective. Sets the statistics to those of the training samples, if they are needed. After a
 * signal that requests the end they are not complete. */
MUST_CHECK bool session_find_statistics(struct session *session, struct error *error);

/* Collective. Sets the weights to random values, or to those of model.init, and the statistics
 * (session_find_statistics). Call flat_refresh afterwards. */
MUST_CHECK bool session_initialize(struct session *session, struct error *error);

/* As session_open_model with resolved options, for rank 0 of `ranks` ranks that do not exist,
 * `node_ranks` on each node: for session_measure. Threads and compute type are those of this
 * machine. Local. */
MUST_CHECK bool session_imagine(struct session *session, const struct options *options, int ranks,
                                int node_ranks, bool training, struct error *error);

/* Measures without allocating: sets session->memory to what session_start would allocate for
 * passes of `batch` samples. Call before session_start. */
void session_measure(struct session *session, int64_t batch, const struct image_source *source);

/* A session that did not fit into memory, for fit_advise (plan.h). */
struct memory_shortage {
    struct options options;
    struct image_source source;
    bool training;
    int ranks, node_ranks;
    int64_t room; /* bytes per rank, on the rank with the least */
};
/* Return the session of the last session_start if it did not fit into memory, else NULL. */
const struct memory_shortage *session_shortage(void);

/* Lays out what session_measure has measured in `bytes` bytes of device memory. */
void session_place(struct session *session, void *memory, size_t bytes,
                   const struct image_source *source);

/* Sets the loss scaler; waits for the stream. Without loss scaling only the number of skipped
 * updates is kept. session_start starts with train.loss_scale. */
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
/* Does nothing on a zeroed struct. */
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

/* True if model.init names weights. */
bool session_reads_weights(const struct options *options);

/* ---- Options that depend on the data and the model: numbers of classes and channels, size of the
 * images, and the recipe for images, that is, the options of `augment` and `eval` that are auto. */

/* Set the automatic options. Options with a value keep it. `weights`: metadata of the initial
 * weights, whose preprocessing is preferred to that of the architecture; or NULL. Return false with
 * ERROR_USAGE if options are invalid or contradict the data. */
MUST_CHECK bool options_resolve(struct options *options, const struct dataset *dataset,
                                const struct model_metadata *weights, struct error *error);

/* True if train.weights has weights of classes, labels or outputs. */
bool loss_weights_are_set(const struct options *options);

/* Set the weights of the classes, labels or outputs, [model.classes], from train.weights: a list of
 * numbers, or NAME:NUMBER. Those that are not named have the weight 1, also if records without
 * targets have no names. Return false with ERROR_USAGE if a name or number is wrong. */
MUST_CHECK bool loss_weights_read(const struct options *options, const struct dataset *dataset,
                                  float *weights, struct error *error);

/* True if train.weights=balanced. */
bool loss_weights_are_balanced(const struct options *options);

/* Set session->class_weights to those of train.weights, if there are any. With balanced, of n
 * training samples in K classes, a class of m samples has the weight n / (K * m), and one without
 * samples 1. Weights of single labels are multiplied by the power of two that makes their mean over
 * the samples about 1, so that rounding them as losses are (loss_round) loses little; the weighted
 * mean does not change. If samples are mixed, the loss is no weighted mean, and the weights stay.
 * Return false with ERROR_USAGE if they are wrong. */
MUST_CHECK bool loss_weights_set(struct session *session, const struct dataset *dataset,
                                 struct error *error);

/* Log the recipe of a session with an open model, and the padding of its images. */
void recipe_log(const struct session *session);

#endif
