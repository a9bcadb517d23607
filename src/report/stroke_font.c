/* A font of strokes for ASCII: a pen of any width draws it at any size, and it needs no files.
 *
 * A glyph is a string of strokes, a blank between two. A stroke is points, two hexadecimal digits
 * each: x from the left, y upwards; the baseline is 4, small letters reach up to a, capitals to d,
 * descenders down to 1. Plain strokes are straight lines; '~' before the points: a quadratic
 * B-spline from the first to the last; '@': a closed one. */
#include <string.h>

#include "report/canvas.h"

enum { FIRST = ' ', LAST = '~', GAP = 2, BLANK = 4 };

static const char *const glyphs[LAST - FIRST + 1] = {
    [' ' - FIRST] = "",
    ['!' - FIRST] = "1d17 1415",
    ['"' - FIRST] = "0d0b 2d2b",
    ['#' - FIRST] = "2d14 4d34 0a5a 0757",
    ['$' - FIRST] = "~5b5d0d0959540406 2e23",
    ['%' - FIRST] = "@0a3a3d0d @54848757 7d14",
    ['&' - FIRST] = "641b ~1b1d4d4b07044468",
    ['\'' - FIRST] = "0d0b",
    ['(' - FIRST] = "~2e0b0522",
    [')' - FIRST] = "~0e2b2502",
    ['*' - FIRST] = "0c48 4c08 2d27",
    ['+' - FIRST] = "0868 3b35",
    [',' - FIRST] = "~151402",
    ['-' - FIRST] = "0848",
    ['.' - FIRST] = "1415",
    ['/' - FIRST] = "4e02",
    ['0' - FIRST] = "@04545d0d",
    ['1' - FIRST] = "1b3d34",
    ['2' - FIRST] = "~0a0d5d5904 0454",
    ['3' - FIRST] = "~0b0d5d5929 ~2959540406",
    ['4' - FIRST] = "444d0757",
    ['5' - FIRST] = "5d0d09 ~095b540405",
    ['6' - FIRST] = "@04545a0a ~4d0d06",
    ['7' - FIRST] = "0d5d24",
    ['8' - FIRST] = "@09595d0d @04545909",
    ['9' - FIRST] = "@07575d0d ~5b5414",
    [':' - FIRST] = "1415 191a",
    [';' - FIRST] = "~151402 191a",
    ['<' - FIRST] = "5b0855",
    ['=' - FIRST] = "0a5a 0757",
    ['>' - FIRST] = "0b5805",
    ['?' - FIRST] = "~0b0d4d4928 2827 2425",
    ['@' - FIRST] = "@36666a3a ~6a66969d0d0383",
    ['A' - FIRST] = "043d64 1757",
    ['B' - FIRST] = "3404090d3d 0939 ~3d5d5939 ~39696434",
    ['C' - FIRST] = "~6b6d0d046466",
    ['D' - FIRST] = "24040d2d ~2d6d6424",
    ['E' - FIRST] = "5d0d0454 0949",
    ['F' - FIRST] = "5d0d04 0949",
    ['G' - FIRST] = "~6b6d0d046468 6838",
    ['H' - FIRST] = "0d04 6d64 0969",
    ['I' - FIRST] = "1d14",
    ['J' - FIRST] = "4d47 ~47440406",
    ['K' - FIRST] = "0d04 5d08 2a64",
    ['L' - FIRST] = "0d0454",
    ['M' - FIRST] = "040d478d84",
    ['N' - FIRST] = "040d646d",
    ['O' - FIRST] = "@04747d0d",
    ['P' - FIRST] = "040d3d ~3d6d6838 3808",
    ['Q' - FIRST] = "@04747d0d 4673",
    ['R' - FIRST] = "040d3d ~3d6d6838 3808 3864",
    ['S' - FIRST] = "~5b5d0d0959540406",
    ['T' - FIRST] = "0d6d 3d34",
    ['U' - FIRST] = "0d08 ~08046468 686d",
    ['V' - FIRST] = "0d346d",
    ['W' - FIRST] = "0d244d648d",
    ['X' - FIRST] = "0d64 6d04",
    ['Y' - FIRST] = "0d396d 3934",
    ['Z' - FIRST] = "0d6d0464",
    ['[' - FIRST] = "2e0e0222",
    ['\\' - FIRST] = "0e42",
    [']' - FIRST] = "0e2e2202",
    ['^' - FIRST] = "0a2d4a",
    ['_' - FIRST] = "0252",
    ['`' - FIRST] = "0d1b",
    ['a' - FIRST] = "@04545a0a 5a54",
    ['b' - FIRST] = "0d04 @04545a0a",
    ['c' - FIRST] = "~494a0a044445",
    ['d' - FIRST] = "5d54 @04545a0a",
    ['e' - FIRST] = "0757 ~575a0a045455",
    ['f' - FIRST] = "~4d2d2a 2a24 0a4a",
    ['g' - FIRST] = "@04545a0a 5a53 ~53510102",
    ['h' - FIRST] = "0d04 ~080a5a57 5754",
    ['i' - FIRST] = "1a14 1c1d",
    ['j' - FIRST] = "2a23 ~232101 2c2d",
    ['k' - FIRST] = "0d04 4a06 1744",
    ['l' - FIRST] = "1d14",
    ['m' - FIRST] = "0a04 ~080a4a47 4744 ~484a8a87 8784",
    ['n' - FIRST] = "0a04 ~080a5a57 5754",
    ['o' - FIRST] = "@04545a0a",
    ['p' - FIRST] = "0a01 @04545a0a",
    ['q' - FIRST] = "5a51 @04545a0a",
    ['r' - FIRST] = "0a04 ~070a3a",
    ['s' - FIRST] = "~494a0a0747440405",
    ['t' - FIRST] = "2d26 ~262444 0a4a",
    ['u' - FIRST] = "0a07 ~07045457 5a54",
    ['v' - FIRST] = "0a244a",
    ['w' - FIRST] = "0a244a648a",
    ['x' - FIRST] = "0a44 4a04",
    ['y' - FIRST] = "0a24 4a11",
    ['z' - FIRST] = "0a4a0444",
    ['{' - FIRST] = "~3e1e1908 ~08171232",
    ['|' - FIRST] = "1e12",
    ['}' - FIRST] = "~0e2e2938 ~38272202",
    ['~' - FIRST] = "~071a4659",
};

const char *stroke_glyph(char character)
{
    return character >= FIRST && character <= LAST ? glyphs[character - FIRST] : "04545d0d04";
}

int stroke_glyph_width(const char *glyph)
{
    int most = -1;
    for (; *glyph != '\0'; glyph++) {
        if (strchr(" ~@", *glyph) != NULL)
            continue;
        most = *glyph - '0' > most ? *glyph - '0' : most;
        glyph++;
    }
    return most < 0 ? BLANK : most + GAP;
}
