/* Every option of the program. One table (options_table.c) has for each key: name, type, default,
 * range, help. From it come the parser of decks, the overrides on the command line, --help, the
 * manual page and the resolved deck. `struct options` is where the table's values lie. */
#ifndef VITTRAIN_CORE_OPTIONS_H
#define VITTRAIN_CORE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"

enum { OPTION_TEXT = 1024, OPTION_LIST = 16, OPTION_KEY = 64 };

/* The largest train.batch; also where a search for one ends. */
enum { BATCH_MOST = 1000000 };

enum backend_choice { BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA };
enum precision_choice { PRECISION_AUTO, PRECISION_FP32, PRECISION_BF16, PRECISION_FP16 };
enum pool_choice { POOL_AUTO, POOL_TOKEN, POOL_MEAN };
enum checkpoint_activations_choice { CHECKPOINT_ACTIVATIONS_NONE, CHECKPOINT_ACTIVATIONS_BLOCK };
enum switch_choice { SWITCH_AUTO = -1, SWITCH_OFF = 0, SWITCH_ON = 1 };
enum task_choice { TASK_CLASSES, TASK_REGRESSION };
enum validation_choice { VALIDATION_TEST, VALIDATION_REFERENCE, VALIDATION_NONE, VALIDATION_VAL };
enum check_choice { CHECK_NONE, CHECK_HEADER, CHECK_FULL };
enum truncated_choice { TRUNCATED_ERROR, TRUNCATED_ACCEPT };
enum kind_choice { KIND_AUTO, KIND_ENCODED, KIND_DECODED };
enum resize_choice { RESIZE_AUTO, RESIZE_SQUARE, RESIZE_SHORTER };
enum crop_choice { CROP_AUTO, CROP_NONE, CROP_CENTER, CROP_RANDOM };
enum optimizer_choice { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW, OPTIMIZER_RMSPROP };
enum rate_scale_choice { RATE_SCALE_NONE, RATE_SCALE_LINEAR, RATE_SCALE_SQRT };
enum schedule_choice {
    SCHEDULE_CONSTANT,
    SCHEDULE_COSINE,
    SCHEDULE_STEP,
    SCHEDULE_ONECYCLE,
    SCHEDULE_PLATEAU,
    SCHEDULE_LINEAR
};
enum schedule_per_choice { SCHEDULE_PER_STEP, SCHEDULE_PER_EPOCH };
enum strategy_choice { STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_FSDP, STRATEGY_HSDP };
enum reduce_choice { REDUCE_FP32, REDUCE_COMPUTE };
enum transport_choice { TRANSPORT_AUTO, TRANSPORT_RING, TRANSPORT_SHARED, TRANSPORT_HIERARCHICAL };
enum scaling_choice { SCALING_WEAK, SCALING_STRONG };
enum collective_choice {
    COLLECTIVE_ALL,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_BROADCAST
};
enum writers_choice { WRITERS_AUTO, WRITERS_ALL, WRITERS_NODE0 };
enum background_choice { BACKGROUND_AUTO, BACKGROUND_YES, BACKGROUND_NO };
enum sweep_choice { SWEEP_GRID, SWEEP_RANDOM, SWEEP_TPE };
enum monitor_choice { MONITOR_TOP1, MONITOR_LOSS };
enum style_choice {
    STYLE_VITTRAIN,
    STYLE_COURSE,
    STYLE_IMAGENET,
    STYLE_LIGHTNING,
    STYLE_TORCHRUN
};

struct option_list {
    int count;
    double value[OPTION_LIST];
};

struct options {
    struct {
        char name[OPTION_TEXT]; /* also the prefix of the run folder */
        char dir[OPTION_TEXT];  /* empty: runs/NAME-DATE */
        int64_t seed;
        int backend;     /* enum backend_choice */
        int64_t threads; /* per rank; 0: the rank's share of the node's cores */
    } run;
    struct {
        char name[OPTION_TEXT];
        char init[OPTION_TEXT]; /* "none", FILE.safetensors or a checkpoint */
        /* The shape: 0 (or auto) means what the registry says for this name. */
        int64_t image, channels, patch, dim, depth, heads, classes;
        double mlp_ratio;
        double dropout, drop_path;             /* negative: the registry's */
        int qkv_bias, class_token, embed_norm; /* enum switch_choice */
        int pool;                              /* enum pool_choice */
        int64_t width;                         /* of ResNets */
        int sync_bn;                           /* enum switch_choice; auto: on */
    } model;
    struct {
        char format[OPTION_TEXT];
        char root[OPTION_TEXT]; /* empty: the sample that comes with the program */
        int64_t workers;
        bool shuffle, drop_last;
        int64_t shuffle_block;           /* samples; 0: shuffled as a whole */
        int val;                         /* enum validation_choice */
        int64_t samples, image, classes; /* of synthetic data */
        int task;                        /* enum task_choice, of synthetic data */
        bool skip_broken, allow_empty;   /* of folders of images, and what follows */
        int check;                       /* enum check_choice */
        int truncated;                   /* enum truncated_choice */
        bool scaled_decode;
        int64_t max_pixels;
    } data;
    struct {
        double flip, rotate, translate, erase;
        struct option_list erase_scale, erase_ratio;
        int64_t crop_pad;
        int64_t rand_augment, rand_magnitude;
        double brightness, contrast, saturation, hue, greyscale;
        double mixup, cutmix, mix_switch;
        int64_t resize; /* 0: the model's image size */
        int resize_to;  /* enum resize_choice */
        int crop;       /* enum crop_choice */
        bool random_resized_crop;
        struct option_list crop_scale, crop_ratio;
        struct option_list mean, std; /* empty: the model's */
    } augment;
    struct {
        int64_t resize; /* 0: as augment's */
        int resize_to;  /* enum resize_choice; auto: as augment's */
        int crop;       /* enum crop_choice; auto: as augment's, but nothing random */
        int64_t crop_pad;
    } eval;
    struct {
        int64_t epochs, steps, batch, global_batch, accumulate;
        int precision;              /* enum precision_choice */
        double loss_scale;          /* fp16: at the start */
        int checkpoint_activations; /* enum checkpoint_activations_choice */
        double clip_norm, label_smoothing;
        int64_t eval_every; /* epochs; 0: only at the end */
        double max_seconds;
        int64_t early_stop; /* evaluations without improvement; 0: never */
        bool test;          /* evaluate the test split at the end */
    } train;
    struct {
        int name; /* enum optimizer_choice */
        double lr;
        int lr_scale;     /* enum rate_scale_choice */
        int64_t lr_batch; /* the global batch that lr is meant for */
        double weight_decay;
        bool no_decay;
        double layer_decay;       /* 1: none */
        char freeze[OPTION_TEXT]; /* comma-separated unit names or prefixes of tensor names */
        double ema;               /* decay; 0: none */
        double momentum;
        bool nesterov;
        struct option_list betas;
        double eps, alpha;
    } optim;
    struct {
        int name;       /* enum schedule_choice */
        int per;        /* enum schedule_per_choice */
        int64_t warmup; /* steps or epochs, as `per` says */
        double min_lr;
        int64_t step_size;
        double gamma;
        double pct_start, div_factor, final_div_factor; /* onecycle */
        double factor, threshold;                       /* plateau */
        int64_t patience;
        double end_factor; /* linear */
    } schedule;
    struct {
        int strategy;  /* enum strategy_choice */
        int64_t shard; /* 0: as the strategy has it */
        int reduce;    /* enum reduce_choice */
        int transport; /* enum transport_choice */
        bool elastic;
        double timeout;
        double silence;
    } mesh;
    struct {
        double every; /* epochs; 0: only at the end */
        double every_seconds;
        int64_t keep;
        char resume[OPTION_TEXT]; /* auto, never, a file or s3://... */
        int monitor;              /* enum monitor_choice */
        int writers;              /* enum writers_choice */
        int background;           /* enum background_choice */
    } checkpoint;
    struct {
        int style;         /* enum style_choice */
        int64_t log_every; /* steps; 0: as the style has it */
        double monitor;    /* seconds between readings of sensors; 0: none */
        bool tensorboard, csv, weights;
        char logbook[OPTION_TEXT];    /* a folder; empty: none */
        double target;                /* top-1 accuracy; 0: none */
        char upload[OPTION_TEXT];     /* s3://...; empty: none */
        double upload_every;          /* seconds */
        double upload_wait;           /* seconds, at the end */
        int64_t upload_rate;          /* bytes a second; 0: no limit */
        char prometheus[OPTION_TEXT]; /* a file; empty: none */
    } output;
    struct {
        int64_t batches;         /* run only so many batches of training and evaluation */
        double fraction;         /* of the data */
        int64_t overfit;         /* train on the first N batches only, again and again */
        bool profile;            /* time per unit and operation */
        int64_t capture;         /* the step that an outer profiler records; 0: none */
        int64_t check_weights;   /* every N steps: do all ranks hold the same weights? */
        bool wait;               /* for the device, in each step */
        char pause[OPTION_TEXT]; /* PHASE:STEP:SECONDS (status_pause_at), or none */
    } debug;
    struct {
        bool graph; /* record steps, and run them again */
        bool tf32;
        char cache[OPTION_TEXT]; /* "auto", "none" or a folder */
        bool share;              /* several ranks on one GPU */
    } cuda;
    struct {
        char url[OPTION_TEXT]; /* empty: the official home */
        char dir[OPTION_TEXT];
    } fetch;
    struct {
        char split[OPTION_TEXT];  /* train, val or test */
        char output[OPTION_TEXT]; /* "-": standard output */
    } predict;
    struct {
        int collective;           /* enum collective_choice */
        int64_t min, max, factor; /* bytes; from one size to the next */
        double seconds;           /* for one size */
        bool overlap;
        char output[OPTION_TEXT]; /* CSV; empty: none */
        char machine[OPTION_TEXT]; /* where `bench machine` writes */
        bool quick;                /* bench machine: each thing once */
    } bench;
    struct {
        int64_t ranks;      /* 0: those that were started */
        int64_t node_ranks; /* 0: as they were started, or all on one node */
        int64_t memory;     /* bytes a rank may have; 0: what the node has */
        char machine[OPTION_TEXT]; /* "auto": machine.ini, if it is there; "none" */
        char cluster[OPTION_TEXT]; /* a described one; empty: none */
        int scaling;               /* enum scaling_choice */
        char operations[OPTION_TEXT]; /* CSV of a step's kernels; empty: none */
    } plan;
    struct {
        double first, last; /* rates */
        int64_t steps;      /* 0: an epoch's */
        double beta, stop;
        char output[OPTION_TEXT]; /* beginning of files' names; empty: none */
    } find;
    struct {
        int method; /* enum sweep_choice */
        int64_t trials, seed;
        char dir[OPTION_TEXT];   /* empty: sweeps/NAME-DATE */
        char slurm[OPTION_TEXT]; /* a job script; empty: no Slurm */
        int64_t tasks;
    } sweep;
    struct {
        bool average;             /* take the moving average where there is one */
        char output[OPTION_TEXT]; /* of `convert data` */
        int kind;                 /* enum kind_choice */
        int64_t size;             /* decoded: height and width; 0: as they are */
        int resize_to;            /* enum resize_choice */
        int64_t file_size;        /* bytes; 0: one file */
        bool shuffle;
    } convert;
    struct {
        char output[OPTION_TEXT]; /* HTML; empty: in the run's folder, or here */
        char csv[OPTION_TEXT];    /* empty: none */
        bool result_file;
    } report;
};

enum { COMMAND_OPERANDS = 8, COMMAND_SETTINGS = 256 };

/* What the command line held besides options. Points into argv. */
struct command_line {
    const char *command;                   /* "train" when none was given; with help: NULL */
    const char *operand[COMMAND_OPERANDS]; /* words that are neither decks nor key=value */
    int operand_count;
    const char *setting[COMMAND_SETTINGS]; /* decks and section.key=value, in their order */
    int setting_count;
    bool help;    /* --help, -h, help; command or operand says about what */
    bool version; /* --version */
    bool manual;  /* --manual: the manual page */
    bool json;    /* --json: what a command prints, as JSON */
};

/* Fills in the defaults. */
void options_default(struct options *options);

/* Reads `[COMMAND] [DECK.ini ...] [section.key=value ...]`: later ones win. `commands` is a
 * NULL-terminated list of the commands' names. Without a deck, ./vittrain.ini is read if it exists.
 * Messages name file and line (or the argument) and the nearest known key or command. */
bool options_parse(int argc, char **argv, const char *const *commands, struct options *options,
                   struct command_line *line, struct error *error);

/* Reads the line's decks and settings over what the options are (options_parse has done it once
 * over the defaults; again over the deck of a checkpoint). */
bool options_apply(const struct command_line *line, struct options *options, struct error *error);

/* One deck; also from memory (`name` for messages), as saved in a checkpoint. */
bool options_read_file(const char *path, struct options *options, struct error *error);
bool options_read_text(const char *text, const char *name, struct options *options,
                       struct error *error);

/* Other files that are written as decks are: opens one; hands each `section.key` with its value to
 * `pair`, which returns false with an error that begins with `where` ("FILE:12: ") and says what is
 * wrong. A key may come several times. */
typedef bool deck_pair(void *user, const char *where, const char *name, const char *value,
                       struct error *error);
FILE *deck_file_open(const char *path, struct error *error);
bool deck_read_pairs(FILE *file, const char *name, deck_pair *pair, void *user,
                     struct error *error);

/* One `section.key=value`. */
bool options_set(const char *assignment, struct options *options, struct error *error);

/* Combinations that cannot work (knows nothing of models or files). */
bool options_check(const struct options *options, struct error *error);

/* The resolved deck: every key with its value, as a deck that reads back to the same options.
 * options_print_differences lists only what differs from the defaults. The caller frees the text.
 */
char *options_to_text(const struct options *options);
/* Each option, in the deck's order: its `section.key` and its value as text. */
typedef void option_visit(void *user, const char *name, const char *value);
void options_visit(const struct options *options, option_visit *visit, void *user);
void options_print(const struct options *options, FILE *file);

/* The value of one key as text ("train.batch" -> "64"); aborts on an unknown key. */
void options_value_text(const struct options *options, const char *key, char *text, size_t size);

/* The first key whose values differ, as "train.batch=64, but 32"; false when there is none. */
bool options_difference(const struct options *one, const struct options *other, char *text,
                        size_t size);

/* Help: all keys by section; or one section or key (false if there is none such). The manual page's
 * list of options comes from the same table, in mdoc. */
void options_help(FILE *file);
bool options_help_key(const char *key, FILE *file);
void options_manual(FILE *file);

/* Text for a line of mdoc: escaped, each sentence on a line of its own; no newline at the end. */
void options_manual_text(FILE *file, const char *text);
/* The same on one line, as the argument of a macro: no word is taken as a delimiter. */
void options_manual_words(FILE *file, const char *text);

/* The candidate nearest to `word` by edit distance, NULL when none is near. options_nearest_topic
 * looks among all keys, too. */
const char *options_nearest(const char *word, const char *const *candidates);
const char *options_nearest_topic(const char *word, const char *const *candidates);

#endif
