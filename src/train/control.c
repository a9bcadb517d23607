// SPDX-License-Identifier: BSD-3-Clause
/* Control flags: one small all-reduce (maximum) for each step. */
#include "train/control.h"

void control_start(struct control *control, const struct control_flags *flags)
{
    enum { FLAGS = sizeof *flags / sizeof(int64_t) };
    struct comm *world = control->world;
    ENSURE(!control->started, "control flags: the previous all-reduce was not waited for");
    control->flags = *flags;
    control->request =
        comm_start_all_reduce(world, &control->flags, FLAGS, COMM_INT64, COMM_MAX, NULL);
    control->started = true;
}

struct control_flags control_wait(struct control *control)
{
    ENSURE(control->started, "control flags: no all-reduce was started");
    control->world->backend->wait(control->request, NULL);
    control->started = false;
    return control->flags;
}

void control_close(struct control *control)
{
    if (control->started)
        control_wait(control);
}
