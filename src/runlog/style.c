/* Which style speaks, at which steps, and how numbers look in lines that Python programs print. */
#include "runlog/style.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/error.h"
#include "model/registry.h"

/* From which step on a line's steps are counted. */
enum counting {
    COUNT_RUN,   /* multiples, of the run's steps */
    COUNT_EPOCH, /* multiples, of the epoch's */
    COUNT_FIRST  /* the epoch's first step, and then each multiple after it */
};

static const struct {
    const struct style *style;
    enum counting counting;
    int64_t log_every, log_every_tokens; /* steps; of Vision Transformers */
} styles[] = {[STYLE_VITTRAIN] = {&style_vittrain, COUNT_RUN, 10, 10},
              [STYLE_COURSE] = {&style_course, COUNT_EPOCH, 512, 100},
              [STYLE_IMAGENET] = {&style_imagenet, COUNT_FIRST, 50, 50},
              [STYLE_LIGHTNING] = {&style_lightning, COUNT_RUN, 50, 50},
              [STYLE_TORCHRUN] = {&style_torchrun, COUNT_RUN, 10, 10}};

const struct style *style_of(const struct options *options)
{
    return styles[options->output.style].style;
}

void style_resolve(struct options *options)
{
    int style = options->output.style;
    if (options->output.log_every == 0)
        options->output.log_every = model_is_vit(options->model.name)
                                        ? styles[style].log_every_tokens
                                        : styles[style].log_every;
}

bool style_is_due(const struct options *options, int64_t step, int64_t epoch_step)
{
    int64_t every = options->output.log_every;
    switch (styles[options->output.style].counting) {
    case COUNT_RUN:
        return step % every == 0;
    case COUNT_EPOCH:
        return epoch_step % every == 0;
    case COUNT_FIRST:
        return (epoch_step - 1) % every == 0;
    }
    return false;
}

/* The digits of %e, the fewest that read back to the value. */
static int digits_needed(double value)
{
    enum { MOST = 17 };
    char text[40];
    for (int digits = 1; digits < MOST; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value)
            return digits;
    }
    return MOST;
}

const char *style_number(double value, char *text, size_t size)
{
    char scientific[40];
    if (!isfinite(value)) {
        snprintf(text, size, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return text;
    }
    int digits = digits_needed(value);
    snprintf(scientific, sizeof scientific, "%.*e", digits - 1, value);
    int exponent = atoi(strchr(scientific, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, size, "%s", scientific);
    else
        snprintf(text, size, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, value);
    return text;
}
