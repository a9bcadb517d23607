// SPDX-License-Identifier: BSD-3-Clause
/* Deaths of ranks as mpirun and srun report them, and their probable cause. Open MPI 4 and 5:
 *   mpirun noticed that process rank 5 with PID 17 on node n2 exited on signal 9 (Killed).
 *   prterun noticed that process rank 5 with PID 17 on node n2 exited on
 *   signal 9 (Killed).
 * Slurm:
 *   srun: error: n2: task 5: Killed */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/text_file.h"
#include "tools/launch/launch.h"

/* The number of processes in a file with a line "oom_kill COUNT"; -1 if file or line is missing. */
static long long kills_read(const char *path)
{
    unsigned long long kills;
    return text_file_number(path, "oom_kill", &kills) ? (long long)kills : -1;
}

struct oom_kills oom_kills_read(void)
{
    char line[400], path[512];
    long long cgroup = -1;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && cgroup < 0) {
        line[strcspn(line, "\n")] = '\0';
        const char *v1 = strstr(line, ":memory:");
        if (v1 != NULL) {
            snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control",
                     v1 + strlen(":memory:"));
            cgroup = kills_read(path);
            if (cgroup < 0) /* in a container the path on the host may not exist */
                cgroup = kills_read("/sys/fs/cgroup/memory/memory.oom_control");
        } else if (strncmp(line, "0::", 3) == 0) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", line + 3);
            cgroup = kills_read(path);
        }
    }
    if (file != NULL)
        fclose(file);
    return (struct oom_kills){.cgroup = cgroup, .host = kills_read("/proc/vmstat")};
}

bool death_read(const char *line, struct death *death)
{
    char ranks[64], how[256];
    const char *mpirun = strstr(line, "noticed that process rank ");
    const char *srun = strstr(line, "srun: error: ");
    if (mpirun != NULL)
        death->begun = sscanf(mpirun,
                              "noticed that process rank %d with PID %*d on node %255s exited "
                              "on signal %d",
                              &death->rank, death->host, &death->signal) >= 2;
    else if (death->begun)
        sscanf(line, "signal %d", &death->signal);
    if (death->begun && death->signal != 0) {
        snprintf(death->text, sizeof death->text, "rank %d on %s was killed by signal %d (%s)",
                 death->rank, death->host, death->signal, strsignal(death->signal));
        return true;
    }
    if (srun == NULL || sscanf(srun, "srun: error: %255[^: ]: task%*1[s ] %63[^:]: %255[^\n]",
                               death->host, ranks, how) != 3)
        return false;
    death->signal = strncmp(how, "Out Of Memory", strlen("Out Of Memory")) == 0 ? SIGKILL : 0;
    for (int signal = 1; signal < NSIG && death->signal == 0; signal++)
        if (signal != SIGTERM && strncmp(how, strsignal(signal), strlen(strsignal(signal))) == 0)
            death->signal = signal;
    bool several = strpbrk(ranks, "-,") != NULL;
    snprintf(death->text, sizeof death->text, "rank%s %s on %s %s killed: %s", several ? "s" : "",
             ranks, death->host, several ? "were" : "was", how);
    return death->signal != 0; /* "Exited with exit code 2": the rank has printed the reason */
}

void death_explain(struct death *death, const struct oom_kills *before)
{
    const struct oom_kills now = oom_kills_read();
    char cause[HOST_NAME + 128] = "";
    bool here = launched_host_is_local(death->host);
    if (death->signal == SIGKILL && here && now.cgroup > before->cgroup)
        strcpy(cause, "out of memory (the memory limit of the job or container)");
    else if (death->signal == SIGKILL && here && now.host > before->host)
        strcpy(cause, "out of memory (the kernel has killed processes on this host)");
    else if (death->signal == SIGKILL && here)
        strcpy(cause, "a kill from outside; the kernel did not run out of memory");
    else if (death->signal == SIGKILL)
        snprintf(cause, sizeof cause, "out of memory, or a kill from outside: see dmesg on %s",
                 death->host);
    else if (death->signal == SIGBUS)
        strcpy(cause, "a full /dev/shm, or a mapped file that was truncated");
    else if (death->signal == SIGXCPU)
        strcpy(cause, "the CPU time limit (ulimit -t)");
    else if (death->signal == SIGXFSZ)
        strcpy(cause, "the file size limit (ulimit -f)");
    else
        return;
    size_t used = strlen(death->text);
    snprintf(death->text + used, sizeof death->text - used, "; probable cause: %s", cause);
}

void death_suspect(struct death *death, const struct oom_kills *before)
{
    const struct oom_kills now = oom_kills_read();
    if ((now.cgroup <= before->cgroup && now.host <= before->host) ||
        gethostname(death->host, sizeof death->host - 1) != 0)
        return;
    death->signal = SIGKILL;
    snprintf(death->text, sizeof death->text, "a process on %s was killed by signal %d (%s)",
             death->host, SIGKILL, strsignal(SIGKILL));
    death_explain(death, before);
}
