/* The command `upload`: what a run left, into an object store; goes on with what a run, or the
 * command before, has begun. */
#include <stdio.h>
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "core/text.h"
#include "store/run_upload.h"

/* Passes in a row that bring nothing; each request of them is tried for some seconds. */
enum { FRUITLESS_PASSES = 3 };
static const double least_delay = 2, most_delay = 20;

static bool take_operands(const struct options *options, const struct command_line *line,
                          struct store_run_setup *setup, struct error *error)
{
    *setup = (struct store_run_setup){.folder = line->operand_count > 0 ? line->operand[0] : "",
                                      .url = options->output.upload,
                                      .option = "output.upload",
                                      .rate = options->output.upload_rate,
                                      .tells = true};
    if (line->operand_count == 2) {
        setup->url = line->operand[1];
        setup->option = "upload";
    }
    return (line->operand_count >= 1 && line->operand_count <= 2 && setup->url[0] != '\0') ||
           error_set(error, ERROR_USAGE,
                     "upload what to where? `vittrain upload RUN s3://BUCKET/PREFIX`, RUN being a "
                     "run's folder");
}

/* Until all is there, or nothing more comes through. */
static void send_all(struct store_run *run, struct error *error)
{
    int fruitless = 0, files = 0, before;
    int64_t bytes;
    for (;;) {
        error_clear(error);
        if (store_run_pass(run, true, error) != STORE_LATER)
            return;
        before = files;
        store_run_sent(run, &files, &bytes);
        fruitless = files > before ? 0 : fruitless + 1;
        if (fruitless == FRUITLESS_PASSES)
            return;
        log_warn("upload: %s; trying again", error->text);
        double delay = store_backoff(store_run_store(run), fruitless + 1, least_delay, most_delay);
        store_pause(store_run_store(run), delay);
    }
}

static void report(struct store_run *run, struct error *error)
{
    char names[512], reason[ERROR_TEXT_SIZE];
    int files;
    int64_t bytes, missing_bytes;
    int missing = store_run_missing(run, names, sizeof names, &missing_bytes);
    store_run_sent(run, &files, &bytes);
    if (missing == 0 && error->kind == ERROR_NONE) {
        log_info("%s is in %s: %d files, %.1f MiB", store_run_folder(run), store_run_url(run),
                 files, mib((size_t)bytes));
        return;
    }
    snprintf(reason, sizeof reason, "%s", error->text);
    error_clear(error);
    error_set(error, ERROR_NETWORK,
              "%d files (%.1f MiB) are not in %s: %s; %s; start the command again, it goes on from "
              "there",
              missing, mib((size_t)missing_bytes), store_run_url(run), names, reason);
}

static void upload(const struct options *options, const struct command_line *line,
                   struct error *error)
{
    struct store_run_setup setup;
    if (!take_operands(options, line, &setup, error))
        return;
    struct store_run *run = store_run_open(&setup, error);
    if (run == NULL)
        return;
    char place[700];
    store_describe(store_run_store(run), place, sizeof place);
    log_info("sending %s to %s at %s", setup.folder, store_run_url(run), place);
    if (store_run_check(run, error) == STORE_DONE) {
        send_all(run, error);
        report(run, error);
    }
    store_run_close(run);
}

/* One rank does it. */
static void upload_run(const struct options *options, const struct command_line *line,
                       struct comm *world, struct error *error)
{
    comm_set_timeout(0); /* the others wait as long as it takes */
    if (world->rank == 0)
        upload(options, line, error);
    comm_agree(world, error);
}

const struct command command_upload = {
    .name = "upload",
    .synopsis = "upload RUN [s3://BUCKET/PREFIX] [DECK.ini ...] [section.key=value ...]",
    .summary = "send a run's folder to an object store",
    .detail =
        "Sends what a run left to an object store that speaks S3: its last and best checkpoint, "
        "log, tables, events, result and weights. An address that ends in / is completed with the "
        "folder's name; without one output.upload is taken. What is there already is not sent "
        "again, and what broke off, in a run or in this command, goes on where it stood. "
        "Credentials, region and endpoint are looked for where AWS's tools do: environment, "
        "~/.aws, role of the machine.",
    .run = upload_run};
