/* Of one layout: operations by unit, and what a step takes by the machine's figures. */
#include "app/plan_time.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "train/feed.h"

static const char default_file[] = "machine.ini";

bool plan_machine_find(const struct options *options, const struct machine **machine,
                       struct error *error)
{
    static struct machine read;
    const char *path = options->plan.machine;
    *machine = NULL;
    if (options->plan.cluster[0] != '\0')
        path = options->plan.cluster;
    else if (strcmp(path, "none") == 0)
        return true;
    else if (strcmp(path, "auto") == 0) {
        path = default_file;
        if (access(path, F_OK) != 0)
            return true;
    }
    if (!machine_read(&read, path, error))
        return false;
    *machine = &read;
    return true;
}

int64_t plan_epoch_samples(const struct options *options)
{
    struct dataset dataset;
    struct error unused = {0};
    if (!dataset_open(&dataset, options, SPLIT_TRAIN, &unused))
        return 0;
    int64_t samples = dataset.count;
    dataset_close(&dataset);
    return samples;
}

/* A file of other hardware foretells other hardware. */
static void machine_compare(const struct plan *plan, const struct machine *machine)
{
    struct session session;
    struct error unused = {0};
    if (session_imagine(&session, &plan->options, plan->ranks, plan->node_ranks, true, &unused)) {
        if (machine->device[0] != '\0' && strcmp(machine->device, session.limits.name) != 0)
            log_warn("plan: %s was measured on %s (%s); this is %s: times are those of the other",
                     machine->path, machine->device, machine->host, session.limits.name);
        else if (machine->host[0] != '\0' && strcmp(machine->host, comm_host()) != 0)
            log_warn("plan: %s was measured on host %s, and this is %s", machine->path,
                     machine->host, comm_host());
    }
    session_close(&session);
}

/* Milliseconds in a column; nothing where none were computed. */
static void milliseconds_print(const struct machine *machine, double seconds)
{
    if (machine != NULL)
        printf(" %10.3f", 1e3 * seconds);
}

static double sum(const double values[STEP_PHASES])
{
    double total = 0;
    for (int phase = 0; phase < STEP_PHASES; phase++)
        total += values[phase];
    return total;
}

static void part_print(const char *name, const struct forecast_part *part, int64_t batch,
                       const struct machine *machine)
{
    double flops = sum(part->flops);
    printf("%-14s %11.4f %11.4f %11.1f", name, 1e-9 * part->flops[STEP_FORWARD] / (double)batch,
           1e-9 * part->flops[STEP_BACKWARD] / (double)batch,
           part->bytes > 0 ? flops / part->bytes : 0);
    milliseconds_print(machine, part->seconds[STEP_FORWARD] + part->seconds[STEP_DATA]);
    milliseconds_print(machine, part->seconds[STEP_BACKWARD]);
    milliseconds_print(machine, part->seconds[STEP_UPDATE]);
    milliseconds_print(machine, part->communication);
    milliseconds_print(machine, part->exposed);
    printf("\n");
}

static void units_print(const struct forecast *forecast, const struct plan_model *known,
                        const struct machine *machine)
{
    printf("\nProducts of an image, by unit%s.\n\n%-14s %11s %11s %11s",
           machine == NULL ? ""
                           : ", and milliseconds of a rank's step: computing alone, communication "
                             "alone, what of it is waited for",
           "GFLOP", "forward", "backward", "FLOP/byte");
    if (machine != NULL)
        printf(" %10s %10s %10s %10s %10s", "forward", "backward", "update", "sending", "exposed");
    printf("\n");
    for (int u = 0; u < forecast->units; u++)
        part_print(known->unit_name[u], &forecast->unit[u], known->batch, machine);
    part_print("(the step)", &forecast->unit[forecast->units], known->batch, machine);
    part_print("step", &forecast->step, known->batch, machine);
}

/* "an epoch of 50000 images 2h10m, 10 epochs 21h40m" */
static void epochs_print(const struct options *options, double images_per_second)
{
    char epoch[32], all[32];
    int64_t samples = plan_epoch_samples(options);
    if (samples == 0)
        return;
    double seconds = (double)samples / images_per_second;
    clock_format(seconds, epoch, sizeof epoch);
    clock_format(seconds * (double)options->train.epochs, all, sizeof all);
    printf("An epoch of %lld images: %s; %lld epochs: %s, without start, evaluation and "
           "checkpoints.\n",
           (long long)samples, epoch, (long long)options->train.epochs, all);
}

static void summary_print(const struct plan *plan, const struct forecast *forecast,
                          const struct plan_model *known, const struct machine *machine)
{
    const struct forecast_part *step = &forecast->step;
    double images = (double)feed_global_batch(&plan->options, plan->ranks) / forecast->seconds;
    double peak = machine->peak[known->compute] * plan->ranks;
    printf("\nBy %s (%s%s%s): a step takes %.4g ms: computing %.4g, slower beside communication "
           "%.3g, waiting for it %.3g of %.4g, for images %.3g. %.1f images/s",
           machine->path, machine->device[0] != '\0' ? machine->device : "described",
           machine->date[0] != '\0' ? ", " : "", machine->date, 1e3 * forecast->seconds,
           1e3 * sum(step->seconds), 1e3 * forecast->slowed, 1e3 * step->exposed,
           1e3 * step->communication, 1e3 * forecast->data, images);
    if (peak > 0)
        printf(", %.0f %% of the peak", 100 * images * known->flops_per_image / peak);
    printf(".\n");
    epochs_print(&plan->options, images);
}

bool plan_time_print(const struct plan *plan, const struct machine *machine, struct error *error)
{
    const struct options *options = &plan->options;
    struct forecast forecast;
    struct plan_model known;
    if (machine != NULL && options->plan.cluster[0] == '\0')
        machine_compare(plan, machine);
    if (!plan_forecast(plan, (enum strategy_choice)options->mesh.strategy,
                       (enum checkpoint_activations_choice)options->train.checkpoint_activations,
                       machine, &forecast, &known, error))
        return false;
    units_print(&forecast, &known, machine);
    if (machine != NULL)
        summary_print(plan, &forecast, &known, machine);
    else
        printf("\nNo times: `vittrain bench machine`, on as many ranks, measures this machine into "
               "%s.\n",
               default_file);
    forecast_close(&forecast);
    plan_model_close(&known);
    return true;
}
