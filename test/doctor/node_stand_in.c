// SPDX-License-Identifier: BSD-3-Clause
/* Preloaded into the program on one node: the file system of folder DISK_HANGS does not respond. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

int statvfs(const char *path, struct statvfs *system)
{
    struct statfs found;
    const char *hangs = getenv("DISK_HANGS");
    while (hangs != NULL && strcmp(path, hangs) == 0)
        pause();
    memset(system, 0, sizeof *system);
    if (statfs(path, &found) != 0)
        return -1;
    system->f_frsize = system->f_bsize = (unsigned long)found.f_bsize;
    system->f_blocks = found.f_blocks;
    system->f_bavail = found.f_bavail;
    system->f_files = found.f_files;
    system->f_favail = found.f_ffree;
    return 0;
}
