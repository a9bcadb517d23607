/* The thread that sends a run's folder while the run goes: of the lowest priority, beside the
 * steps. It looks at the folder every second; nobody tells it anything, and nobody waits for
 * it but the end of the run. */
#ifndef VITTRAIN_STORE_SENDER_H
#define VITTRAIN_STORE_SENDER_H

#include "store/run_upload.h"

struct store_sender;

/* Owns the run from here on. Where no thread can be started that is said, and all is sent at the
 * end. */
struct store_sender *store_sender_open(struct store_run *run);

/* Sends what is left, for at most so many seconds, and ends: says that all is there, or what is
 * missing and how to send it. 0: does not wait. NULL is allowed. */
void store_sender_close(struct store_sender *sender, double seconds);

#endif
