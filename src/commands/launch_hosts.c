// SPDX-License-Identifier: BSD-3-Clause
/* The hosts of an mpirun command: read its host file, try to reach each host with the agent that
 * mpirun uses, and leave out hosts that do not answer. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/launcher.h"
#include "commands/launch.h"
#include "options/option_types.h"

/* Seconds for a host to answer; a login on a loaded node takes a while. If the hosts that have
 * answered suffice, the others have as many seconds again as those took, at least `spare_seconds`.
 */
static const double patience_seconds = 10, spare_seconds = 1;

/* ---- the command line */

/* True if the list, which ends with NULL, contains the text. */
static bool is_one_of(const char *text, const char *const *names)
{
    while (*names != NULL && strcmp(text, *names) != 0)
        names++;
    return *names != NULL;
}

/* True if the word is one of these flags. Open MPI accepts one dash or two. */
static bool is_flag(const char *word, const char *const *names)
{
    return word[0] == '-' && is_one_of(word + (word[1] == '-' ? 2 : 1), names);
}

/* Find the remote agent of mpirun; of alternatives separated by colons, take the first. */
static void agent_find(struct launched_hosts *hosts, int count, char *const *words)
{
    static const char *const variables[] = {"OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_rsh_agent",
                                            "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"};
    static const char *const flags[] = {"mca", "gmca", "prtemca", NULL};
    static const char *const parameters[] = {"plm_rsh_agent", "orte_rsh_agent", "plm_ssh_agent",
                                             NULL};
    const char *agent = NULL;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0] && agent == NULL; i++)
        agent = getenv(variables[i]);
    for (int i = 0; i + 2 < count; i++)
        if (is_flag(words[i], flags) && is_one_of(words[i + 1], parameters))
            agent = words[i + 2];
    if (agent == NULL || agent[0] == '\0')
        agent = "ssh";
    snprintf(hosts->agent, sizeof hosts->agent, "%.*s", (int)strcspn(agent, ":"), agent);
}

/* Parse a line like "node1 slots=4" of Open MPI or "node1:4" of MPICH; false for a line without a
 * host. */
static bool line_read(const char *text, struct launched_host *host)
{
    char name[HOST_NAME];
    if (sscanf(text, " %255[^ \t\r\n#]", name) != 1)
        return false;
    const char *slots = strstr(text, "slots"), *at = strchr(name, '@');
    char *colon = strchr(name, ':');
    while (slots != NULL && slots > text && slots[-1] != ' ' && slots[-1] != '\t')
        slots = strstr(slots + 1, "slots"); /* skip max_slots */

    /* An IPv6 address has several colons. */
    if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        slots = text + strcspn(text, ":");
        *colon = '\0';
    }
    snprintf(host->name, sizeof host->name, "%s", name);
    snprintf(host->line, sizeof host->line, "%.*s", (int)strcspn(text, "\r\n#"), text);
    host->slots = 1;
    if (slots != NULL)
        host->slots = strtoll(slots + strcspn(slots, "0123456789"), NULL, 10);
    return at == NULL || at > name;
}

bool launched_hosts_open(struct launched_hosts *hosts, int count, char *const *words,
                         struct error *error)
{
    static const char *const files[] = {"hostfile", "machinefile", "default-hostfile", "f", NULL};
    static const char *const ranks[] = {"np", "n", "c", NULL};
    char text[512];
    memset(hosts, 0, sizeof *hosts);
    if (!launcher_is_mpirun(words[0]) || getenv("SLURM_JOB_ID") != NULL)
        return true;
    for (int i = 0; i + 1 < count && strcmp(words[i], ":") != 0; i++) {
        if (hosts->file_at == 0 && is_flag(words[i], files))
            hosts->file_at = i + 1;
        if (hosts->ranks_at == 0 && is_flag(words[i], ranks)) {
            hosts->ranks_at = i + 1;
            hosts->ranks = strtoll(words[i + 1], NULL, 10);
        }
    }
    if (hosts->file_at == 0)
        return true;
    agent_find(hosts, count, words);
    FILE *file = fopen(words[hosts->file_at], "re");
    if (file == NULL)
        return error_set(error, ERROR_USAGE, "launch: cannot read the host file %s: %s",
                         words[hosts->file_at], strerror(errno));
    hosts->host = allocate(HOSTS_MOST, sizeof *hosts->host);
    while (hosts->count < HOSTS_MOST && fgets(text, sizeof text, file) != NULL)
        hosts->count += line_read(text, &hosts->host[hosts->count]);
    fclose(file);
    return true;
}

void launched_hosts_close(struct launched_hosts *hosts)
{
    if (hosts->reduced[0] != '\0')
        unlink(hosts->reduced);
    free(hosts->host);
    hosts->host = NULL;
    hosts->reduced[0] = '\0';
}

bool launched_command_is_local(int count, char *const *words)
{
    static const char *const flags[] = {
        "hostfile",   "machinefile", "default-hostfile", "f",    "host", "H",
        "hosts",      "rf",          "rankfile",         "wdir", "wd",   "app",
        "configfile", NULL};
    bool local = launcher_is_mpirun(words[0]) && getenv("SLURM_JOB_ID") == NULL;
    for (int i = 1; i < count; i++)
        local = local && !is_flag(words[i], flags);
    return local;
}

/* ---- reaching the hosts */

static bool host_is_local(const char *name)
{
    char own[HOST_NAME] = "";
    gethostname(own, sizeof own - 1);
    size_t length = strcspn(own, ".");
    return strcmp(name, "localhost") == 0 || strcmp(name, own) == 0 ||
           (strncmp(name, own, length) == 0 && (name[length] == '\0' || name[length] == '.'));
}

/* In the child: run `AGENT HOST true` without a terminal, so that no password is asked for. */
static _Noreturn void host_try(const struct launched_hosts *hosts, const char *name)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    execl("/bin/sh", "sh", "-c", "exec $0 \"$1\" true </dev/null >/dev/null 2>&1", hosts->agent,
          name, (char *)NULL);
    _exit(127);
}

/* Wait for `pending` children; kill those that have not ended in time. */
static void answers_wait(struct launched_hosts *hosts, pid_t *process, int pending)
{
    const double begin = clock_now();
    double end = begin + patience_seconds;
    for (bool suffice = false; pending > 0; poll(NULL, 0, 20)) {
        const bool over = clock_now() > end;
        for (int i = 0; i < hosts->count; i++) {
            int status;
            if (process[i] > 0 && over)
                kill(-process[i], SIGKILL);
            if (process[i] <= 0 || waitpid(process[i], &status, over ? 0 : WNOHANG) == 0)
                continue;
            hosts->host[i].answers = !over && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            process[i] = 0;
            pending--;
        }
        launched_hosts_decide(hosts, false, false);
        if (!suffice && hosts->suffice) {
            suffice = true;
            end = fmin(end, clock_now() + fmax(spare_seconds, clock_now() - begin));
        }
    }
}

void launched_hosts_try(struct launched_hosts *hosts)
{
    int pending = 0;
    pid_t *process = allocate((size_t)hosts->count + 1, sizeof *process);
    for (int i = 0; i < hosts->count; i++) {
        hosts->host[i].answers = host_is_local(hosts->host[i].name);
        if (hosts->host[i].answers)
            continue;
        process[i] = fork();
        if (process[i] == 0)
            host_try(hosts, hosts->host[i].name);
        pending += process[i] > 0;
    }
    answers_wait(hosts, process, pending);
    free(process);
}

/* ---- continuing without missing hosts */

enum hosts_action launched_hosts_decide(struct launched_hosts *hosts, bool elastic, bool late)
{
    int64_t slots = 0, all = 0;
    size_t used = 0;
    hosts->missing[0] = '\0';
    for (const struct launched_host *host = hosts->host; host < hosts->host + hosts->count;
         host++) {
        all += host->slots;
        if (host->answers)
            slots += host->slots;
        else if (used < sizeof hosts->missing)
            used += (size_t)snprintf(hosts->missing + used, sizeof hosts->missing - used, "%s%s",
                                     used > 0 ? ", " : "", host->name);
    }
    const int64_t ranks = hosts->ranks_at > 0 ? hosts->ranks : all;
    hosts->suffice = hosts->ranks_at > 0 && slots >= hosts->ranks;
    /* If there were more ranks than slots, keep that ratio. */
    hosts->usable = smaller(ranks, all > 0 && ranks > all ? ranks * slots / all : slots);
    if (used == 0 || (slots > 0 && (elastic || hosts->suffice)))
        return HOSTS_USE;
    return late ? HOSTS_GIVE_UP : HOSTS_WAIT;
}

bool launched_hosts_use(struct launched_hosts *hosts, char **words, char *const *original,
                        struct error *error)
{
    words[hosts->file_at] = original[hosts->file_at];
    if (hosts->ranks_at > 0)
        words[hosts->ranks_at] = original[hosts->ranks_at];
    if (hosts->missing[0] == '\0')
        return true;
    const char *folder = getenv("TMPDIR");
    snprintf(hosts->reduced, sizeof hosts->reduced, "%s/vittrain-hosts-XXXXXX",
             folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    const int descriptor = mkstemp(hosts->reduced);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    for (int i = 0; file != NULL && i < hosts->count; i++)
        if (hosts->host[i].answers)
            fprintf(file, "%s\n", hosts->host[i].line);
    if (file == NULL || fclose(file) != 0)
        return error_set(error, ERROR_FILE, "launch: cannot write a host file to %s: %s",
                         hosts->reduced, strerror(errno));
    snprintf(hosts->ranks_text, sizeof hosts->ranks_text, "%lld", (long long)hosts->usable);
    words[hosts->file_at] = hosts->reduced;
    if (hosts->ranks_at > 0)
        words[hosts->ranks_at] = hosts->ranks_text;
    return true;
}
