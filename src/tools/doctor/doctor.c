// SPDX-License-Identifier: BSD-3-Clause
/* The command `doctor` checks a cluster before a run: the ranks gather their facts, then rank 0
 * prints a row for each check. If a node does not respond, the heartbeat (comm/heartbeat.c) names
 * it and ends the job. */
#include "tools/doctor/doctor.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "config/phase.h"
#include "core/clock.h"
#include "core/columns.h"
#include "core/launcher.h"
#include "core/log.h"
#include "train/session.h"

/* ---- output */

static const char *const verdict_name[] = {"skip", "pass", "warn", "fail"};

static int row_count(const struct doctor_row *rows, enum doctor_verdict verdict)
{
    int found = 0;
    for (int i = 0; i < DOCTOR_CHECKS; i++)
        found += rows[i].verdict == verdict;
    return found;
}

void doctor_print_table(const struct doctor *doctor, const struct doctor_row *rows, double seconds,
                        FILE *file)
{
    for (int i = 0; i < DOCTOR_CHECKS; i++) {
        const struct doctor_row *row = &rows[i];
        fprintf(file, "%s  %-13s %s", verdict_name[row->verdict], doctor_checks[i].name,
                row->found);
        if (row->findings > DOCTOR_FINDINGS)
            fprintf(file, "; and %d more", row->findings - DOCTOR_FINDINGS);
        fprintf(file, "\n");
        if (row->verdict > DOCTOR_PASS)
            fprintf(file, "%20s-> %s\n", "", doctor_checks[i].advice);
    }
    fprintf(file, "%d rank%s", doctor->ranks, doctor->ranks == 1 ? "" : "s");
    if (doctor->nodes > 0)
        fprintf(file, " on %d node%s", doctor->nodes, doctor->nodes == 1 ? "" : "s");
    fprintf(file, ", %.1f s: %d pass, %d warn, %d fail, %d skipped\n", seconds,
            row_count(rows, DOCTOR_PASS), row_count(rows, DOCTOR_WARN),
            row_count(rows, DOCTOR_FAIL), row_count(rows, DOCTOR_SKIP));
}

void doctor_print_json(const struct doctor *doctor, const struct doctor_row *rows, double seconds,
                       FILE *file)
{
    json_t *object = json_object(), *checks = json_array();
    value_put(object, "ranks", json_integer(doctor->ranks));
    value_put(object, "nodes", doctor->nodes > 0 ? json_integer(doctor->nodes) : json_null());
    value_put(object, "seconds", json_real(round(seconds * 1e3) / 1e3));
    for (int verdict = DOCTOR_PASS; verdict <= DOCTOR_FAIL; verdict++)
        value_put(object, verdict_name[verdict],
                  json_integer(row_count(rows, (enum doctor_verdict)verdict)));
    for (int i = 0; i < DOCTOR_CHECKS; i++) {
        json_t *check = json_object();
        value_put(check, "check", json_string(doctor_checks[i].name));
        value_put(check, "verdict", json_string(verdict_name[rows[i].verdict]));
        value_put(check, "found", value_name(rows[i].found));
        value_put(check, "advice",
                  json_string(rows[i].verdict > DOCTOR_PASS ? doctor_checks[i].advice : ""));
        value_append(checks, check);
    }
    value_put(object, "checks", checks);
    char *text = value_to_text(object);
    fprintf(file, "%s\n", text);
    free(text);
}

/* ---- the gathering of facts */

/* Set doctor->program, doctor->deck and the options of rank 0; false if the other facts cannot be
 * gathered. Other commands compare the ranks in the same order (main.c), so that ranks with
 * different commands detect it. */
static bool ranks_compare(struct doctor *doctor, const struct command_line *line,
                          struct comm *world)
{
    static struct options taken;
    if (!app_same_build(world, &doctor->program))
        return false;
    if (comm_agree(world, &doctor->deck)) {
        if (!app_same_command(world, line, &doctor->deck))
            return false;
        error_defer(app_same_options(world, doctor->options, &doctor->deck));
    }
    taken = *doctor->options;
    comm_broadcast(world, &taken, sizeof taken, COMM_BYTE, 0);
    doctor->options = &taken;
    return true;
}

static int facts_compare(const void *left, const void *right)
{
    const struct doctor_facts *a = left, *b = right;
    return a->node != b->node ? (a->node > b->node) - (a->node < b->node)
                              : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Read the facts of this rank and set doctor->facts, on rank 0 to those of all ranks. Collective.
 */
static void facts_gather(struct doctor *doctor, struct comm *world)
{
    const double patience = 2.5; /* seconds for the files of a node */
    int *node_of = allocate((size_t)world->size, sizeof *node_of);
    struct comm *node = comm_split_nodes(world, node_of, &doctor->nodes);
    struct doctor_facts *own = allocate(world->rank == 0 ? (size_t)world->size : 1, sizeof *own);
    own->rank = world->rank;
    own->node = node_of[world->rank];
    own->node_ranks = node->size;
    doctor_read_rank(own, doctor->options, node);
    doctor_read_gpu(own, doctor->options, node->rank);
    status_set_phase(PHASE_FOLDER);
    if (node->rank == 0)
        doctor_read_node(own, doctor->options);
    doctor_try_folder(own, world, node->rank == 0);
    status_set_phase(PHASE_DATA_OPEN);
    if (node->rank == 0 && strcmp(doctor->options->data.format, "synthetic") != 0)
        doctor_read_data(doctor, &own->data, patience);
    status_set_phase(PHASE_COMMAND);
    if (world->rank != 0)
        comm_send(world, own, sizeof *own, 0);
    for (int rank = 1; world->rank == 0 && rank < world->size; rank++)
        comm_receive(world, &own[rank], sizeof *own, rank);
    if (world->rank == 0)
        qsort(own, (size_t)world->size, sizeof *own, facts_compare);
    doctor->facts = own;
    node->backend->close(node);
    free(node_of);
}

static size_t checkpoint_bytes(const struct flat_model *flat)
{
    size_t elements = 0;
    for (int i = 0; i < flat->count; i++)
        elements += (size_t)flat->buffers[i].unit->count;
    return elements * sizeof(float) * (size_t)(1 + flat->moments + flat->averaged);
}

/* ---- the command */

static void alarm_handle(int number)
{
    static const char text[] =
        "vittrain: failure: doctor: MPI has not started within 20 s: check that all nodes are up "
        "and reach each other over MPI's interface (OMPI_MCA_btl_tcp_if_include)\n";
    (void)number;
    _exit(write(STDERR_FILENO, text, sizeof text - 1) > 0 ? ERROR_PEER : ERROR_INTERNAL);
}

/* MPI waits forever for a node that it cannot reach. Rank 0 reports it; ranks that are still there
 * later report it, too. */
static void doctor_prepare(void)
{
    signal(SIGALRM, alarm_handle);
    alarm(launcher_rank() > 0 ? 24 : 20);
}

static void doctor_run(const struct options *options, const struct command_line *line,
                       struct comm *world, struct error *error)
{
    const double patience = 10, limit = options->mesh.timeout;
    static struct doctor doctor;
    static struct session session;
    static struct options on_cpu;
    struct doctor_row rows[DOCTOR_CHECKS] = {{0}};
    struct error unknown = {0};
    char failed[256] = "";
    const double start = clock_now();
    alarm(0);
    comm_set_timeout(limit > 0 ? fmin(limit, patience) : patience);
    log_open(world->rank, LOG_QUIET); /* print the table only */
    doctor = (struct doctor){.options = options, .ranks = world->size, .deck = *error};
    error_clear(error);
    if (doctor.deck.kind == ERROR_NONE && line->operand_count > 0)
        error_set(&doctor.deck, ERROR_USAGE,
                  "doctor takes decks, section.key=value and --json, not \"%s\"", line->operand[0]);
    const bool same = ranks_compare(&doctor, line, world);
    if (same)
        facts_gather(&doctor, world);
    if (same && world->rank == 0) {
        on_cpu = *doctor.options;
        on_cpu.run.backend = BACKEND_CPU;
        on_cpu.run.threads = 1;
        /* It may not be possible: the data set may set the number of classes. */
        if (session_imagine(&session, &on_cpu, 1, 1, true, &unknown)) {
            doctor.checkpoint = checkpoint_bytes(&session.flat);
            session_close(&session);
        }
    }
    for (int i = 0; world->rank == 0 && i < DOCTOR_CHECKS; i++) {
        if (same || i < 2)
            doctor_checks[i].run(&doctor, &rows[i]);
        else
            doctor_set(&rows[i], DOCTOR_SKIP, "skipped, because the ranks differ");
        if (rows[i].verdict == DOCTOR_FAIL)
            snprintf(failed + strlen(failed), sizeof failed - strlen(failed), "%s%s",
                     failed[0] != '\0' ? ", " : "", doctor_checks[i].name);
    }
    if (world->rank == 0) {
        (line->json ? doctor_print_json : doctor_print_table)(&doctor, rows, clock_now() - start,
                                                              stdout);
        error_defer(app_output_arrived(error));
    }
    if (failed[0] != '\0')
        error_set(error, ERROR_UNFIT, "doctor: %d of %d checks failed: %s",
                  row_count(rows, DOCTOR_FAIL), DOCTOR_CHECKS, failed);
    free(doctor.facts);
    error_defer(comm_share_error(world, error));
}

/* ---- the fast checks at the start of `train`, which only warn */

void doctor_start(const struct session *session)
{
    static const enum doctor_check_name fast[] = {DOCTOR_CORES_ROW, DOCTOR_BINDING_ROW,
                                                  DOCTOR_SPACE_ROW};
    const struct mesh *mesh = &session->mesh;
    struct comm *node = mesh->node;
    struct doctor_facts *facts = allocate((size_t)node->size, sizeof *facts);
    static struct doctor here; /* the ranks of this node */
    char text[256];
    here = (struct doctor){.options = &session->options,
                           .ranks = node->size,
                           .nodes = 1,
                           .facts = facts,
                           .checkpoint = checkpoint_bytes(&session->flat)};
    facts[node->rank].node_ranks = node->size;
    doctor_read_rank(&facts[node->rank], &session->options, node);
    if (mesh->world->rank == 0)
        doctor_read_space(facts, &session->options);
    comm_all_gather(node, facts, sizeof *facts, COMM_BYTE);
    for (size_t i = 0; i < sizeof fast / sizeof fast[0]; i++) {
        struct doctor_row row = {0};
        if (fast[i] == DOCTOR_SPACE_ROW ? mesh->world->rank == 0 : node->rank == 0)
            doctor_checks[fast[i]].run(&here, &row);
        /* Log the warning of the lowest rank that has one. */
        int64_t warned = row.verdict > DOCTOR_PASS ? mesh->world->rank : INT64_MAX;
        comm_all_reduce(mesh->world, &warned, 1, COMM_INT64, COMM_MIN);
        if (warned == INT64_MAX)
            continue;
        comm_broadcast(mesh->world, &row, sizeof row, COMM_BYTE, (int)warned);
        log_warn("doctor: %s: %s: %s", doctor_checks[fast[i]].name, row.found,
                 doctor_checks[fast[i]].advice);
    }
    /* The shared memory is allocated already: check whether that worked, not the free space. */
    mesh_describe_transport(mesh, text, sizeof text);
    if (strstr(text, "/dev/shm") != NULL)
        log_warn("doctor: shared memory: ranks of a node use messages instead of it: %s: remove "
                 "files from /dev/shm or make it larger: mount -o remount,size=1g /dev/shm",
                 text);
    free(facts);
}

const struct command command_doctor = {
    .name = "doctor",
    .synopsis = "doctor [--json] [DECK.ini ...] [section.key=value ...]",
    .summary = "check whether the cluster is fit for a run",
    .detail =
        "Start it like the run: with mpirun, srun or alone, and with its deck. Within 10 seconds "
        "it checks that all ranks have the same program and deck; their placement on nodes, cores "
        "and GPUs; limits and shared memory; that the run folder is shared, writable and has "
        "enough space; that the data set exists and is equal on all nodes. It prints one row per "
        "check: pass, warn or fail, the findings, and what to do. --json prints the same as JSON. "
        "The exit code is 0 if no check fails. `bench comm` measures the network.",
    .run = doctor_run,
    .prepare = doctor_prepare,
    .compares = true,
    .has_json = true};
