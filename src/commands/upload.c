// SPDX-License-Identifier: BSD-3-Clause
/* The command `upload`: copies a run's folder to a remote. */
#include "runlog/upload.h"

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"

static void upload_run(const struct options *options, const struct command_line *line,
                       struct comm *world, struct error *error)
{
    const struct upload_setup setup = {
        .folder = line->operand_count > 0 ? line->operand[0] : "",
        .remote = line->operand_count == 2 ? line->operand[1] : options->output.upload,
        .option = line->operand_count == 2 ? "upload" : "output.upload",
        .rate = options->output.upload_rate,
        .shows_progress = true};
    comm_set_timeout(0); /* the other ranks wait for rank 0 without a time limit */
    if (line->operand_count < 1 || line->operand_count > 2 || setup.remote[0] == '\0')
        error_set(error, ERROR_USAGE,
                  "missing folder or remote; call `vittrain upload RUN s3://BUCKET/PATH` or "
                  "`vittrain upload RUN REMOTE:PATH`");
    else if (world->rank == 0) {
        struct upload *upload = upload_open(&setup, error);
        if (upload != NULL)
            upload_all(upload, error);
        upload_close(upload, 0);
    }
    comm_agree(world, error);
}

const struct command command_upload = {
    .name = "upload",
    .synopsis =
        "upload RUN [s3://BUCKET/PATH | REMOTE:PATH] [DECK.ini ...] [section.key=value ...]",
    .summary = "send a run's folder to an object store or another remote",
    .detail =
        "Copies a run's last and best checkpoint, log, tables, events, result and weights to an "
        "object store or any other remote of rclone. A path that ends in / or : is completed "
        "with the folder's name; the default is output.upload. Files that are already there "
        "are not sent again. Credentials come from the environment or from rclone's "
        "configuration (docs/store.md).",
    .run = upload_run};
