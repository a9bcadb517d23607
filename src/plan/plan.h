/* What a run will need, before it runs and for any number of ranks: memory, bytes on the way, the
 * largest batch that fits. The numbers come from the code that allocates (session_measure) and from
 * beside the code that sends (flat_traffic), on a mesh whose other ranks are imagined. */
#ifndef VITTRAIN_PLAN_PLAN_H
#define VITTRAIN_PLAN_PLAN_H

#include "config/options.h"
#include "plan/forecast.h"
#include "train/session.h"

/* A run that is planned. */
struct plan {
    struct options options; /* with what the data decides (session_resolve) */
    int ranks, node_ranks;  /* ranks of a node; the last node may have fewer */
    struct image_source source;
    bool training;
};

/* One way to run it. */
struct plan_entry {
    enum strategy_choice strategy;
    enum checkpoint_activations_choice checkpoint_activations;
    struct error error; /* set: these ranks cannot run so, and why; the rest is zero */
    int replica, shard; /* the mesh */
    enum data_type compute;
    int64_t batch;                   /* samples a pass */
    size_t by_class[MEMORY_CLASSES]; /* bytes of a rank */
    size_t arena, feeds;             /* their sum; batches that are loaded ahead, on the host */
    size_t snapshot;                 /* of checkpoints in the background, on the host */
    size_t needs;                    /* of the memory that counts (session_needs) */
    size_t base;                     /* what was taken there before this process would allocate */
    /* Bytes that a rank sends in a step, in its groups; and how much of that goes to other nodes.
     */
    double sent_shard, sent_replica, sent_network;
    int64_t largest_batch; /* train.batch that fits, 0: none does */
};

/* Reads what records are like; no files where the format tells without. */
MUST_CHECK bool plan_open(struct plan *plan, const struct options *options, int ranks,
                          int node_ranks, struct error *error);

/* Plans one way to run. Another strategy than the options' shards as it does by itself.
 * room: bytes for what counts, for largest_batch; 0: that is not asked for. */
void plan_make(const struct plan *plan, enum strategy_choice strategy,
               enum checkpoint_activations_choice checkpoint_activations, size_t room,
               struct plan_entry *entry);

/* What is found out of one way to run besides its times. */
struct plan_model {
    double flops_per_image; /* of a step, by the model's own count */
    int64_t parameters;
    enum data_type compute;
    int64_t batch; /* of a rank and step */
    int replica, shard;
    size_t needs;     /* session_needs */
    char **unit_name; /* [units] */
    int units;
};
void plan_model_close(struct plan_model *known);

/* How long a step of one way to run takes, on a machine (NULL: its operations are only counted).
 * known: or NULL. False: the error says why; else the caller closes the forecast, and `known`. */
MUST_CHECK bool plan_forecast(const struct plan *plan, enum strategy_choice strategy,
                              enum checkpoint_activations_choice checkpoint_activations,
                              const struct machine *machine, struct forecast *forecast,
                              struct plan_model *known, struct error *error);

/* Record one step of the options' own way. False: the error says why. The caller closes script and
 * session in both cases. */
MUST_CHECK bool plan_script(const struct plan *plan, struct session *session,
                            struct step_script *script, struct error *error);

/* The options' own way, by rows: those of the arena (ARENA_SHARED_ROW, then a row a unit), which
 * the caller frees, as the session with the units' names, which the caller closes. NULL: the error
 * says why. */
size_t (*plan_rows(const struct plan *plan, struct session *session,
                   struct error *error))[MEMORY_CLASSES];

#endif
