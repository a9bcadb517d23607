/* Flat buffers: where the units of a model lie on the mesh. A rank owns 1/shard of each unit as
 * fp32 masters with their optimizer state and that part's gradient; the whole unit in the compute
 * type (`weights`) and the whole gradient exist while they are used, or all the time where the mesh
 * says so. What exists only while it is used lies in one of two slots, by turns: while one unit is
 * computed the next is gathered, or the one before is added up. With fp32 compute and a shard group
 * of one `weights` is the master itself. */
#ifndef VITTRAIN_MESH_FLAT_H
#define VITTRAIN_MESH_FLAT_H

#include "core/arena.h"
#include "device/device.h"
#include "mesh/mesh.h"
#include "mesh/unit.h"

enum { FLAT_SLOTS = 2 };

/* Where a gradient is on its way over the mesh. */
enum flat_reduction {
    REDUCTION_NONE,
    REDUCTION_SCATTERING, /* the shard group adds; what comes is not yet in `gradient` */
    REDUCTION_REPLICAS    /* the replicas add `gradient` */
};

struct flat_buffer {
    const struct unit *unit;
    int64_t padded;                     /* elements, a multiple of 16 * shard size */
    int64_t shard_count;                /* padded / shard size: this rank's part */
    int64_t shard_begin;                /* first element of this rank's part */
    float *master;                      /* [shard_count] */
    float *gradient;                    /* [shard_count]; after flat_reduce_wait the global sum */
    float *moment1, *moment2, *average; /* [shard_count], or NULL */
    void *weights;         /* [padded] compute type, NULL without a slot; the model reads this */
    float *whole_gradient; /* [padded], NULL without a slot; the model adds to this */
    void *narrow_part;     /* [shard_count] compute type: `gradient` between replicas, or NULL */
    struct update_segment *segments; /* over the shard */
    int segment_count;
    int64_t
        parameter_count; /* of the shard's elements: what is behind them is running statistics */
    bool learns;         /* something in it is trained, or follows the data */
    bool whole;          /* `weights` holds all ranks' parts as they are now */
    bool used;           /* between flat_gather_wait and flat_free */
    bool last;           /* the reduction under way is the step's last */
    bool empty;          /* no pass of this step has added to `gradient`: it counts as zero */
    bool overwrites;     /* the pass under way writes `whole_gradient` instead of adding to it */
    enum flat_reduction reduction;
    struct ticket *gathering, *reducing;
    struct event *ready; /* what is sent next stands */
};

/* Memory that units share by turns: unit u lies in slot u % FLAT_SLOTS. */
struct flat_slot {
    void *weights;                   /* compute type */
    float *whole_gradient;           /* fp32 */
    void *narrow;                    /* compute type: a whole gradient on its way */
    int weights_unit, gradient_unit; /* whose it is, -1: nobody's */
};

struct flat_model {
    struct mesh *mesh;
    struct device *device;
    struct stream *stream;
    enum data_type type; /* compute */
    struct flat_buffer *buffers;
    struct flat_slot slots[FLAT_SLOTS];
    int count;
    int moments;              /* 0..2 */
    bool averaged;            /* EMA */
    bool training;            /* there are gradients */
    bool slots_weights;       /* whole weights lie in slots */
    bool slots_gradients;     /* whole gradients do */
    bool narrows;             /* gradients go over the mesh in the compute type */
    double *norm_squared;     /* device: the global gradient's, after flat_norm */
    struct event *norm_ready; /* this rank's part of it stands */
    struct event *sums_ready; /* what flat_add_sums adds up stands */
    int64_t *nonfinite_index; /* device */
};

/* Elements of a unit of `count` elements that each rank of a shard group holds, padding included.
 */
int64_t flat_shard_count(int64_t count, int shards);

/* Describes the buffers for these units (no memory yet); flat_allocate takes their memory from the
 * arena (call it once measuring, once taking). */
void flat_open(struct flat_model *flat, const struct unit *units, int unit_count, struct mesh *mesh,
               struct device *device, struct stream *stream, enum data_type type, int moments,
               bool averaged, bool training);
void flat_allocate(struct flat_model *flat, struct arena *arena);
void flat_close(struct flat_model *flat);

/* Cuts this rank's part of each buffer into stretches that are updated alike: weight decay (where a
 * tensor takes it), rate, frozen or not, running statistics of steps of `accumulate` pieces. Call
 * it once, before the first update. */
void flat_set_segments(struct flat_model *flat, double weight_decay, int64_t accumulate);

/* What the statistics of piece `micro` of a step weigh in the running ones, which a step multiplies
 * by (1 - 0.1)^accumulate: as if they had followed piece after piece, as torch's do, by 0.1 each.
 * `pieces`: how many of the `accumulate` have samples; where some have none (in an epoch's last
 * step) the others weigh more, so that all weights still make 1. */
double flat_running_weight(int64_t accumulate, int64_t pieces, int64_t micro);

/* Each rank draws the start of its own shard; averages start at the masters, moments and gradients
 * at zero. Then or after loading: flat_refresh makes the compute copies from the masters. */
void flat_initialize(struct flat_model *flat, uint64_t seed);
void flat_refresh(struct flat_model *flat);

/* The optimizer has changed masters and this rank's part of the compute copies. */
void flat_updated(struct flat_model *flat);

/* Makes unit i whole in the compute type; nothing where it already is. Between wait and free the
 * model may read it; start takes the slot of unit i +- FLAT_SLOTS, which must be free. */
void flat_gather_start(struct flat_model *flat, int unit);
void flat_gather_wait(struct flat_model *flat, int unit);
void flat_free(struct flat_model *flat, int unit);

/* A step begins: all gradients count as zero. Their memory keeps old values, which the step's first
 * pass overwrites. */
void flat_begin_gradients(struct flat_model *flat);

/* Around a unit's backward pass. open: its whole gradient has memory. If this memory holds nothing
 * of the step yet and the pass has samples, each operation must overwrite its gradients
 * (flat_overwrites_gradient); what no operation writes, frozen tensors and padding, is zero. Else
 * it holds what this rank has added up so far, or zeros, and operations add. close: this pass has
 * added its share; `last`: it was the step's last. Where whole gradients stay, only then they go
 * over the mesh, else after each pass. */
void flat_gradient_open(struct flat_model *flat, int unit, bool samples);
void flat_gradient_close(struct flat_model *flat, int unit, bool last);

/* All gradients are added up over the mesh: `gradient` is the global sum. */
void flat_reduce_wait(struct flat_model *flat);

/* What all of this sends in one step of `passes` passes whose backward pass ends at unit
 * `first_unit`: bytes of a rank, to others of its group, by the volume of a ring (which no
 * transport can undercut): a gather or scatter of N bytes a rank is (size - 1) N, an all-reduce of
 * N bytes 2 N (size - 1) / size. */
struct flat_traffic {
    double shard, replica;
};
struct flat_traffic flat_traffic(const struct flat_model *flat, int64_t passes, int first_unit);

/* *norm_squared (device) = the sum of squares of the whole gradient, on every rank. Running
 * statistics do not count. */
void flat_norm(struct flat_model *flat);

/* Adds numbers on the device up over all ranks, by the stream: for what ranks compute together in
 * the middle of a pass. Collective; all ranks get the same bits. */
void flat_add_sums(const struct flat_model *flat, double *sums, int64_t count);

/* The moving averages and the masters change places, compute copies too (evaluation with EMA
 * weights). */
void flat_swap_average(struct flat_model *flat);

/* Do all replicas hold the same bits in their masters, by CRC32C? false: `error`, the same on all
 * ranks, names the first tensor that differs and a rank. Collective. */
MUST_CHECK bool flat_check_same(struct flat_model *flat, struct error *error);

/* The part of a tensor that this rank owns, as elements of its shard; false: nothing of it. */
bool flat_tensor_part(const struct flat_buffer *buffer, const struct unit_tensor *tensor,
                      int64_t *begin, int64_t *end);

/* Pointers into the whole unit, by tensor number. */
const void *flat_weight(const struct flat_model *flat, int unit, int tensor);
float *flat_gradient(const struct flat_model *flat, int unit, int tensor); /* NULL: frozen */
bool flat_overwrites_gradient(const struct flat_model *flat, int unit);

/* Names the first tensor (in backward order of the gradients, or forward order of the masters) with
 * a value that is not finite: "blocks.3.mlp.fc1.weight[1234]"; false when there is none. Looks at
 * this rank's part only. */
bool flat_find_nonfinite(struct flat_model *flat, bool gradients, char *text, size_t size);

#endif
