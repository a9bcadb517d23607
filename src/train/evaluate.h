/* Evaluation: every sample of a split exactly once on any number of ranks. */
#ifndef VITTRAIN_TRAIN_EVALUATE_H
#define VITTRAIN_TRAIN_EVALUATE_H

#include "train/metrics.h"

#endif
