// SPDX-License-Identifier: BSD-3-Clause
/* Roles of the dimensions of arrays, and selected parts: levels, members, runs, rows and columns.
 * Each value is its own number in the array, as numpy.arange(N).reshape(SHAPE). */
#include "arrays/arrays.h"
#include "dataset_fixture.h"
#include "temporary.h"
#include "test.h"

enum { MEMBERS = 2, TIMES = 5, LEVELS = 3, HEIGHT = 6, WIDTH = 8, DIMENSIONS = 5, MOST = 7200 };

/* Dimensions by a letter: s is another name for t. */
static const char letters[] = "ntlyxs";
static const struct {
    const char *name, *units;
    int64_t count;
    double first, step;
} dimensions[] = {
    {"number", "", MEMBERS, 0, 1},         {"time", "hours since 2000-01-01", TIMES, 0, 6},
    {"level", "hPa", LEVELS, 1000, -250},  {"lat", "degrees_north", HEIGHT, 75, -30},
    {"lon", "degrees_east", WIDTH, 0, 45}, {"step", "", TIMES, 0, 1}};

static int number_of(char letter)
{
    return (int)(strchr(letters, letter) - letters);
}

/* Write the array `name` with these dimensions to a Zarr store; values[i] is first + i * step. */
static void array_make(const char *store, const char *name, const char *letter, double first,
                       double step, const char *attributes)
{
    static double values[MOST];
    char shape[64] = "", names[128] = "", chunk[32] = "", path[128], text[512];
    int64_t count = 1;
    for (const char *c = letter; *c != '\0'; c++) {
        const int d = number_of(*c);
        const char *comma = c > letter ? ", " : "";
        snprintf(shape + strlen(shape), 16, "%s%d", comma, (int)dimensions[d].count);
        snprintf(names + strlen(names), 24, "%s\"%s\"", comma, dimensions[d].name);
        snprintf(chunk + strlen(chunk), 4, "%s0", c > letter ? "." : "");
        count *= dimensions[d].count;
    }
    for (int64_t i = 0; i < count; i++)
        values[i] = first + (double)i * step;
    snprintf(path, sizeof path, "%s/.zgroup", store);
    temporary_write(path, "{\"zarr_format\": 2}");
    snprintf(path, sizeof path, "%s/%s/.zarray", store, name);
    snprintf(text, sizeof text,
             "{\"zarr_format\": 2, \"shape\": [%s], \"chunks\": [%s], \"dtype\": \"<f8\", "
             "\"fill_value\": null, \"order\": \"C\", \"filters\": null, \"compressor\": null}",
             shape, shape);
    temporary_write(path, text);
    snprintf(path, sizeof path, "%s/%s/.zattrs", store, name);
    snprintf(text, sizeof text, "{\"_ARRAY_DIMENSIONS\": [%s]%s}", names, attributes);
    temporary_write(path, strcmp(attributes, "no names") == 0 ? "{}" : text);
    snprintf(path, sizeof path, "%s/%s/%s", store, name, chunk);
    temporary_file(path, values, (size_t)count * sizeof *values);
}

/* Write the array z with these dimensions, and their coordinates, and use it. */
static void use(const char *letter, const char *attributes)
{
    OWNED char *store = allocate_text("all/%s.zarr", letter);
    char units[64];
    for (const char *c = letter; *c != '\0'; c++) {
        const int d = number_of(*c);
        snprintf(units, sizeof units, ", \"units\": \"%s\"", dimensions[d].units);
        array_make(store, dimensions[d].name, (char[]){*c, '\0'}, dimensions[d].first,
                   dimensions[d].step, units);
    }
    array_make(store, "z", letter, 0, 1, attributes);
    arrays_begin(store, "z", "z");
    settings_apply(&options, "data.task=regression model.head=dense data.val=none");
}

/* Return the value of z at these indices of number, time, level, row and column. */
static float value_at(const char *letter, const int64_t at[DIMENSIONS])
{
    int64_t value = 0;
    for (const char *c = letter; *c != '\0'; c++) {
        const int d = number_of(*c);
        value = value * dimensions[d].count + at[*c == 's' ? 1 : d];
    }
    return (float)value;
}

/* Check the values and the targets of all samples. A list has the selected indices, -1 at the end.
 */
static void samples_check(const char *letter, const int *levels, const int *rows,
                          const int *columns)
{
    static float values[2 * MOST];
    const bool has_runs = letter[0] == 'n';
    const int64_t members = strchr(letter, 'n') != NULL && !has_runs ? MEMBERS : 1;
    assert_int_equal(dataset.count, TIMES * (has_runs ? MEMBERS : 1));
    for (int64_t i = 0; i < dataset.count; i++) {
        const int64_t record = dataset_record(&dataset, i);
        const float *value = values, *target = dataset_targets(&dataset, values);
        assert_ok(dataset_read(&dataset, i, values, &error), &error);
        for (int l = 0; levels[l] >= 0; l++)
            for (int64_t n = 0; n < members; n++)
                for (int y = 0; rows[y] >= 0; y++)
                    for (int x = 0; columns[x] >= 0; x++) {
                        const int64_t at[] = {has_runs ? record / TIMES : n, record % TIMES,
                                              levels[l], rows[y], columns[x]};
                        assert_true(*value == value_at(letter, at) && *target++ == *value);
                        value++;
                    }
        assert_ptr_equal(value, dataset_targets(&dataset, values));
    }
}

static const int one[] = {0, -1}, all_levels[] = {0, 1, 2, -1}, all_rows[] = {0, 1, 2, 3, 4, 5, -1},
                 all_columns[] = {0, 1, 2, 3, 4, 5, 6, 7, -1};

TEST(levels_and_members_are_channels)
{
    static const char *const letter[] = {"tyx",   "tlyx",  "tyxl",  "tnyx",
                                         "tlnyx", "tlyxn", "tyxln", "ntlyx"};
    for (size_t i = 0; i < sizeof letter / sizeof letter[0]; i++) {
        use(letter[i], "");
        split_opens("", SPLIT_TRAIN, -1);
        samples_check(letter[i], strchr(letter[i], 'l') != NULL ? all_levels : one, all_rows,
                      all_columns);
    }
    use("tlnyx", "");
    split_opens("data.y=z@+1", SPLIT_TRAIN, TIMES - 1);
    assert_int_equal(dataset.channels, LEVELS * MEMBERS);
    assert_string_equal(dataset.target_name[0], "z@+1 1000 hPa number 0");
    assert_string_equal(dataset.target_name[3], "z@+1 750 hPa number 1");
    use("tlnsyx", "");
    split_fails("", SPLIT_TRAIN, "data.x=z has 6 dimensions: it must be");
    use("tlyx", "");
    split_fails("data.order=hwc", SPLIT_TRAIN, "channels are first, and data.order=hwc");
    use("tylx", "");
    split_fails("", SPLIT_TRAIN, "(time, lat, level, lon): rows and columns must be neighbours");
}

/* Runs are series: neighbours are in the same run, and the last times of all runs are held out. */
TEST(runs_are_series_of_their_own)
{
    static float values[2 * HEIGHT * WIDTH];
    for (int is_named = 0; is_named < 2; is_named++) {
        use(is_named ? "ntyx" : "nsyx", is_named ? "" : "no names");
        split_opens(is_named ? "" : "data.sample_dim=1", SPLIT_TRAIN, MEMBERS * TIMES);
        samples_check("ntyx", one, all_rows, all_columns);
        split_opens("data.y=z@+2", SPLIT_TRAIN, MEMBERS * (TIMES - 2));
        for (int64_t i = 0; i < dataset.count; i++) {
            assert_ok(dataset_read(&dataset, i, values, &error), &error);
            const int64_t run = i / (TIMES - 2), time = i % (TIMES - 2);
            assert_true(values[0] == (float)((run * TIMES + time) * HEIGHT * WIDTH));
            assert_true(*dataset_targets(&dataset, values) ==
                        values[0] + (float)(2 * HEIGHT * WIDTH));
        }
        split_opens("data.val=0.3 data.val_from=end", SPLIT_VALIDATION, MEMBERS);
        assert_int_equal(dataset_record(&dataset, 0), 2);
        assert_int_equal(dataset_record(&dataset, 1), 5);
    }
    split_fails("data.join=on", SPLIT_TRAIN, "data.x=z has runs, which are series of their own");
    split_fails("data.join=off data.y=z@+6", SPLIT_TRAIN, "5 samples are too few");
    split_fails("data.sample_dim=4", SPLIT_TRAIN, "data.sample_dim is not one of them");
}

TEST(samples_have_the_dimension_that_is_named)
{
    use("nsyx", ", \"coordinates\": \"valid_time\"");
    array_make("all/nsyx.zarr", "valid_time", "ns", 0, 6,
               ", \"units\": \"hours since 2000-01-01\"");
    split_opens("data.sample_dim=step data.y=z@+6h", SPLIT_TRAIN, MEMBERS * (TIMES - 1));
    assert_true(arrays_of(&dataset)->series.file[0].time[TIMES] == 6 * TIMES);
    split_opens("data.sample_dim= data.y=z", SPLIT_TRAIN, MEMBERS);
    assert_int_equal(dataset.channels, TIMES);
    use("styx", "");
    split_fails("", SPLIT_TRAIN, "time must be the first, that of the samples");
    split_opens("data.sample_dim=time", SPLIT_TRAIN, TIMES * TIMES);
    use("nltyx", "");
    split_fails("", SPLIT_TRAIN, "time must be the first, that of the samples");
}

TEST(parts_are_selected)
{
    static const struct {
        const char *settings;
        int levels[4], rows[7], columns[9];
    } cases[] = {
        {"data.levels=500,1000", {2, 0, -1}, {0, 1, 2, 3, 4, 5, -1}, {0, 1, 2, 3, 4, 5, 6, 7, -1}},
        {"data.levels=750 data.rows=-15..45 data.columns=270..50",
         {1, -1},
         {1, 2, 3, -1},
         {6, 7, 0, 1, -1}},
        {"data.levels= data.rows=45..-15 data.columns=-90..0",
         {0, 1, 2, -1},
         {1, 2, 3, -1},
         {6, 7, 0, -1}},
        {"data.rows=1:-3 data.columns=:2", {0, 1, 2, -1}, {1, 2, -1}, {0, 1, -1}},
        {"data.rows=-2: data.columns=0..360",
         {0, 1, 2, -1},
         {4, 5, -1},
         {0, 1, 2, 3, 4, 5, 6, 7, -1}},
        {"data.rows= data.columns=90..135.5", {0, 1, 2, -1}, {0, 1, 2, 3, 4, 5, -1}, {2, 3, -1}},
    };
    static const char *const letter[] = {"tlyx", "ntlyx", "tyxl"};
    for (size_t i = 0; i < sizeof letter / sizeof letter[0]; i++) {
        use(letter[i], "");
        for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
            split_opens(cases[n].settings, SPLIT_TRAIN, -1);
            samples_check(letter[i], cases[n].levels, cases[n].rows, cases[n].columns);
            const struct dimension *column = grid_role_dimension(dataset.grid, 0, ROLE_COLUMN);
            for (int64_t x = 0; x < column->count; x++)
                assert_true(column->values[x] == 45 * cases[n].columns[x]);
        }
    }
}

TEST(rows_without_names_keep_their_latitudes)
{
    use("tyx", "no names");
    split_opens("data.rows=3: train.row_weight=latitude data.val_from=classes", SPLIT_TRAIN, TIMES);
    assert_true(fabsf(dataset.row_weights[2] / dataset.row_weights[0] - 0.267949192F) < 1e-6F);
}

TEST(outputs_keep_all_latitudes)
{
    use("tyx", "");
    array_make("all/tyx.zarr", "mean", "ty", 0, 1, "");
    split_opens("data.y=mean model.head=class data.rows=1:3", SPLIT_TRAIN, TIMES);
    assert_int_equal(dataset.target.count, HEIGHT);
    assert_string_equal(dataset.target_name[5], "mean 5");
}

TEST(parts_that_do_not_exist_are_errors)
{
    static const struct {
        const char *letter, *attributes, *settings, *part;
    } cases[] = {
        {"tlyx", "", "data.levels=700", "data.levels=700: 'level' in"},
        {"tlyx", "", "data.levels=500,x", "has no x; choose from 1000, 750, 500"},
        {"tyx", "", "data.levels=500", "has a dimension of levels; leave data.levels out"},
        {"tyx", "", "data.rows=4:2",
         "has the indices 0 to 5, and 'lat' from 75 to -75; choose others"},
        {"tyx", "", "data.rows=1..2", "selects nothing: "},
        {"tyx", "", "data.columns=1:x", "data.columns=1:x: not a range; set BEGIN:END"},
        {"tyx", "", "data.columns=1..", "data.columns=1..: not a range; set BEGIN:END"},
        {"tyx", "", "data.columns=3", "data.columns=3: not a range; set BEGIN:END"},
        {"tyx", "no names", "data.rows=1..2", " have no coordinates; select indices"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        use(cases[n].letter, cases[n].attributes);
        split_fails(cases[n].settings, SPLIT_TRAIN, cases[n].part);
    }
    use("tlyx", "");
    temporary_write("all/tlyx.zarr/level/.zarray", "{}");
    split_fails("data.levels=500", SPLIT_TRAIN, "'level' in");
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_close)
