/* The program's own lines: one that is redrawn on a terminal, or now and then a plain one, a line
 * an epoch, tables at the end. */
#include <math.h>
#include <stdio.h>

#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "runlog/style.h"

/* "  acc 12.34 %", or nothing for NAN. */
static const char *accuracy_text(double share, const char *name, char *text, size_t size)
{
    text[0] = '\0';
    if (!isnan(share))
        snprintf(text, size, "  %s %.2f %%", name, 100 * share);
    return text;
}

/* The line under all others, or plain lines now and then. */
static void step_say(const struct style_run *run, const struct style_step *step)
{
    (void)run;
    char left[32], right[32], line[256];
    clock_format(step->seconds_left, left, sizeof left);
    accuracy_text(step->mean_top1, "acc", right, sizeof right);
    snprintf(line, sizeof line,
             "epoch %lld  step %lld/%lld  loss %.4f%s  lr %.2e  %.0f img/s  data %.1f %%  "
             "ETA %s",
             (long long)step->epoch + 1, (long long)step->step, (long long)step->steps,
             step->mean_loss, right, step->rate, step->images_per_second, 100 * step->data_share,
             left);
    if (log_is_terminal())
        log_progress("%s", line);
    else if (step->plain_due)
        log_info("%s", line);
}

static void epoch_say(const struct style_run *run, const struct style_epoch *epoch)
{
    const struct epoch_row *row = epoch->row;
    char text[160] = "", best[48] = "", seconds[32], right[32], val_right[32];
    if (!isnan(epoch->best))
        snprintf(best, sizeof best, "  (best %s %.4g)",
                 run->options->checkpoint.monitor == MONITOR_LOSS ? "loss" : "acc", epoch->best);
    if (epoch->evaluated)
        snprintf(text, sizeof text, "  val loss %.4f%s%s", row->val_loss,
                 accuracy_text(row->val_top1, "val acc", val_right, sizeof val_right), best);
    clock_format(row->seconds, seconds, sizeof seconds);
    log_progress_end();
    log_info("epoch %lld done  loss %.4f%s%s  %s  %.0f img/s  data wait %.2f %%",
             (long long)row->epoch + 1, row->train_loss,
             accuracy_text(row->train_top1, "acc", right, sizeof right), text, seconds,
             row->images_per_second, 100 * row->data_share);
}

static void result_say(const struct style_run *run, const struct style_end *end)
{
    const struct results *results = end->results;
    const struct evaluation *last = results->evaluation;
    char total[32], training[32], right[80] = "";
    clock_format(results->total_seconds, total, sizeof total);
    clock_format(results->training_seconds, training, sizeof training);
    if (last != NULL) {
        evaluation_print(last, run->validation);
        if (last->classes > 0)
            snprintf(right, sizeof right, ", accuracy %.2f %% (top-5 %.2f %%)", 100 * last->top1,
                     100 * last->top5);
        log_info("final: loss %.4f%s on %lld samples", last->loss, right, (long long)last->samples);
    }
    log_info("time: %s in all, %s training alone, %.0f img/s", total, training,
             results->images_per_second);
}

const struct style style_vittrain = {.step = step_say, .epoch = epoch_say, .result = result_say};
