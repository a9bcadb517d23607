// SPDX-License-Identifier: BSD-3-Clause
/* Rows of metrics.csv, lines of the log and receipts of the steps of a run. In each log interval,
 * one small all-reduce adds counts and times over the ranks, and one all-gather collects the times
 * of each rank. */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "options/options.h"
#include "record/metrics.h"

/* Thresholds of the advice about waiting for data: share of an epoch, and seconds. */
static const double DATA_SHARE_LARGE = 0.05, DATA_SECONDS_LARGE = 0.5;

enum { PLAIN_LINE_SECONDS = 10 };

/* Sums of all ranks over a log interval. All members are doubles: one all-reduce adds them. */
struct interval_sums {
    struct loss_sums loss;
    struct step_times times;
};

/* Wait for the device and return this rank's sums since the last call or the start of the interval.
 * They still count in the interval. */
static struct loss_sums progress_take_sums(struct trainer *trainer)
{
    struct session *session = &trainer->session;
    struct loss_sums *all = &trainer->progress.interval.earlier;
    const struct loss_sums sums = step_io_take_sums(&session->io, session->stream);
    all->loss += sums.loss;
    all->top1 += sums.top1;
    all->top5 += sums.top5;
    all->samples += sums.samples;
    all->empty += sums.empty;
    all->weight += sums.weight;
    return sums;
}

/* Reduce the sums of the interval and gather the times of each rank. Return the times of all ranks
 * added up. Collective. */
static struct rank_times sums_reduce(struct trainer *trainer, struct interval_sums *sums)
{
    struct comm *world = trainer->session.world;
    struct rank_times *ranks = trainer->progress.ranks, all = {0};
    const struct step_times *times = &trainer->progress.interval.times;
    progress_take_sums(trainer);
    *sums = (struct interval_sums){trainer->progress.interval.earlier, *times};
    comm_all_reduce(world, sums, sizeof *sums / sizeof(double), COMM_FP64, COMM_SUM);
    ranks[world->rank] = (struct rank_times){times->data, compute_seconds(times), times->exposed};
    comm_all_gather(world, ranks, sizeof *ranks / sizeof(double), COMM_FP64);
    for (int rank = 0; rank < world->size; rank++) {
        all.data += ranks[rank].data;
        all.compute += ranks[rank].compute;
        all.waiting += ranks[rank].waiting;
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
    trainer->progress.ranks =
        allocate((size_t)session->world->size, sizeof *trainer->progress.ranks);
    straggler_open(&trainer->progress.straggler, trainer->session.world, comm_host_of);
    trainer->progress.epoch = (struct epoch_clock){.begin = clock_now()};
    trainer->progress.plain_line_at = clock_now();
    trainer->progress.skipped_logged = session->io.result.scaler.skipped;
    interval_begin(trainer);
    log_info("set-up took %.2f s", clock_now() - trainer->attempt.opened_at);
}

void progress_end(struct trainer *trainer)
{
    free(trainer->progress.ranks);
    trainer->progress.ranks = NULL;
    straggler_close(&trainer->progress.straggler);
}

void progress_pause(struct trainer *trainer, double seconds)
{
    trainer->progress.interval.begin += seconds;
    trainer->progress.epoch.begin += seconds;
}

static double elapsed(const struct trainer *trainer)
{
    return trainer->attempt.earlier.total_seconds + clock_now() - trainer->attempt.opened_at;
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

struct metrics_row progress_epoch_row(const struct trainer *trainer)
{
    const struct training_state *state = &trainer->state;
    struct metrics_row row = metrics_row_empty("epoch", state->epoch, state->step);
    row.due = true;
    row.loss = epoch_loss(state);
    row.top1 = accuracy_of(trainer, state->epoch_top1_sum, state->epoch_samples);
    row.top5 = accuracy_of(trainer, state->epoch_top5_sum, state->epoch_samples);
    return row;
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
 * above the peak proves that it is wrong: it is unknown from then on. */
static double mfu(struct trainer *trainer, double images_per_second)
{
    const double rate = images_per_second * trainer->session.model->flops_per_image;
    const double share = rate / (trainer->peak_flops * trainer->session.world->size);
    if (share > 1)
        trainer->peak_flops = NAN;
    return share > 1 ? (double)NAN : share;
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
    struct interval_sums sums;
    const struct rank_times all = sums_reduce(trainer, &sums);
    const struct loss_sums loss = sums.loss;
    const double ranks = trainer->session.world->size, rank_steps = ranks * steps;
    for (int i = 0; i < TIMES; i++)
        ((double *)&attempt->times)[i] += ((const double *)&interval->times)[i];
    attempt->steps += interval->steps;
    attempt->step_seconds += seconds;
    attempt->images += (int64_t)images_of(&loss);
    state->epoch_loss_sum += loss.weight > 0 ? loss_mean(&loss) * loss.samples : loss.loss;
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
    row.loss = loss_mean(&loss);
    row.top1 = accuracy_of(trainer, loss.top1, samples);
    row.top5 = accuracy_of(trainer, loss.top5, samples);
    row.lr = trainer->progress.rate;
    row.grad_norm = trainer->progress.norm;
    row.images_per_second = speed;
    row.step_seconds = seconds / steps;
    row.data_seconds = all.data / rank_steps;
    row.compute_seconds = all.compute / rank_steps;
    row.comm_seconds = sums.times.communication / rank_steps;
    row.exposed_comm_seconds = all.waiting / rank_steps;
    row.peak_share = mfu(trainer, speed);
    row.elapsed_seconds = elapsed(trainer);
    if (session->io.scaler != NULL) {
        row.loss_scale = (double)scaler->scale;
        row.skipped_steps = (double)scaler->skipped;
    }
    if (session_sees_times(session)) {
        row.forward_seconds = sums.times.forward / rank_steps;
        row.backward_seconds = sums.times.backward / rank_steps;
        row.reduce_seconds = sums.times.reduce / rank_steps;
        row.update_seconds = sums.times.update / rank_steps;
    }
    error_defer(metrics_write_row(trainer->output.log, &row, &trainer->output.log_error));
    straggler_follow(&trainer->progress.straggler, trainer->progress.ranks, seconds,
                     interval->steps);
    skipped_log(trainer);
    step_line_print(trainer, &row);
    interval_begin(trainer);
}

void progress_evaluation(struct trainer *trainer, const char *split,
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
                                      &trainer->output.log_error) &&
                metrics_flush(trainer->output.log, &trainer->output.log_error));
}

bool progress_epoch(struct trainer *trainer, bool evaluated, struct error *error)
{
    status_set_phase(PHASE_REPORT);
    const struct training_state *state = &trainer->state;
    const struct evaluation *evaluation = &trainer->evaluation;
    const struct epoch_clock *clock = &trainer->progress.epoch;
    double training = clock->training > 0 ? clock->training : 1;
    struct progress *progress = &trainer->progress;
    struct metrics_row row = progress_epoch_row(trainer);
    row.lr = trainer->progress.rate;
    row.next_lr = schedule_rate(&trainer->schedule, state->step);
    row.seconds = clock->training;
    row.eval_seconds = evaluated ? evaluation->seconds : NAN;
    row.images_per_second = (double)clock->images / training;
    row.data_share = clock->data / training;
    if (evaluated) {
        if (!isnan(evaluation->top1) && !(trainer->best.top1 >= evaluation->top1))
            trainer->best.top1 = evaluation->top1;
        progress_evaluation(trainer, "val", evaluation);
    }
    row.elapsed_seconds = elapsed(trainer);
    progress->last_epoch = row;
    epoch_line_print(trainer, &row, evaluated);
    if (evaluated && trainer->session.model->loss == LOSS_TARGETS)
        evaluation_log("val", evaluation, &trainer->session.validation.dataset, 4, "");
    if (!progress->data_wait_logged && row.data_share > DATA_SHARE_LARGE &&
        row.data_share * row.seconds >= DATA_SECONDS_LARGE) {
        progress->data_wait_logged = true;
        log_info("data: %.0f %% of this epoch was waiting for data: raise data.workers=%lld if "
                 "cores are free%s",
                 100 * row.data_share, (long long)trainer->session.options.data.workers,
                 trainer->session.train.dataset.encoded ? ", or store smaller images" : "");
    }
    if (!progress->missing_targets_logged && isnan(row.loss) &&
        trainer->session.model->loss == LOSS_TARGETS) {
        progress->missing_targets_logged = true;
        log_warn("all targets of epoch %lld are missing: check data.y and train.ignore_label",
                 (long long)row.epoch + 1);
    }
    error_defer(metrics_write_row(trainer->output.log, &row, &trainer->output.log_error));
    error_defer(metrics_flush(trainer->output.log, &trainer->output.log_error));
    *error = trainer->output.log_error;
    trainer->progress.epoch = (struct epoch_clock){.begin = clock_now()};
    interval_begin(trainer);
    /* Only rank 0 writes rows; an error ends the run on all ranks. */
    return comm_agree(trainer->session.world, error);
}

enum { HASH_DIGITS = 16 };

/* ---- Receipts of steps. Values are compared as the texts of their cells: numbers as C's %a,
 * hashes as 16 hexadecimal digits, those of grains separated by spaces. */

char *receipts_header(const struct model *model)
{
    struct text_stream text;
    const int units = model->unit_count;
    FILE *stream = text_stream_open(&text);
    fputs("step,loss,grad_norm", stream);
    for (int i = 0; i < 2 * units; i++)
        fprintf(stream, ",%s%s", model->units[i % units].name, i < units ? "" : ".state");
    fputs(",grains", stream);
    return text_stream_close(&text);
}

static int commas_of(const char *text)
{
    int count = 0;
    while ((text = strchr(text, ',')) != NULL) {
        count++;
        text++;
    }
    return count;
}

bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                        struct error *error)
{
    char *line, *rest = allocate_copy(text);
    size_t capacity = 0;
    int64_t before = 0;
    *table = (struct receipt_table){.header = strsep(&rest, "\n")};
    while ((line = strsep(&rest, "\n")) != NULL && rest != NULL) {
        const int64_t step = strtoll(line, NULL, 10);
        if (line[strspn(line, "0123456789abcdefinpx.+-, ")] != '\0' || step <= before ||
            commas_of(line) != commas_of(table->header))
            return error_set(error, ERROR_DATA,
                             "%s:%" PRId64 ": this is not a line of receipts: the file is damaged; "
                             "restore it",
                             path, table->count + 2);
        before = step;
        table->line =
            allocate_more(table->line, &capacity, (size_t)table->count, sizeof *table->line);
        table->line[table->count++] = line;
    }
    return true;
}

int64_t receipt_table_step(const struct receipt_table *table, int64_t row)
{
    return strtoll(table->line[row], NULL, 10);
}

int64_t receipts_until(const struct receipt_table *table, int64_t step)
{
    int64_t count = 0;
    while (count < table->count && receipt_table_step(table, count) <= step)
        count++;
    return count;
}

void receipt_table_free(struct receipt_table *table)
{
    free(table->header);
    free(table->line);
    *table = (struct receipt_table){.count = 0};
}

bool receipts_due(const struct trainer *trainer, int64_t step)
{
    const struct receipt_table *expected = trainer->receipts.expected;
    const int64_t every = trainer->session.options.output.receipt;
    if (expected != NULL)
        return trainer->receipts.next < expected->count &&
               step == receipt_table_step(expected, trainer->receipts.next);
    return every > 0 && (step % every == 0 || step == trainer->total_steps);
}

/* Compare a line with that of the run. The error has the first value that differs, and the first
 * grain whose hash differs; without train.exact=layout there are no grains. Rank 0. */
static void receipt_compare(const struct trainer *trainer, const char *now, struct error *error)
{
    const struct receipt_table *expected = trainer->receipts.expected;
    const char *name = expected->header, *run = expected->line[trainer->receipts.next];
    char first[TENSOR_NAME + 128] = "", grains[48] = "", machine[1024];
    int different = 0, values = 0;
    for (; strchr(name, ',') != NULL; values++) {
        const int length = (int)strcspn(name, ",");
        const int was = (int)strcspn(run, ","), is = (int)strcspn(now, ",");
        const bool differs = was != is || memcmp(run, now, (size_t)is) != 0;
        if (differs && different++ == 0)
            snprintf(first, sizeof first, "%.*s: receipt %.*s, replay %.*s", length, name, was, run,
                     is, now);
        name += length + 1;
        run += was + 1;
        now += is + 1;
    }
    if (*run != '\0' && *now != '\0' && strcmp(run, now) != 0) {
        size_t grain = 0;
        for (; *run != '\0' && *now != '\0' && strncmp(run, now, HASH_DIGITS) == 0; grain++) {
            run += HASH_DIGITS + (run[HASH_DIGITS] == ' ');
            now += HASH_DIGITS + (now[HASH_DIGITS] == ' ');
        }
        if (different == 0)
            snprintf(first, sizeof first, "grain %zu: receipt %.*s, replay %.*s", grain,
                     HASH_DIGITS, run, HASH_DIGITS, now);
        else
            snprintf(grains, sizeof grains, "; first different grain %zu", grain);
    }
    if (first[0] == '\0')
        return;
    run_record_compare(trainer, machine, sizeof machine);
    error_set(error, ERROR_DIFFERENT, "step %lld: %s; %d of %d values differ%s%s",
              (long long)trainer->state.step, first, different, values - 1, grains, machine);
}

void receipts_begin(struct trainer *trainer)
{
    progress_take_sums(trainer);
    if (trainer->session.grains == NULL)
        return;
    trainer->receipts.hashes = (struct grain_hashes){0};
    trainer->session.step.hashes = &trainer->receipts.hashes;
}

/* Return the line of the step, which has this loss; the caller frees it. */
static char *receipt_line(const struct trainer *trainer, double loss)
{
    const struct flat_model *flat = &trainer->session.flat;
    const struct grain_hashes *grains = &trainer->receipts.hashes;
    const double number[] = {loss, step_norm(&trainer->session)};
    const int hashes = 2 * flat->count;
    struct text_stream text;
    uint64_t *hash = allocate((size_t)hashes, sizeof *hash);
    flat_hash(flat, hash);
    FILE *stream = text_stream_open(&text);
    fprintf(stream, "%" PRId64, trainer->state.step);
    for (int i = 0; i < 2; i++) /* printf may write the sign of a NaN */
        fprintf(stream, isnan(number[i]) ? ",nan" : ",%a", number[i]);
    for (int i = 0; i < hashes; i++)
        fprintf(stream, ",%016" PRIx64, hash[i]);
    for (int64_t i = 0; i < grains->count; i++)
        fprintf(stream, "%c%016" PRIx64, i == 0 ? ',' : ' ', grains->hash[i]);
    if (grains->count == 0)
        fputc(',', stream);
    free(hash);
    return text_stream_close(&text);
}

bool receipts_take(struct trainer *trainer, struct error *error)
{
    struct grain_hashes *grains = &trainer->receipts.hashes;
    struct comm *world = trainer->session.world;
    status_set_phase(PHASE_REPORT);
    trainer->session.step.hashes = NULL;
    if (!step_finish(&trainer->session, &trainer->progress.interval.times, error))
        return false;
    struct loss_sums sums = progress_take_sums(trainer);
    comm_all_reduce(world, &sums, sizeof sums / sizeof(double), COMM_FP64, COMM_SUM);
    comm_all_reduce(world, grains->hash, grains->count, COMM_INT64, COMM_SUM);
    char *line = receipt_line(trainer, loss_mean(&sums));
    if (trainer->receipts.expected == NULL) {
        error_defer(metrics_write_receipt(trainer->output.log, line, &trainer->output.log_error));
    } else {
        if (world->rank == 0)
            receipt_compare(trainer, line, error);
        error_defer(comm_share_error(world, error));
        trainer->receipts.next++;
    }
    free(line);
    return error->kind == ERROR_NONE;
}
