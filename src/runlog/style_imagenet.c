/* The lines of PyTorch's ImageNet example and the notebooks that come from it: a meter's value and
 * its average in brackets, tabs between meters. Epochs and batches count from 0. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "runlog/style.h"

static int digits_of(int64_t number)
{
    return snprintf(NULL, 0, "%lld", (long long)number);
}

static void step_say(const struct style_run *run, const struct style_step *step)
{
    if (!step->due)
        return;
    log_info("Epoch: [%lld][%*lld/%lld]\tTime %6.3f (%6.3f)\tData %6.3f (%6.3f)\t"
             "Loss %.4e (%.4e)\tAcc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)",
             (long long)step->epoch, digits_of(run->epoch_steps), (long long)step->epoch_step - 1,
             (long long)run->epoch_steps, step->seconds, step->mean_seconds, step->data_seconds,
             step->mean_data_seconds, step->loss, step->mean_loss, 100 * step->top1,
             100 * step->mean_top1, 100 * step->top5, 100 * step->mean_top5);
}

/* An evaluation is known as a whole: one line of its last batch, whose values are the means. */
static void evaluation_say(const struct style_run *run, const struct epoch_row *row)
{
    int64_t batches = run->validation_batches;
    double seconds = row->eval_seconds / (double)(batches > 0 ? batches : 1);
    log_info("Test: [%*lld/%lld]\tTime %6.3f (%6.3f)\tLoss %.4e (%.4e)\tAcc@1 %6.2f (%6.2f)\t"
             "Acc@5 %6.2f (%6.2f)",
             digits_of(batches), (long long)batches - 1, (long long)batches, seconds, seconds,
             row->val_loss, row->val_loss, 100 * row->val_top1, 100 * row->val_top1,
             100 * row->val_top5, 100 * row->val_top5);
    log_info(" * Acc@1 %.3f Acc@5 %.3f", 100 * row->val_top1, 100 * row->val_top5);
}

static void epoch_say(const struct style_run *run, const struct style_epoch *epoch)
{
    char rate[40];
    if (epoch->evaluated)
        evaluation_say(run, epoch->row);
    log_info("lr: [%s]", style_number(epoch->next_rate, rate, sizeof rate));
}

/* As IPython's %time has it: "1h 14min 39s", below a minute "5.12 s", "312 ms". */
static const char *time_text(double seconds, char *text, size_t size)
{
    static const struct {
        const char *name;
        int64_t seconds;
    } parts[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
    static const char *const units[] = {"s", "ms", "\302\265s", "ns"};
    if (seconds < 60) {
        int unit = seconds > 0 ? (int)-floor(log10(seconds) / 3) : 3;
        unit = unit < 0 ? 0 : unit > 3 ? 3 : unit;
        snprintf(text, size, "%.3g %s", seconds * pow(1000, unit), units[unit]);
        return text;
    }
    int64_t left = (int64_t)seconds;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t used = strlen(text);
        if (left >= parts[i].seconds)
            snprintf(text + used, size - used, "%s%lld%s", used > 0 ? " " : "",
                     (long long)(left / parts[i].seconds), parts[i].name);
        left %= parts[i].seconds;
    }
    return text;
}

static void result_say(const struct style_run *run, const struct style_end *end)
{
    (void)run;
    char user[64], system[64], total[64];
    log_info("CPU times: user %s, sys: %s, total: %s",
             time_text(end->user_seconds, user, sizeof user),
             time_text(end->system_seconds, system, sizeof system),
             time_text(end->user_seconds + end->system_seconds, total, sizeof total));
    log_info("Wall time: %s", time_text(end->part_seconds, total, sizeof total));
}

const struct style style_imagenet = {.step = step_say, .epoch = epoch_say, .result = result_say};
