/* The test split, once, when all steps are done (train.test). */
#ifndef VITTRAIN_TRAIN_FINAL_TEST_H
#define VITTRAIN_TRAIN_FINAL_TEST_H

#include "train/trainer.h"

/* Collective, after the final weights were exported: the session's weights become the best ones,
 * where a checkpoint has them. trainer->test, test_weights, test_step. Nothing where it is not
 * asked for, or the run is not over yet. A signal gives it up. */
MUST_CHECK bool final_test_run(struct trainer *trainer, struct error *error);

#endif
