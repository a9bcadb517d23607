/* The run's side of uploads: at the start, and at the end. */
#include "runlog/upload.h"

#include <stdio.h>

#include "config/options.h"
#include "config/phase.h"
#include "core/log.h"
#include "core/status.h"

static void check(struct store_run *run, struct error *error)
{
    struct error trouble = {.kind = ERROR_NONE};
    char place[700];
    switch (store_run_check(run, &trouble)) {
    case STORE_MISSING:
    case STORE_REFUSED:
        error_set(error, trouble.kind, "output.upload: %s", trouble.text);
        break;
    case STORE_LATER:
        log_warn("output.upload: %s: the run begins, it will be tried again", trouble.text);
        break;
    case STORE_DONE:
    case STORE_CANCELLED:
        break;
    }
    store_describe(store_run_store(run), place, sizeof place);
    if (error->kind == ERROR_NONE)
        log_info("upload: to %s at %s, credentials from %s", store_run_url(run), place,
                 store_run_store(run)->credentials.origin);
}

bool upload_prepare(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->options;
    const struct store_run_setup setup = {.folder = trainer->folder.path,
                                          .url = options->output.upload,
                                          .option = "output.upload",
                                          .every_seconds = options->output.upload_every,
                                          .rate = options->output.upload_rate};
    if (options->output.upload[0] == '\0')
        return true;
    if (trainer->world->rank == 0) {
        trainer->upload = store_run_open(&setup, error);
        if (trainer->upload != NULL)
            check(trainer->upload, error);
    }
    return comm_agree(trainer->world, error);
}

void upload_start(struct trainer *trainer)
{
    if (trainer->upload == NULL)
        return;
    trainer->sender = store_sender_open(trainer->upload);
    trainer->upload = NULL;
}

void upload_end(struct trainer *trainer)
{
    status_set_phase(PHASE_END);
    store_run_close(trainer->upload);
    store_sender_close(trainer->sender,
                       trainer->succeeded ? trainer->options.output.upload_wait : 0);
}
