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
#include "checkpoint/memory_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_name.h"
#include "checkpoint/checkpoint_part.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/memory_frame.h"
#include "config/option_types.h"
#include "config/phase.h"
#include "core/allocate.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/memory.h"
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
    int *partner; /* [ranks]: the rank that keeps the copy of a rank's pieces; NULL: one node */
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
 * modulo the number of ranks there. NULL with one node. */
static int *partners_find(struct comm *world)
{
    int nodes, *node_of = allocate((size_t)world->size, sizeof *node_of);
    struct comm *here = comm_split_nodes(world, node_of, &nodes);
    here->backend->close(here);
    int *partner = nodes > 1 ? allocate((size_t)world->size, sizeof *partner) : NULL;
    for (int rank = 0; nodes > 1 && rank < world->size; rank++) {
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

/* Return the bytes of the files in a folder. */
static double folder_bytes(const char *folder)
{
    char path[PATH_MAX];
    struct stat status;
    double bytes = 0;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        bytes += lstat(path, &status) == 0 ? (double)status.st_blocks * 512 : 0;
    }
    return bytes;
}

/* Collective. Fail if /dev/shm of a node has too little free memory for both files. */
static bool free_memory_check(const struct memory_checkpoint *memory, struct error *error)
{
    const struct mesh *mesh = memory->flat->mesh;
    const double free = shared_memory_free();
    int64_t parts = 1; /* the part of this rank, and the copies of parts of others */
    for (int rank = 0; memory->partner != NULL && rank < mesh->world->size; rank++)
        parts += memory->partner[rank] == mesh->world->rank;
    int64_t needed = 2 * parts * (int64_t)checkpoint_snapshot_bytes(memory->flat);
    comm_all_reduce(mesh->node, &needed, 1, COMM_INT64, COMM_SUM);
    if (is_first(memory) && free < 0) {
        error_set(error, ERROR_FILE,
                  "checkpoint.memory: cannot use /dev/shm: %s; set checkpoint.memory=0",
                  strerror(errno));
    } else if (is_first(memory)) {
        char earlier[128];
        checkpoint_memory_folder(memory->earlier, earlier, sizeof earlier);
        /* Files of earlier attempts are removed before the second checkpoint is created. */
        const double available = free + (memory->earlier[0] != '\0' ? folder_bytes(earlier) : 0);
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

/* Digits at the start of an id that remain when a run gets a new id. */
enum { ID_OF_RUN = 8 };

/* Set `id` to a new id of the run whose id was `earlier`; "": none. */
static void id_create(const char *earlier, char id[MEMORY_ID])
{
    uint32_t number[2];
    ENSURE(getrandom(number, sizeof number, 0) == sizeof number, "no random number");
    snprintf(id, MEMORY_ID, "%08x%08x", number[0], number[1]);
    memcpy(id, earlier, earlier[0] != '\0' ? ID_OF_RUN : 0);
}

enum { SHM_PATH = sizeof "/dev/shm/" + NAME_MAX };

/* Set `path` to the next folder of this user in /dev/shm whose id begins with `begin`; false after
 * the last one. */
static bool folders_next(DIR **entries, const char *begin, char path[SHM_PATH])
{
    char start[128];
    checkpoint_memory_folder(begin, start, sizeof start);
    for (const char *name; (name = folder_next(entries, "/dev/shm")) != NULL;) {
        snprintf(path, SHM_PATH, "/dev/shm/%s", name);
        if (strncmp(path, start, strlen(start)) == 0 &&
            strlen(path) == strlen(start) - strlen(begin) + MEMORY_ID - 1 &&
            memory_folder_is_own(path))
            return true;
    }
    return false;
}

/* On the first rank of a node: remove the folders whose id begins like `earlier`, which are those
 * of the run, except that of `id`. */
static void others_remove(const char *earlier, const char *id)
{
    char begin[ID_OF_RUN + 1], path[SHM_PATH], kept[128];
    DIR *entries = NULL;
    snprintf(begin, sizeof begin, "%.*s", ID_OF_RUN, earlier);
    checkpoint_memory_folder(id, kept, sizeof kept);
    while (folders_next(&entries, begin, path))
        if (strcmp(path, kept) != 0)
            folder_remove(path);
}

/* True if a process uses the folder. */
static bool folder_is_held(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" MEMORY_REACHED, folder);
    const int file = output_file_open(path, O_RDWR);
    const bool held = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0;
    if (file >= 0)
        close(file);
    return held;
}

/* Set `run` to the run folder; "": unknown. Return true if a run may resume from the folder: it is
 * unknown, or the run folder, or one next to it if it was renamed, has the id. */
static bool folder_is_needed(const char *folder, char run[PATH_MAX])
{
    char path[PATH_MAX], parent[PATH_MAX], id[MEMORY_ID];
    DIR *entries = NULL;
    snprintf(path, sizeof path, "%s/" MEMORY_RUN, folder);
    const ssize_t length = readlink(path, run, PATH_MAX - 1);
    run[length > 0 ? length : 0] = '\0';
    bool needed = run[0] != '/';
    snprintf(parent, sizeof parent, "%.*s", needed ? 0 : (int)(strrchr(run, '/') + 1 - run), run);
    for (const char *name; (name = folder_next(&entries, parent)) != NULL;)
        needed = needed || (snprintf(path, sizeof path, "%s%s", parent, name) < (int)sizeof path &&
                            checkpoint_memory_id(path, id, NULL) && text_ends_with(folder, id));
    return needed;
}

/* On the first rank of a node: remove the folders of killed runs that are not needed. */
static void unneeded_remove(void)
{
    char path[SHM_PATH], run[PATH_MAX];
    DIR *entries = NULL;
    while (folders_next(&entries, "", path))
        if (!folder_is_held(path) && !folder_is_needed(path, run)) {
            log_info("%s is removed: a killed run left it, and %s does not need it", path, run);
            folder_remove(path);
        }
}

void memory_folders_list(char *text, size_t size)
{
    char path[SHM_PATH], run[PATH_MAX];
    DIR *entries = NULL;
    size_t used = 0;
    text[0] = '\0';
    while (folders_next(&entries, "", path))
        if (!folder_is_held(path) && used < size) {
            folder_is_needed(path, run);
            used += (size_t)snprintf(text + used, size - used, "%s%s (%.1f MB, of %s)",
                                     used > 0 ? ", " : "", path, folder_bytes(path) / 1e6,
                                     run[0] != '\0' ? run : "an unknown run");
        }
}

bool memory_folder_is_own(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

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
    if (checkpoint_memory_id(memory->run, found, NULL) && strcmp(found, id) == 0 &&
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
    checkpoint_memory_folder(memory->earlier, earlier, sizeof earlier);
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
        unneeded_remove();
    if (flat->mesh->world->rank == 0)
        checkpoint_memory_id(run, memory->earlier, NULL);
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
            checkpoint_memory_id_remove(memory->run); /* that of another folder, or damaged */
        return true;
    }
    if (world->rank == 0 && (memory->writes || memory->resumed[0] != '\0'))
        id_create(memory->earlier, id);
    comm_broadcast(world, id, sizeof id, COMM_BYTE, 0);
    if (id[0] != '\0') {
        checkpoint_memory_folder(id, memory->folder, sizeof memory->folder);
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
        error_defer(checkpoint_memory_id_write(memory->run, id, error));
    else if (world->rank == 0)
        checkpoint_memory_id_remove(memory->run);
    if (!comm_agree(world, error))
        return false;
    if (is_first(memory) && id[0] != '\0')
        run_link(memory, id);
    if (is_first(memory) && memory->earlier[0] != '\0')
        others_remove(memory->earlier, id);
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
        checkpoint_memory_id_remove(memory->run);
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
    comm_broadcast(world, contents->layout,
                   contents->unit_count * (int64_t)sizeof *contents->layout, COMM_BYTE, 0);
    comm_broadcast(world, &contents->bytes, 1, COMM_INT64, 0);
    return memory_frame_share(world, 0, contents, is_first(memory) ? file->descriptor : -1,
                              file->path, error);
}

/* True if this rank writes the piece: its own, or one of which it keeps the copy. */
static bool writes_piece(const struct memory_checkpoint *memory, const struct checkpoint_part *part,
                         int64_t p)
{
    const int self = part->world->rank, owner = part->owner[p];
    return owner == self || (memory->partner != NULL && memory->partner[owner] == self);
}

typedef void piece_action(struct memory_checkpoint *memory, struct checkpoint_part *part, int64_t u,
                          enum flat_vector kind, int64_t p, struct error *error);

/* Call `action` for each vector of each piece that this rank writes. All ranks have the same order,
 * so that blocking transfers between them cannot deadlock. */
static void pieces_visit(struct memory_checkpoint *memory, struct checkpoint_part *part,
                         piece_action *action, struct error *error)
{
    const struct checkpoint_contents *contents = &part->contents;
    for (int64_t u = 0; u < contents->unit_count; u++)
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
            for (int64_t i = 0;
                 checkpoint_has(contents, kind) && i < contents->layout[u].piece_count; i++) {
                const int64_t p = contents->layout[u].first_piece + i;
                if (writes_piece(memory, part, p))
                    action(memory, part, u, kind, p, error);
            }
}

/* Reserve memory for a piece. Without it, a write to a mapped hole raises SIGBUS if the file system
 * is full. */
static void piece_reserve(struct memory_checkpoint *memory, struct checkpoint_part *part, int64_t u,
                          enum flat_vector kind, int64_t p, struct error *error)
{
    const struct memory_file *file = &memory->file[memory->next];
    const int64_t offset = checkpoint_piece_offset(&part->contents, u, kind, p);
    if (error->kind == ERROR_NONE &&
        fallocate(file->descriptor, 0, offset,
                  part->contents.pieces[p].count * (int64_t)sizeof(float)) != 0)
        error_set(error, ERROR_MEMORY, "cannot reserve memory for %s: %s", file->path,
                  strerror(errno));
}

/* Copy a piece of this rank to the file and send it to the partner, or receive the piece of another
 * rank. */
static void piece_write(struct memory_checkpoint *memory, struct checkpoint_part *part, int64_t u,
                        enum flat_vector kind, int64_t p, struct error *error)
{
    struct checkpoint_piece *piece = &part->contents.pieces[p];
    const size_t bytes = (size_t)piece->count * sizeof(float);
    unsigned char *to =
        memory->file[memory->next].mapped + checkpoint_piece_offset(&part->contents, u, kind, p);
    const int owner = part->owner[p], self = part->world->rank;
    (void)error;
    if (owner == self) {
        vector_copy(part->flat, (int)u, kind, piece->begin, piece->count, (float *)(void *)to);
        piece->crc[kind] = crc32c_update(0, to, bytes);
        if (memory->partner != NULL)
            comm_send(part->world, to, bytes, memory->partner[owner]);
    } else {
        comm_receive(part->world, to, bytes, owner);
    }
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
    pieces_visit(memory, part, piece_reserve, error);
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
    char path[PATH_MAX], temporary[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", memory->folder, order->name);
    snprintf(temporary, sizeof temporary, "%s/%s.part", memory->folder, order->name);
    checkpoint_part_plan(&part, memory->flat, order);
    error_defer(file_begin(memory, file, temporary, error));
    bool good = comm_agree(part.world, error) &&
                frame_create(memory, file, &part.contents, error) && file_map(memory, &part, error);
    if (good) {
        status_set_phase(PHASE_CHECKPOINT_MEMORY);
        pieces_visit(memory, &part, piece_write, error);
        status_set_phase(PHASE_CHECKPOINT_NAME);
        checkpoint_part_gather_sums(&part);
        if (is_first(memory)) {
            part.descriptor = file->descriptor;
            if (checkpoint_part_put_tables(&part, error) && rename(temporary, path) != 0)
                durable_failed(error, "rename", temporary, errno);
            part.descriptor = -1;
        }
        good = comm_agree(part.world, error);
    }
    snprintf(file->path, sizeof file->path, "%s", good ? path : temporary);
    checkpoint_part_end(&part, true);
    memory->next = 1 - memory->next;
    return good;
}
