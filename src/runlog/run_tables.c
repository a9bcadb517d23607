/* units.csv and ranks.csv. */
#include "runlog/run_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/csv.h"
#include "core/log.h"
#include "core/text.h"
#include "train/hardware.h"

enum { RANKS_SAID = 64, UNIT_TIMES = 3 };

int64_t run_planned_bytes(const struct session *session)
{
    return (int64_t)(session_needs(session) + session->base);
}

/* ---- ranks */

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

static void facts_take(const struct trainer *trainer, struct rank_facts *facts)
{
    const struct session *session = &trainer->session;
    const struct step_times *times = &trainer->part_times;
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    *facts = (struct rank_facts){.threads = session->limits.threads,
                                 .planned_bytes = (double)run_planned_bytes(session),
                                 .peak_bytes = (double)hardware_memory_peak(session->device),
                                 .user_seconds = seconds_of(usage.ru_utime),
                                 .system_seconds = seconds_of(usage.ru_stime),
                                 .steps = (double)trainer->part_steps,
                                 .step_seconds = trainer->part_step_seconds,
                                 .data_seconds = times->data,
                                 .compute_seconds = times->forward + times->backward +
                                                    times->reduce + times->update - times->exposed,
                                 .exposed_seconds = times->exposed};
    memcpy(facts->device, session->limits.name, sizeof facts->device);
    monitor_own(trainer->monitor, SENSOR_GPU_BUSY, &facts->gpu_busy, &facts->gpu_busy_most);
    monitor_own(trainer->monitor, SENSOR_GPU_POWER, &facts->gpu_power, &facts->gpu_power_most);
}

struct rank_facts *rank_facts_gather(const struct trainer *trainer)
{
    struct comm *world = trainer->world;
    struct rank_facts *facts = calloc((size_t)world->size, sizeof *facts);
    ENSURE(facts != NULL, "no memory for what %d ranks tell", world->size);
    facts_take(trainer, &facts[world->rank]);
    comm_all_gather(world, facts, sizeof *facts, COMM_BYTE);
    return facts;
}

void rank_facts_say(const struct rank_facts *facts, int ranks)
{
    for (int rank = 0; rank < ranks && rank < RANKS_SAID; rank++)
        log_info("rank %d on %s: processor time user %.2f s, system %.2f s; memory %.1f MiB "
                 "planned, at most %.1f MiB",
                 rank, comm_host_of(rank), facts[rank].user_seconds, facts[rank].system_seconds,
                 mib((size_t)facts[rank].planned_bytes), mib((size_t)facts[rank].peak_bytes));
    if (ranks > RANKS_SAID)
        log_info("ranks %d to %d: see ranks.csv", RANKS_SAID, ranks - 1);
}

bool ranks_write(const struct trainer *trainer, const struct rank_facts *facts, struct error *error)
{
    static const char header[] =
        "part,rank,host,device,threads,planned_bytes,peak_bytes,user_seconds,system_seconds,steps,"
        "seconds,data_seconds,compute_seconds,exposed_comm_seconds,gpu_busy_mean,gpu_busy_max,"
        "gpu_power_mean,gpu_power_max";
    char path[FILE_PATH];
    struct csv csv;
    snprintf(path, sizeof path, "%s/ranks.csv", trainer->folder.path);
    bool good = csv_open(&csv, path, header, 0, trainer->part - 1, error);
    for (int rank = 0; good && rank < trainer->world->size; rank++) {
        const struct rank_facts *one = &facts[rank];
        csv_integer(&csv, trainer->part);
        csv_integer(&csv, rank);
        csv_text(&csv, comm_host_of(rank));
        csv_text(&csv, one->device);
        csv_integer(&csv, (int64_t)one->threads);
        csv_integer(&csv, (int64_t)one->planned_bytes);
        csv_integer(&csv, (int64_t)one->peak_bytes);
        csv_number(&csv, one->user_seconds);
        csv_number(&csv, one->system_seconds);
        csv_integer(&csv, (int64_t)one->steps);
        csv_number(&csv, one->step_seconds);
        csv_number(&csv, one->data_seconds);
        csv_number(&csv, one->compute_seconds);
        csv_number(&csv, one->exposed_seconds);
        csv_number(&csv, one->gpu_busy);
        csv_number(&csv, one->gpu_busy_most);
        csv_number(&csv, one->gpu_power);
        csv_number(&csv, one->gpu_power_most);
        good = csv_end_row(&csv, error);
    }
    good = good && csv_flush(&csv, error);
    csv_close(&csv);
    return good;
}

/* ---- units */

double *unit_seconds_reduce(const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    const struct step_times *times = &trainer->part_times;
    int units = session->model->unit_count;
    int64_t count = (int64_t)UNIT_TIMES * (units + 1);
    double *seconds = calloc((size_t)count, sizeof *seconds);
    ENSURE(seconds != NULL, "no memory for what units take");
    /* Of the step, what no unit took: images, loss, norm, update. */
    double *rest = seconds + (size_t)UNIT_TIMES * (size_t)units;
    rest[0] = times->forward;
    rest[1] = times->backward + times->reduce + times->update - times->exposed;
    rest[2] = times->exposed;
    for (int u = 0; session->unit_seconds != NULL && u < units; u++) {
        const struct unit_seconds *unit = &session->unit_seconds[u];
        double *into = seconds + (size_t)UNIT_TIMES * (size_t)u;
        into[0] = unit->forward;
        into[1] = unit->backward;
        into[2] = unit->forward_waiting + unit->backward_waiting;
        rest[0] -= unit->forward + unit->forward_waiting;
        rest[1] -= unit->backward - unit->forward_waiting;
        rest[2] -= into[2];
    }
    comm_all_reduce(trainer->world, seconds, count, COMM_FP64, COMM_SUM);
    double each = (double)trainer->world->size * (double)trainer->part_steps;
    for (int64_t i = 0; i < count; i++)
        seconds[i] = session->unit_seconds != NULL && each > 0 ? seconds[i] / each : (double)NAN;
    return seconds;
}

static bool unit_write(struct csv *csv, const char *name, int64_t parameters, int64_t trained,
                       const size_t bytes[MEMORY_CLASSES], const double seconds[UNIT_TIMES],
                       struct error *error)
{
    csv_text(csv, name);
    csv_integer(csv, parameters);
    csv_integer(csv, trained);
    for (int i = 0; i < MEMORY_CLASSES; i++)
        csv_integer(csv, (int64_t)bytes[i]);
    for (int i = 0; i < UNIT_TIMES; i++)
        csv_number(csv, seconds[i]);
    return csv_end_row(csv, error);
}

bool units_write(const struct trainer *trainer, const double *seconds, struct error *error)
{
    const struct session *session = &trainer->session;
    const struct model *model = session->model;
    char path[FILE_PATH], header[512] = "unit,parameters,trainable_parameters";
    struct csv csv;
    for (int i = 0; i < MEMORY_CLASSES; i++) {
        size_t used = strlen(header);
        snprintf(header + used, sizeof header - used, ",%s_bytes", memory_class_name[i]);
    }
    size_t used = strlen(header);
    snprintf(header + used, sizeof header - used,
             ",forward_seconds,backward_seconds,waiting_seconds");
    snprintf(path, sizeof path, "%s/units.csv", trainer->folder.path);
    bool good = csv_open(&csv, path, header, 0, 0, error);
    for (int u = 0; good && u < model->unit_count; u++)
        good =
            unit_write(&csv, model->units[u].name, unit_parameter_count(&model->units[u]),
                       unit_trainable_count(&model->units[u]),
                       session->memory_rows[ARENA_UNIT_ROWS + u], seconds + UNIT_TIMES * u, error);
    good = good && unit_write(&csv, "(the step)", 0, 0, session->memory_rows[ARENA_SHARED_ROW],
                              seconds + UNIT_TIMES * model->unit_count, error);
    good = good && csv_flush(&csv, error);
    csv_close(&csv);
    return good;
}
