// SPDX-License-Identifier: BSD-3-Clause
/* Checks of the program's file, deck, command line and loaded libraries. The messages up to the
 * check of the deck are the same as in every other command (main.c), so that ranks with different
 * commands detect it. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/crc32c.h"
#include "core/version.h"
#include "tools/doctor/doctor.h"

void doctor_check_program(struct doctor *doctor, struct doctor_row *row)
{
    struct comm *world = doctor->world;
    struct error error = {0};
    if (!app_same_build(world, &error)) {
        doctor->stop = true;
        doctor->stop_reason = "ranks run different programs";
        doctor_set(row, DOCTOR_FAIL, "install the same program at the same path on all nodes", "%s",
                   error.text);
        return;
    }
    doctor_set(row, DOCTOR_PASS, NULL, "vittrain %s%s%s, CRC32C %08llx, on all ranks",
               version_number, version_commit[0] != '\0' ? " " : "", version_commit,
               (unsigned long long)app_build_sum());
}

void doctor_check_deck(struct doctor *doctor, struct doctor_row *row)
{
    static struct options taken;
    static const char advice[] =
        "give all ranks the same command line, and copy the decks to all nodes";
    struct comm *world = doctor->world;
    struct error error = *doctor->parse_error;
    bool own = error.kind != ERROR_NONE; /* then, as a rule, on all ranks */
    if (!comm_agree(world, &error))
        doctor_set(row, DOCTOR_FAIL, own ? "correct it on all ranks" : advice, "%s", error.text);
    else if (!app_same_command(world, doctor->line, &error)) {
        doctor->stop = true;
        doctor->stop_reason = "ranks were given different commands";
        doctor_set(row, DOCTOR_FAIL, advice, "%s", error.text);
        return;
    } else if (!app_same_options(world, doctor->options, &error)) {
        doctor_set(row, DOCTOR_FAIL, advice, "%s", error.text);
    } else {
        doctor_set(row, DOCTOR_PASS, NULL, "all ranks have the same options");
    }
    /* All further checks use the options of rank 0. */
    taken = *doctor->options;
    comm_broadcast(world, &taken, sizeof taken, COMM_BYTE, 0);
    doctor->options = &taken;
}

/* ---- libraries */
enum { LIBRARIES = 160, LIBRARY_NAME = 72 };

struct library {
    char name[LIBRARY_NAME]; /* file name: libhdf5_openmpi.so.103.3.0 */
    uint32_t sum;
};

struct libraries {
    struct library library[LIBRARIES];
    int64_t count;
};

static uint32_t file_sum(const char *path)
{
    enum { CHUNK = 1 << 18 };
    uint32_t crc = 0;
    size_t got;
    FILE *file = fopen(path, "re");
    unsigned char *chunk = allocate(1, CHUNK);
    while (file != NULL && (got = fread(chunk, 1, CHUNK, file)) > 0)
        crc = crc32c_update(crc, chunk, got);
    if (file != NULL)
        fclose(file);
    free(chunk);
    return crc;
}

/* Callback of dl_iterate_phdr. Entries without a path are the program and the vDSO. Plugins of MPI
 * are skipped, because they differ between ranks of the same installation. */
static int library_add(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    struct libraries *libraries = context;
    char path[PATH_MAX];
    if (object->dlpi_name[0] != '/' || libraries->count == LIBRARIES ||
        realpath(object->dlpi_name, path) == NULL)
        return 0;
    const char *name = strrchr(path, '/') + 1;
    if (strncmp(name, "lib", 3) != 0 || strncmp(name, "libnss_", 7) == 0)
        return 0;
    struct library *library = &libraries->library[libraries->count++];
    snprintf(library->name, sizeof library->name, "%.*s", LIBRARY_NAME - 1, name);
    library->sum = file_sum(path);
    return 0;
}

/* Return the length of "libhdf5.so" in "libhdf5.so.103.3.0". */
static size_t stem_length(const char *name)
{
    const char *ending = strstr(name, ".so");
    return ending != NULL ? (size_t)(ending - name) + 3 : strlen(name);
}

static const struct library *library_find(const struct libraries *libraries, const char *name)
{
    size_t length = stem_length(name);
    for (int i = 0; i < libraries->count; i++)
        if (stem_length(libraries->library[i].name) == length &&
            strncmp(libraries->library[i].name, name, length) == 0)
            return &libraries->library[i];
    return NULL;
}

/* Describe the first library whose file here differs from rank 0's; "" if there is none. */
static void difference_text(const struct libraries *own, const struct libraries *first, char *text,
                            size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < own->count; i++) {
        const struct library *here = &own->library[i];
        const struct library *there = library_find(first, here->name);
        if (there == NULL || (there->sum == here->sum && strcmp(there->name, here->name) == 0))
            continue;
        snprintf(text, size, "%s with CRC32C %08x, on rank 0 %s with %08x", here->name, here->sum,
                 there->name, there->sum);
        return;
    }
}

/* Write the file names of the most important libraries. */
static void versions_text(const struct libraries *libraries, char *text, size_t size)
{
    static const char *const names[] = {
        "libmpi.so",    "libhdf5_openmpi.so", "libhdf5.so",  "libdnnl.so", "libc.so",
        "libcudart.so", "libcublasLt.so",     "libcudnn.so", "libnccl.so"};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0] && used < size; i++) {
        const struct library *library = library_find(libraries, names[i]);
        int length = library == NULL ? 0
                                     : snprintf(text + used, size - used, "%s%s",
                                                used > 0 ? ", " : "", library->name);
        used += length > 0 ? (size_t)length : 0;
    }
}

void doctor_check_libraries(struct doctor *doctor, struct doctor_row *row)
{
    struct libraries *own = allocate(2, sizeof *own), *first = own + 1;
    char difference[256], versions[384];
    dl_iterate_phdr(library_add, own);
    *first = *own;
    comm_broadcast(doctor->world, first, sizeof *first, COMM_BYTE, 0);
    difference_text(own, first, difference, sizeof difference);
    versions_text(own, versions, sizeof versions);
    doctor_set_of(doctor, doctor->world, row, difference[0] != '\0', DOCTOR_FAIL,
                  "install the same packages or modules on all nodes; check LD_LIBRARY_PATH there",
                  "%s", difference);
    doctor_set(row, DOCTOR_PASS, NULL, "%lld libraries, the same on all ranks: %s",
               (long long)own->count, versions);
    free(own);
}
