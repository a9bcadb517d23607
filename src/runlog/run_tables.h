/* The tables that a part of a run ends with: where memory and time went, by unit and by rank. */
#ifndef VITTRAIN_RUNLOG_RUN_TABLES_H
#define VITTRAIN_RUNLOG_RUN_TABLES_H

#include "train/trainer.h"

/* What is known of a rank. Seconds are of this part of the run. */
struct rank_facts {
    char device[128];
    double threads, planned_bytes, peak_bytes;
    double user_seconds, system_seconds; /* of the process, so far */
    double steps, step_seconds, data_seconds, compute_seconds, exposed_seconds;
    double gpu_busy, gpu_busy_most, gpu_power, gpu_power_most; /* NAN: not known */
};

/* Collective: of all ranks, on all of them; the caller frees. */
struct rank_facts *rank_facts_gather(const struct trainer *trainer);

/* Lines of the log: the processor time of each rank (of up to 64). */
void rank_facts_say(const struct rank_facts *facts, int ranks);

/* Collective: forward, backward and waiting of each unit, then of the step outside of units: a
 * step's seconds, the ranks' mean; the caller frees. NAN where they are not known. */
double *unit_seconds_reduce(const struct trainer *trainer);

/* Rank 0: units.csv made anew; ranks.csv, which keeps the rows of the parts before. */
bool units_write(const struct trainer *trainer, const double *seconds, struct error *error);
bool ranks_write(const struct trainer *trainer, const struct rank_facts *facts,
                 struct error *error);

/* What a rank was to take of the memory that counts, with what was taken before. */
int64_t run_planned_bytes(const struct session *session);

#endif
