/* The canvas as pixels, written by libpng. A line covers a pixel by as much as its middle is near;
 * what overlaps within a line covers once. */
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic_file.h"
#include "report/canvas.h"
#include "report/escape.h"

enum { CHANNELS = 3, SPLINE_PIECES = 8, CONTROLS_MOST = 24 };

struct pixels {
    int width, height;
    double scale;
    uint8_t *colour;   /* [height][width][3] */
    uint8_t *coverage; /* [height][width]: of what is being drawn; 0 between drawings */
    int from_x, to_x, from_y, to_y; /* where coverage is not 0: from, to excluded */
};

/* ---- coverage */

static void coverage_begin(struct pixels *pixels)
{
    pixels->from_x = pixels->width;
    pixels->from_y = pixels->height;
    pixels->to_x = pixels->to_y = 0;
}

static int clamp(double value, int most)
{
    return value < 0 ? 0 : value > most ? most : (int)value;
}

static double distance(struct point p, struct point a, struct point b)
{
    const double dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
    double along = square == 0 ? 0 : ((p.x - a.x) * dx + (p.y - a.y) * dy) / square;
    along = along < 0 ? 0 : along > 1 ? 1 : along;
    return hypot(p.x - a.x - along * dx, p.y - a.y - along * dy);
}

/* From a to b, in pixels, `half` the line's width. */
static void cover_segment(struct pixels *pixels, struct point a, struct point b, double half)
{
    const double around = half + 1;
    const int x0 = clamp(fmin(a.x, b.x) - around, pixels->width);
    const int x1 = clamp(fmax(a.x, b.x) + around + 1, pixels->width);
    const int y0 = clamp(fmin(a.y, b.y) - around, pixels->height);
    const int y1 = clamp(fmax(a.y, b.y) + around + 1, pixels->height);

    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) {
            const double far = distance((struct point){x + 0.5, y + 0.5}, a, b);
            const double share = fmin(fmax(half + 0.5 - far, 0), fmin(1, 2 * half));
            uint8_t *place = &pixels->coverage[(size_t)y * (size_t)pixels->width + (size_t)x];
            if (share * 255 > *place)
                *place = (uint8_t)lround(share * 255);
        }
    pixels->from_x = x0 < pixels->from_x ? x0 : pixels->from_x;
    pixels->from_y = y0 < pixels->from_y ? y0 : pixels->from_y;
    pixels->to_x = x1 > pixels->to_x ? x1 : pixels->to_x;
    pixels->to_y = y1 > pixels->to_y ? y1 : pixels->to_y;
}

static void blend(uint8_t *to, struct colour colour, int share)
{
    const uint8_t from[CHANNELS] = {colour.red, colour.green, colour.blue};
    for (int i = 0; i < CHANNELS; i++)
        to[i] = (uint8_t)((from[i] * share + to[i] * (255 - share) + 127) / 255);
}

/* Colours what is covered, and clears the coverage. */
static void coverage_end(struct pixels *pixels, enum ink ink)
{
    for (int y = pixels->from_y; y < pixels->to_y; y++)
        for (int x = pixels->from_x; x < pixels->to_x; x++) {
            const size_t place = (size_t)y * (size_t)pixels->width + (size_t)x;
            if (pixels->coverage[place] > 0)
                blend(pixels->colour + place * CHANNELS, ink_table[ink].light,
                      pixels->coverage[place]);
            pixels->coverage[place] = 0;
        }
}

/* ---- lines */

/* The pieces of a dashed segment; `walked` so far on the line, in pixels. */
static void cover_dashes(struct pixels *pixels, struct point a, struct point b, double half,
                         double *walked)
{
    const double on = 5 * pixels->scale, period = 9 * pixels->scale;
    const double length = hypot(b.x - a.x, b.y - a.y);
    double at = 0;

    while (at < length) {
        const double phase = fmod(*walked, period);
        const double piece = fmin((phase < on ? on : period) - phase + 1e-9, length - at);
        const struct point from = {a.x + (b.x - a.x) * at / length,
                                   a.y + (b.y - a.y) * at / length};
        at += piece;
        *walked += piece;
        const struct point to = {a.x + (b.x - a.x) * at / length, a.y + (b.y - a.y) * at / length};
        if (phase < on)
            cover_segment(pixels, from, to, half);
    }
}

static void pixels_polyline(struct canvas *canvas, struct pen pen, const struct point *points,
                            int64_t count)
{
    struct pixels *pixels = canvas->pixels;
    const double scale = pixels->scale, half = pen.width * scale / 2;
    double walked = 0;

    coverage_begin(pixels);
    for (int64_t i = 0; i < count; i++) {
        if (isnan(points[i].x))
            continue;
        const struct point to = {points[i].x * scale, points[i].y * scale};
        const bool begins = i == 0 || isnan(points[i - 1].x);
        const bool ends = i + 1 == count || isnan(points[i + 1].x);
        if (begins && ends)
            cover_segment(pixels, to, to, half);
        if (begins)
            continue;
        const struct point from = {points[i - 1].x * scale, points[i - 1].y * scale};
        if (pen.dashed)
            cover_dashes(pixels, from, to, half, &walked);
        else
            cover_segment(pixels, from, to, half);
    }
    coverage_end(pixels, pen.ink);
}

/* ---- rectangles: edges between pixels are covered in part */

static double overlap(double from, double to, int pixel)
{
    return fmax(0, fmin(to, pixel + 1) - fmax(from, pixel));
}

static void pixels_rectangle(struct canvas *canvas, enum ink ink, double x, double y, double width,
                             double height, const char *name)
{
    struct pixels *pixels = canvas->pixels;
    const double left = x * pixels->scale, right = (x + width) * pixels->scale;
    const double top = y * pixels->scale, bottom = (y + height) * pixels->scale;
    (void)name;

    for (int row = clamp(top, pixels->height); row < clamp(bottom + 1, pixels->height); row++)
        for (int column = clamp(left, pixels->width); column < clamp(right + 1, pixels->width);
             column++) {
            const double share = overlap(left, right, column) * overlap(top, bottom, row);
            blend(pixels->colour +
                      ((size_t)row * (size_t)pixels->width + (size_t)column) * CHANNELS,
                  ink_table[ink].light, (int)lround(share * 255));
        }
}

/* ---- text: the stroke font */

static int digit(char character)
{
    return character <= '9' ? character - '0' : character - 'a' + 10;
}

/* Reads the points of a stroke; gives how many, and leaves the glyph behind them. */
static int stroke_read(const char **glyph, struct point *points)
{
    int count = 0;
    for (; **glyph != '\0' && **glyph != ' ' && count < CONTROLS_MOST; *glyph += 2)
        points[count++] = (struct point){digit((*glyph)[0]), digit((*glyph)[1]) - STROKE_BASELINE};
    return count;
}

static struct point middle(struct point a, struct point b)
{
    return (struct point){(a.x + b.x) / 2, (a.y + b.y) / 2};
}

/* How a glyph's points become pixels. */
struct placing {
    struct pixels *pixels;
    double x, y, step, half;
};

static void cover_stroke(const struct placing *at, struct point a, struct point b)
{
    cover_segment(at->pixels, (struct point){at->x + a.x * at->step, at->y - a.y * at->step},
                  (struct point){at->x + b.x * at->step, at->y - b.y * at->step}, at->half);
}

/* The parabola from a to c that b bends. */
static void cover_parabola(const struct placing *at, struct point a, struct point b, struct point c)
{
    struct point last = a;
    for (int i = 1; i <= SPLINE_PIECES; i++) {
        const double t = (double)i / SPLINE_PIECES, s = 1 - t;
        const struct point next = {s * s * a.x + 2 * s * t * b.x + t * t * c.x,
                                   s * s * a.y + 2 * s * t * b.y + t * t * c.y};
        cover_stroke(at, last, next);
        last = next;
    }
}

static void cover_spline(const struct placing *at, const struct point *p, int count, bool closed)
{
    if (closed) {
        for (int i = 0; i < count; i++)
            cover_parabola(at, middle(p[(i + count - 1) % count], p[i]), p[i],
                           middle(p[i], p[(i + 1) % count]));
        return;
    }
    for (int i = 1; i + 1 < count; i++)
        cover_parabola(at, i == 1 ? p[0] : middle(p[i - 1], p[i]), p[i],
                       i + 2 == count ? p[i + 1] : middle(p[i], p[i + 1]));
}

static void cover_glyph(const struct placing *at, const char *glyph)
{
    struct point points[CONTROLS_MOST];
    while (*glyph != '\0') {
        const char kind = *glyph;
        if (kind == '~' || kind == '@' || kind == ' ')
            glyph++;
        if (kind == ' ')
            continue;
        const int count = stroke_read(&glyph, points);
        if (kind == '~' || kind == '@')
            cover_spline(at, points, count, kind == '@');
        else
            for (int i = 1; i < count; i++)
                cover_stroke(at, points[i - 1], points[i]);
    }
}

static void pixels_text(struct canvas *canvas, struct lettering lettering, double x, double y,
                        const char *text)
{
    struct pixels *pixels = canvas->pixels;
    const double width = canvas_text_width(text, lettering.size);
    const double size = lettering.size * pixels->scale;
    const double shift = lettering.anchor == ANCHOR_START    ? 0
                         : lettering.anchor == ANCHOR_MIDDLE ? width / 2
                                                             : width;
    struct placing at = {pixels, (x - shift) * pixels->scale, y * pixels->scale, size * STROKE_STEP,
                         size * (lettering.bold ? 0.065 : 0.045)};

    coverage_begin(pixels);
    while (*text != '\0') {
        const int length = escape_character(text);
        const char *glyph = stroke_glyph(length == 1 ? *text : '\0');
        cover_glyph(&at, glyph);
        at.x += stroke_glyph_width(glyph) * at.step;
        text += length > 0 ? length : 1;
    }
    coverage_end(pixels, lettering.ink);
}

/* ---- the image */

static const struct canvas_backend pixels_backend = {
    .polyline = pixels_polyline, .rectangle = pixels_rectangle, .text = pixels_text};

bool canvas_pixels_open(struct canvas *canvas, int width, int height, double scale,
                        struct error *error)
{
    const size_t count = (size_t)width * (size_t)height;
    struct pixels *pixels = calloc(1, sizeof *pixels);

    *canvas = (struct canvas){.backend = &pixels_backend,
                              .width = width / scale,
                              .height = height / scale,
                              .pixels = pixels};
    if (pixels != NULL) {
        *pixels = (struct pixels){.width = width, .height = height, .scale = scale};
        pixels->colour = malloc(count * CHANNELS);
        pixels->coverage = calloc(count, 1);
    }
    if (pixels == NULL || pixels->colour == NULL || pixels->coverage == NULL) {
        canvas_pixels_free(canvas);
        return error_set(error, ERROR_MEMORY, "no memory for a picture of %d x %d pixels", width,
                         height);
    }
    memset(pixels->colour, 255, count * CHANNELS);
    return true;
}

void canvas_pixels_free(struct canvas *canvas)
{
    if (canvas->pixels != NULL) {
        free(canvas->pixels->colour);
        free(canvas->pixels->coverage);
    }
    free(canvas->pixels);
    canvas->pixels = NULL;
}

void canvas_pixels_paste(struct canvas *canvas, const struct canvas *part, int left)
{
    const struct pixels *from = part->pixels;
    struct pixels *to = canvas->pixels;
    ENSURE(from->height == to->height && left >= 0 && left + from->width <= to->width,
           "a picture of %d x %d pixels at %d of one of %d x %d", from->width, from->height, left,
           to->width, to->height);
    for (int y = 0; y < to->height; y++)
        memcpy(to->colour + ((size_t)y * (size_t)to->width + (size_t)left) * CHANNELS,
               from->colour + (size_t)y * (size_t)from->width * CHANNELS,
               (size_t)from->width * CHANNELS);
}

static void png_failed(png_structp png, png_const_charp text)
{
    error_set(png_get_error_ptr(png), ERROR_FILE, "cannot make a PNG: %s", text);
    png_longjmp(png, 1);
}

static void png_warned(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

/* A write that failed is seen when the file is committed. */
static void png_put(png_structp png, png_bytep bytes, size_t count)
{
    fwrite(bytes, 1, count, png_get_io_ptr(png));
}

static void png_flush_none(png_structp png)
{
    (void)png;
}

/* setjmp's frame: nothing in it changes. */
static bool png_write_guarded(png_structp png, png_infop info, const struct pixels *pixels)
{
    if (setjmp(png_jmpbuf(png)) != 0)
        return false;
    png_set_IHDR(png, info, (png_uint_32)pixels->width, (png_uint_32)pixels->height, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int y = 0; y < pixels->height; y++)
        png_write_row(png, pixels->colour + (size_t)y * (size_t)pixels->width * CHANNELS);
    png_write_end(png, NULL);
    return true;
}

static bool png_write_stream(const struct pixels *pixels, FILE *stream, struct error *error)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, error, png_failed, png_warned);
    png_infop info = png == NULL ? NULL : png_create_info_struct(png);
    bool good = info != NULL;

    if (good) {
        png_set_write_fn(png, stream, png_put, png_flush_none);
        good = png_write_guarded(png, info, pixels);
    } else {
        error_set(error, ERROR_MEMORY, "no memory for a PNG");
    }
    if (png != NULL)
        png_destroy_write_struct(&png, &info);
    return good;
}

bool canvas_pixels_write(const struct canvas *canvas, const char *path, struct error *error)
{
    struct atomic_file file;
    if (!atomic_file_open(&file, path, error))
        return false;
    if (!png_write_stream(canvas->pixels, file.stream, error)) {
        atomic_file_discard(&file);
        return false;
    }
    return atomic_file_commit(&file, error);
}
