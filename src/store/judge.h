/* What came of one try at a request, and what to do about it. Between request.c and judge.c. */
#ifndef VITTRAIN_STORE_JUDGE_H
#define VITTRAIN_STORE_JUDGE_H

#include <curl/curl.h>

#include "store/request.h"

struct store_result {
    CURLcode curl;
    const char *detail;
    int file_failed; /* errno, where a file of ours failed and not the network */
};

/* Takes the error's code and text from the reply, and says in `error` what is wrong. */
enum store_outcome store_judge(struct store *store, const struct store_request *request,
                               const struct store_result *result, struct store_reply *reply,
                               struct error *error);

/* Has the store told, while it refused, what will make the same request good: its region, its time,
 * that the credentials are over? Takes it over; false: no, or nothing new. */
bool store_turn(struct store *store, const struct store_reply *reply);

#endif
