/* What went wrong in a run, from the lines of its log. */
#ifndef VITTRAIN_REPORT_TROUBLE_H
#define VITTRAIN_REPORT_TROUBLE_H

#include "report/record.h"

/* record->trouble, from train.log; a line in record->missing where there is none. Of equal lines
 * the first is kept, with how often it came. */
void trouble_open(struct record *record);

#endif
