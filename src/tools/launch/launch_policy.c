// SPDX-License-Identifier: BSD-3-Clause
/* What follows an attempt: a function of its exit code, the run's progress and the hosts. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app/app.h"
#include "tools/launch/launch.h"

/* Seconds: the shortest and the longest pause before a restart after an attempt without progress.
 */
static const double pause_least = 1, pause_most = 60;

/* Consecutive attempts that may fail without progress. */
enum { FRUITLESS_MOST = 2 };

/* True for the exit codes of a mistake that would be repeated: of this program, or of a shell that
 * cannot start a program. */
static bool is_mistake(int code)
{
    return (code >= ERROR_USAGE && code <= ERROR_NUMERIC) || code == ERROR_DIFFERENT ||
           code == 126 || code == 127;
}

enum launch_action launch_policy(struct launch_count *count, const struct attempt *attempt)
{
    const bool failed = attempt->code != 0 || attempt->interrupted || attempt->hung;
    if (attempt->asked || !failed || is_mistake(attempt->code))
        return LAUNCH_END;
    count->fruitless = attempt->progress ? 0 : count->fruitless + 1;
    count->pause = attempt->progress ? 0 : fmin(fmax(2 * count->pause, pause_least), pause_most);
    if (count->restarts >= count->restarts_max || count->fruitless >= FRUITLESS_MOST)
        return LAUNCH_GIVE_UP;
    count->restarts++;
    return LAUNCH_RESTART;
}

void launch_reason(const struct attempt *attempt, char *text, size_t size)
{
    const int code = attempt->code;
    const char *memory = attempt->out_of_memory
                             ? "; the kernel has killed a process of this host: out of memory"
                             : "";
    if (attempt->hung)
        snprintf(text, size, "the run failed, and the command did not end and was killed%s",
                 memory);
    else if (attempt->interrupted)
        snprintf(text, size, "exit code 0, but the run did not end%s", memory);
    else if (code > 128 && code < 128 + NSIG)
        snprintf(text, size, "exit code %d (signal %d, %s)%s", code, code - 128,
                 strsignal(code - 128), memory);
    else
        snprintf(text, size, "exit code %d%s%s%s%s", code, code <= ERROR_DIFFERENT ? " (" : "",
                 code <= ERROR_DIFFERENT ? app_exit_codes[code] : "",
                 code <= ERROR_DIFFERENT ? ")" : "", memory);
}

enum hosts_action launch_policy_hosts(const struct launched_hosts *hosts, bool elastic, bool late)
{
    int answers = 0;
    for (int i = 0; i < hosts->count; i++)
        answers += hosts->host[i].answers;
    if (answers == hosts->count || (answers > 0 && (elastic || launched_hosts_suffice(hosts))))
        return HOSTS_USE;
    return late ? HOSTS_GIVE_UP : HOSTS_WAIT;
}
