// SPDX-License-Identifier: BSD-3-Clause
#include "shards.h"

#include <archive_entry.h>

#include "base/log.h"
#include "vector_file.h"

const uint8_t *image;
size_t image_bytes;

struct archive *shard_begin(const char *name, const char *format)
{
    struct archive *archive = archive_write_new();
    assert_int_equal(archive_write_set_format_by_name(archive, format), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(archive, root_path("%s", name)), ARCHIVE_OK);
    return archive;
}

void shard_add_file(struct archive *archive, const char *name, const void *bytes, size_t count)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, (int64_t)count);
    archive_entry_set_filetype(entry, name[strlen(name) - 1] == '/' ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    assert_true(archive_write_header(archive, entry) >= ARCHIVE_WARN); /* names not in ASCII */
    assert_int_equal(archive_write_data(archive, bytes, count), (int)count);
    archive_entry_free(entry);
}

void shard_add(struct archive *archive, const char *members)
{
    char copy[1024], *rest = copy;
    snprintf(copy, sizeof copy, "%s", members);
    for (char *name; (name = strsep(&rest, "|")) != NULL;) {
        char *text = strchr(name, '=');
        if (text != NULL)
            *text++ = '\0';
        shard_add_file(archive, name, text != NULL ? (void *)text : image,
                       text != NULL ? strlen(text) : image_bytes);
    }
}

void shard_end(struct archive *archive)
{
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
}

void shard_make(const char *name, const char *format, const char *members)
{
    struct archive *archive = shard_begin(name, format);
    shard_add(archive, members);
    shard_end(archive);
}

void check_record(int64_t index, int32_t expected, const char *ending)
{
    struct byte_buffer bytes = {0};
    assert_ok(dataset_load(&dataset, index, &bytes, &error), &error);
    assert_int_equal(dataset_label(&dataset, index), expected);
    assert_int_equal(bytes.count, image_bytes);
    assert_memory_equal(bytes.data, image, image_bytes);
    free(bytes.data);
    record_is_named(index, ending);
}

void shards_begin(void)
{
    dataset_begin_folder("data.format=webdataset");
}

void shards_open(void)
{
    image_vectors_open();
    image = sample_find("jpeg_420").bytes;
    image_bytes = sample_find("jpeg_420").count;
    temporary_open();
    log_open(0, LOG_QUIET);
}

void shards_close(void)
{
    temporary_close();
    image_vectors_close();
}
