/* What every command that runs a model needs: device, mesh, model, its flat buffers, and the memory
 * that a batch passes through. All of it is laid out in one arena, measured before it is allocated.
 */
#ifndef VITTRAIN_TRAIN_SESSION_H
#define VITTRAIN_TRAIN_SESSION_H

#include "config/phase.h"
#include "core/arena.h"
#include "core/status.h"
#include "data/loader.h"
#include "device/device.h"
#include "device/image.h"
#include "device/profile.h"
#include "mesh/flat.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "train/outcome.h"
#include "train/place.h"
#include "train/staging.h"

struct options;

/* Where this rank's time went in a unit, in training: seconds, added up over the steps. */
struct unit_seconds {
    double forward, backward;                 /* without waiting */
    double forward_waiting, backward_waiting; /* for other ranks, in it or for it */
};

struct session {
    const struct options *options;
    struct mesh mesh;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    enum data_type compute;
    struct model *model;
    struct profile *profile; /* NULL: not asked for */
    /* [units], where the host sees when operations run (session_sees_times), else NULL; and what is
     * needed to add to them. */
    struct unit_seconds *unit_seconds;
    double *unit_into, *unit_waiting; /* the running unit's, of the phase; NULL: none runs */
    enum phase phase;
    double unit_began, unit_exposed, exposed_seen; /* clock; of the group's times */
    size_t (*memory_rows)[MEMORY_CLASSES]; /* [ARENA_UNIT_ROWS + units] the arena by units */
    struct flat_model flat;
    int64_t batch; /* samples that one pass of this rank can hold */

    struct arena arena;
    size_t feed_bytes;       /* of the batches that are loaded ahead, outside of the arena */
    size_t snapshot_bytes;   /* of checkpoints in the background, in host memory; 0: none are */
    void *memory;            /* what the arena lies in */
    float *snapshot;         /* pinned; NULL where snapshot_bytes is 0 */
    size_t base;             /* taken before that was allocated: libraries, or a GPU's context */
    size_t activations_mark; /* training's and evaluation's activations lie over each other */

    /* One batch on the device. */
    struct staging staging; /* where it comes to */
    uint8_t *transform_scratch;
    int32_t *labels, *predicted;
    float *losses, *probabilities;
    float *targets; /* of mixed samples; NULL: training mixes none */
    void *images, *logits;
    struct loss_sums *sums;
    int64_t *nonfinite_index;
    struct step_params *place;  /* device: of the pass and the update that the stream comes to */
    struct place_ring places;   /* on their way there */
    struct loss_scaler *scaler; /* device; NULL: the compute type needs none, or no training */

    /* What comes back. */
    struct loss_sums *host_sums;  /* pinned */
    struct outcome_ring outcomes; /* of steps, on their way */
    struct step_outcome outcome;  /* the newest that is known */
    float augment_mean[IMAGE_CHANNELS], augment_std[IMAGE_CHANNELS];
};

/* Images as they come to the device, 0 x 0: the model's size, which the host makes; and labels. */
struct image_source {
    int64_t channels, height, width;
    double label_unit; /* of a regression's targets, see dataset.h */
};

/* The same with the model's size in place of 0 x 0. */
struct image_source session_source(const struct session *session,
                                   const struct image_source *source);

/* Decides what the options leave to the data: the model's classes, and its image size where
 * augment.resize says it. */
MUST_CHECK bool session_resolve(struct options *options, const struct dataset *dataset,
                                struct error *error);

/* Collective. Opens device and model, and checks that they fit together and to the images of the
 * data. No memory is taken yet. `training`: with gradients and optimizer state. Classes of the
 * model are the option's, else the registry's. */
MUST_CHECK bool session_open(struct session *session, const struct options *options,
                             struct comm *world, bool training, struct error *error);

/* The same on the mesh of the first of `ranks` ranks, `node_ranks` of them on a node, without the
 * others: for session_measure. Threads and compute type are those of this machine. */
MUST_CHECK bool session_imagine(struct session *session, const struct options *options, int ranks,
                                int node_ranks, bool training, struct error *error);

/* Lays out in thought: afterwards session->arena.peak and .by_class say what session_allocate would
 * take for `batch` samples a pass, and session->feed_bytes and snapshot_bytes what loaders and
 * checkpoints take besides. rows:
 * NULL, or [ARENA_UNIT_ROWS + units] for the same by units. All ranks need the same. Only before
 * session_allocate. */
void session_measure(struct session *session, int64_t batch, const struct image_source *source,
                     bool training, size_t (*rows)[MEMORY_CLASSES]);

/* Collective. Measures, prints the table of memory, allocates: `batch` samples a pass, of images of
 * this size. */
MUST_CHECK bool session_allocate(struct session *session, int64_t batch,
                                 const struct image_source *source, bool training,
                                 struct error *error);
/* The part of it that lays out what was measured: in `bytes` of the device's memory, as many as
 * session->arena.peak. */
void session_place(struct session *session, void *memory, size_t bytes,
                   const struct image_source *source, bool training);
/* Where training in fp16 goes on from, or how many updates were skipped before it went on in
 * another type. session_allocate starts with train.loss_scale. */
void session_set_scaler(struct session *session, const struct loss_scaler *scaler);

/* What the session takes, after session_measure: of the memory that counts (hardware.h), so with
 * the loaders' batches and the snapshot where that is the host's. */
size_t session_needs(const struct session *session);
/* Gives the memory for checkpoints in the background back, where they turn out to be impossible. */
void session_drop_snapshot(struct session *session);
/* Rank 0's memory against what was planned: a line of the log. */
void session_say_memory(const struct session *session);
void session_close(struct session *session);

/* Lays the activations out for training or for evaluation passes; what was there is lost. */
void session_activations(struct session *session, bool training);

/* Queues the way of a batch from pinned memory to images in the compute type, and to
 * session->labels; augmented: with what augmentation says, mixed samples and session->targets
 * included. loader: gets the batch back when it is there, at the latest from staging_finish;
 * NULL: the caller keeps it until the stream is done. */
void session_upload(struct session *session, struct batch *batch, const struct image_source *source,
                    bool augmented, struct loader *loader);

/* The part of it behind the upload: what is done to `count` samples that are on the device. */
void session_transform(struct session *session, int64_t count, const struct image_source *source,
                       bool augmented);

/* Queues the forward pass of all units: gathers each ahead, frees it after use. The pass's images
 * and logits are the session's. */
void session_forward(struct session *session, const struct model_pass *pass);

/* Around what is queued for a phase of the step, for a unit: for the profile, and a profiler's
 * timeline; their begin is this process's status. */
void session_phase_begin(struct session *session, enum phase phase);
void session_phase_end(struct session *session);
void session_unit_begin(struct session *session, int unit);
void session_unit_end(struct session *session);

/* Do the host's clocks tell how long phases and units take? On a GPU they do not, since its stream
 * runs behind the host, but with debug.profile. */
bool session_sees_times(const struct session *session);

/* The loss of the batch that a pass has just seen: counted in session->sums. dlogits: the logits
 * become its gradient times scale; else probabilities (or NULL) and the predicted classes are
 * written where the model has any. */
void session_loss(struct session *session, const struct image_source *source, int64_t count,
                  double scale, bool dlogits, float *probabilities);

/* A pass over the batch that the session holds, `count` samples, nothing random in it yet. */
struct model_pass session_pass(struct session *session, int64_t count, bool training);

#endif
