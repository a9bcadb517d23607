/* The highest of each wish, brought together by the communication thread. */
#include "train/agreement.h"

enum { WISHES = sizeof(struct wishes) / sizeof(int64_t) };

void agreement_open(struct agreement *agreement, struct comm *world)
{
    *agreement = (struct agreement){.world = world};
}

void agreement_ask(struct agreement *agreement, const struct wishes *own)
{
    struct comm *world = agreement->world;
    ENSURE(!agreement->asked, "a question was asked before the answer to the last one");
    agreement->wishes = *own;
    agreement->ticket =
        world->backend->all_reduce(world, &agreement->wishes, WISHES, COMM_INT64, COMM_MAX, NULL);
    agreement->asked = true;
}

struct wishes agreement_hear(struct agreement *agreement)
{
    ENSURE(agreement->asked, "nothing was asked");
    agreement->world->backend->wait(agreement->ticket, NULL);
    agreement->asked = false;
    return agreement->wishes;
}

void agreement_close(struct agreement *agreement)
{
    if (agreement->asked)
        agreement_hear(agreement);
}
