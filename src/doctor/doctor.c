/* The command `doctor`: is this cluster fit for a run? A table of checks, each of which all ranks
 * make together and which gives a row; the checks are in doctor_*.c. */
#include "doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#include "config/command_line.h"
#include "core/clock.h"
#include "core/log.h"
#include "doctor/doctor_network.h"

static const struct doctor_check {
    const char *name;
    doctor_look *look;
} checks[] = {
    {"program", doctor_look_program},     {"deck", doctor_look_deck},
    {"ranks", doctor_look_ranks},         {"cores", doctor_look_cores},
    {"binding", doctor_look_binding},     {"numa", doctor_look_numa},
    {"gpus", doctor_look_gpus},           {"libraries", doctor_look_libraries},
    {"limits", doctor_look_limits},       {"shared memory", doctor_look_shared_memory},
    {"run folder", doctor_look_folder},   {"space", doctor_look_space},
    {"data", doctor_look_data},           {"rclone", doctor_look_rclone},
    {"clock", doctor_look_clock},         {"latency", doctor_look_latency},
    {"bandwidth", doctor_look_bandwidth}, {"interface", doctor_look_interface},
};

enum { CHECKS = sizeof checks / sizeof checks[0], DECK = 1 };

/* For the last words. */
static struct doctor *examined;

static void print(const struct doctor *doctor)
{
    const struct doctor_summary summary = {.ranks = doctor->world->size,
                                           .nodes = doctor->node_count,
                                           .seconds = clock_now() - doctor->start};
    (doctor->line->json ? doctor_print_json : doctor_print_table)(doctor->row, doctor->rows,
                                                                  &summary, stdout);
}

/* A check is not over in time: what is known so far, and that. */
static void last_words(const char *what, double seconds)
{
    struct doctor_row *row = &examined->row[examined->rows];
    row->verdict = DOCTOR_SKIP;
    doctor_say(row, DOCTOR_FAIL, "see the messages about it: which rank or node does not answer?",
               "%s is not over after %.0f s", what, seconds);
    examined->rows++;
    print(examined);
    fflush(stdout);
}

static void examine(struct doctor *doctor)
{
    const double patience = 10; /* more than any check takes, files that hang included */
    for (int i = 0; i < CHECKS; i++) {
        struct doctor_row *row = &doctor->row[i];
        row->check = checks[i].name;
        doctor_watch(checks[i].name, patience);
        if (doctor->stop)
            snprintf(row->found, sizeof row->found, "not looked at, as %s", doctor->stop_reason);
        else
            checks[i].look(doctor, row);
        if (i == DECK && !doctor->stop)
            doctor_gather_facts(doctor);
        if (i > DECK && !doctor->stop)
            comm_barrier(doctor->world); /* some checks are of one rank a node */
        doctor->rows = i + 1;
    }
}

/* On all ranks. */
static void conclude(const struct doctor *doctor, struct error *error)
{
    char names[256] = "";
    int failed = doctor_count(doctor->row, doctor->rows, DOCTOR_FAIL);
    for (int i = 0; i < doctor->rows; i++)
        if (doctor->row[i].verdict == DOCTOR_FAIL)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                     names[0] != '\0' ? ", " : "", doctor->row[i].check);
    if (doctor->world->rank == 0) {
        print(doctor);
        error_defer(app_output_arrived(error));
        if (failed > 0)
            error_set(error, ERROR_UNFIT, "doctor: %d of %d checks failed: %s", failed,
                      doctor->rows, names);
    }
    comm_broadcast(doctor->world, error, sizeof *error, COMM_BYTE, 0);
    error->agreed = error->kind != ERROR_NONE;
}

static void doctor_prepare(void)
{
    /* For processes of all nodes to start; in the grace the watch of collectives (comm/watch.c)
     * names who is missing and ends the job. */
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
    log_open(world->rank, LOG_QUIET); /* only the table is said */
    comm_set_timeout(11);             /* whoever is missing then is named */
    doctor_watch_speaker(world->rank, last_words);
    examine(&doctor);
    doctor_watch("the end", 10);
    conclude(&doctor, error);
    doctor_free_facts(&doctor);
    free(doctor.network);
    doctor_watch_close();
}

const struct command command_doctor = {
    .name = "doctor",
    .synopsis = "doctor [--json] [DECK.ini ...] [section.key=value ...]",
    .summary = "is this cluster fit for a run? what is wrong, where, what to do",
    .detail =
        "Started as the run would be (mpirun, srun or alone, with its deck) it looks within 10 "
        "seconds whether all ranks have the same program, deck and libraries, how they lie on "
        "nodes, cores, NUMA nodes and GPUs, at limits and shared memory, whether the run folder is "
        "shared, writable and has room, whether the data set is there and equal on all nodes, at "
        "clocks, and at latency, bandwidth and interface of the network between nodes. Prints a "
        "row each: pass, warn or fail, what was found, what to do; --json prints the same as JSON. "
        "The exit code is 0 unless a row says fail.",
    .run = doctor_run,
    .prepare = doctor_prepare,
    .compares = true,
    .has_json = true};
