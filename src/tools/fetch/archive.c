// SPDX-License-Identifier: BSD-3-Clause
/* Extracts a data set from an archive. Names in the archive only select files of our table; paths
 * and sizes come from the table. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "core/folder.h"
#include "core/log.h"
#include "tools/fetch/download.h"

enum { FOLDER_SIZE = 4096, PATH_SIZE = FOLDER_SIZE + 256, CHUNK = 1 << 16, MEMBERS = 64 };

struct unpacking {
    const struct fetch_archive *archive;
    const char *path;      /* path of the archive */
    const char *directory; /* destination of the members */
    bool done[MEMBERS];
};

static bool member_is_whole(const char *directory, const struct fetch_member *member)
{
    char path[PATH_SIZE], found[CHECKSUM_TEXT];
    struct stat status;
    struct error unreadable = {0};
    snprintf(path, sizeof path, "%s/%s", directory, member->name);
    return stat(path, &status) == 0 && status.st_size == member->bytes &&
           checksum_matches(path, member->sha256, NULL, found, &unreadable);
}

static int find_member(const struct unpacking *unpacking, struct archive_entry *entry)
{
    const char *path = archive_entry_pathname(entry);
    if (path == NULL || archive_entry_filetype(entry) != AE_IFREG)
        return -1;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    for (int i = 0; i < unpacking->archive->member_count; i++)
        if (strcmp(unpacking->archive->member[i].name, name) == 0)
            return i;
    return -1;
}

static bool member_refuse(const struct unpacking *unpacking, const char *name, const char *why,
                          struct error *error)
{
    return error_set(error, ERROR_NETWORK,
                     "%s: %s: %s; the archive is damaged: set fetch.url to another address",
                     unpacking->path, name, why);
}

static bool write_all(int descriptor, const char *data, size_t bytes, const char *path,
                      struct error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(descriptor, data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return error_set(error, ERROR_FILE, "%s: %s; free some space or set fetch.dir", path,
                             strerror(errno));
        done += (size_t)put;
    }
    return true;
}

/* Copy the entry to a file, up to the size of the member. */
static bool copy_entry(const struct unpacking *unpacking, struct archive *reader,
                       const struct fetch_member *member, int descriptor, const char *path,
                       struct error *error)
{
    char chunk[CHUNK];
    int64_t left = member->bytes;
    for (;;) {
        la_ssize_t got = archive_read_data(reader, chunk, sizeof chunk);
        if (got < 0)
            return member_refuse(unpacking, member->name, archive_error_string(reader), error);
        if (got == 0)
            break;
        if (got > left)
            return member_refuse(unpacking, member->name, "is too large", error);
        left -= got;
        if (!write_all(descriptor, chunk, (size_t)got, path, error))
            return false;
    }
    if (left > 0)
        return member_refuse(unpacking, member->name, "is too small", error);
    if (fsync(descriptor) != 0)
        return error_set(error, ERROR_FILE, "%s: %s; free some space or set fetch.dir", path,
                         strerror(errno));
    return true;
}

static bool unpack_member(const struct unpacking *unpacking, struct archive *reader,
                          const struct fetch_member *member, struct error *error)
{
    char path[PATH_SIZE], part[PATH_SIZE + 8];
    char found[CHECKSUM_TEXT], why[2 * CHECKSUM_TEXT + 64];
    snprintf(path, sizeof path, "%s/%s", unpacking->directory, member->name);
    snprintf(part, sizeof part, "%s.part", path);
    int descriptor = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return error_set(error, ERROR_FILE, "%s: %s; set fetch.dir", part, strerror(errno));
    bool good = copy_entry(unpacking, reader, member, descriptor, part, error);
    close(descriptor);
    if (good && !checksum_matches(part, member->sha256, NULL, found, error)) {
        snprintf(why, sizeof why, "its SHA-256 is %s and not %s", found, member->sha256);
        good = error->kind == ERROR_NONE && member_refuse(unpacking, member->name, why, error);
    }
    if (good && rename(part, path) != 0)
        good = error_set(error, ERROR_FILE, "cannot rename %s.part: %s", path, strerror(errno));
    if (!good)
        unlink(part);
    return good;
}

static bool unpack_entries(struct unpacking *unpacking, struct archive *reader, struct error *error)
{
    struct archive_entry *entry;
    int status;
    while ((status = archive_read_next_header(reader, &entry)) == ARCHIVE_OK ||
           status == ARCHIVE_WARN) {
        int number = find_member(unpacking, entry);
        if (number < 0 || unpacking->done[number]) {
            log_debug("%s: %s is ignored", unpacking->path, archive_entry_pathname(entry));
            continue;
        }
        if (!unpack_member(unpacking, reader, &unpacking->archive->member[number], error))
            return false;
        unpacking->done[number] = true;
    }
    if (status != ARCHIVE_EOF)
        return member_refuse(unpacking, "reading", archive_error_string(reader), error);
    for (int i = 0; i < unpacking->archive->member_count; i++)
        if (!unpacking->done[i])
            return member_refuse(unpacking, unpacking->archive->member[i].name, "is missing",
                                 error);
    return true;
}

static bool members_unpack(struct unpacking *unpacking, struct error *error)
{
    struct archive *reader = archive_read_new();
    ENSURE(reader != NULL, "libarchive cannot be started");
    archive_read_support_filter_gzip(reader);
    archive_read_support_format_tar(reader);
    bool good;
    if (archive_read_open_filename(reader, unpacking->path, CHUNK) == ARCHIVE_OK)
        good = unpack_entries(unpacking, reader, error);
    else
        good = member_refuse(unpacking, "opening", archive_error_string(reader), error);
    archive_read_free(reader);
    return good;
}

bool fetch_archive(const struct fetch_archive *archive, const char *url, const char *directory,
                   struct error *error)
{
    ENSURE(archive->member_count <= MEMBERS, "an archive of %d files", archive->member_count);
    const char *name = strrchr(archive->url, '/') + 1;
    char path[PATH_SIZE], folder[FOLDER_SIZE], address[FETCH_URL];
    if (strlen(directory) + strlen(archive->folder) + 2 > FOLDER_SIZE)
        return error_set(error, ERROR_USAGE, "fetch.dir=%s: the path is too long", directory);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(folder, sizeof folder, "%s/%s", directory, archive->folder);
    fetch_complete_url(url != NULL ? url : archive->url, name, address);
    bool whole = true;
    for (int i = 0; whole && i < archive->member_count; i++)
        whole = member_is_whole(folder, &archive->member[i]);
    if (whole) {
        log_info("%s is already complete", folder);
        return true;
    }
    if (!fetch_file(address, path, NULL, url == NULL ? archive->md5 : NULL, error))
        return false;
    if (!folder_make(folder, "choose another fetch.dir", error))
        return false;
    log_info("unpacking %s into %s", path, folder);
    struct unpacking unpacking = {.archive = archive, .path = path, .directory = folder};
    bool good = members_unpack(&unpacking, error);
    if (good || error->kind == ERROR_NETWORK)
        unlink(path); /* extracted, or damaged */
    return good;
}
