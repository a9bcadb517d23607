// SPDX-License-Identifier: BSD-3-Clause
/* Writes checkpoints in memory to two files per node, alternately. The first two checkpoints create
 * them; later ones rename the older file to NAME.part and overwrite it, so that no memory is
 * allocated. The first rank of each node renames it to NAME when the ranks of all nodes have
 * written their pieces, through a mapping. Until then the file of the previous checkpoint stays
 * unchanged.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate */
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/memory_checkpoint.h"
#include "config/option_types.h"
#include "config/phase.h"
#include "core/allocate.h"
#include "core/file.h"
#include "core/log.h"
#include "core/sensors.h"
#include "core/status.h"
#include "core/text.h"

/* One of the two files. */
struct memory_file {
    char path[PATH_MAX]; /* "": not created by this attempt */
    int descriptor;
    unsigned char *mapped;            /* the file's contents; NULL: not mapped */
    int64_t bytes, unit_count;        /* of the mapped file */
    struct checkpoint_layout *layout; /* [unit_count], for which memory was reserved */
};

struct memory_checkpoint {
    const struct flat_model *flat;
    bool writes;
    char run[PATH_MAX];      /* the run folder */
    char earlier[MEMORY_ID]; /* id of earlier attempts; "": none */
    char folder[128];        /* "": not begun, or not needed */
    char resumed[PATH_MAX];  /* the file from which the run has resumed; "": not in memory */
    int *partner;            /* [ranks]: the rank that keeps the copy of a rank's pieces, or NULL */
    struct memory_file file[2];
    int next;                 /* index in `file` of the next checkpoint */
    _Atomic int64_t *reached; /* the mapped file `reached`; NULL: not the first rank of a node */
    int lock;                 /* its descriptor, locked as long as the process uses the folder */
};

static bool is_first(const struct memory_checkpoint *memory)
{
    return memory->flat->mesh->node->rank == 0;
}

/* ---- sizes ---- */

size_t memory_checkpoint_bytes(const struct flat_model *flat)
{
    return 2 * checkpoint_snapshot_bytes(flat) * (flat->mesh->node_count > 1 ? 2 : 1);
}

double memory_checkpoint_interval(double checkpoint, double step)
{
    return ceil(100 * checkpoint / step);
}

/* Collective. Return the partner of each rank: the rank of the next node with the same local rank,
 * modulo the number of ranks there. With one node a rank is its own partner. */
static int *partners_find(struct comm *world)
{
    int nodes, *node_of = allocate((size_t)world->size, sizeof *node_of);
    struct comm *here = comm_split_nodes(world, node_of, &nodes);
    here->backend->close(here);
    int *partner = allocate((size_t)world->size, sizeof *partner);
    for (int rank = 0; rank < world->size; rank++) {
        int local = 0, there = 0, next = (node_of[rank] + 1) % nodes;
        for (int other = 0; other < world->size; other++) {
            local += other < rank && node_of[other] == node_of[rank];
            there += node_of[other] == next;
        }
        local %= there;
        for (int other = world->size - 1; other >= 0; other--)
            if (node_of[other] == next && --there == local)
                partner[rank] = other;
    }
    free(node_of);
    return partner;
}

/* Collective. Fail if /dev/shm of a node has too little free memory for both files. */
static bool free_memory_check(const struct memory_checkpoint *memory, struct error *error)
{
    const struct mesh *mesh = memory->flat->mesh;
    const double free = shared_memory_free();
    int64_t parts = 0; /* the part of this rank, and the copies of parts of others */
    for (int rank = 0; rank < mesh->world->size; rank++)
        parts += rank == mesh->world->rank || memory->partner[rank] == mesh->world->rank;
    int64_t needed = 2 * parts * (int64_t)checkpoint_snapshot_bytes(memory->flat);
    comm_all_reduce(mesh->node, &needed, 1, COMM_INT64, COMM_SUM);
    if (is_first(memory) && free < 0) {
        error_set(error, ERROR_FILE,
                  "checkpoint.memory: cannot use /dev/shm: %s; set checkpoint.memory=0",
                  strerror(errno));
    } else if (is_first(memory)) {
        char earlier[128];
        memory_folder(memory->earlier, earlier, sizeof earlier);
        /* Files of earlier attempts are removed before the second checkpoint is created. */
        const double available =
            free + (memory->earlier[0] != '\0' ? memory_folder_bytes(earlier) : 0);
        if ((double)needed > available)
            error_set(error, ERROR_MEMORY,
                      "checkpoint.memory: two checkpoints take %.1f MB in /dev/shm of this node, "
                      "where %.1f MB are free; enlarge /dev/shm, use more nodes, or set "
                      "checkpoint.memory=0",
                      (double)needed / 1e6, available / 1e6);
    }
    return comm_agree(mesh->world, error);
}

/* ---- the folder ---- */

/* On the first rank of a node: create the file `reached`, or open that of earlier attempts, and map
 * it. */
static bool reached_open(struct memory_checkpoint *memory, struct error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" MEMORY_REACHED, memory->folder);
    const int file = output_file_open(path, O_RDWR | O_CREAT);
    if (file >= 0 && fallocate(file, 0, 0, sizeof *memory->reached) == 0) {
        void *mapped =
            mmap(NULL, sizeof *memory->reached, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        memory->reached = mapped != MAP_FAILED ? mapped : NULL;
    }
    if (memory->reached == NULL)
        error_set(error, ERROR_MEMORY,
                  "checkpoint.memory: cannot create %s: %s; set checkpoint.memory=0", path,
                  strerror(errno));
    if (file >= 0)
        flock(file, LOCK_SH);
    memory->lock = file;
    return memory->reached != NULL;
}

/* On the first rank of a node: link the folder to the run folder, if this node sees that
 * RUN/.memory has the id. Without the link other runs keep the folder. */
static void run_link(const struct memory_checkpoint *memory, const char *id)
{
    char found[MEMORY_ID], run[PATH_MAX], path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" MEMORY_RUN, memory->folder);
    if (memory_id(memory->run, found, NULL) && strcmp(found, id) == 0 &&
        realpath(memory->run, run) != NULL && symlink(run, path) != 0)
        log_detail("cannot create the link %s: %s", path, strerror(errno));
}

/* On the first rank of a node: create the folder, with links to the checkpoint from which the run
 * has resumed and to `reached` of the earlier folder. */
static bool folder_create(const struct memory_checkpoint *memory, struct error *error)
{
    char earlier[128], from[PATH_MAX], to[PATH_MAX];
    if (mkdir(memory->folder, 0700) != 0)
        return error_set(error, ERROR_FILE,
                         "checkpoint.memory: cannot create %s: %s; set checkpoint.memory=0",
                         memory->folder, strerror(errno));
    if (memory->resumed[0] == '\0')
        return true;
    memory_folder(memory->earlier, earlier, sizeof earlier);
    snprintf(from, sizeof from, "%s/" MEMORY_REACHED, earlier);
    snprintf(to, sizeof to, "%s/" MEMORY_REACHED, memory->folder);
    if (link(from, to) != 0) /* then the log does not name the step at the interruption */
        log_detail("cannot link %s: %s", from, strerror(errno));
    snprintf(to, sizeof to, "%s/%s", memory->folder, text_base_name(memory->resumed));
    return link(memory->resumed, to) == 0 || durable_failed(error, "link", memory->resumed, errno);
}

struct memory_checkpoint *memory_checkpoint_open(const char *run, const struct flat_model *flat,
                                                 const char *resumed, bool writes,
                                                 struct error *error)
{
    struct memory_checkpoint *memory = allocate(1, sizeof *memory);
    memory->flat = flat;
    memory->writes = writes;
    snprintf(memory->run, sizeof memory->run, "%s", run);
    snprintf(memory->resumed, sizeof memory->resumed, "%s", resumed);
    for (int i = 0; i < 2; i++)
        memory->file[i].descriptor = -1;
    memory->lock = -1;
    if (is_first(memory))
        memory_folders_remove_unneeded();
    if (flat->mesh->world->rank == 0)
        memory_id(run, memory->earlier, NULL);
    comm_broadcast(flat->mesh->world, memory->earlier, sizeof memory->earlier, COMM_BYTE, 0);
    memory->partner = writes ? partners_find(flat->mesh->world) : NULL;
    if (!writes || free_memory_check(memory, error))
        return memory;
    memory_checkpoint_close(memory, false);
    return NULL;
}

bool memory_checkpoint_begin(struct memory_checkpoint *memory, struct error *error)
{
    struct comm *world = memory->flat->mesh->world;
    char id[MEMORY_ID] = "", name[CHECKPOINT_NAME];
    if (!memory->writes && memory->earlier[0] == '\0') {
        if (world->rank == 0)
            memory_id_remove(memory->run); /* that of another folder, or damaged */
        return true;
    }
    if (world->rank == 0 && (memory->writes || memory->resumed[0] != '\0'))
        memory_id_create(memory->earlier, id);
    comm_broadcast(world, id, sizeof id, COMM_BYTE, 0);
    if (id[0] != '\0') {
        memory_folder(id, memory->folder, sizeof memory->folder);
        if (is_first(memory) && folder_create(memory, error))
            error_defer(reached_open(memory, error));
    }
    if (!comm_agree(world, error)) {
        if (is_first(memory) && memory_folder_is_own(memory->folder))
            folder_remove(memory->folder);
        memory->folder[0] = '\0';
        return false;
    }
    /* With the new id in RUN/.memory, the run uses the new folder. */
    if (world->rank == 0 && id[0] != '\0')
        error_defer(memory_id_write(memory->run, id, error));
    else if (world->rank == 0)
        memory_id_remove(memory->run);
    if (!comm_agree(world, error))
        return false;
    if (is_first(memory) && id[0] != '\0')
        run_link(memory, id);
    if (is_first(memory) && memory->earlier[0] != '\0')
        memory_folders_remove_others(memory->earlier, id);
    if (memory->resumed[0] != '\0') {
        snprintf(name, sizeof name, "%s", text_base_name(memory->resumed));
        snprintf(memory->resumed, sizeof memory->resumed, "%s/%s", memory->folder, name);
    }
    return true;
}

void memory_checkpoint_step(struct memory_checkpoint *memory, int64_t step)
{
    if (memory != NULL && memory->reached != NULL)
        *memory->reached = step;
}

static void file_close(struct memory_file *file)
{
    if (file->mapped != NULL)
        munmap(file->mapped, (size_t)file->bytes);
    if (file->descriptor >= 0)
        close(file->descriptor);
    free(file->layout);
    *file = (struct memory_file){.descriptor = -1};
}

void memory_checkpoint_close(struct memory_checkpoint *memory, bool removes)
{
    if (memory == NULL)
        return;
    for (int i = 0; i < 2; i++)
        file_close(&memory->file[i]);
    if (memory->reached != NULL)
        munmap((void *)memory->reached, sizeof *memory->reached);
    if (memory->lock >= 0)
        close(memory->lock);
    if (removes && is_first(memory) && memory_folder_is_own(memory->folder))
        folder_remove(memory->folder);
    if (removes && memory->folder[0] != '\0' && memory->flat->mesh->world->rank == 0)
        memory_id_remove(memory->run);
    free(memory->partner);
    free(memory);
}

/* ---- one checkpoint ---- */

/* On the first rank of a node: rename the file to its temporary name `path`, or create it. On all
 * ranks: set file->path. */
static bool file_begin(struct memory_checkpoint *memory, struct memory_file *file, const char *path,
                       struct error *error)
{
    if (is_first(memory) && file->path[0] != '\0' && rename(file->path, path) != 0)
        durable_failed(error, "rename", file->path, errno);
    if (is_first(memory) && file->path[0] == '\0') {
        if (memory->file[1 - memory->next].path[0] != '\0')
            unlink(memory->resumed); /* not needed: the first new checkpoint is complete */
        file->descriptor = durable_create(path, error);
    }
    snprintf(file->path, sizeof file->path, "%s", path);
    return error->kind == ERROR_NONE;
}

/* Collective. Write the frame on rank 0 and copy it to the other nodes. */
static bool frame_create(struct memory_checkpoint *memory, struct memory_file *file,
                         struct checkpoint_contents *contents, struct error *error)
{
    struct comm *world = memory->flat->mesh->world;
    if (world->rank == 0)
        error_defer(checkpoint_frame_write(file->descriptor, file->path, contents, false, error));
    if (!comm_agree(world, error))
        return false;
    checkpoint_layout_share(contents, world);
    return memory_frame_share(world, 0, contents, is_first(memory) ? file->descriptor : -1,
                              file->path, error);
}

/* Reserve memory for the pieces that this rank writes: its own, and those of which it keeps the
 * copy. Without it, a write to a mapped hole raises SIGBUS if the file system is full. */
static bool pieces_reserve(const struct memory_file *file, const struct checkpoint_part *part,
                           struct error *error)
{
    const int self = part->world->rank;
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(&part->contents, &block);) {
        const int owner = part->owner[block.p];
        if ((owner == self || part->receiver[owner] == self) &&
            fallocate(file->descriptor, 0, block.offset, (off_t)block.bytes) != 0)
            return error_set(error, ERROR_MEMORY, "cannot reserve memory for %s: %s", file->path,
                             strerror(errno));
    }
    return true;
}

/* Collective. Reserve memory for the pieces and map the file on all ranks, unless this was done for
 * the same layout. */
static bool file_map(struct memory_checkpoint *memory, struct checkpoint_part *part,
                     struct error *error)
{
    struct memory_file *file = &memory->file[memory->next];
    const struct checkpoint_contents *contents = &part->contents;
    const size_t layout_bytes = (size_t)contents->unit_count * sizeof *contents->layout;
    if (file->mapped != NULL && file->bytes == contents->bytes &&
        file->unit_count == contents->unit_count &&
        memcmp(file->layout, contents->layout, layout_bytes) == 0)
        return true;
    if (file->mapped != NULL)
        munmap(file->mapped, (size_t)file->bytes);
    file->mapped = NULL;
    if (!is_first(memory) && file->descriptor < 0) {
        file->descriptor = output_file_open(file->path, O_RDWR);
        if (file->descriptor < 0)
            durable_failed(error, "open", file->path, errno);
    }
    if (error->kind == ERROR_NONE)
        error_defer(pieces_reserve(file, part, error));
    if (!comm_agree(part->world, error))
        return false;
    void *mapped = mmap(NULL, (size_t)contents->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        file->descriptor, 0);
    if (mapped == MAP_FAILED)
        error_set(error, ERROR_MEMORY, "cannot map %s: %s", file->path, strerror(errno));
    else
        file->mapped = mapped;
    file->bytes = contents->bytes;
    file->unit_count = contents->unit_count;
    free(file->layout);
    file->layout = allocate((size_t)contents->unit_count, sizeof *contents->layout);
    memcpy(file->layout, contents->layout, layout_bytes);
    return comm_agree(part->world, error);
}

bool memory_checkpoint_write(struct memory_checkpoint *memory, const struct checkpoint_order *order,
                             struct error *error)
{
    struct memory_file *file = &memory->file[memory->next];
    struct checkpoint_part part;
    checkpoint_part_plan(&part, memory->flat, order);
    struct comm *world = part.world;
    memcpy(part.receiver, memory->partner, (size_t)world->size * sizeof *part.receiver);
    snprintf(part.final_path, sizeof part.final_path, "%s/%s", memory->folder, order->name);
    snprintf(part.path, sizeof part.path, "%s/%s.part", memory->folder, order->name);
    error_defer(file_begin(memory, file, part.path, error));
    bool good = comm_agree(world, error) && frame_create(memory, file, &part.contents, error) &&
                file_map(memory, &part, error);
    if (good) {
        part.mapped = file->mapped;
        status_set_phase(PHASE_CHECKPOINT_MEMORY);
        checkpoint_part_write(&part, error);
        status_set_phase(PHASE_CHECKPOINT_NAME);
        checkpoint_part_gather_sums(&part);
        if (is_first(memory) &&
            checkpoint_tables_write(file->descriptor, part.path, &part.contents, error) &&
            rename(part.path, part.final_path) != 0)
            durable_failed(error, "rename", part.path, errno);
        good = comm_agree(world, error);
    }
    snprintf(file->path, sizeof file->path, "%s", good ? part.final_path : part.path);
    checkpoint_part_end(&part, true);
    memory->next = 1 - memory->next;
    return good;
}
