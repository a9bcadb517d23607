// SPDX-License-Identifier: BSD-3-Clause
/* The choice between oneDNN and tiles for the products of a layer: devices use the choices that
 * they adopt, and compute the same bits; devices without tiles make no choices. Where oneDNN
 * multiplies with AMX, its bits can be those of tiles, so calls of the tile kernels are counted. */
#include <dirent.h>
#include <stdatomic.h>

#include "device/choices.h"
#include "device/cpu.h"
#include "device/tile_kernels.h"
#include "device_test.h"
#include "temporary.h"
#include "test.h"

enum { ROWS = 70, IN = 100, OUT = 50 };

struct results {
    uint16_t *y, *dx;
    float *dweight, *dbias;
};

static atomic_int tile_calls;

static void count_and_multiply(const struct tile_block *block)
{
    tile_calls++;
    tile_kernels_amx_emulated.product->multiply(block);
}

/* Count in tile_calls the products that tiles compute from now on. The device must have all choices
 * that it needs, because it would measure missing ones as on a processor with AMX. */
static void count_tile_calls(struct device_test *test)
{
    static struct tile_product_kernels product;
    static struct tile_kernels tiles;
    product = *tile_kernels_amx_emulated.product;
    product.multiply = count_and_multiply;
    tiles = tile_kernels_amx_emulated;
    tiles.product = &product;
    ((struct cpu_device *)test->device)->tiles = &tiles;
}

static struct results layer_run(struct device_test *test)
{
    const struct results results = {.y = device_test_zeros(test, TYPE_BF16, ROWS * OUT),
                                    .dx = device_test_zeros(test, TYPE_BF16, ROWS * IN),
                                    .dweight = device_test_zeros(test, TYPE_FP32, OUT * IN),
                                    .dbias = device_test_zeros(test, TYPE_FP32, OUT)};
    const struct linear_forward forward = {
        .type = TYPE_BF16,
        .rows = ROWS,
        .in = IN,
        .out = OUT,
        .rows_per_sample = 1,
        .x = device_test_random(test, TYPE_BF16, ROWS * IN, 1, 1),
        .weight = device_test_random(test, TYPE_BF16, OUT * IN, 1, 2),
        .y = results.y};
    tile_calls = 0;
    test->device->backend->linear_forward(test->stream, &forward);
    DEVICE_RUN(test, linear_backward, .type = TYPE_BF16, .rows = ROWS, .in = IN, .out = OUT,
               .rows_per_sample = 1, .x = forward.x, .weight = forward.weight,
               .dy = device_test_random(test, TYPE_BF16, ROWS * OUT, 1, 4), .dx = results.dx,
               .dweight = results.dweight, .dbias = results.dbias);
    return results;
}

static bool results_equal(const struct results *a, const struct results *b)
{
    return memcmp(a->y, b->y, ROWS * OUT * sizeof *a->y) == 0 &&
           memcmp(a->dx, b->dx, ROWS * IN * sizeof *a->dx) == 0 &&
           memcmp(a->dweight, b->dweight, OUT * IN * sizeof *a->dweight) == 0 &&
           memcmp(a->dbias, b->dbias, OUT * sizeof *a->dbias) == 0;
}

/* Return the text with oneDNN chosen for every product in it. */
static char *with_onednn(const char *text)
{
    const struct choice onednn = {{1}};
    char of[256], key[CHOICE_KEY];
    snprintf(of, sizeof of, "%.*s", (int)strcspn(text, "\n"), text);
    struct choices *choices = choices_open("", of);
    for (const char *line = strchr(text, '\n'); line != NULL && line[1] != '\0';
         line = strchr(line + 1, '\n')) {
        snprintf(key, sizeof key, "%.*s", (int)(strstr(line, " = ") - line - 1), line + 1);
        choices_put(choices, key, &onednn);
    }
    char *other = choices_export(choices);
    choices_close(choices);
    return other;
}

static void open_as(struct device_test *test, const char *kernels, int threads, const char *folder)
{
    device_test_set_kernels(kernels);
    device_test_open(test, threads);
    test->device->backend->settings_set(test->device, &(struct device_settings){.cache = folder});
}

static int files_in(const char *folder)
{
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

TEST(adopted_choices_are_used)
{
    struct device_test first, second;
    const char *folder = temporary_directory("cache");
    open_as(&first, "amx-emulated", 1, folder);
    const struct results reference = layer_run(&first);
    char *tiles = first.device->backend->choices_export(first.device);
    for (int i = 0; i < 3; i++) {
        static const char *const operations[] = {"forward", "input", "weight"};
        char line[64];
        snprintf(line, sizeof line, "\nbf16 %s 70x100x50 = 0000000000000000 ", operations[i]);
        assert_has(tiles, line);
    }
    /* A choice is valid for any number of threads. */
    open_as(&second, "amx-emulated", 2, folder);
    const struct device_backend *backend = second.device->backend;
    char *onednn = with_onednn(tiles);
    assert_false(backend->choices_adopt(second.device, onednn));
    count_tile_calls(&second);
    layer_run(&second);
    assert_int_equal(tile_calls, 0);
    assert_false(backend->choices_are_new(second.device));
    assert_true(backend->choices_adopt(second.device, tiles));
    const struct results same = layer_run(&second);
    assert_true(tile_calls > 0);
    assert_true(results_equal(&reference, &same));
    assert_int_equal(files_in(folder), 0);
    free(onednn);
    free(tiles);
    device_test_close(&second);
    device_test_close(&first);
}

TEST(without_tiles_nothing_is_chosen)
{
    struct device_test test;
    const char *folder = temporary_directory("cache");
    open_as(&test, "baseline", 1, folder);
    const struct device_backend *backend = test.device->backend;
    layer_run(&test);
    char *text = backend->choices_export(test.device);
    assert_has(text, ", baseline, oneDNN ");
    assert_string_equal(strchr(text, '\n'), "\n");
    assert_false(backend->choices_are_new(test.device));
    assert_false(backend->choices_adopt(test.device, "GPU X, 1.2\n"));
    assert_int_equal(files_in(folder), 0);
    free(text);
    device_test_close(&test);
}

/* The rule holds even if another choice was adopted. */
TEST(reproducible_devices_do_not_measure)
{
    struct device_test first, second;
    const char *folder = temporary_directory("cache");
    open_as(&first, "amx-emulated", 1, folder);
    const struct results reference = layer_run(&first);
    char *tiles = first.device->backend->choices_export(first.device);
    char *onednn = with_onednn(tiles);
    open_as(&second, "amx-emulated", 2, folder);
    second.device->backend->choices_adopt(second.device, onednn);
    second.device->reproducible = true;
    count_tile_calls(&second);
    const struct results same = layer_run(&second);
    assert_true(tile_calls > 0);
    assert_true(results_equal(&reference, &same));
    assert_false(second.device->backend->choices_are_new(second.device));
    free(onednn);
    free(tiles);
    device_test_close(&second);
    device_test_close(&first);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_teardown)
