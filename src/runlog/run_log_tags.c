/* Tags of this program, of PyTorch's ImageNet notebooks and of Lightning. */
#include "runlog/run_log_tags.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "config/run_options.h"

struct tag {
    const char *name;
    const char *split; /* whose rows; NULL ends the table */
    size_t offset;     /* of the number in the row */
    double factor;
};

#define OF(split_, name_, field_, factor_)                                                         \
    {                                                                                              \
        .name = name_, .split = split_, .offset = offsetof(struct metrics_row, field_),            \
        .factor = factor_                                                                          \
    }
#define OF_EPOCH(name_, field_, factor_)                                                           \
    {                                                                                              \
        .name = name_, .split = "epoch", .offset = offsetof(struct epoch_row, field_),             \
        .factor = factor_                                                                          \
    }
#define END                                                                                        \
    {                                                                                              \
        .split = NULL                                                                              \
    }

static const struct tag vittrain_tags[] = {
    OF("train", "train/loss", loss, 1),
    OF("train", "train/acc", top1, 1),
    OF("train", "train/acc_top5", top5, 1),
    OF("val", "val/loss", loss, 1),
    OF("val", "val/acc", top1, 1),
    OF("val", "val/acc_top5", top5, 1),
    OF("test", "test/loss", loss, 1),
    OF("test", "test/acc", top1, 1),
    OF("test", "test/acc_top5", top5, 1),
    OF("train", "lr", rate, 1),
    OF("train", "grad_norm", gradient_norm, 1),
    OF("train", "images_per_second", images_per_second, 1),
    OF("train", "peak_share", peak_share, 1),
    OF("train", "loss_scale", loss_scale, 1),
    OF("train", "skipped_steps", skipped_steps, 1),
    OF("train", "time/data", data_seconds, 1),
    OF("train", "time/compute", compute_seconds, 1),
    OF("train", "time/comm", comm_seconds, 1),
    OF("train", "time/exposed_comm", exposed_comm_seconds, 1),
    END};

/* Accuracies in percent, in training those of the epoch so far; the rate that follows an epoch. */
static const struct tag imagenet_tags[] = {OF("train", "Loss/train", loss, 1),
                                           OF("train", "acc1/train", epoch_top1, 100),
                                           OF("train", "acc5/train", epoch_top5, 100),
                                           OF("val", "Loss/val", loss, 1),
                                           OF("val", "acc1/val", top1, 100),
                                           OF("val", "acc5/val", top5, 100),
                                           OF_EPOCH("lr", next_rate, 1),
                                           END};

static const struct tag lightning_tags[] = {OF("train", "train/loss_step", loss, 1),
                                            OF("train", "train/acc_step", top1, 1),
                                            OF("train", "epoch", epoch_number, 1),
                                            OF("val", "val/loss", loss, 1),
                                            OF("val", "val/acc", top1, 1),
                                            OF("val", "val/acc_best", best_top1, 1),
                                            OF("val", "hp_metric", loss, 1),
                                            OF("val", "epoch", epoch_number, 1),
                                            OF("test", "test/loss", loss, 1),
                                            OF("test", "test/acc", top1, 1),
                                            OF_EPOCH("train/loss_epoch", train_loss, 1),
                                            OF_EPOCH("train/acc_epoch", train_top1, 1),
                                            OF_EPOCH("epoch", epoch_number, 1),
                                            END};

/* The other two programs write no points: they have this one's. */
static const struct {
    const struct tag *tags;
    bool due_only; /* no points between the steps that the style has lines for */
    int64_t shift;
} styles[] = {[STYLE_VITTRAIN] = {vittrain_tags, false, 0},
              [STYLE_COURSE] = {vittrain_tags, false, 0},
              [STYLE_IMAGENET] = {imagenet_tags, true, 0},
              [STYLE_LIGHTNING] = {lightning_tags, true, -1},
              [STYLE_TORCHRUN] = {vittrain_tags, false, 0}};

int64_t tags_shift(int style)
{
    return styles[style].shift;
}

static bool points_write(struct tensorboard *board, int style, const char *split, int64_t step,
                         const void *row, struct error *error)
{
    for (const struct tag *tag = styles[style].tags; tag->split != NULL; tag++) {
        double value;
        if (strcmp(tag->split, split) != 0)
            continue;
        memcpy(&value, (const char *)row + tag->offset, sizeof value);
        if (!isnan(value) && !tensorboard_scalar(board, tag->name, step + styles[style].shift,
                                                 tag->factor * value, error))
            return false;
    }
    return true;
}

bool tags_write_metrics(struct tensorboard *board, int style, const struct metrics_row *row,
                        struct error *error)
{
    if (styles[style].due_only && !row->due)
        return true;
    return points_write(board, style, row->split, row->step, row, error);
}

bool tags_write_epoch(struct tensorboard *board, int style, const struct epoch_row *row,
                      struct error *error)
{
    return points_write(board, style, "epoch", row->steps, row, error);
}
