/* Flat buffers: where the units of a model lie on the mesh. A rank owns 1/shard of each unit as
 * fp32 masters with their optimizer state; the whole unit in the compute type (`weights`) and the
 * whole gradient exist while they are used. With fp32 compute and a shard group of one `weights` is
 * the master itself. */
#ifndef VITTRAIN_MESH_FLAT_H
#define VITTRAIN_MESH_FLAT_H

#include "core/arena.h"
#include "device/device.h"
#include "mesh/mesh.h"
#include "mesh/unit.h"

struct flat_buffer {
    const struct unit *unit;
    int64_t padded;      /* elements, a multiple of 16 * shard size */
    int64_t shard_count; /* padded / shard size: this rank's part */
    int64_t shard_begin; /* first element of this rank's part */
    float *master;       /* [shard_count] */
    float *gradient;     /* [padded]; after flat_reduce this rank's part is the global sum */
    void *narrow;        /* [padded] compute type: the gradient on its way, or NULL */
    float *moment1, *moment2, *average; /* [shard_count], or NULL */
    void *weights;                   /* [padded] compute type; the model's operations read this */
    struct update_segment *segments; /* over the shard */
    int segment_count;
    bool whole;   /* `weights` holds all ranks' parts as they are now */
    bool reduced; /* flat_reduce_start was called, flat_reduce_wait not yet */
    struct ticket *gathering, *reducing, *reducing_replica;
};

struct flat_model {
    struct mesh *mesh;
    struct device *device;
    struct stream *stream;
    enum data_type type; /* compute */
    struct flat_buffer *buffers;
    int count;
    int moments;              /* 0..2 */
    bool averaged;            /* EMA */
    bool training;            /* there are gradients */
    double *norm_squared;     /* device: the global gradient's, after flat_norm */
    int64_t *nonfinite_index; /* device */
    struct event *copied;     /* this rank's part of the compute copies stands */
};

/* Describes the buffers for these units (no memory yet); flat_allocate takes their memory from the
 * arena (call it once measuring, once taking). */
void flat_open(struct flat_model *flat, const struct unit *units, int unit_count, struct mesh *mesh,
               struct device *device, struct stream *stream, enum data_type type, int moments,
               bool averaged, bool training);
void flat_allocate(struct flat_model *flat, struct arena *arena);
void flat_close(struct flat_model *flat);

/* Cuts this rank's part of each buffer into stretches that are updated alike: weight decay (where a
 * tensor takes it), rate, frozen or not. Call it once, before the first update. */
void flat_set_segments(struct flat_model *flat, double weight_decay);

/* Each rank draws the start of its own shard; averages start at the masters, moments and gradients
 * at zero. Then or after loading: flat_refresh makes the compute copies from the masters. */
void flat_initialize(struct flat_model *flat, uint64_t seed);
void flat_refresh(struct flat_model *flat);

/* The optimizer has changed masters and this rank's part of the compute copies. */
void flat_updated(struct flat_model *flat);

/* Makes unit i whole in the compute type; nothing where it already is. */
void flat_gather_start(struct flat_model *flat, int unit);
void flat_gather_wait(struct flat_model *flat, int unit);
void flat_free(struct flat_model *flat, int unit);

/* Zeroes all gradients. */
void flat_zero_gradients(struct flat_model *flat);

/* Adds unit i's gradient over the mesh, beginning when `ready` is done (it is recorded again where
 * the gradient must be converted first); wait before it is read. */
void flat_reduce_start(struct flat_model *flat, int unit, struct event *ready);
void flat_reduce_wait(struct flat_model *flat);

/* *norm_squared (device) = the sum of squares of the whole gradient, on every rank. */
void flat_norm(struct flat_model *flat);

/* The moving averages and the masters change places, compute copies too (evaluation with EMA
 * weights). */
void flat_swap_average(struct flat_model *flat);

/* Do all replicas hold the same bits in their masters, by CRC32C? false: `error`, the same on all
 * ranks, names the first tensor that differs and a rank. Collective. */
bool flat_check_same(struct flat_model *flat, struct error *error);

/* The part of a tensor that this rank owns, as elements of its shard; false: nothing of it. */
bool flat_tensor_part(const struct flat_buffer *buffer, const struct unit_tensor *tensor,
                      int64_t *begin, int64_t *end);

/* Pointers into the whole unit, by tensor number. */
const void *flat_weight(const struct flat_model *flat, int unit, int tensor);
float *flat_gradient(const struct flat_model *flat, int unit, int tensor); /* NULL: frozen */

/* Names the first tensor (in backward order of the gradients, or forward order of the masters) with
 * a value that is not finite: "blocks.3.mlp.fc1.weight[1234]"; false when there is none. Looks at
 * this rank's part only. */
bool flat_find_nonfinite(struct flat_model *flat, bool gradients, char *text, size_t size);

#endif
