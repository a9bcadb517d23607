// SPDX-License-Identifier: BSD-3-Clause
#include "shards.h"

#include <unistd.h>

#include <archive_entry.h>

#include "core/log.h"
#include "core/text_file.h"
#include "vector_file.h"

const uint8_t *image;
size_t image_bytes;
static struct vector_file *vectors;
static int trees;
char shard_path[2048];
const int default_labels[3] = {0, 2, 1};

const char *path_of(const char *name)
{
    snprintf(shard_path, sizeof shard_path, "%s/%s", options.data.root, name);
    return shard_path;
}

struct archive *shard_begin(const char *name, const char *format)
{
    struct archive *archive = archive_write_new();
    assert_int_equal(archive_write_set_format_by_name(archive, format), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(archive, path_of(name)), ARCHIVE_OK);
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

void shard_add_text(struct archive *archive, const char *name, const char *content)
{
    shard_add_file(archive, name, content, strlen(content));
}

void shard_add_jpeg(struct archive *archive, const char *name)
{
    shard_add_file(archive, name, image, image_bytes);
}

void shard_end(struct archive *archive)
{
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
}

/* A shard of samples 0, 1, ... with these labels. */
void shard_put(const char *name, int count, const int *labels)
{
    char key[32], label[16];
    struct archive *archive = shard_begin(name, "ustar");
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%06d.cls", i);
        snprintf(label, sizeof label, "%d", labels[i]);
        shard_add_text(archive, key, label);
        snprintf(key, sizeof key, "%06d.jpg", i);
        shard_add_jpeg(archive, key);
    }
    shard_end(archive);
}

/* The record is the image, with this label and this end of its name. */
void check_record(int64_t index, int32_t expected, const char *ending)
{
    char name[4096];
    struct byte_buffer bytes = {0};
    struct error error = {0};
    int32_t label = -1;
    assert_ok(dataset_load(&dataset, index, &bytes, &label, &error), &error);
    assert_int_equal(label, expected);
    assert_int_equal(bytes.count, image_bytes);
    assert_memory_equal(bytes.data, image, image_bytes);
    free(bytes.data);
    dataset_name(&dataset, index, name, sizeof name);
    assert_has(name, ending);
}

void shard_put_default(const char *name)
{
    shard_put(name, 3, default_labels);
}

void shard_put_problems(void)
{
    struct archive *archive = shard_begin("a.tar", "ustar");
    shard_add_text(archive, "0.cls", "0");
    shard_add_jpeg(archive, "0.jpg");
    shard_add_jpeg(archive, "1.jpg"); /* no label */
    shard_add_text(archive, "2.cls", "1");
    shard_add_text(archive, "3.cls", "x");
    shard_add_jpeg(archive, "3.jpg");
    shard_add_text(archive, "4.json", "{\"label\": \"cat\"}");
    shard_add_jpeg(archive, "4.jpg");
    shard_add_text(archive, "5.cls", "1");
    shard_add_jpeg(archive, "5.jpg");
    shard_add_jpeg(archive, "5.png");
    shard_add_text(archive, "6.cls", "-1");
    shard_add_jpeg(archive, "6.jpg");
    shard_add_text(archive, "0.cls", "1"); /* twice */
    shard_add_jpeg(archive, "0.jpg");
    shard_add_text(archive, "7.cls",
                   "1234567890123456789012345678901234567890123456789012345678901234567");
    shard_add_jpeg(archive, "7.jpg");
    shard_add_text(archive, "8.cls", "2");
    shard_add_jpeg(archive, "8.jpg");
    shard_end(archive);
}

char *shard_read(const char *name, size_t *bytes)
{
    char *content = text_file_read(path_of(name), bytes);
    assert_non_null(content);
    return content;
}

/* A new file is written faster than an old one is replaced: some file systems flush the latter. */
void file_write(const char *path, const void *content, size_t bytes)
{
    unlink(path);
    FILE *file = fopen(path, "we");
    assert_true(file != NULL && fwrite(content, 1, bytes, file) == bytes && fclose(file) == 0);
}

void shard_write(const char *name, const void *content, size_t bytes)
{
    file_write(path_of(name), content, bytes);
}

/* The checksum of a tar header. */
void header_sum(char *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum & 0777777);
}

int shards_begin(void **state)
{
    (void)state;
    char name[32];
    dataset_begin("webdataset");
    snprintf(name, sizeof name, "tree%d", ++trees);
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_directory(name));
    return 0;
}

int shards_open(void **state)
{
    (void)state;
    int64_t count;
    vectors = vector_file_open("image_files.safetensors");
    image = vector_file_bytes(vectors, "file.jpeg_420", &count);
    image_bytes = (size_t)count;
    temporary_open();
    log_open(0, LOG_QUIET);
    setenv("XDG_CACHE_HOME", temporary_path("cache"), 1);
    return 0;
}

int shards_close(void **state)
{
    (void)state;
    temporary_close();
    vector_file_close(vectors);
    return 0;
}
