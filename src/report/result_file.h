/* The result file of the course project on CIFAR-10, which its people keep by hand: what a run
 * said, as BATCH_EPOCHS_NODES_GPUS.txt (samples a GPU, all GPUs: 16_10_2_4.txt), and its plots. */
#ifndef VITTRAIN_REPORT_RESULT_FILE_H
#define VITTRAIN_REPORT_RESULT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "report/record.h"

/* "16_10_2_4.txt". ERROR_FILE: the run tells too little of itself. */
MUST_CHECK bool result_file_name(const struct record *record, char *name, size_t size,
                                 struct error *error);

/* Into the folder, which may be the run's own: that file, accuracy_plot.png and
 * training_metrics.png, each whole or not at all. Of a run that was cut off: what there is, without
 * the closing lines. Local. ERROR_FILE, ERROR_MEMORY. */
MUST_CHECK bool result_file_write(const struct record *record, const char *folder,
                                  struct error *error);

#endif
