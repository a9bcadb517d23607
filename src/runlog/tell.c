/* Hands the run's figures to the style that has its lines. */
#include "runlog/tell.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "config/options.h"
#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/log.h"
#include "runlog/style.h"

/* Seconds between plain lines where there is no terminal. */
enum { PLAIN_LINE_SECONDS = 10 };

/* The device as PyTorch names it. */
static const char *device_word(const struct trainer *trainer)
{
    return strcmp(trainer->session.device->backend->name, "cpu") == 0 ? "cpu" : "cuda:0";
}

/* What the style's lines are made of besides the moment's figures. */
static struct style_run run_facts(const struct trainer *trainer)
{
    const struct options *options = &trainer->options;
    const struct training_state *state = &trainer->state;
    const int64_t ranks = trainer->world->size, steps = trainer->steps_per_epoch;
    const bool top1 = options->checkpoint.monitor == MONITOR_TOP1;
    return (struct style_run){
        .options = options,
        .model = trainer->session.model,
        .validation = &trainer->validation.dataset,
        .folder = trainer->folder.path,
        .resumed = trainer->resume_path,
        .device = device_word(trainer),
        .ranks = (int)ranks,
        .epochs = (trainer->total_steps + steps - 1) / steps,
        .epoch_steps = steps,
        .batch = (trainer->global_batch + ranks - 1) / ranks,
        .validation_batches = trainer->validates ? sampler_steps(&trainer->validation.sampler) : 0,
        .rate = schedule_base_rate(options, trainer->global_batch),
        .epochs_before = state->epoch,
        .best_before = top1 ? trainer->best_metric : NAN,
        .seconds_before = trainer->earlier_without_setup_seconds};
}

void tell_start(const struct trainer *trainer)
{
    const struct style *style = style_of(&trainer->options);
    const struct style_run run = run_facts(trainer);
    struct error error = {.kind = ERROR_NONE};
    if (style->start != NULL)
        style->start(&run);
    if (style->begin != NULL && trainer->world->rank == 0 && !style->begin(&run, &error))
        log_warn("%s", error.text);
}

void tell_step(struct trainer *trainer, const struct metrics_row *row)
{
    const struct style *style = style_of(&trainer->options);
    const struct style_run run = run_facts(trainer);
    const struct training_state *state = &trainer->state;
    const struct epoch_clock *clock = &trainer->epoch_clock;
    double now = clock_now(), samples = state->epoch_samples > 0 ? state->epoch_samples : 1;
    double seconds = now - clock->begin, steps = clock->steps > 0 ? (double)clock->steps : 1;
    const struct style_step step = {
        .epoch = state->epoch,
        .epoch_step = state->epoch_step,
        .step = state->step,
        .steps = trainer->total_steps,
        .loss = row->loss,
        .top1 = row->top1,
        .top5 = row->top5,
        .seconds = row->step_seconds,
        .data_seconds = row->data_seconds,
        .mean_loss = state->epoch_loss_sum / samples,
        .mean_top1 = row->epoch_top1,
        .mean_top5 = row->epoch_top5,
        .mean_seconds = clock->training / steps,
        .mean_data_seconds = clock->data / steps,
        .rate = trainer->last_rate,
        .images_per_second = (double)clock->images / (seconds > 0 ? seconds : 1),
        .data_share = seconds > 0 ? clock->data / seconds : 0,
        .seconds_left = seconds / steps * (double)(trainer->total_steps - state->step),
        .due = row->due,
        .plain_due = now - trainer->plain_line_at >= PLAIN_LINE_SECONDS};
    if (step.plain_due)
        trainer->plain_line_at = now;
    if (style->step != NULL)
        style->step(&run, &step);
}

void tell_epoch(const struct trainer *trainer, const struct epoch_row *row, bool evaluated)
{
    const struct style *style = style_of(&trainer->options);
    const struct style_run run = run_facts(trainer);
    const struct style_epoch epoch = {.row = row,
                                      .evaluated = evaluated,
                                      .better = evaluated &&
                                                trainer->best_top1_step == trainer->state.step,
                                      .best = trainer->best_metric,
                                      .best_top1 = trainer->best_top1,
                                      .last_loss = trainer->figures.loss,
                                      .last_top1 = trainer->figures.top1,
                                      .next_rate = row->next_rate,
                                      .epochs_seconds = trainer->epochs_seconds};
    if (style->epoch != NULL)
        style->epoch(&run, &epoch);
}

void tell_epoch_begin(const struct trainer *trainer)
{
    const struct style *style = style_of(&trainer->options);
    const struct style_run run = run_facts(trainer);
    if (style->epoch_begin != NULL)
        style->epoch_begin(&run, trainer->state.epoch);
}

void tell_checkpoint(struct trainer *trainer)
{
    const struct style *style = style_of(&trainer->options);
    const struct style_run run = run_facts(trainer);
    char path[FILE_PATH];
    if (trainer->saving < 0 || checkpoint_writer_is_busy(trainer->writer))
        return;
    snprintf(path, sizeof path, "%s/step-%08lld.h5", trainer->folder.checkpoints,
             (long long)trainer->saving_step);
    if (style->checkpoint != NULL)
        style->checkpoint(&run, trainer->saving, path);
    trainer->saving = -1;
}

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

void tell_result(const struct trainer *trainer, const struct results *results)
{
    const struct style *style = style_of(&trainer->options);
    const struct style_run run = run_facts(trainer);
    struct rusage usage;
    ENSURE(getrusage(RUSAGE_SELF, &usage) == 0, "the system does not tell processor times");
    const struct style_end end = {.results = results,
                                  .best_top1 = trainer->best_top1,
                                  .epochs_seconds = trainer->epochs_seconds,
                                  .part_seconds = clock_now() - trainer->opened_at,
                                  .user_seconds = seconds_of(&usage.ru_utime),
                                  .system_seconds = seconds_of(&usage.ru_stime)};
    if (style->result != NULL)
        style->result(&run, &end);
}

void tell_files(const struct trainer *trainer)
{
    const struct style *style = style_of(&trainer->options);
    struct error error = {.kind = ERROR_NONE};
    if (style->files != NULL && !style->files(trainer->folder.path, &error))
        log_warn("%s", error.text);
}

void tell_close(const struct trainer *trainer)
{
    const struct style *style = style_of(&trainer->options);
    struct error error = {.kind = ERROR_NONE};
    if (trainer->folder.locked && style->close != NULL &&
        !style->close(trainer->folder.path, clock_now() - trainer->opened_at, &error))
        log_warn("%s", error.text);
}
