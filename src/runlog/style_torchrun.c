/* The lines of PyTorch's tutorial on training that survives failures (torchrun). */
#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "core/log.h"
#include "runlog/style.h"

static void start_say(const struct style_run *run)
{
    if (run->resumed[0] == '\0')
        return;
    log_info("Loading snapshot");
    log_info("Resuming training from snapshot at Epoch %lld", (long long)run->epochs_before);
}

static void epoch_begin_say(const struct style_run *run, int64_t epoch)
{
    log_info("[GPU0] Epoch %lld | Batchsize: %lld | Steps: %lld", (long long)epoch,
             (long long)run->batch, (long long)run->epoch_steps);
}

static void checkpoint_say(const struct style_run *run, int64_t epoch, const char *path)
{
    (void)run;
    log_info("Epoch %lld | Training snapshot saved at %s", (long long)epoch, path);
}

static void result_say(const struct style_run *run, const struct style_end *end)
{
    (void)end;
    if (run->options->output.weights)
        log_info("Final model saved at %s/weights.safetensors", run->folder);
}

const struct style style_torchrun = {.start = start_say,
                                     .epoch_begin = epoch_begin_say,
                                     .checkpoint = checkpoint_say,
                                     .result = result_say};
