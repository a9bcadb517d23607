// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints in memory: writing, and finding the newest complete one.
 *
 * Checkpoints are written to two files per node, alternately. The first two checkpoints create
 * them; later ones rename the older file to NAME.part and overwrite it, so that no memory is
 * allocated. The first rank of each node renames it to NAME when the ranks of all nodes have
 * written their pieces, through a mapping. Until then the file of the previous checkpoint stays
 * unchanged.
 *
 * After a restart nodes may have different files: a node may be new, may have missed some attempts,
 * or may have lost a file. Files of one checkpoint have the same state and tables. A node has a
 * piece if the checksum of the piece in its file is right. */
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
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sensors.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/memory_checkpoint.h"
#include "options/option_types.h"

/* Files in the folder: the number of the step that began last, an int64_t; and a link to the run
 * folder. */
#define MEMORY_REACHED "reached"
#define MEMORY_RUN "run"

enum { SHM_PATH = sizeof "/dev/shm/" + NAME_MAX };

/* ---- ids ---- */

/* Return the folder in memory of the run with this id, the same on each node; the caller frees it.
 */
static char *folder_path(const char *id)
{
    return allocate_text("/dev/shm/vittrain-%u-%s", (unsigned)geteuid(), id);
}

/* Return the contents of RUN/.memory, to be freed by the caller: the id, and the inode of the run
 * folder, which differs in a copy of it but not in a moved folder. NULL and errno on failure. */
static char *memory_record(const char *run, const char *id)
{
    struct stat status;
    return stat(run, &status) != 0 ? NULL
                                   : allocate_text("%.*s\n%llu\n", MEMORY_ID - 1, id,
                                                   (unsigned long long)status.st_ino);
}

bool memory_id(const char *run, char id[MEMORY_ID], bool *unusable)
{
    OWNED char *path = allocate_text("%s/.memory", run);
    OWNED char *text = text_file_read(path, NULL);
    OWNED char *expected = memory_record(run, text != NULL ? text : "");
    const bool good = text != NULL && strspn(text, "0123456789abcdef") == MEMORY_ID - 1 &&
                      expected != NULL && strcmp(text, expected) == 0;
    if (unusable != NULL)
        *unusable = !good && (text != NULL || access(path, F_OK) == 0);
    snprintf(id, MEMORY_ID, "%s", good ? text : "");
    return good;
}

bool memory_id_write(const char *run, const char *id, struct error *error)
{
    OWNED char *path = allocate_text("%s/.memory", run);
    OWNED char *text = memory_record(run, id);
    return text != NULL ? atomic_file_write(path, text, error)
                        : error_set(error, ERROR_FILE, "cannot read %s: %s", run, strerror(errno));
}

void memory_id_remove(const char *run)
{
    OWNED char *path = allocate_text("%s/.memory", run);
    unlink(path);
}

/* ---- folders ---- */

/* True for a folder of this user to which no other user has access. */
static bool folder_is_own(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

static double folder_bytes(const char *folder)
{
    struct stat status;
    double bytes = 0;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", folder, name);
        bytes += lstat(path, &status) == 0 ? (double)status.st_blocks * 512 : 0;
    }
    return bytes;
}

/* True if a process uses the folder. */
static bool folder_is_held(const char *folder)
{
    OWNED char *path = allocate_text("%s/" MEMORY_REACHED, folder);
    const int file = output_file_open(path, O_RDWR);
    const bool held = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0;
    if (file >= 0)
        close(file);
    return held;
}

/* Set `path` to the next folder of this user in /dev/shm that no process holds, and `run` to its
 * run folder, "" if that is unknown. Return false after the last one. */
static bool folders_next(DIR **entries, char path[SHM_PATH], char run[PATH_MAX])
{
    OWNED char *own = folder_path("");
    for (const char *name; (name = folder_next(entries, "/dev/shm")) != NULL;) {
        snprintf(path, SHM_PATH, "/dev/shm/%s", name);
        if (strncmp(path, own, strlen(own)) != 0 || !folder_is_own(path) || folder_is_held(path))
            continue;
        OWNED char *link = allocate_text("%s/" MEMORY_RUN, path);
        const ssize_t length = readlink(link, run, PATH_MAX - 1);
        run[length > 0 && run[0] == '/' ? length : 0] = '\0';
        return true;
    }
    return false;
}

/* Remove the folders of killed runs of this user that no process holds and that no run can resume
 * from: neither the run folder nor one next to it, if it was renamed, has their id. A folder whose
 * run is unknown stays. */
static void folders_remove_unneeded(void)
{
    char path[SHM_PATH], run[PATH_MAX], id[MEMORY_ID];
    DIR *entries = NULL, *runs = NULL;
    while (folders_next(&entries, path, run)) {
        if (run[0] == '\0')
            continue;
        bool needed = false;
        OWNED char *parent = allocate_text("%.*s", (int)(strrchr(run, '/') + 1 - run), run);
        for (const char *name; (name = folder_next(&runs, parent)) != NULL;) {
            OWNED char *other = allocate_text("%s%s", parent, name);
            needed = needed || (memory_id(other, id, NULL) && text_ends_with(path, id));
        }
        if (!needed) {
            log_info("%s is removed: a killed run left it, and %s does not need it", path, run);
            folder_remove(path);
        }
    }
}

void memory_folders_list(char *text, size_t size)
{
    char path[SHM_PATH], run[PATH_MAX];
    DIR *entries = NULL;
    size_t used = 0;
    text[0] = '\0';
    while (folders_next(&entries, path, run))
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s (%.1f MB, of %s)",
                                     used > 0 ? ", " : "", path, folder_bytes(path) / 1e6,
                                     run[0] != '\0' ? run : "an unknown run");
}

/* One of the two files. */
struct memory_file {
    char *path; /* NULL: not created by this attempt */
    int descriptor;
    unsigned char *mapped; /* the file's contents; NULL: not mapped */
    int64_t bytes;         /* of the mapped file */
    uint32_t layout;       /* CRC32C of the layout for which memory was reserved */
};

struct memory_checkpoint {
    const struct flat_model *flat;
    char *run;     /* the run folder */
    char *folder;  /* NULL: not needed */
    char *resumed; /* the file from which the run has resumed; NULL: not in memory */
    int *partner;  /* [ranks]: the rank that keeps the copy of a rank's pieces, or NULL */
    struct memory_file file[2];
    int next;    /* index in `file` of the next checkpoint */
    int reached; /* the file `reached`, locked as long as the process uses the folder; -1: none */
};

static bool is_first(const struct memory_checkpoint *memory)
{
    return memory->flat->mesh->node->rank == 0;
}

/* ---- sizes ---- */

size_t memory_checkpoint_bytes(const struct flat_model *flat)
{
    return 2 * checkpoint_divide(flat).snapshot_bytes * (flat->mesh->node_count > 1 ? 2 : 1);
}

double memory_checkpoint_interval(double checkpoint, double step)
{
    return ceil(100 * checkpoint / step);
}

/* Collective. Return the partner of each rank: the rank of the next node with the same local rank,
 * modulo the number of ranks there. With one node a rank is its own partner. */
static int *partners_find(struct comm *world)
{
    const size_t ranks = (size_t)world->size;
    int nodes;
    OWNED int *node_of = allocate(ranks, sizeof *node_of);
    struct comm *here = comm_split_nodes(world, node_of, &nodes);
    here->backend->close(here);
    OWNED int *local = allocate(ranks, sizeof *local);     /* rank within its node */
    OWNED int *first = allocate(ranks + 1, sizeof *first); /* of the ranks of a node in `member` */
    OWNED int *member = allocate(ranks, sizeof *member);   /* all ranks, node by node */
    int *partner = allocate(ranks, sizeof *partner);
    for (size_t rank = 0; rank < ranks; rank++)
        local[rank] = first[node_of[rank] + 1]++;
    for (int node = 0; node < nodes; node++)
        first[node + 1] += first[node];
    for (int rank = 0; rank < world->size; rank++)
        member[first[node_of[rank]] + local[rank]] = rank;
    for (size_t rank = 0; rank < ranks; rank++) {
        const int next = (node_of[rank] + 1) % nodes;
        partner[rank] = member[first[next] + local[rank] % (first[next + 1] - first[next])];
    }
    return partner;
}

/* ---- the folder ---- */

/* Collective. Fail if /dev/shm of this node has too little free memory for two checkpoints. */
static bool space_check(const struct memory_checkpoint *memory, const char *earlier,
                        struct error *error)
{
    const struct mesh *mesh = memory->flat->mesh;
    int64_t parts = 0; /* the part of this rank, and the copies of parts of others */
    for (int rank = 0; rank < mesh->world->size; rank++)
        parts += rank == mesh->world->rank || memory->partner[rank] == mesh->world->rank;
    int64_t needed = 2 * parts * (int64_t)checkpoint_divide(memory->flat).snapshot_bytes;
    comm_all_reduce(mesh->node, &needed, 1, COMM_INT64, COMM_SUM);
    /* Files of the earlier attempt are removed before the second checkpoint is created. */
    OWNED char *folder = folder_path(earlier);
    const double available =
        fmax(shared_memory_free(), 0) + (earlier[0] != '\0' ? folder_bytes(folder) : 0);
    return (double)needed <= available ||
           error_set(error, ERROR_MEMORY,
                     "checkpoint.memory: two checkpoints take %.1f MB in /dev/shm of this node, "
                     "where %.1f MB are free; enlarge /dev/shm, use more nodes, or set "
                     "checkpoint.memory=0",
                     (double)needed / 1e6, available / 1e6);
}

/* On the first rank of a node: create the folder and its file `reached`. If the run has resumed
 * from memory, the folder has a link to the checkpoint. */
static bool folder_create(struct memory_checkpoint *memory, struct error *error)
{
    OWNED char *reached = allocate_text("%s/" MEMORY_REACHED, memory->folder);
    if (mkdir(memory->folder, 0700) != 0)
        return error_set(error, ERROR_FILE,
                         "checkpoint.memory: cannot create %s: %s; set checkpoint.memory=0",
                         memory->folder, strerror(errno));
    memory->reached = output_file_open(reached, O_RDWR | O_CREAT);
    if (memory->reached < 0)
        return durable_failed(error, "create", reached, errno);
    flock(memory->reached, LOCK_SH);
    if (memory->resumed == NULL)
        return true;
    OWNED char *to = allocate_text("%s/%s", memory->folder, text_base_name(memory->resumed));
    return link(memory->resumed, to) == 0 || durable_failed(error, "link", memory->resumed, errno);
}

/* Link the folder to the run folder, if this node sees that RUN/.memory has the id. Without the
 * link other runs keep the folder. */
static void folder_link(const struct memory_checkpoint *memory, const char *id)
{
    char found[MEMORY_ID], run[PATH_MAX];
    OWNED char *path = allocate_text("%s/" MEMORY_RUN, memory->folder);
    if (memory_id(memory->run, found, NULL) && strcmp(found, id) == 0 &&
        realpath(memory->run, run) != NULL && symlink(run, path) != 0)
        log_detail("cannot create the link %s: %s", path, strerror(errno));
}

struct memory_checkpoint *memory_checkpoint_open(const char *run, const struct flat_model *flat,
                                                 const char *resumed, bool writes,
                                                 struct error *error)
{
    struct memory_checkpoint *memory = allocate(1, sizeof *memory);
    struct comm *world = flat->mesh->world;
    const bool has_folder = writes || resumed[0] != '\0';
    char earlier[MEMORY_ID] = "", id[MEMORY_ID];
    uint32_t number[2];
    *memory =
        (struct memory_checkpoint){.flat = flat,
                                   .run = allocate_copy(run),
                                   .resumed = resumed[0] != '\0' ? allocate_copy(resumed) : NULL,
                                   .file = {{.descriptor = -1}, {.descriptor = -1}},
                                   .reached = -1};
    ENSURE(getrandom(number, sizeof number, 0) == sizeof number, "no random number");
    snprintf(id, sizeof id, "%08x%08x", number[0], number[1]);
    comm_broadcast(world, id, sizeof id, COMM_BYTE, 0);
    if (is_first(memory))
        folders_remove_unneeded();
    if (world->rank == 0)
        memory_id(run, earlier, NULL);
    comm_broadcast(world, earlier, sizeof earlier, COMM_BYTE, 0);
    memory->partner = writes ? partners_find(world) : NULL;
    if (writes)
        error_defer(space_check(memory, earlier, error));
    memory->folder = has_folder ? folder_path(id) : NULL;
    if (comm_agree(world, error) && is_first(memory) && has_folder)
        error_defer(folder_create(memory, error));
    /* With the new id in RUN/.memory, the run uses the new folder. */
    if (comm_agree(world, error) && world->rank == 0 && has_folder)
        error_defer(memory_id_write(run, id, error));
    if (!comm_agree(world, error)) {
        if (is_first(memory) && has_folder && folder_is_own(memory->folder))
            folder_remove(memory->folder);
        memory_checkpoint_close(memory, false);
        return NULL;
    }
    OWNED char *earlier_folder = folder_path(earlier);
    if (is_first(memory) && has_folder)
        folder_link(memory, id);
    else if (world->rank == 0 && !has_folder)
        memory_id_remove(run);
    if (is_first(memory) && earlier[0] != '\0' && folder_is_own(earlier_folder))
        folder_remove(earlier_folder);
    return memory;
}

void memory_checkpoint_step(struct memory_checkpoint *memory, int64_t step)
{
    if (memory != NULL && memory->reached >= 0 &&
        pwrite(memory->reached, &step, sizeof step, 0) != sizeof step)
        log_detail("cannot write %s/" MEMORY_REACHED ": %s", memory->folder, strerror(errno));
}

void memory_checkpoint_close(struct memory_checkpoint *memory, bool removes)
{
    if (memory == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        if (memory->file[i].mapped != NULL)
            munmap(memory->file[i].mapped, (size_t)memory->file[i].bytes);
        if (memory->file[i].descriptor >= 0)
            close(memory->file[i].descriptor);
        free(memory->file[i].path);
    }
    if (memory->reached >= 0)
        close(memory->reached);
    removes = removes && memory->folder != NULL;
    if (removes && is_first(memory) && folder_is_own(memory->folder))
        folder_remove(memory->folder);
    if (removes && memory->flat->mesh->world->rank == 0)
        memory_id_remove(memory->run);
    free(memory->run);
    free(memory->folder);
    free(memory->resumed);
    free(memory->partner);
    free(memory);
}

/* ---- writing ---- */

/* A vector: bytes of the file. */
struct range {
    int64_t begin, end;
};

static int ascending(const void *a, const void *b)
{
    const struct range *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Collective. Copy the frame, all bytes outside of the vectors, from the file of rank `root` to the
 * files of the other ranks. A rank with descriptor -1 has no file. */
static bool frame_share(struct comm *world, int root, const struct checkpoint_contents *contents,
                        int descriptor, const char *path, struct error *error)
{
    OWNED struct range *vector =
        allocate((size_t)contents->unit_count * FLAT_VECTORS + 1, sizeof *vector);
    size_t vectors = 0;
    int64_t begin = 0;
    for (int64_t u = 0; u < contents->unit_count; u++)
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
            const int64_t offset = contents->layout[u].offset[kind];
            if (checkpoint_has(contents, kind))
                vector[vectors++] = (struct range){offset, offset + contents->layout[u].count *
                                                                        (int64_t)sizeof(float)};
        }
    qsort(vector, vectors, sizeof *vector, ascending);
    vector[vectors++].begin = contents->bytes;
    for (size_t i = 0; i < vectors; begin = vector[i++].end) {
        const size_t bytes = (size_t)larger(vector[i].begin - begin, 0);
        OWNED char *data = allocate(bytes, 1);
        if (world->rank == root && error->kind == ERROR_NONE)
            error_defer(durable_read(descriptor, path, data, bytes, begin, error));
        comm_broadcast(world, data, (int64_t)bytes, COMM_BYTE, root);
        if (world->rank != root && descriptor >= 0 && error->kind == ERROR_NONE)
            error_defer(durable_write(descriptor, path, data, bytes, begin, error));
    }
    if (world->rank != root && descriptor >= 0 && error->kind == ERROR_NONE &&
        ftruncate(descriptor, contents->bytes) != 0)
        error_set(error, ERROR_MEMORY, "cannot set the size of %s: %s", path, strerror(errno));
    return comm_agree(world, error);
}

/* Collective. Reserve memory for the pieces that this rank writes, which are its own and those of
 * which it keeps the copy, and map the file on all ranks, unless this was done for the same layout.
 * Without reserved memory, a write to a mapped hole raises SIGBUS if the file system is full. */
static bool file_map(const struct memory_checkpoint *memory, struct memory_file *file,
                     const struct checkpoint_part *part, struct error *error)
{
    const struct checkpoint_contents *contents = &part->contents;
    const int self = part->world->rank;
    const uint32_t layout =
        crc32c_update(0, contents->layout, (size_t)contents->unit_count * sizeof *contents->layout);
    if (file->mapped != NULL && file->bytes == contents->bytes && file->layout == layout)
        return true;
    if (file->mapped != NULL)
        munmap(file->mapped, (size_t)file->bytes);
    file->mapped = NULL;
    file->bytes = contents->bytes;
    file->layout = layout;
    if (!is_first(memory) && file->descriptor < 0) {
        file->descriptor = output_file_open(part->path, O_RDWR);
        if (file->descriptor < 0)
            durable_failed(error, "open", part->path, errno);
    }
    struct checkpoint_block block = {.u = 0};
    while (error->kind == ERROR_NONE && checkpoint_next(contents, &block)) {
        const int writer = checkpoint_piece_writer(part, block.p);
        if ((writer == self || part->receiver[writer] == self) &&
            fallocate(file->descriptor, 0, block.offset, (off_t)block.bytes) != 0)
            error_set(error, ERROR_MEMORY, "cannot reserve memory for %s: %s", part->path,
                      strerror(errno));
    }
    if (error->kind == ERROR_NONE) {
        void *mapped = mmap(NULL, (size_t)contents->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            file->descriptor, 0);
        if (mapped == MAP_FAILED)
            error_set(error, ERROR_MEMORY, "cannot map %s: %s", part->path, strerror(errno));
        else
            file->mapped = mapped;
    }
    return comm_agree(part->world, error);
}

bool memory_checkpoint_write(struct memory_checkpoint *memory, const struct checkpoint_order *order,
                             struct error *error)
{
    struct memory_file *file = &memory->file[memory->next];
    const bool other_exists = memory->file[1 - memory->next].path != NULL;
    struct checkpoint_part part;
    checkpoint_part_plan(&part, memory->folder, memory->flat, order);
    struct comm *world = part.world;
    memcpy(part.receiver, memory->partner, (size_t)world->size * sizeof *part.receiver);
    if (is_first(memory) && file->path != NULL && rename(file->path, part.path) != 0)
        durable_failed(error, "rename", file->path, errno);
    if (is_first(memory) && file->path == NULL) {
        if (other_exists && memory->resumed != NULL) { /* the first new checkpoint is complete */
            OWNED char *resumed =
                allocate_text("%s/%s", memory->folder, text_base_name(memory->resumed));
            unlink(resumed);
        }
        file->descriptor = durable_create(part.path, error);
    }
    bool good = comm_agree(world, error) &&
                checkpoint_part_frame(&part, file->descriptor, false, error) &&
                frame_share(world, 0, &part.contents, is_first(memory) ? file->descriptor : -1,
                            part.path, error) &&
                file_map(memory, file, &part, error);
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
    free(file->path);
    file->path = allocate_copy(good ? part.final_path : part.path);
    checkpoint_part_end(&part, true);
    memory->next = 1 - memory->next;
    return good;
}

/* ---- finding the newest complete checkpoint ---- */

enum { LISTED_MOST = 3 }; /* files listed per node */

/* A checkpoint file on the node of a rank. Only the first rank of a node lists files. */
struct listed {
    int64_t step; /* -1: no file */
    int64_t identity, rank;
};

/* List up to LISTED_MOST valid checkpoint files of a folder. Those that cannot be read are logged.
 * A checkpoint is identified by a checksum of its state, which has elapsed times, and its tables.
 */
static void folder_list(const char *folder, struct listed *listed)
{
    int count = 0;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", folder, name);
        struct checkpoint_contents contents = {.unit_count = 0};
        struct error ignored = {.kind = ERROR_NONE};
        struct stat status;
        if (count < LISTED_MOST && checkpoint_name_step(name) >= 0 && lstat(path, &status) == 0 &&
            S_ISREG(status.st_mode) && checkpoint_file_read(path, &contents, &ignored) &&
            contents.state.step == checkpoint_name_step(name)) {
            uint32_t crc = crc32c_update(0, &contents.state, sizeof contents.state);
            crc = crc32c_update(crc, contents.layout,
                                (size_t)contents.unit_count * sizeof *contents.layout);
            crc = crc32c_update(crc, contents.pieces,
                                (size_t)contents.piece_count * sizeof *contents.pieces);
            listed[count].step = contents.state.step;
            listed[count++].identity = crc;
        } else if (ignored.kind != ERROR_NONE) {
            log_warn("%s: ignored: %s", comm_host(), ignored.text);
        }
        checkpoint_contents_free(&contents);
    }
}

/* The newest first; files of one checkpoint by rank. */
static int newest_first(const void *a, const void *b)
{
    const struct listed *left = a, *right = b;
    if (left->step != right->step)
        return left->step > right->step ? -1 : 1;
    if (left->identity != right->identity)
        return left->identity > right->identity ? 1 : -1;
    return (left->rank > right->rank) - (left->rank < right->rank);
}

/* Return the step in the file `reached`, 0 without a valid file. */
static int64_t reached_read(const char *folder)
{
    OWNED char *path = allocate_text("%s/" MEMORY_REACHED, folder);
    int64_t step = 0;
    const int file = output_file_open(path, O_RDONLY);
    if (file >= 0 && durable_pread(file, &step, sizeof step, 0) != sizeof step)
        step = 0;
    if (file >= 0)
        close(file);
    return step;
}

/* Collective. Verify all pieces in the file of each node. The ranks of a node divide the pieces
 * among them. `here`: false on nodes without a file of this checkpoint.
 * - source[pieces]: the lowest rank that found the piece valid; the number of ranks: none
 * - lacks[pieces]: this rank found that its node's file lacks the piece */
static void pieces_verify(const char *path, bool here, const struct checkpoint_contents *contents,
                          const struct mesh *mesh, int64_t *source, bool *lacks)
{
    const struct comm *node = mesh->node;
    const int file = here ? output_file_open(path, O_RDONLY) : -1;
    OWNED float *memory = allocate(VECTOR_BLOCK, sizeof *memory);
    struct error ignored = {.kind = ERROR_NONE};
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(contents, &block);)
        if (block.p % node->size == node->rank && !lacks[block.p])
            lacks[block.p] =
                file < 0 || !checkpoint_block_read(file, path, contents, &block, memory, &ignored);
    for (int64_t p = 0; p < contents->piece_count; p++)
        source[p] =
            p % node->size == node->rank && !lacks[p] ? mesh->world->rank : mesh->world->size;
    comm_all_reduce(mesh->world, source, contents->piece_count, COMM_INT64, COMM_MIN);
    if (file >= 0)
        close(file);
}

/* Collective. Copy from other nodes each piece that ranks of this node read and that is missing or
 * damaged in its file. A piece is broadcast: with DDP all nodes read it. */
static bool pieces_fetch(const char *path, const struct checkpoint_contents *contents,
                         const struct mesh *mesh, const int64_t *source, const bool *lacks,
                         struct error *error)
{
    struct comm *world = mesh->world;
    const int64_t count = contents->piece_count;
    OWNED bool *fetched = allocate((size_t)count, sizeof *fetched); /* by this rank */
    OWNED bool *wanted = allocate((size_t)count, sizeof *wanted);   /* by any rank */
    OWNED float *memory = allocate(VECTOR_BLOCK, sizeof *memory);
    struct checkpoint_block block = {.u = 0};
    while (checkpoint_next(contents, &block)) {
        const int64_t shard = flat_shard_count(contents->layout[block.u].count, mesh->shard->size);
        int64_t length;
        vector_overlap(block.piece->begin, block.piece->count, mesh->shard->rank * shard, shard,
                       &length);
        fetched[block.p] = length > 0;
    }
    comm_all_reduce(mesh->node, fetched, count, COMM_BYTE, COMM_MAX);
    for (int64_t p = 0; p < count; p++)
        wanted[p] = fetched[p] = fetched[p] && lacks[p];
    comm_all_reduce(world, wanted, count, COMM_BYTE, COMM_MAX);
    const int file = output_file_open(path, O_RDWR);
    if (file < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    block = (struct checkpoint_block){.u = 0};
    for (bool good = comm_agree(world, error); good && checkpoint_next(contents, &block);) {
        const int from = (int)source[block.p];
        if (!wanted[block.p])
            continue;
        if (world->rank == from && error->kind == ERROR_NONE)
            error_defer(checkpoint_block_read(file, path, contents, &block, memory, error));
        comm_broadcast(world, memory, block.piece->count, COMM_FP32, from);
        if (fetched[block.p] && error->kind == ERROR_NONE)
            error_defer(durable_write(file, path, memory, block.bytes, block.offset, error));
    }
    if (file >= 0)
        close(file);
    return comm_agree(world, error);
}

/* Collective. Verify the checkpoint with this path on each node; `here`: this node has its file;
 * `root`: a rank whose node has it. If each piece is valid on some node, create the missing files,
 * in place of others of that name, and copy the pieces that the ranks of their nodes read, and
 * return true. Else no file is changed. After an error files may be incomplete. */
static bool checkpoint_complete(const char *folder, const char *path, bool here, int root,
                                const struct mesh *mesh, struct error *error)
{
    struct comm *world = mesh->world;
    struct checkpoint_contents contents;
    int descriptor = -1;
    bool complete = checkpoint_contents_read(path, world, root, &contents, error);
    OWNED int64_t *source = allocate((size_t)contents.piece_count, sizeof *source);
    OWNED bool *lacks = allocate((size_t)contents.piece_count, sizeof *lacks);
    if (complete)
        pieces_verify(path, here, &contents, mesh, source, lacks);
    for (int64_t p = 0; p < contents.piece_count; p++)
        complete = complete && source[p] < world->size;
    if (complete && world->rank == root) {
        descriptor = output_file_open(path, O_RDONLY);
    } else if (complete && mesh->node->rank == 0 && !here) {
        mkdir(folder, 0700);
        unlink(path);
        descriptor = folder_is_own(folder) ? durable_create(path, error) : -1;
    }
    complete = complete && comm_agree(world, error) &&
               frame_share(world, root, &contents, descriptor, path, error) &&
               pieces_fetch(path, &contents, mesh, source, lacks, error);
    if (descriptor >= 0)
        close(descriptor);
    checkpoint_contents_free(&contents);
    return complete;
}

bool memory_find(const char *id, const struct mesh *mesh, struct memory_found *found,
                 struct error *error)
{
    struct comm *world = mesh->world;
    OWNED char *folder = folder_path(id);
    const int count = world->size * LISTED_MOST;
    OWNED struct listed *listed = allocate((size_t)count, sizeof *listed);
    struct listed *mine = &listed[world->rank * LISTED_MOST];
    memset(found, 0, sizeof *found);
    for (int i = 0; i < LISTED_MOST; i++)
        mine[i] = (struct listed){.step = -1, .rank = world->rank};
    if (mesh->node->rank == 0 && access(folder, F_OK) == 0) {
        found->exists = true;
        if (folder_is_own(folder)) {
            folder_list(folder, mine);
            found->reached = reached_read(folder);
        } else {
            error_set(error, ERROR_FILE,
                      "checkpoint.memory: %s exists, but is not a private folder of this user; "
                      "remove it",
                      folder);
        }
    }
    comm_all_reduce(world, &found->reached, 1, COMM_INT64, COMM_MAX);
    comm_all_reduce(world, &found->exists, 1, COMM_BYTE, COMM_MAX);
    comm_agree(world, error);
    comm_all_gather(world, listed, LISTED_MOST * (int64_t)sizeof *listed, COMM_BYTE);
    qsort(listed, (size_t)count, sizeof *listed, newest_first);
    for (int i = 0, next;
         i < count && listed[i].step >= 0 && found->path[0] == '\0' && error->kind == ERROR_NONE;
         i = next) {
        char name[CHECKPOINT_NAME], path[sizeof found->path];
        struct error trouble = {.kind = ERROR_NONE};
        bool here = false;
        for (next = i; next < count && listed[next].step == listed[i].step &&
                       listed[next].identity == listed[i].identity;
             next++)
            here = here || listed[next].rank == world->rank;
        comm_all_reduce(mesh->node, &here, 1, COMM_BYTE, COMM_MAX);
        checkpoint_name(name, listed[i].step);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (checkpoint_complete(folder, path, here, (int)listed[i].rank, mesh, &trouble)) {
            snprintf(found->path, sizeof found->path, "%s", path);
            found->step = listed[i].step;
            continue;
        }
        if (trouble.kind == ERROR_MEMORY)
            *error = trouble;
        log_warn("ignored: checkpoint in memory of step %lld: %s", (long long)listed[i].step,
                 trouble.kind != ERROR_NONE ? trouble.text : "some pieces are on no node");
    }
    return error->kind == ERROR_NONE;
}
