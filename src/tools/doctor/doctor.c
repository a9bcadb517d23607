// SPDX-License-Identifier: BSD-3-Clause
/* The command `doctor` checks a cluster before a run. The checks are in doctor_*.c; all ranks run
 * them together, and each one is a row of the table. */
#include "tools/doctor/doctor.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "config/command_line.h"
#include "core/clock.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/version.h"
#include "train/session.h"

/* ---- rows */
static const char *const verdict_name[] = {"skip", "pass", "warn", "fail"};

static void text_add(char *text, const char *more)
{
    size_t used = strlen(text);
    if (strstr(text, more) == NULL)
        snprintf(text + used, DOCTOR_TEXT - used, "%s%s", used > 0 ? "; " : "", more);
}

void doctor_set(struct doctor_row *row, enum doctor_verdict verdict, const char *advice,
                const char *format, ...)
{
    char text[DOCTOR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (verdict < row->verdict)
        return;
    if (verdict > row->verdict)
        row->found[0] = row->advice[0] = '\0';
    row->verdict = verdict;
    text_add(row->found, text);
    if (advice != NULL)
        text_add(row->advice, advice);
}

static int row_count(const struct doctor *doctor, enum doctor_verdict verdict)
{
    int found = 0;
    for (int i = 0; i < doctor->rows; i++)
        found += doctor->row[i].verdict == verdict;
    return found;
}

void doctor_print_table(const struct doctor *doctor, double seconds, FILE *file)
{
    for (int i = 0; i < doctor->rows; i++) {
        const struct doctor_row *row = &doctor->row[i];
        fprintf(file, "%s  %-13s %s\n", verdict_name[row->verdict], row->check, row->found);
        if (row->advice[0] != '\0')
            fprintf(file, "%20s-> %s\n", "", row->advice);
    }
    fprintf(file, "%d rank%s", doctor->world->size, doctor->world->size == 1 ? "" : "s");
    if (doctor->node_count > 0)
        fprintf(file, " on %d node%s", doctor->node_count, doctor->node_count == 1 ? "" : "s");
    fprintf(file, ", %.1f s: %d pass, %d warn, %d fail, %d skipped\n", seconds,
            row_count(doctor, DOCTOR_PASS), row_count(doctor, DOCTOR_WARN),
            row_count(doctor, DOCTOR_FAIL), row_count(doctor, DOCTOR_SKIP));
}

void doctor_print_json(const struct doctor *doctor, double seconds, FILE *file)
{
    json_t *object = json_object(), *checks = json_array();
    value_put(object, "ranks", json_integer(doctor->world->size));
    value_put(object, "nodes",
              doctor->node_count > 0 ? json_integer(doctor->node_count) : json_null());
    value_put(object, "seconds", json_real(round(seconds * 1e3) / 1e3));
    for (int verdict = DOCTOR_PASS; verdict <= DOCTOR_FAIL; verdict++)
        value_put(object, verdict_name[verdict],
                  json_integer(row_count(doctor, (enum doctor_verdict)verdict)));
    for (int i = 0; i < doctor->rows; i++) {
        const struct doctor_row *row = &doctor->row[i];
        json_t *check = json_object();
        value_put(check, "check", json_string(row->check));
        value_put(check, "verdict", json_string(verdict_name[row->verdict]));
        value_put(check, "found", value_name(row->found));
        value_put(check, "advice", value_name(row->advice));
        value_append(checks, check);
    }
    value_put(object, "checks", checks);
    char *text = value_to_text(object);
    fprintf(file, "%s\n", text);
    free(text);
}

/* ---- the program and its options. The messages are the same as in every other command (main.c),
 * so that ranks with different commands detect it. */
static void check_program(struct doctor *doctor, struct doctor_row *row)
{
    struct comm *world = doctor->world;
    struct error error = {0};
    if (!app_same_build(world, &error)) {
        doctor->stop = true;
        doctor->stop_reason = "ranks run different programs";
        doctor_set(row, DOCTOR_FAIL, "install the same program at the same path on all nodes", "%s",
                   error.text);
        return;
    }
    doctor_set(row, DOCTOR_PASS, NULL, "vittrain %s%s%s, CRC32C %08llx, on all ranks",
               version_number, version_commit[0] != '\0' ? " " : "", version_commit,
               (unsigned long long)app_build_sum());
}

static void check_deck(struct doctor *doctor, struct doctor_row *row)
{
    static struct options taken;
    static const char advice[] =
        "give all ranks the same command line, and copy the decks to all nodes";
    struct comm *world = doctor->world;
    struct error error = *doctor->parse_error;
    bool own = error.kind != ERROR_NONE; /* then, as a rule, on all ranks */
    if (!comm_agree(world, &error))
        doctor_set(row, DOCTOR_FAIL, own ? "correct it on all ranks" : advice, "%s", error.text);
    else if (!app_same_command(world, doctor->line, &error)) {
        doctor->stop = true;
        doctor->stop_reason = "ranks were given different commands";
        doctor_set(row, DOCTOR_FAIL, advice, "%s", error.text);
        return;
    } else if (!app_same_options(world, doctor->options, &error)) {
        doctor_set(row, DOCTOR_FAIL, advice, "%s", error.text);
    } else {
        doctor_set(row, DOCTOR_PASS, NULL, "all ranks have the same options");
    }
    /* All further checks use the options of rank 0. */
    taken = *doctor->options;
    comm_broadcast(world, &taken, sizeof taken, COMM_BYTE, 0);
    doctor->options = &taken;
}

/* ---- the command */
static const struct doctor_check {
    const char *name;
    doctor_check *check;
} checks[] = {
    {"program", check_program},          {"deck", check_deck},
    {"ranks", doctor_check_ranks},       {"cores", doctor_check_cores},
    {"binding", doctor_check_binding},   {"gpus", doctor_check_gpus},
    {"limits", doctor_check_limits},     {"shared memory", doctor_check_shared_memory},
    {"run folder", doctor_check_folder}, {"space", doctor_check_space},
    {"data", doctor_check_data},
};

enum { CHECKS = sizeof checks / sizeof checks[0], DECK = 1 };

/* For last_words. */
static struct doctor *examined;

static void result_print(const struct doctor *doctor)
{
    double seconds = clock_now() - doctor->start;
    if (doctor->line->json)
        doctor_print_json(doctor, seconds, stdout);
    else
        doctor_print_table(doctor, seconds, stdout);
}

/* Time-out of a check: print the rows so far and a row for it. */
static void last_words(const char *what, double seconds)
{
    struct doctor_row *row = &examined->row[examined->rows];
    row->verdict = DOCTOR_SKIP;
    doctor_set(row, DOCTOR_FAIL,
               "see the following messages for the rank or node that does not respond",
               "%s did not finish within %.0f s", what, seconds);
    examined->rows++;
    result_print(examined);
    fflush(stdout);
}

static void facts_open(struct doctor *doctor)
{
    doctor_open_groups(doctor);
    doctor_gather_facts(doctor);
}

static void checks_run(struct doctor *doctor)
{
    const double patience = 10; /* longer than any check, including time-outs of file systems */
    for (int i = 0; i < CHECKS; i++) {
        struct doctor_row *row = &doctor->row[i];
        row->check = checks[i].name;
        doctor_watch(checks[i].name, patience);
        if (doctor->stop)
            snprintf(row->found, sizeof row->found, "skipped, because %s", doctor->stop_reason);
        else
            checks[i].check(doctor, row);
        if (i == DECK && !doctor->stop)
            facts_open(doctor);
        if (i > DECK && !doctor->stop)
            comm_barrier(doctor->world); /* some checks run on one rank per node */
        doctor->rows = i + 1;
    }
}

/* Print the result and set the error, on all ranks. */
static void result_conclude(const struct doctor *doctor, struct error *error)
{
    char names[256] = "";
    int failed = row_count(doctor, DOCTOR_FAIL);
    for (int i = 0; i < doctor->rows; i++)
        if (doctor->row[i].verdict == DOCTOR_FAIL)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                     names[0] != '\0' ? ", " : "", doctor->row[i].check);
    if (doctor->world->rank == 0) {
        result_print(doctor);
        error_defer(app_output_arrived(error));
        if (failed > 0)
            error_set(error, ERROR_UNFIT, "doctor: %d of %d checks failed: %s", failed,
                      doctor->rows, names);
    }
    error_defer(comm_share_error(doctor->world, error));
}

static void doctor_prepare(void)
{
    /* `patience` is the time for all processes to start. During `grace`, the watchdog of
     * collectives (comm/watch.c) names the missing ranks and ends the job. */
    const double patience = 20, grace = 4;
    doctor_watch_open(patience, grace);
}

static void doctor_run(const struct options *options, const struct command_line *line,
                       struct comm *world, struct error *error)
{
    static struct doctor doctor;
    struct error parse_error = *error;
    if (parse_error.kind == ERROR_NONE && line->operand_count > 0)
        error_set(&parse_error, ERROR_USAGE,
                  "doctor takes decks, section.key=value and --json, not \"%s\"", line->operand[0]);
    error_clear(error);
    doctor = (struct doctor){.options = options,
                             .line = line,
                             .parse_error = &parse_error,
                             .world = world,
                             .start = clock_now()};
    examined = &doctor;
    log_open(world->rank, LOG_QUIET); /* print the table only */
    comm_set_timeout(11);             /* names the missing ranks */
    doctor_watch_speaker(world->rank, last_words);
    checks_run(&doctor);
    doctor_watch("the end", 10);
    result_conclude(&doctor, error);
    doctor_free_facts(&doctor);
    doctor_watch_close();
}

/* ---- the fast checks at the start of `train`, which only warn */

static void row_warn(const struct doctor_row *row)
{
    if (row->verdict > DOCTOR_PASS)
        log_warn("doctor: %s: %s%s%s", row->check, row->found, row->advice[0] != '\0' ? ": " : "",
                 row->advice);
}

/* Combine the warnings of all nodes; `own` is that of this node. */
static void rows_join(struct comm *leaders, const struct doctor_row *own, struct doctor_row *row)
{
    int64_t worst = own->verdict;
    comm_all_reduce(leaders, &worst, 1, COMM_INT64, COMM_MAX);
    if (worst <= DOCTOR_PASS)
        return;
    struct doctor_row *all = allocate((size_t)leaders->size, sizeof *all);
    all[leaders->rank] = *own;
    comm_all_gather(leaders, all, sizeof *all, COMM_BYTE);
    for (int node = 0; node < leaders->size; node++)
        if (all[node].verdict > DOCTOR_PASS)
            doctor_set(row, all[node].verdict, all[node].advice, "%s", all[node].found);
    free(all);
}

/* Check the cores of this node from the facts of its ranks. The facts of all ranks are not
 * gathered: with 1000 ranks, each would receive half a megabyte. */
static void node_check(const struct session *session, struct doctor *doctor)
{
    struct doctor *here = allocate(1, sizeof *here);
    here->options = session->options;
    here->world = here->node = session->mesh.node;
    here->node_count = 1;
    doctor_gather_facts(here);
    if (doctor->leaders != NULL) {
        int64_t online[2] = {here->facts->online, -here->facts->online};
        doctor_check_cores(here, &here->row[0]);
        doctor_check_binding(here, &here->row[1]);
        rows_join(doctor->leaders, &here->row[0], &doctor->row[0]);
        rows_join(doctor->leaders, &here->row[1], &doctor->row[1]);
        comm_all_reduce(doctor->leaders, online, 2, COMM_INT64, COMM_MAX);
        doctor_compare_cpus(&doctor->row[0], -online[1], online[0]);
    }
    doctor_free_facts(here);
    free(here);
}

void doctor_start(const struct session *session)
{
    static const char *const name[] = {"cores", "binding", "space", "shared memory"};
    enum { SPACE = 2, TRANSPORT, ROWS };
    char text[256];
    struct doctor *doctor = allocate(1, sizeof *doctor);
    doctor->options = session->options;
    doctor->flat = &session->flat;
    doctor->world = session->mesh.world;
    doctor->node = session->mesh.node;
    doctor->node_index = session->mesh.node_index;
    doctor->node_count = session->mesh.node_count;
    doctor_open_groups(doctor);
    node_check(session, doctor);
    doctor_check_space(doctor, &doctor->row[SPACE]);
    /* The shared memory is allocated already: check whether that worked, not the free space. */
    mesh_describe_transport(&session->mesh, text, sizeof text);
    if (strstr(text, "/dev/shm") != NULL)
        doctor_set(&doctor->row[TRANSPORT], DOCTOR_WARN,
                   "remove files from /dev/shm or make it larger: mount -o "
                   "remount,size=1g /dev/shm; docker run --shm-size=1g",
                   "ranks of a node use messages instead of shared memory: %s", text);
    for (int i = 0; i < ROWS; i++) {
        doctor->row[i].check = name[i];
        row_warn(&doctor->row[i]);
    }
    doctor_free_facts(doctor);
    free(doctor);
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
