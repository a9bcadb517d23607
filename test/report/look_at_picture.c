// SPDX-License-Identifier: BSD-3-Clause
/* Counts pixels for test_report.sh. Reads lines "X0 Y0 X1 Y1 RRGGBB PAPER" and prints for each the
 * number of pixels of that area that are closer to the colour than to the paper and are a mixture
 * of the two, as at the edge of a line. If both colours are the same, it counts pixels of that
 * colour. "outside" means that the area is outside the picture. Usage: look_at_picture FILE.png
 * <AREAS */
#include <math.h>
#include <png.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const double apart_most = 24; /* of 255 */

static bool is_of(const unsigned char *pixel, unsigned colour, unsigned paper)
{
    double along = 0, square = 0, apart = 0;
    for (int shift = 16, i = 0; i < 3; i++, shift -= 8) {
        const double from = paper >> shift & 255, to = colour >> shift & 255;
        along += (pixel[i] - from) * (to - from);
        square += (to - from) * (to - from);
    }
    const double share = square > 0 ? fmin(along / square, 1) : 1;
    for (int shift = 16, i = 0; i < 3; i++, shift -= 8) {
        const double from = paper >> shift & 255, to = colour >> shift & 255;
        apart = fmax(apart, fabs(pixel[i] - from - share * (to - from)));
    }
    return share >= 0.5 && apart <= (square > 0 ? apart_most : 0);
}

int main(int argc, char **argv)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    int area[4];
    unsigned colour, paper;

    if (argc != 2 || !png_image_begin_read_from_file(&image, argv[1])) {
        fprintf(stderr, "look_at_picture: %s\n", argc == 2 ? image.message : "one picture");
        return 1;
    }
    image.format = PNG_FORMAT_RGB;
    unsigned char *pixels = malloc(PNG_IMAGE_SIZE(image));
    if (pixels == NULL || !png_image_finish_read(&image, NULL, pixels, 0, NULL))
        return 1;
    while (scanf("%d %d %d %d %x %x", &area[0], &area[1], &area[2], &area[3], &colour, &paper) ==
           6) {
        int count = 0;
        if (area[0] < 0 || area[1] < 0 || area[2] > (int)image.width ||
            area[3] > (int)image.height) {
            puts("outside");
            continue;
        }
        for (int y = area[1]; y < area[3]; y++)
            for (int x = area[0]; x < area[2]; x++)
                count += is_of(pixels + ((size_t)y * image.width + (size_t)x) * 3, colour, paper);
        printf("%d\n", count);
    }
    free(pixels);
    return 0;
}
