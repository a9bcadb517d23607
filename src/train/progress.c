// SPDX-License-Identifier: BSD-3-Clause
/* Counts and times are reduced over the ranks by one small all-reduce per log interval. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "options/options.h"
#include "record/metrics.h"
#include "train/hardware.h"

/* Thresholds of the advice about waiting for data: share of an epoch, and seconds. */
static const double DATA_SHARE_LARGE = 0.05, DATA_SECONDS_LARGE = 0.5;

enum { PLAIN_LINE_SECONDS = 10 };

/* Sums of all ranks over a log interval. All members are doubles: one all-reduce adds them. */
struct interval_sums {
    struct loss_sums loss;
    struct step_times times;
    struct rank_times ranks[]; /* each rank sets its element; the others are zero */
};

static size_t sums_bytes(const struct trainer *trainer)
{
    const struct interval_sums *sums = trainer->progress.sums;
    return sizeof *sums + (size_t)trainer->session.world->size * sizeof sums->ranks[0];
}

struct loss_sums progress_take_sums(struct trainer *trainer)
{
    struct session *session = &trainer->session;
    struct loss_sums *all = &trainer->progress.interval.earlier;
    const struct loss_sums sums = step_io_take_sums(&session->io, session->stream);
    all->loss += sums.loss;
    all->top1 += sums.top1;
    all->top5 += sums.top5;
    all->samples += sums.samples;
    all->empty += sums.empty;
    return sums;
}

/* Reduce the sums of the interval. Return the times of all ranks added up. Collective. */
static struct rank_times sums_reduce(struct trainer *trainer)
{
    const struct step_times *times = &trainer->progress.interval.times;
    struct interval_sums *sums = trainer->progress.sums;
    const size_t bytes = sums_bytes(trainer);
    struct rank_times all = {0};
    memset(sums, 0, bytes);
    progress_take_sums(trainer);
    sums->loss = trainer->progress.interval.earlier;
    sums->times = *times;
    sums->ranks[trainer->session.world->rank] =
        (struct rank_times){times->data, compute_seconds(times), times->exposed};
    comm_all_reduce(trainer->session.world, sums, (int64_t)(bytes / sizeof(double)), COMM_FP64,
                    COMM_SUM);
    for (int rank = 0; rank < trainer->session.world->size; rank++) {
        all.data += sums->ranks[rank].data;
        all.compute += sums->ranks[rank].compute;
        all.waiting += sums->ranks[rank].waiting;
    }
    return all;
}

static void interval_begin(struct trainer *trainer)
{
    trainer->progress.interval = (struct interval){.begin = clock_now()};
}

void progress_begin(struct trainer *trainer)
{
    struct session *session = &trainer->session;
    session->device->backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    trainer->progress.sums = allocate(1, sums_bytes(trainer));
    straggler_open(&trainer->progress.straggler, trainer->session.world, comm_host_of);
    trainer->progress.epoch = (struct epoch_clock){.begin = clock_now()};
    trainer->progress.plain_line_at = clock_now();
    trainer->progress.skipped_logged = session->io.result.scaler.skipped;
    interval_begin(trainer);
    log_info("set-up took %.2f s", clock_now() - trainer->attempt.opened_at);
}

void progress_end(struct trainer *trainer)
{
    free(trainer->progress.sums);
    trainer->progress.sums = NULL;
    straggler_close(&trainer->progress.straggler);
}

void progress_pause(struct trainer *trainer, double seconds)
{
    trainer->progress.interval.begin += seconds;
    trainer->progress.epoch.begin += seconds;
}

static double elapsed(const struct trainer *trainer)
{
    return trainer->attempt.earlier_seconds + clock_now() - trainer->attempt.opened_at;
}

/* Top-k accuracy; NAN for regression. */
static double accuracy_of(const struct trainer *trainer, double right, double samples)
{
    return trainer->session.model->loss == LOSS_CROSS_ENTROPY ? right / samples : NAN;
}

/* Mean loss of an epoch; NAN if no sample has a target. */
static double epoch_loss(const struct training_state *state)
{
    return state->epoch_loss_sum / state->epoch_samples;
}

/* Set loss and accuracies of the epoch so far. */
static void epoch_metrics_set(const struct trainer *trainer, struct metrics_row *row)
{
    const struct training_state *state = &trainer->state;
    row->loss = epoch_loss(state);
    row->top1 = accuracy_of(trainer, state->epoch_top1_sum, state->epoch_samples);
    row->top5 = accuracy_of(trainer, state->epoch_top5_sum, state->epoch_samples);
}

/* ---- lines of the console and of train.log */

/* "  acc 12.34 %", or nothing for NAN. */
static const char *accuracy_text(double top1, const char *name, char *text, size_t size)
{
    text[0] = '\0';
    if (!isnan(top1))
        snprintf(text, size, "  %s %.2f %%", name, 100 * top1);
    return text;
}

/* Update the progress line of a terminal; elsewhere print a line every PLAIN_LINE_SECONDS. */
static void step_line_print(struct trainer *trainer, const struct metrics_row *row)
{
    const struct training_state *state = &trainer->state;
    const struct epoch_clock *clock = &trainer->progress.epoch;
    const double now = clock_now(), seconds = now - clock->begin,
                 steps = clock->steps > 0 ? (double)clock->steps : 1;
    char left[32], right[32], loss[NUMBER_TEXT], line[256];
    clock_format(seconds / steps * (double)(trainer->total_steps - state->step), left, sizeof left);
    accuracy_text(row->epoch_top1, "acc", right, sizeof right);
    snprintf(line, sizeof line,
             "epoch %lld  step %lld/%lld  loss %s%s  lr %.2e  %.0f img/s  data %.1f %%  ETA %s",
             (long long)state->epoch + 1, (long long)state->step, (long long)trainer->total_steps,
             evaluation_number(epoch_loss(state), 4, loss), right, trainer->progress.rate,
             (double)clock->images / (seconds > 0 ? seconds : 1),
             seconds > 0 ? 100 * clock->data / seconds : 0, left);
    if (log_is_terminal()) {
        log_progress("%s", line);
    } else if (now - trainer->progress.plain_line_at >= PLAIN_LINE_SECONDS) {
        trainer->progress.plain_line_at = now;
        log_info("%s", line);
    }
}

static void epoch_line_print(const struct trainer *trainer, const struct metrics_row *row,
                             bool evaluated)
{
    char text[160] = "", best[48] = "", monitor[16], seconds[32], right[32], val_right[32];
    char loss[NUMBER_TEXT];
    const double metric = trainer->best.metric;
    options_value_text(&trainer->session.options, "checkpoint.monitor", monitor, sizeof monitor);
    if (!isnan(metric) && strcmp(monitor, "top1") == 0)
        snprintf(best, sizeof best, "  (best acc %.2f %%)", 100 * metric);
    else if (!isnan(metric))
        snprintf(best, sizeof best, "  (best %s %.4f)", monitor, metric);
    if (evaluated)
        snprintf(text, sizeof text, "  val loss %s%s%s",
                 evaluation_number(trainer->evaluation.loss, 4, loss),
                 accuracy_text(trainer->evaluation.top1, "val acc", val_right, sizeof val_right),
                 best);
    clock_format(row->seconds, seconds, sizeof seconds);
    log_progress_end();
    log_info("epoch %lld done  loss %s%s%s  %s  %.0f img/s  data wait %.2f %%",
             (long long)row->epoch + 1, evaluation_number(row->loss, 4, loss),
             accuracy_text(row->top1, "acc", right, sizeof right), text, seconds,
             row->images_per_second, 100 * row->data_share);
}

/* Log the names of the files in the run folder that other commands read. */
static void files_line_print(const char *folder)
{
    static const char *const names[] = {"best.safetensors", "weights.safetensors",
                                        "checkpoints/best.h5", "checkpoints/last.h5",
                                        "result.json"};
    char list[160] = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t used = strlen(list);
        OWNED char *path = allocate_text("%s/%s", folder, names[i]);
        if (access(path, F_OK) == 0)
            snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : ": ", names[i]);
    }
    log_info("files: %s%s", folder, list);
}

/* Log the end of the run, the most important lines last. */
static void result_lines_print(const struct trainer *trainer, const struct results *results)
{
    const struct dataset *dataset = &trainer->session.validation.dataset;
    const double target = trainer->session.options.output.target;
    const double seconds = error_rank() == 0 ? metrics_seconds_to(&trainer->folder, target) : NAN;
    char total[32], training[32], reached[32], speed[32] = "", weights[64];
    clock_format(trainer->state.total_seconds, total, sizeof total);
    clock_format(trainer->state.train_seconds, training, sizeof training);
    if (!isnan(results->images_per_second))
        snprintf(speed, sizeof speed, ", %.0f img/s", results->images_per_second);
    log_info("time: %s in total, %s training only%s", total, training, speed);
    if (!isnan(seconds)) {
        clock_format(seconds, reached, sizeof reached);
        log_info("target: accuracy %.2f %% reached after %s", 100 * target, reached);
    }
    if (results->evaluation != NULL)
        evaluation_log("final", results->evaluation, dataset, 4, "");
    snprintf(weights, sizeof weights, ", with the %s weights (step %lld)", trainer->test.weights,
             (long long)trainer->test.step);
    if (results->test != NULL)
        evaluation_log("test", results->test, dataset, 4, weights);
    files_line_print(trainer->folder.path);
    log_info("next: vittrain report %s", trainer->folder.path);
}

/* ---- rows */

/* Log the fp16 updates that were skipped since the last call. */
static void skipped_log(struct trainer *trainer)
{
    const struct loss_scaler *scaler = &trainer->session.io.result.scaler;
    long long fresh = (long long)(scaler->skipped - trainer->progress.skipped_logged);
    if (fresh == 0)
        return;
    log_progress_end();
    trainer->progress.skipped_logged = scaler->skipped;
    log_info("step %lld: gradients overflowed in fp16, %lld update%s skipped (%lld in all); the "
             "loss scale is now %.15g",
             (long long)trainer->state.step, fresh, fresh == 1 ? "" : "s",
             (long long)scaler->skipped, (double)scaler->scale);
}

/* Return the model's work divided by the peak rate of all ranks; NAN: the peak is unknown. A rate
 * above the peak proves that it is wrong: it is unknown from then on, and measured again by the
 * next run. */
static double mfu(struct trainer *trainer, double images_per_second)
{
    const struct session *session = &trainer->session;
    const double rate = images_per_second * session->model->flops_per_image;
    const double share = rate / (trainer->peak_flops * trainer->session.world->size);
    char folder[1024];
    if (!(share > 1))
        return share;
    trainer->peak_flops = NAN;
    hardware_cache_folder(&trainer->session.options, folder, sizeof folder);
    peak_forget(session->device, session->compute, folder);
    log_info("MFU: not reported, because this run exceeds the peak rate known for this machine");
    return NAN;
}

/* Return the number of samples of an interval. */
static double images_of(const struct loss_sums *loss)
{
    return loss->samples + loss->empty;
}

void progress_interval(struct trainer *trainer)
{
    enum { TIMES = sizeof(struct step_times) / sizeof(double) };
    const struct interval *interval = &trainer->progress.interval;
    struct training_state *state = &trainer->state;
    struct epoch_clock *epoch = &trainer->progress.epoch;
    struct attempt *attempt = &trainer->attempt;
    if (interval->steps == 0)
        return;
    double seconds = clock_now() - interval->begin, steps = (double)interval->steps;
    const struct rank_times all = sums_reduce(trainer);
    const struct interval_sums *sums = trainer->progress.sums;
    const struct loss_sums loss = sums->loss;
    const double ranks = trainer->session.world->size, rank_steps = ranks * steps;
    for (int i = 0; i < TIMES; i++)
        ((double *)&attempt->times)[i] += ((const double *)&interval->times)[i];
    attempt->steps += interval->steps;
    attempt->step_seconds += seconds;
    attempt->images += (int64_t)images_of(&loss);
    state->epoch_loss_sum += loss.loss;
    state->epoch_top1_sum += loss.top1;
    state->epoch_top5_sum += loss.top5;
    state->epoch_samples += loss.samples;
    epoch->images += (int64_t)images_of(&loss);
    epoch->steps += interval->steps;
    epoch->data += all.data / ranks;
    epoch->training += seconds;
    const double samples = loss.samples, speed = images_of(&loss) / seconds;
    const struct session *session = &trainer->session;
    const struct loss_scaler *scaler = &session->io.result.scaler;
    struct metrics_row row = metrics_row_empty("train", state->epoch, state->step);
    row.due = metrics_is_due(&trainer->session.options.output, state->step, state->epoch_step);
    row.epoch_top1 = accuracy_of(trainer, state->epoch_top1_sum, state->epoch_samples);
    row.epoch_top5 = accuracy_of(trainer, state->epoch_top5_sum, state->epoch_samples);
    row.loss = loss.loss / samples;
    row.top1 = accuracy_of(trainer, loss.top1, samples);
    row.top5 = accuracy_of(trainer, loss.top5, samples);
    row.lr = trainer->progress.rate;
    row.grad_norm = trainer->progress.norm;
    row.images_per_second = speed;
    row.step_seconds = seconds / steps;
    row.data_seconds = all.data / rank_steps;
    row.compute_seconds = all.compute / rank_steps;
    row.comm_seconds = sums->times.communication / rank_steps;
    row.exposed_comm_seconds = all.waiting / rank_steps;
    row.peak_share = mfu(trainer, speed);
    row.elapsed_seconds = elapsed(trainer);
    if (session->io.scaler != NULL) {
        row.loss_scale = (double)scaler->scale;
        row.skipped_steps = (double)scaler->skipped;
    }
    if (session_sees_times(session)) {
        row.forward_seconds = sums->times.forward / rank_steps;
        row.backward_seconds = sums->times.backward / rank_steps;
        row.reduce_seconds = sums->times.reduce / rank_steps;
        row.update_seconds = sums->times.update / rank_steps;
    }
    error_defer(metrics_write_row(trainer->output.log, &row, &trainer->output.log_error));
    straggler_follow(&trainer->progress.straggler, sums->ranks, seconds, interval->steps);
    skipped_log(trainer);
    step_line_print(trainer, &row);
    interval_begin(trainer);
}

void progress_restore(struct trainer *trainer)
{
    if (trainer->state.epoch_samples > 0)
        epoch_metrics_set(trainer, &trainer->progress.last_epoch);
}

/* Writes an evaluation to the tables. */
static void evaluation_rows_write(struct trainer *trainer, const char *split,
                                  const struct evaluation *evaluation)
{
    struct metrics_row row = metrics_row_empty(split, trainer->state.epoch, trainer->state.step);
    row.due = true;
    row.best_top1 = trainer->best.top1;
    row.loss = evaluation->loss;
    row.top1 = evaluation->top1;
    row.top5 = evaluation->top5;
    row.miou = evaluation->miou;
    row.map = evaluation->map;
    row.images_per_second = (double)evaluation->samples / evaluation->seconds;
    row.elapsed_seconds = elapsed(trainer);
    error_defer(metrics_write_row(trainer->output.log, &row, &trainer->output.log_error) &&
                metrics_write_targets(trainer->output.log, &row, evaluation,
                                      &trainer->session.validation.dataset,
                                      &trainer->output.log_error));
}

void progress_test(struct trainer *trainer)
{
    evaluation_rows_write(trainer, "test", &trainer->test.evaluation);
    error_defer(metrics_flush(trainer->output.log, &trainer->output.log_error));
}

bool progress_epoch(struct trainer *trainer, bool evaluated, struct error *error)
{
    status_set_phase(PHASE_REPORT);
    const struct training_state *state = &trainer->state;
    const struct evaluation *evaluation = &trainer->evaluation;
    const struct epoch_clock *clock = &trainer->progress.epoch;
    double training = clock->training > 0 ? clock->training : 1;
    struct progress *progress = &trainer->progress;
    struct metrics_row *row = &progress->last_epoch;
    *row = metrics_row_empty("epoch", state->epoch, state->step);
    row->due = true;
    epoch_metrics_set(trainer, row);
    row->lr = trainer->progress.rate;
    row->next_lr = schedule_rate(&trainer->schedule, state->step);
    row->seconds = clock->training;
    row->eval_seconds = evaluated ? evaluation->seconds : NAN;
    row->images_per_second = (double)clock->images / training;
    row->data_share = clock->data / training;
    if (evaluated) {
        if (!isnan(evaluation->top1) && !(trainer->best.top1 >= evaluation->top1))
            trainer->best.top1 = evaluation->top1;
        evaluation_rows_write(trainer, "val", evaluation);
    }
    row->elapsed_seconds = elapsed(trainer);
    epoch_line_print(trainer, row, evaluated);
    if (evaluated && trainer->session.model->loss == LOSS_TARGETS)
        evaluation_log("val", evaluation, &trainer->session.validation.dataset, 4, "");
    if (!progress->data_wait_logged && row->data_share > DATA_SHARE_LARGE &&
        row->data_share * row->seconds >= DATA_SECONDS_LARGE) {
        progress->data_wait_logged = true;
        log_info("data: %.0f %% of this epoch was waiting for data: raise data.workers=%lld if "
                 "cores are free%s",
                 100 * row->data_share, (long long)trainer->session.options.data.workers,
                 trainer->session.train.dataset.encoded ? ", or store smaller images" : "");
    }
    if (!progress->missing_targets_logged && isnan(row->loss) &&
        trainer->session.model->loss == LOSS_TARGETS) {
        progress->missing_targets_logged = true;
        log_warn("all targets of epoch %lld are missing: check data.y and train.ignore_label",
                 (long long)row->epoch + 1);
    }
    error_defer(metrics_write_row(trainer->output.log, row, &trainer->output.log_error));
    error_defer(metrics_flush(trainer->output.log, &trainer->output.log_error));
    *error = trainer->output.log_error;
    trainer->progress.epoch = (struct epoch_clock){.begin = clock_now()};
    interval_begin(trainer);
    /* Only rank 0 writes rows; an error ends the run on all ranks. */
    return comm_agree(trainer->session.world, error);
}

struct results progress_results(const struct trainer *trainer)
{
    const struct run_stop *stop = &trainer->stop;
    const struct training_state *state = &trainer->state;
    const double training = state->train_seconds - trainer->attempt.earlier_train_seconds;
    const double images = trainer->attempt.images > 0 ? (double)trainer->attempt.images : NAN;
    const struct evaluation *evaluation = &trainer->evaluation, *test = &trainer->test.evaluation;
    return (struct results){.evaluation = evaluation->confusion != NULL ? evaluation : NULL,
                            .test = test->confusion != NULL ? test : NULL,
                            .images_per_second = images / training,
                            .unfinished = stop->signalled ||
                                          (stop->out_of_time && state->step < trainer->total_steps),
                            .stop_reason = stop->reason != NULL ? stop->reason : "all steps done"};
}

/* Logs the cost of checkpoints, also of those in memory. */
static void checkpoints_log(const struct trainer *trainer)
{
    const struct run_checkpoints *checkpoints = &trainer->checkpoints;
    const int64_t steps = trainer->attempt.steps, later = checkpoints->memory_count - 2;
    const double first = checkpoints->memory_allocation_seconds;
    const double paused = first + checkpoints->memory_seconds;
    const double total = clock_now() - trainer->attempt.begin;
    double blocked, waited;
    checkpoint_writer_times(checkpoints->writer, &blocked, &waited);
    if (checkpoints->count > 0)
        log_info("checkpoints: %lld written %s; training was blocked for %.2f s (%.2f %% of the "
                 "time without set-up), %.2f s of that to wait for the previous checkpoint",
                 (long long)checkpoints->count,
                 trainer->session.memory.snapshot != NULL ? "in the background" : "synchronously",
                 blocked, 100 * blocked / total, waited);
    if (checkpoints->memory_count > 0)
        log_info("checkpoints in memory: %lld, %.2f %% of the time; the first two, which allocate "
                 "memory, took %.2f s",
                 (long long)checkpoints->memory_count, 100 * paused / total, first);
    if (later > 0 && steps > 0) {
        const double each = checkpoints->memory_seconds / (double)later;
        log_info("checkpoints in memory: each of the others took %.1f ms; checkpoint.memory=%.0f "
                 "takes at most 1 %% of the time",
                 1e3 * each, memory_checkpoint_interval(each, (total - paused) / (double)steps));
    }
}

bool progress_result(struct trainer *trainer, struct error *error)
{
    status_set_phase(PHASE_RESULTS);
    trainer_update_seconds(trainer);
    const struct results results = progress_results(trainer);
    if (results.evaluation != NULL)
        evaluation_print(results.evaluation, &trainer->session.validation.dataset, log_detail);
    checkpoints_log(trainer);
    session_log_memory(&trainer->session);
    if ((results.evaluation != NULL || results.test != NULL) && !trainer->test.evaluation.given_up)
        pictures_write(&trainer->pictures, &trainer->folder, results.test != NULL ? "test" : "val",
                       error);
    if (!comm_agree(trainer->session.world, error) || !run_record_end(trainer, &results, error))
        return false;
    if (!results.unfinished)
        error_defer(metrics_finish(trainer->output.log, error));
    if (error->kind == ERROR_NONE)
        result_lines_print(trainer, &results);
    return comm_agree(trainer->session.world, error);
}
