/* The deck of a run that is over: its keys, also such as this program does not have, and what it
 * differs in from the defaults. */
#ifndef VITTRAIN_REPORT_DECK_H
#define VITTRAIN_REPORT_DECK_H

#include "report/record.h"

/* record->deck, record->settings, from deck.ini; a line in record->missing where there is none. */
void deck_open(struct record *record);
void deck_free(struct record *record);

#endif
