/* Warnings and errors of a run, from its log. */
#ifndef VITTRAIN_REPORT_TROUBLE_H
#define VITTRAIN_REPORT_TROUBLE_H

#include "report/record.h"

/* Fill record->trouble from train.log; if it is missing, add a line to record->missing. Equal lines
 * are kept once, with their number. */
void trouble_open(struct record *record);

#endif
