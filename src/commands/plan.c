// SPDX-License-Identifier: BSD-3-Clause
/* The command `plan`. Rank 0 computes and prints tables on standard output. The other ranks only
 * report how many of them share a node. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/memory_checkpoint.h"
#include "commands/app.h"
#include "model/model.h"
#include "options/options.h"
#include "plan/plan.h"
#include "train/hardware.h"
#include "train/split_loader.h"

/* ---- memory ---- */

static void classes_print(const char *name, const size_t by_class[MEMORY_CLASSES])
{
    size_t total = 0;
    printf("%-14s", name);
    for (int i = 0; i < MEMORY_CLASSES; i++) {
        printf(" %11.2f", mib(by_class[i]));
        total += by_class[i];
    }
    printf(" %11.2f\n", mib(total));
}

static void header_print(const char *first, const char *last)
{
    printf("%-14s", first);
    for (int i = 0; i < MEMORY_CLASSES; i++)
        printf(" %11s", memory_class_name[i]);
    printf(" %11s%s", "total", last);
}

static void last_line_print(const char *name, size_t bytes, const char *comment, const char *where)
{
    printf("%-14s %*.2f%s%s\n", name, MEMORY_CLASSES * 12 + 11, mib(bytes), comment, where);
}

/* Print the memory of the deck's strategy by unit. base: memory of libraries. */
static void units_memory_print(const struct plan *plan, const struct session *session, size_t base)
{
    const struct session_memory *memory = &session->memory;
    const bool own = hardware_has_memory(session->device);
    const char *host = own ? ", on the host" : "";
    char mesh[256];
    mesh_describe(&session->mesh, mesh, sizeof mesh);
    printf("%s in %s, %lld image%s per rank and pass\n%s\n\n", plan->options.model.name,
           type_name(session->compute), (long long)session->batch, session->batch == 1 ? "" : "s",
           mesh);
    header_print("MiB per rank", "\n");
    for (int u = 0; u < session->model->unit_count; u++)
        classes_print(session->model->units[u].name, memory->rows[ARENA_UNIT_ROWS + u]);
    classes_print("shared", memory->rows[ARENA_SHARED_ROW]);
    classes_print("arena", memory->arena.by_class);
    if (memory->arena.outside > 0)
        last_line_print("in /dev/shm", memory->arena.outside,
                        "  of the arena: weights and gradients that ranks share", "");
    last_line_print("loaders", memory->loader_bytes, "  batches loaded ahead", host);
    if (plan->kept > 0)
        last_line_print("images", plan->kept, "  of data.distinct", host);
    if (memory->snapshot_bytes > 0)
        last_line_print("snapshot", memory->snapshot_bytes, "  for checkpoints in the background",
                        host);
    if (memory->shared_bytes > 0)
        last_line_print("/dev/shm", memory->shared_bytes, "  for checkpoints in memory", host);
    last_line_print(own ? "context" : "libraries", base,
                    own ? "  as measured here" : "  private memory as measured here", "");
}

/* Print the row of the plan's strategy. room: bytes for the largest batch; 0: it is not printed. */
static void strategy_print(const struct plan *plan, const struct machine *machine, size_t base,
                           size_t room)
{
    const struct options *options = &plan->options;
    struct session session;
    struct error error = {0};
    char name[32];
    snprintf(name, sizeof name, "%s%s", mesh_strategy_name(options->mesh.strategy),
             options->train.checkpoint_activations == CHECKPOINT_ACTIVATIONS_BLOCK ? ", block"
                                                                                   : "");
    printf("%-14s", name);
    if (plan_session(plan, &session, &error)) {
        const int64_t largest = room > 0 ? plan_largest_batch(plan, &session, room) : 0;
        struct step_prediction prediction = plan_predict(plan, machine, &session);
        for (int i = 0; i < MEMORY_CLASSES; i++)
            printf(" %11.2f", mib(session.memory.arena.by_class[i]));
        printf(" %11.2f %11.2f %11.2f %11.2f", mib(session_needs(&session) + base),
               mib((size_t)prediction.sent_shard), mib((size_t)prediction.sent_replica),
               mib((size_t)prediction.sent_network));
        if (largest > 0)
            printf(" %11lld", (long long)largest);
        else if (room > 0)
            printf(" %11s", "none");
        if (machine != NULL && prediction.lacks.kind == ERROR_NONE)
            printf(" %11.3f %11.3f", 1e3 * prediction.seconds, 1e3 * prediction.step.exposed);
        printf("\n");
        step_prediction_close(&prediction);
    } else {
        printf(" %s\n", error.text);
    }
    session_close(&session);
}

/* Print the memory of the plan's session by unit, and all strategies side by side. machine may be
 * NULL. */
static void memory_print(const struct plan *plan, const struct session *session,
                         const struct machine *machine)
{
    static struct plan other;
    const bool own = hardware_has_memory(session->device);
    const size_t libraries = hardware_memory_base(session->device);
    const size_t base = libraries + (own ? 0 : plan->kept);
    const size_t memory = (size_t)plan->options.plan.memory;
    const size_t room = memory > base ? memory - base : memory > 0 ? 1 : 0;
    const bool recomputes = model_recomputes(plan->options.model.name);
    units_memory_print(plan, session, libraries);
    last_line_print("rank", session_needs(session) + base, own ? "  on the GPU" : "", "");
    printf("\nTotal: with %s. Sent: per rank and step, in its groups; network: the part of it "
           "between nodes.%s",
           own ? "the context, of the GPU's memory" : "loaders, checkpoints and libraries",
           recomputes ? "\nblock: train.checkpoint_activations=block." : "");
    if (memory > 0)
        printf(" Largest: largest train.batch that fits in plan.memory=%.0f MiB.", mib(memory));
    else
        printf("\nReserve: train and find batch leave %d %% of the free memory unused.",
               RESERVE_PERCENT);
    printf("\n\n");
    header_print("MiB per rank", "");
    printf(" %11s %11s %11s%s%s\n", "sent shard", "replica", "network",
           memory > 0 ? "     largest" : "", machine != NULL ? "     step ms     exposed" : "");
    for (enum checkpoint_activations_choice block = CHECKPOINT_ACTIVATIONS_NONE;
         block <= (recomputes ? CHECKPOINT_ACTIVATIONS_BLOCK : CHECKPOINT_ACTIVATIONS_NONE);
         block++)
        for (enum strategy_choice strategy = 0; strategy < STRATEGIES; strategy++) {
            other = plan_with(plan, strategy, block);
            strategy_print(&other, machine, base, room);
        }
}

/* ---- time ---- */

static const char default_file[] = "machine.ini";

static double sum(const double values[STEP_PHASES])
{
    double total = 0;
    for (int phase = 0; phase < STEP_PHASES; phase++)
        total += values[phase];
    return total;
}

static void part_print(const char *name, const struct unit_prediction *part, int64_t batch,
                       const struct machine *machine)
{
    double flops = sum(part->flops);
    printf("%-14s %11.4f %11.4f %11.1f", name, 1e-9 * part->flops[STEP_FORWARD] / (double)batch,
           1e-9 * part->flops[STEP_BACKWARD] / (double)batch,
           part->bytes > 0 ? flops / part->bytes : 0);
    if (machine != NULL)
        printf(" %10.3f %10.3f %10.3f %10.3f %10.3f",
               1e3 * (part->seconds[STEP_FORWARD] + part->seconds[STEP_DATA]),
               1e3 * part->seconds[STEP_BACKWARD], 1e3 * part->seconds[STEP_UPDATE],
               1e3 * part->communication, 1e3 * part->exposed);
    printf("\n");
}

/* Samples per rank and step. */
static int64_t step_samples(const struct session *session)
{
    return session->batch * session->options.train.accumulate;
}

static void units_print(const struct step_prediction *prediction, const struct session *session,
                        const struct machine *machine)
{
    const int64_t batch = step_samples(session);
    printf("\nMatrix products per image, by unit%s.\n\n%-14s %11s %11s %11s",
           machine == NULL
               ? ""
               : ", and milliseconds per step: operations, communication, and the part of "
                 "it that is exposed",
           "GFLOP", "forward", "backward", "FLOP/byte");
    if (machine != NULL)
        printf(" %10s %10s %10s %10s %10s", "forward", "backward", "update", "sending", "exposed");
    printf("\n");
    for (int u = 0; u < prediction->units; u++)
        part_print(session->model->units[u].name, &prediction->unit[u], batch, machine);
    part_print("(the step)", &prediction->unit[prediction->units], batch, machine);
    part_print("step", &prediction->step, batch, machine);
}

/* Print the load of the shared file system by start, checkpoints and resumes, if its speed is
 * known. step: seconds of a step. */
static void files_print(const struct plan *plan, const struct session *session,
                        const struct machine *machine, double step)
{
    struct file_work work[FILE_PHASES];
    if (machine->files.operations == 0 || machine->files.bandwidth == 0)
        return;
    plan_files(plan, session, machine, work);
    printf("\nFiles of %d rank%s\n\n%-14s %11s %11s %11s %11s\n", plan->ranks,
           plan->ranks == 1 ? "" : "s", "phase", "operations", "MiB", "ranks", "seconds");
    for (const struct file_work *part = work; part < work + FILE_PHASES; part++)
        printf("%-14s %11.0f %11.1f %11.0f %11.3g\n", part->phase, part->operations,
               mib((size_t)part->bytes), part->ranks, part->seconds);
    printf("\nAfter a signal the run ends within %.3g s: a step, a checkpoint and the weights.\n",
           step + work[FILES_CHECKPOINT].seconds + work[FILES_WEIGHTS].seconds);
}

/* Print the length of an epoch if the data set exists. */
static void epochs_print(const struct options *options, double images_per_second)
{
    char epoch[32], all[32];
    struct dataset dataset;
    struct error ignored = {0};
    if (!dataset_open(&dataset, options, SPLIT_TRAIN, NULL, &ignored))
        return;
    double seconds = (double)dataset.count / images_per_second;
    clock_format(seconds, epoch, sizeof epoch);
    clock_format(seconds * (double)options->train.epochs, all, sizeof all);
    printf("An epoch of %lld images: %s; %lld epochs: %s, without start, evaluation and "
           "checkpoints.\n",
           (long long)dataset.count, epoch, (long long)options->train.epochs, all);
    dataset_close(&dataset);
}

static void summary_print(const struct plan *plan, const struct step_prediction *prediction,
                          const struct session *session, const struct machine *machine)
{
    const struct unit_prediction *step = &prediction->step;
    double images =
        (double)split_loader_global_batch(&plan->options, plan->ranks) / prediction->seconds;
    double peak = machine->peak[session->compute] * plan->ranks;
    printf(
        "\nPredicted with %s (%s%s%s): a step takes %.4g ms: operations %.4g, slowed down by "
        "communication %.3g, exposed communication %.3g of %.4g, waiting for images %.3g, for the "
        "slowest rank %.3g. %.1f images/s",
        machine->path, machine->device[0] != '\0' ? machine->device : "described",
        machine->date[0] != '\0' ? ", " : "", machine->date, 1e3 * prediction->seconds,
        1e3 * sum(step->seconds), 1e3 * prediction->slowed, 1e3 * step->exposed,
        1e3 * step->communication, 1e3 * prediction->data, 1e3 * prediction->stragglers, images);
    const double share = peak > 0 ? images * session->model->flops_per_image / peak : NAN;
    if (share <= 1) /* above, the peak in the file is too low */
        printf(", %.0f %% of the peak", 100 * share);
    printf(".\n");
    if (session->memory.shared_bytes > 0) {
        /* A checkpoint in memory: each rank reads its state, writes it, and reads it again for the
         * checksums; a node sends the state of its ranks to the next node. */
        const bool sends = plan->ranks > plan->node_ranks;
        const double state = (double)session->memory.shared_bytes / (sends ? 4 : 2);
        double each = 3 * state / machine->memory_bandwidth;
        if (sends && machine->between.bandwidth > 0)
            each += state * plan->node_ranks / machine->between.bandwidth;
        printf("A checkpoint in memory takes %.3g ms; checkpoint.memory=%.0f takes at most 1 %% of "
               "the time.\n",
               1e3 * each, memory_checkpoint_interval(each, prediction->seconds));
    }
    epochs_print(&plan->options, images);
    files_print(plan, session, machine, prediction->seconds);
}

/* Print the operations by unit and, if machine is not NULL, their times, images/s and the length of
 * epochs. Warns if the machine is not this one. If its file lacks a needed speed, that is a warning
 * with plan.machine=auto, else an error. */
static bool time_print(const struct plan *plan, struct session *session,
                       const struct machine *machine, struct error *error)
{
    struct step_prediction prediction = plan_predict(plan, machine, session);
    bool good = true;
    if (prediction.lacks.kind != ERROR_NONE) {
        machine = NULL;
        good = strcmp(plan->options.plan.machine, "auto") == 0;
        if (good)
            log_warn("plan: no times: %s", prediction.lacks.text);
        else
            *error = prediction.lacks;
    }
    if (good && machine != NULL) {
        const char *name = session->limits.name;
        if (machine->device[0] != '\0' && strcmp(machine->device, name) != 0)
            log_warn("plan: %s was measured on %s (%s), but this is %s: times are for the former",
                     machine->path, machine->device, machine->host, name);
        else if (machine->host[0] != '\0' && strcmp(machine->host, comm_host()) != 0)
            log_warn("plan: %s was measured on host %s, but this is %s", machine->path,
                     machine->host, comm_host());
    }
    if (good) {
        units_print(&prediction, session, machine);
        if (machine != NULL)
            summary_print(plan, &prediction, session, machine);
        else
            printf("\nNo times: measure this machine with `vittrain bench device` and `vittrain "
                   "bench comm` on the same number of ranks, with bench.machine=%s.\n",
                   default_file);
    }
    step_prediction_close(&prediction);
    return good;
}

/* ---- a cluster ---- */

enum { MOST_RANKS = 8192 };

/* Print a row; after the last row, also the files. `next` is the number of ranks of the next row,
 * and equals `ranks` if there is none. Return false after the last row, or if the batch is too
 * small for the next one. */
static bool ranks_print(const struct plan *wanted, const struct machine *machine, int ranks,
                        int next, double *first)
{
    static struct plan plan;
    const long long batch = wanted->options.train.global_batch;
    const bool too_small = batch > 0 && batch < next, last = next == ranks || too_small;
    struct step_prediction prediction = {.unit = NULL};
    struct session session;
    struct error error = {0};
    plan = *wanted;
    plan.ranks = ranks;
    plan.node_ranks = ranks < machine->node_ranks ? ranks : machine->node_ranks;
    if (wanted->options.train.global_batch == 0) /* weak scaling */
        plan.options.train.global_batch =
            split_loader_global_batch(&wanted->options, wanted->ranks) / wanted->ranks * ranks;
    if (plan_session(&plan, &session, &error))
        prediction = plan_predict(&plan, machine, &session);
    if (error.kind == ERROR_NONE && prediction.lacks.kind == ERROR_NONE) {
        const int nodes = (int)round_up_division(ranks, plan.node_ranks);
        const double images = (double)plan.options.train.global_batch / prediction.seconds;
        const size_t needs = session_needs(&session);
        char mesh[32];
        if (ranks == 1)
            *first = images;
        snprintf(mesh, sizeof mesh, "%dx%d", session.mesh.replica->size, session.mesh.shard->size);
        printf("%6d %6d %9s %8lld %11.0f%s %11.3f %11.3f %11.3f %11.3f %8.1f %12.1f", ranks, nodes,
               mesh, (long long)step_samples(&session), mib(needs),
               machine->memory > 0 && (double)needs > machine->memory ? "!" : " ",
               1e3 * prediction.seconds, 1e3 * prediction.step.communication,
               1e3 * prediction.step.exposed, 1e3 * prediction.stragglers,
               *first > 0 ? 100 * images / (ranks * *first) : 0, images);
        if (machine->watts > 0)
            printf(" %10.3f", machine->watts * nodes / images);
        printf("\n");
    } else {
        printf("%6d %s\n", ranks, error.kind != ERROR_NONE ? error.text : prediction.lacks.text);
    }
    if (too_small)
        printf("%6d the batch of %lld images is less than one per rank\n", next, batch);
    if (last && error.kind == ERROR_NONE && prediction.lacks.kind == ERROR_NONE)
        files_print(&plan, &session, machine, prediction.seconds);
    step_prediction_close(&prediction);
    session_close(&session);
    return !last;
}

/* Print a prediction of the run on 1, 2, 4, ... 8192 ranks of a machine. */
static void cluster_print(const struct plan *plan, const struct machine *machine)
{
    static struct plan wanted;
    double first = 0; /* images/s of one rank */
    wanted = *plan;
    wanted.options.run.backend = BACKEND_CPU; /* nothing is computed */
    if (machine->shared_memory == 0)
        wanted.options.mesh.transport =
            TRANSPORT_RING; /* the only one with which ranks do not share memory */
    if (wanted.options.train.precision == PRECISION_AUTO)
        wanted.options.train.precision = machine_multiplies(machine, TYPE_BF16)   ? PRECISION_BF16
                                         : machine_multiplies(machine, TYPE_FP16) ? PRECISION_FP16
                                                                                  : PRECISION_FP32;
    const bool is_strong = wanted.options.train.global_batch > 0;
    printf("\nPrediction for %s%s%s, %s, %s scaling (%s), %d rank%s per node. Times in "
           "milliseconds, memory in MiB per rank%s.\n\n",
           machine->path, machine->device[0] != '\0' ? ": " : "", machine->device,
           mesh_strategy_name(wanted.options.mesh.strategy), is_strong ? "strong" : "weak",
           is_strong ? "the global batch is fixed" : "the batch per rank is fixed",
           machine->node_ranks, machine->node_ranks == 1 ? "" : "s",
           machine->memory > 0 ? " (!: more than it has)" : "");
    printf("%6s %6s %9s %8s %12s %11s %11s %11s %11s %8s %12s%s\n", "ranks", "nodes", "mesh",
           "batch", "memory", "step", "sending", "exposed", "slowest", "eff. %", "images/s",
           machine->watts > 0 ? "    J/image" : "");
    const int most = wanted.options.plan.ranks > 0 ? (int)wanted.options.plan.ranks : MOST_RANKS;
    for (int ranks = 1, next = (int)smaller(2, most);
         ranks_print(&wanted, machine, ranks, next, &first);) {
        ranks = next;
        next = (int)smaller(2 * (int64_t)ranks, most);
    }
    if (wanted.options.mesh.strategy != STRATEGY_DDP)
        printf("\nThe efficiency can exceed 100 %%: one rank updates all weights, each of several "
               "ranks only its shard.\n");
}

/* ---- operations ---- */

/* A kernel of a step. */
struct kernel_row {
    const char *model;
    int64_t batch;
    const char *precision;
    int64_t call;
    const char *unit, *operation, *kernel_family, *result;
    /* Of matrix products: rows x columns x inner, or heads x tokens x head width. */
    const char *shape;
    double flops, bytes;
};

#define KERNEL(kind, name) COLUMN(kernel_row, kind, name)
static const struct column kernel_columns[] = {
    KERNEL(TEXT, model),         KERNEL(INTEGER, batch), KERNEL(TEXT, precision),
    KERNEL(INTEGER, call),       KERNEL(TEXT, unit),     KERNEL(TEXT, operation),
    KERNEL(TEXT, kernel_family), KERNEL(TEXT, result),   KERNEL(TEXT, shape),
    KERNEL(NUMBER, flops),       KERNEL(NUMBER, bytes),  COLUMNS_END};

/* Write the kernels of one training step to a CSV file: one row per kernel, in the order in which a
 * GPU runs them. benchmarks/gpu_page compares them with a profile. */
static bool operations_write(const struct plan *plan, const char *path, struct error *error)
{
    struct session session;
    struct step_script script = {.event = NULL};
    struct csv csv = {.stream = NULL};
    char shape[96];
    bool good = plan_session(plan, &session, error) &&
                columns_open(&csv, path, kernel_columns, NULL, error);
    if (good)
        step_script_make(&script, &session, &plan->source);
    for (int i = 0; good && i < script.count; i++) {
        const struct script_event *event = &script.event[i];
        const double *size = event->counted.size;
        snprintf(shape, sizeof shape, "%.6gx%.0fx%.0f", size[0], size[1], size[2]);
        for (int k = 0; good && k < event->counted.kernels; k++) {
            const struct counted_kernel *kernel = &event->counted.kernel[k];
            const struct kernel_row row = {
                .model = plan->options.model.name,
                .batch = step_samples(&session),
                .precision = type_name(session.compute),
                .call = i,
                .unit = event->unit < 0 ? NULL : session.model->units[event->unit].name,
                .operation = operation_name[event->counted.operation],
                .kernel_family = kernel->family,
                .result = kernel->result,
                .shape = event->counted.flops > 0 ? shape : NULL,
                .flops = kernel->flops,
                .bytes = kernel->bytes};
            good = columns_write(kernel_columns, &row, &csv, error);
        }
    }
    good = good && csv_flush(&csv, error);
    csv_close(&csv);
    step_script_close(&script);
    session_close(&session);
    return good;
}

/* ---- the command ---- */

static bool plan_print(const struct options *options, int started, int started_on_node,
                       struct error *error)
{
    static struct plan plan;
    static struct machine described;
    const struct machine *machine = &described;
    const bool is_cluster = options->plan.cluster[0] != '\0';
    const char *path = is_cluster ? options->plan.cluster : options->plan.machine;
    const bool is_auto = !is_cluster && strcmp(path, "auto") == 0;
    const int ranks = options->plan.ranks > 0 ? (int)options->plan.ranks : started;
    const int64_t node_ranks = options->plan.node_ranks > 0 ? options->plan.node_ranks
                               : options->plan.ranks > 0    ? ranks
                                                            : started_on_node;
    if (is_auto)
        path = default_file;
    if ((!is_cluster && strcmp(path, "none") == 0) || (is_auto && access(path, F_OK) != 0))
        machine = NULL;
    else if (!machine_read(&described, path, false, error))
        return false;
    if (!plan_open(&plan, options, ranks, (int)smaller(node_ranks, ranks), error))
        return false;
    if (is_cluster) {
        cluster_print(&plan, machine);
        return true;
    }
    struct session session;
    bool good = plan_session(&plan, &session, error);
    if (good) {
        memory_print(&plan, &session, machine);
        good = time_print(&plan, &session, machine, error);
    }
    session_close(&session);
    return good && (options->plan.operations[0] == '\0' ||
                    operations_write(&plan, options->plan.operations, error));
}

static void plan_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    struct comm *node = world->backend->split_node(world);
    int64_t node_ranks = node->size; /* of the largest node */
    node->backend->close(node);
    comm_all_reduce(world, &node_ranks, 1, COMM_INT64, COMM_MAX);
    if (line->operand_count > 0)
        error_set(error, ERROR_USAGE, "plan takes decks and section.key=value, not \"%s\"%s",
                  line->operand[0],
                  text_ends_with(line->operand[0], ".h5") ? "; use h5ls -r for a checkpoint" : "");
    else if (world->rank == 0 && plan_print(options, world->size, (int)node_ranks, error))
        error_defer(app_output_arrived(error));
    comm_agree(world, error);
}

const struct command command_plan = {
    .name = "plan",
    .synopsis = "plan [DECK.ini ...] [section.key=value ...]",
    .summary = "memory, communication and time of a run, before it runs",
    .detail =
        "Prints what a rank of the run that the deck describes needs: memory by unit and kind, "
        "then all strategies side by side with the bytes that a rank sends per step and, with "
        "plan.memory, the largest train.batch that fits. plan.ranks and plan.node_ranks set the "
        "number of ranks. The data set need not exist, except for folders of images, tar shards "
        "and arrays, which define the number of classes; data.format=synthetic with data.image "
        "and data.classes replaces them. The numbers come from the code that allocates, so they "
        "are those of the run. plan also counts the operations of a step by unit. If `bench "
        "device` and `bench comm` have measured this machine (plan.machine), it predicts the time "
        "of each unit, the exposed communication, images per second and the length of epochs. "
        "plan.cluster=FILE predicts the run on 1 to 8192 ranks of the cluster that the file "
        "describes, with the batch of each rank (train.batch) or the global one "
        "(train.global_batch). plan.operations=FILE writes the kernels of a step as CSV.",
    .run = plan_run};
