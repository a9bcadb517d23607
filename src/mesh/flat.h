// SPDX-License-Identifier: BSD-3-Clause
/* Flat buffers: the units of a model on the mesh. A rank owns 1/shard of each unit: fp32 master
 * weights, optimizer state and gradient of that part. The whole unit in the compute type
 * (`weights`) and the whole gradient exist during their use, or all the time, depending on the
 * strategy. Those that exist only during their use alternate between two slots: one unit is
 * computed while the next is gathered or the previous is reduced. With fp32 compute and a shard
 * group of one, `weights` is the master itself. With shares_memory, whole weights of shards
 * and the buffers of reductions are in memory that the ranks of the group share. */
#ifndef VITTRAIN_MESH_FLAT_H
#define VITTRAIN_MESH_FLAT_H

#include "base/arena.h"
#include "base/sum_tree.h"
#include "device/device.h"
#include "mesh/mesh.h"
#include "mesh/unit.h"

enum { FLAT_SLOTS = 2, ORTHOGONAL_SLOTS = 4 };

/* Stage of a gradient's reduction (reduction.h), whose collective is in progress. */
enum reduction_stage {
    REDUCTION_NONE,
    REDUCTION_SHARDS,   /* in the shard group; `gradient` is not yet valid */
    REDUCTION_REPLICAS, /* in the replica group */
    REDUCTION_RESULT    /* the last one, which writes the sums to `gradient` */
};

/* The vectors of a unit, of which each rank holds a shard. */
enum flat_vector { FLAT_MASTER, FLAT_MOMENT1, FLAT_MOMENT2, FLAT_AVERAGE, FLAT_VECTORS };

struct flat_buffer {
    const struct unit *unit;
    int64_t padded;                     /* elements, a multiple of 16 * shard size */
    int64_t shard_count;                /* padded / shard size: elements of this rank's part */
    int64_t shard_begin;                /* first element of this rank's part */
    float *master;                      /* [shard_count] */
    float *gradient;                    /* [shard_count]; after flat_reduce_wait the global sum */
    float *moment1, *moment2, *average; /* [shard_count], or NULL */
    void *weights;         /* [padded] compute type; read by the model; NULL without a slot */
    float *whole_gradient; /* [padded]; written by the model; NULL without a slot */
    void *gradient_low;    /* [shard_count] `gradient` in the compute type, or NULL */
    struct update_segment *segments; /* over the shard */
    int segment_count;
    int *
        owner; /* [tensors]: rank that orthogonalizes the tensor, replica * shards + shard; or -1 */
    bool orthogonal;         /* the unit contains matrices with an owner (Muon) */
    int64_t parameter_count; /* parameters in the shard; running statistics follow them */
    bool learns;             /* it contains trainable parameters or running statistics */
    bool whole;              /* `weights` contains the current parts of all ranks */
    bool used;               /* between flat_gather_wait and flat_release */
    bool last;               /* the reduction in progress is the last of the step */
    bool empty;              /* no pass of this step has added to `gradient`: it counts as zero */
    bool overwrites;         /* this pass writes `whole_gradient` instead of adding to it */
    enum reduction_stage stage;
    struct comm_request *gathering, *reducing;
    struct event *ready; /* recorded when the data of the next collective are computed */
    int64_t stride; /* elements between two partial sums of the whole gradient; at least padded */
    int64_t block;  /* elements of `gradient` whose partial sums one replica adds */
    struct tree_pool pool; /* partial sums of the step's passes */
};

/* Memory that units share: unit u uses slot u % FLAT_SLOTS. */
struct flat_slot {
    void *weights;                   /* compute type */
    float *whole_gradient;           /* fp32 */
    void *gradient_low;              /* compute type: the whole gradient in a reduction */
    float *from_shards;              /* partial sums of the ranks of the shard group */
    float *from_replicas;            /* partial sums of the ranks of the replica group */
    int weights_unit, gradient_unit; /* the units that use it, or -1 */
};

/* Memory for Muon in the type of directions, except as noted. */
struct flat_orthogonal {
    void *slot[ORTHOGONAL_SLOTS]; /* directions of unit u are in slot u % ORTHOGONAL_SLOTS */
    void *iterate;                /* two matrices of the largest count; also one in fp32 */
    void *gram,
        *square; /* [least, least] with the largest least dimension; square has room for fp32 */
    struct exact_sum *norm_sum;
    double *norm_squared;
};

/* Partial sums of gradients (reduction.c), which are added in the order of base/sum_tree.h. The
 * numbers of partial sums whole..from_replicas are maxima over ranks and global batches. */
struct flat_partials {
    int64_t most_grains;            /* grains of the largest global batch */
    int64_t passes;                 /* of a step */
    bool spare;                     /* there is memory for one more partial sum (flat_spare_open) */
    int whole;                      /* of the whole gradient, stored by one rank */
    int reduced;                    /* of a shard group after its all-to-all and additions */
    int from_shards, from_replicas; /* received by one rank in an all-to-all */
    int64_t total;                  /* grains of the step's global batch */
    int count;                      /* partial sums that this rank computes in the current pass */
    struct subtree tree[TREE_PARTS];
    int slot[TREE_PARTS]; /* partial sum i is written at whole_gradient + slot[i] * stride */
    int *parts; /* [shard size + replica size] partial sums that each member of the groups sends */
};

struct flat_model {
    struct mesh *mesh;
    struct device *device;
    struct stream *stream;
    enum data_type type; /* compute */
    struct flat_buffer *buffers;
    struct flat_slot slots[FLAT_SLOTS];
    struct flat_orthogonal orthogonal;
    struct flat_partials partials;
    const struct gradient_reduction *reduction;
    struct update *updates; /* [count] for the optimizer, so that a step allocates no memory */
    int count;
    int moments;                /* 0..2 */
    bool averaged;              /* EMA */
    bool training;              /* with gradients */
    bool slots_weights;         /* whole weights are in slots */
    bool gradients_in_slots;    /* whole gradients are in slots */
    bool low_precision_reduce;  /* gradients are reduced in the compute type */
    bool shares_memory;         /* flat_use_shared_memory */
    unsigned char *node_memory; /* of comm_backend.share_memory; NULL before flat_share */
    /* Sizes in node_memory of whole weights and of the gradients of one rank, and how much of them
     * flat_allocate has taken so far. */
    size_t common_bytes, area_bytes, common_used, area_used;
    /* In progress until all ranks have written their parts of the shared weights; its buffer. */
    struct comm_request *weights_barrier;
    unsigned char barrier_byte;
    double *norm_squared; /* device: the global gradient's, after flat_norm */
    struct exact_sum *norm_sum;
    double *counted; /* device: samples of the step that are in the loss, of all ranks after
                      * flat_norm; NULL: all are */
    struct tensor_norms
        *norms; /* device [norm_count] by unit_tensor.index; NULL: no tensor adapts */
    int norm_count;
    struct event *norm_ready; /* this rank's part of norm_sum or norms is computed */
    struct event *sums_ready; /* the input of flat_add_sums is computed */
    int64_t *nonfinite_index; /* device */
    uint64_t *hash;           /* device: result of the operation hash */
};

/* Returns the elements per rank of a unit of `count` elements, with padding. */
int64_t flat_shard_count(int64_t count, int shards);

/* Describes the buffers of these units. flat_allocate takes their memory from the arena: call it
 * once to measure and once to allocate. */
void flat_open(struct flat_model *flat, const struct unit *units, int unit_count, struct mesh *mesh,
               struct device *device, struct stream *stream, enum data_type type, int moments,
               bool averaged, bool training);
void flat_allocate(struct flat_model *flat, struct arena *arena);
void flat_close(struct flat_model *flat);

/* Call it after flat_open if the ranks of the mesh's `one_node` share memory: the ranks of a shard
 * group then have one copy of all whole weights, and collectives read and write gradients of other
 * ranks directly. */
void flat_use_shared_memory(struct flat_model *flat);
/* Collective. Opens the shared memory, if it is used. Call it between the measuring and the
 * allocating flat_allocate. If it fails on any rank, returns false and the error on all ranks. */
MUST_CHECK bool flat_share(struct flat_model *flat, struct error *error);
/* Each rank uses its own memory from now on. Call flat_allocate again to measure. */
void flat_unshare(struct flat_model *flat);

/* Divides this rank's part of each buffer into segments with the same update rule: weight decay,
 * rate, frozen, running statistics. accumulate: micro-batches in a step. Call it once, before the
 * first update. */
void flat_set_segments(struct flat_model *flat, double weight_decay, int64_t accumulate);

/* Returns the weight of micro-batch `micro` in the running statistics. A step multiplies them by
 * (1 - 0.1)^accumulate, so the result is that of PyTorch, which updates them with momentum 0.1
 * after each micro-batch. pieces: micro-batches with samples; if some have none, as in the last
 * step of an epoch, the others weigh more and the weights still sum to 1. */
double flat_running_weight(int64_t accumulate, int64_t pieces, int64_t micro);

/* Sets this rank's part to its initial values: masters and averages random, moments and gradients
 * zero. flat_refresh computes the compute copies from the masters; call it after initialising or
 * loading. With shares_memory it is collective. */
void flat_initialize(struct flat_model *flat, uint64_t seed);
void flat_refresh(struct flat_model *flat);

/* Call it after the optimizer has updated masters and this rank's part of the compute copies. */
void flat_updated(struct flat_model *flat);

/* Gathers a unit in the compute type, unless it is whole already. The model may read it between
 * wait and free. start reuses the slot of unit +- FLAT_SLOTS, which must be free. With
 * shares_memory the first call after an update only waits until all ranks have updated their parts.
 */
void flat_gather_start(struct flat_model *flat, int unit);
void flat_gather_wait(struct flat_model *flat, int unit);
void flat_release(struct flat_model *flat, int unit);

/* Call it at the begin of a step: all gradients count as zero. Their memory keeps old values, which
 * the first pass overwrites. */
void flat_begin_gradients(struct flat_model *flat);

/* Call these before and after a unit's backward pass. open: provides memory for its whole gradient.
 * In the first pass of a step with samples, operations must overwrite the gradients
 * (flat_buffer.overwrites), and frozen tensors and padding are set to zero. In other passes
 * operations add to the sum of this rank so far, or to zeros. With partial sums (reduction.c),
 * operations overwrite in every pass. close: starts the reduction; if whole gradients stay, only
 * after the step's last pass (`last`), else after each pass. */
void flat_gradient_open(struct flat_model *flat, int unit, bool samples);
void flat_gradient_close(struct flat_model *flat, int unit, bool last);

/* Waits for all reductions: then `gradient` is the global sum. */
void flat_reduce_wait(struct flat_model *flat);

/* Sets *norm_squared (device) to the sum of squares of the global gradient, on each rank, without
 * running statistics, and adds *counted of all ranks. The bits do not depend on the mesh. */
void flat_norm(struct flat_model *flat);

/* Adds `norms` of all ranks of the shard group. Collective; call it after the update with `measure`
 * of all units, before which `norms` are zero. */
void flat_norms_sum(const struct flat_model *flat);

/* Queues an all-reduce (sum) of device memory over all ranks, for batch norm. Collective; all ranks
 * get the same bits. */
void flat_add_sums(const struct flat_model *flat, double *sums, int64_t count);

/* Swaps the moving averages (EMA), if there are any, and the masters and updates the compute
 * copies: for evaluation with the averages. With shares_memory it is collective. */
void flat_swap_average(struct flat_model *flat);

/* Compares the hashes (base/base.h) of the masters of all replicas. Collective. Returns false if
 * they differ; the error, the same on all ranks, names the first tensor that differs and a rank. */
MUST_CHECK bool flat_check_same(struct flat_model *flat, struct error *error);

/* Sets hash[u] to the hash of the masters of unit u, and hash[count + u] to that of its moments and
 * average. A hash is the sum (base/base.h) over all elements of the tensors, without padding, so it
 * does not depend on the shards. Collective in the shard group; reads all state of the model. */
void flat_hash(const struct flat_model *flat, uint64_t *hash);

/* Name of a vector: "master", "moment1", "moment2", "average". */
extern const char *const flat_vector_name[FLAT_VECTORS];
/* Returns this rank's shard in device memory; NULL if the model has no such vector. */
float *flat_vector_memory(const struct flat_buffer *buffer, enum flat_vector vector);

/* Sets begin and end of this rank's part of a tensor, as elements of its shard. Returns false if
 * the rank owns no part of it. */
bool flat_tensor_part(const struct flat_buffer *buffer, const struct unit_tensor *tensor,
                      int64_t *begin, int64_t *end);

/* Return pointers into the whole unit, by tensor number. */
const void *flat_weight(const struct flat_model *flat, int unit, int tensor);
float *flat_gradient(const struct flat_model *flat, int unit, int tensor); /* NULL: frozen */

/* Searches this rank's part for a value that is not finite: in the gradients in backward order, or
 * in the masters in forward order. Writes its position as "blocks.3.mlp.fc1.weight[1234]". Returns
 * false if all values are finite. */
bool flat_find_nonfinite(struct flat_model *flat, bool gradients, char *text, size_t size);

/* Partial sums of gradients, with which the gradient has the same bits on every mesh
 * (train.exact=layout). The global batch is cut into grains. Each rank has a contiguous range of
 * grains, in the order of the ranks, which must be numbered node by node. Each pass computes a part
 * of the range of its rank. It writes one partial sum of the whole gradient for each subtree of its
 * grains (base/sum_tree.h). An all-to-all in the shard group and another one in the replica group
 * send each part of the partial sums to its owner, which adds them in the order of the tree. */

/* Use partial sums. Call it after flat_open and before flat_allocate. most_grains: grains of the
 * largest global batch; passes: micro-batches of a step; spare: take memory for flat_spare_open,
 * too. With several passes, gradients are not sharded before the last pass. */
void flat_use_grains(struct flat_model *flat, int64_t most_grains, int64_t passes, bool spare);

/* Call it before each backward pass of a step, with pass = 0, 1, ... total: grains of the global
 * batch. Does nothing without partial sums. */
void flat_begin_pass(struct flat_model *flat, int64_t total, int64_t pass);

/* Call these before and after a unit's backward pass on one grain whose gradient is not part of the
 * step. The gradient is written to spare memory. All reductions must have ended. samples: false if
 * this rank has no samples in the pass. */
void flat_spare_open(struct flat_model *flat, int unit, bool samples);
void flat_spare_close(struct flat_model *flat, int unit);

/* Orthogonal directions of matrices for Muon (Jordan et al. 2024). The Newton-Schulz iteration
 * X <- a X + b X X^T X + c (X X^T)^2 X starts from the direction divided by its Frobenius norm.
 *
 * For each unit, update this rank's part of flat_direction, then call flat_direction_start,
 * flat_orthogonalize, flat_direction_sum and flat_direction_wait. Units whose numbers differ by
 * less than ORTHOGONAL_SLOTS may be in progress together, so that communication overlaps with
 * computation. All ranks must call the functions in the same order. */

/* Returns this rank's part of the directions of a unit, [shard_count] direction_type(compute type),
 * or NULL if the unit has no matrix. Then do not call flat_direction_wait; the next three functions
 * return at once. */
void *flat_direction(const struct flat_model *flat, int unit);
/* Starts the all-gather of the directions in the shard group. */
void flat_direction_start(struct flat_model *flat, int unit);
/* Waits for the all-gather, orthogonalizes this rank's matrices, and starts the reduce-scatter in
 * the shard group. epsilon: smallest norm by which a direction is divided. */
void flat_orthogonalize(struct flat_model *flat, int unit, double epsilon,
                        enum muon_scale_choice scale);
/* Waits for the reduce-scatter and starts the all-reduce between replicas. */
void flat_direction_sum(struct flat_model *flat, int unit);
/* Waits for the all-reduce: flat_direction then contains the orthogonal directions. */
void flat_direction_wait(struct flat_model *flat, int unit);

#endif
