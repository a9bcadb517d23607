// SPDX-License-Identifier: BSD-3-Clause
/* --help (all, a command, a section or a key), --version, --list-models and --manual.
 */
#include <stdio.h>
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/option.h"
#include "config/options.h"
#include "core/launcher.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"
#include "model/model.h"

static void help_command(const struct command *command)
{
    printf("vittrain %s\n\n", command->synopsis);
    options_print_wrapped(stdout, 0, command->detail);
}

static void help_all(void)
{
    printf(
        "vittrain trains Vision Transformers and CNNs on CPUs and NVIDIA GPUs with any number of\n"
        "MPI ranks.\n\n"
        "  vittrain [COMMAND] [DECK.ini ...] [section.key=value ...]\n"
        "  mpirun -np RANKS vittrain ...\n\n"
        "Later decks and settings override earlier ones. Without a deck, vittrain.ini in the\n"
        "working directory is read if it exists. The defaults train a small ViT on a sample of\n"
        "CIFAR-10.\n\n"
        "Commands (default: train):\n");
    for (int i = 0; app_commands[i] != NULL; i++)
        printf("  %-10s %s\n", app_commands[i]->name, app_commands[i]->summary);
    printf("  %-10s %s\n", "help", "print this help, or that of a COMMAND, SECTION or KEY");
    printf("\n-v, --verbose: print all start-up lines (output.verbose=on)\n"
           "--help, --version, --list-models, --manual (the manual page, for man -l),\n"
           "Exit codes:\n");
    for (int i = 0; app_exit_codes[i] != NULL; i++)
        printf("  %2d  %s\n", i, app_exit_codes[i]);
    printf("\nOptions and their defaults. In a deck: a line [section], then lines key = value.\n"
           "On the command line: section.key=value. `vittrain --help KEY` prints the values of a "
           "key.\n");
    options_help(NULL, stdout);
}

/* Read the decks and settings of a command line that requests help for an option. */
static bool options_read(const struct command_line *line, struct options *options,
                         struct error *error)
{
    options_default(options);
    return (line->default_deck == NULL || options_read_file(line->default_deck, options, error)) &&
           options_apply(line, options, error);
}

static bool help_about(const char *word, const struct command_line *line, struct error *error)
{
    static struct options options;
    const struct command *command = app_find(word);
    if (command != NULL) {
        help_command(command);
        return true;
    }
    if (options_help(word, stdout))
        return true;
    if (option_find(word) != NULL) {
        const bool is_set = line->default_deck != NULL || line->setting_count > 0;
        return (!is_set || options_read(line, &options, error)) &&
               options_help_key(word, is_set ? &options : NULL, stdout);
    }
    const char *nearest = text_nearest(word, app_command_names());
    if (nearest == NULL)
        nearest = option_find_nearest(word);
    return error_set(error, ERROR_USAGE,
                     "%s: neither a command nor a section or key of the options%s%s%s", word,
                     nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "?" : "");
}

/* ---- the models */

/* Print "20 numbers" for a model that reads vectors, "3 x 224 x 224" for one that reads images. */
static void model_print_input(const struct model *model)
{
    if (model->image.height == 1)
        printf("%lld numbers\n", (long long)model->channels);
    else
        printf("%lld x %lld x %lld\n", (long long)model->channels, (long long)model->image.height,
               (long long)model->image.width);
}

static bool models_list(struct error *error)
{
    static struct options options;
    printf("%-30s %12s  input\n", "model.name", "parameters");
    for (const char *const *name = model_names(); *name != NULL; name++) {
        options_default(&options);
        snprintf(options.model.name, sizeof options.model.name, "%s", *name);
        struct model *model = model_open(&options, NULL, TYPE_FP32, error);
        if (model == NULL)
            return false;
        printf("%-30s %12lld  ", *name, (long long)model_parameter_count(model));
        model_print_input(model);
        model_close(model);
    }
    return true;
}

/* ---- the manual page in mdoc */

static const char opening[] =
    ".Dd November 21, 2026\n"
    ".Dt VITTRAIN 1\n"
    ".Os\n"
    ".Sh NAME\n"
    ".Nm vittrain\n"
    ".Nd train Vision Transformers and convolutional networks on clusters\n"
    ".Sh SYNOPSIS\n"
    ".Nm\n"
    ".Op Ar command\n"
    ".Op Ar deck.ini ...\n"
    ".Op Ar section.key Ns = Ns Ar value ...\n"
    ".Sh DESCRIPTION\n"
    ".Nm\n"
    "trains image classifiers.\n"
    "It runs as one process, or as several ranks started by\n"
    ".Xr mpirun 1\n"
    "or srun, which share the work and give the same result.\n"
    ".Pp\n"
    "A deck is an INI file: lines\n"
    ".Ql [section] ,\n"
    "and after each of them lines\n"
    ".Ql key = value .\n"
    "A\n"
    ".Ql #\n"
    "or\n"
    ".Ql \\&;\n"
    "at the beginning of a line or after a space begins a comment.\n"
    "A text that does not fit on one line continues with\n"
    ".Ql key += more .\n"
    "Later decks and settings override earlier ones.\n"
    "Without a deck,\n"
    ".Pa vittrain.ini\n"
    "in the working directory is read if it exists; the defaults train a small\n"
    "Vision Transformer on the sample of CIFAR-10 that is installed with the program.\n";

static const char environment[] =
    ".Sh ENVIRONMENT\n"
    ".Bl -tag -width Ds\n"
    ".It Ev RCLONE_CONFIG , RCLONE_CONFIG_PASS , RCLONE_BWLIMIT\n"
    "Read by rclone, which copies a run to\n"
    ".Cm output.upload :\n"
    "its configuration file, the password of an encrypted one, and a limit of the rate.\n"
    ".It Ev OMPI_MCA_plm_rsh_agent , PRTE_MCA_plm_ssh_agent , HYDRA_LAUNCHER_EXEC\n"
    "Remote shell with which\n"
    ".Cm launch\n"
    "and mpirun reach the hosts; default: ssh.\n"
    ".It Ev TMPDIR\n"
    "Folder in which\n"
    ".Cm launch\n"
    "writes the host file without dead hosts, and the session folder of mpirun; default:\n"
    ".Pa /tmp .\n"
    ".It Ev SLURM_JOB_ID , SLURM_ARRAY_TASK_ID\n"
    "Set by Slurm: the job in result.json.\n"
    ".It Ev VITTRAIN_CPU\n"
    "Instruction set of the CPU kernels: baseline; on x86-64 also avx2, avx512, or amx for avx512\n"
    "with AMX; on Arm also neon_bf16.\n"
    "Default: the best one that the processor supports.\n"
    "amx-emulated is for tests: the best kernels, with AMX instructions replaced by C.\n"
    ".It Ev VITTRAIN_CUDA_MODULE\n"
    "Module for GPUs.\n"
    "Default:\n"
    ".Pa vittrain-cuda.so\n"
    "next to the program, or in the installation folder.\n"
    ".It Ev XDG_CACHE_HOME\n"
    "Folder in which\n"
    ".Cm cuda.cache\n"
    "stores the fastest algorithms of matrix products and the peak rates of CPUs; default:\n"
    ".Pa ~/.cache .\n"
    ".El\n";

static const char files[] =
    ".Sh FILES\n"
    ".Bl -tag -width Ds\n"
    ".It Pa vittrain.ini\n"
    "The deck that is read if none is given.\n"
    ".It Pa runs/NAME-DATE/\n"
    "Results of a run:\n"
    ".Pa deck.ini\n"
    "(all options),\n"
    ".Pa train.log ,\n"
    ".Pa metrics.csv ,\n"
    ".Pa monitor.csv ,\n"
    ".Pa receipt.csv\n"
    "(tables of steps, epochs and evaluations, of sensors, and of hashes), events for\n"
    "TensorBoard,\n"
    ".Pa checkpoints/ ,\n"
    ".Pa best.safetensors ,\n"
    ".Pa weights.safetensors ,\n"
    ".Pa result.json\n"
    "(set-up, attempts, units, ranks and results).\n"
    ".It Pa runs/logbook/\n"
    "An index of runs, the results of searches, and the pages of\n"
    ".Cm report .\n"
    ".It Pa data/\n"
    "Downloads of\n"
    ".Pa tools/fetch.sh .\n"
    ".El\n"
    ".Pp\n"
    "Decks for known recipes, scripts for Slurm and tools are installed with the program, in\n"
    ".Pa share/vittrain .\n";

static const char examples[] =
    ".Sh EXAMPLES\n"
    "Train the CIFAR ViT for two epochs on two ranks:\n"
    ".Dl mpirun -np 2 vittrain train.epochs=2\n"
    ".Pp\n"
    "Download the whole of CIFAR-10 and train on it:\n"
    ".Dl tools/fetch.sh cifar10\n"
    ".Dl mpirun -np 2 vittrain data.root=data/cifar-10-batches-bin\n"
    ".Pp\n"
    "Resume a run, for more epochs:\n"
    ".Dl mpirun -np 2 vittrain run.dir=runs/mine train.epochs=20\n"
    ".Pp\n"
    "Fine-tune on images in one folder per class:\n"
    ".Dl tools/fetch.sh weights resnet18\n"
    ".Dl vittrain model.name=resnet18 model.init=data/resnet18.safetensors \\e\n"
    ".Dl \\ \\ \\ \\ data.format=imagefolder data.root=photos optim.lr=1e-4\n"
    ".Pp\n"
    "Check the cluster, plan memory and time, and profile a run:\n"
    ".Dl mpirun -np 8 -hostfile hosts vittrain doctor deck.ini\n"
    ".Dl vittrain plan deck.ini plan.ranks=64 plan.node_ranks=8\n"
    ".Dl vittrain debug.profile=on train.steps=20\n"
    ".Pp\n"
    "On a cluster, with restarts after failures:\n"
    ".Dl vittrain launch \\-\\- mpirun -np 8 -hostfile hosts vittrain deck.ini run.dir=runs/a\n"
    ".Pp\n"
    "Print the options of the optimizer, such as the learning rate:\n"
    ".Dl vittrain --help optim\n";

static const char diagnostics[] =
    ".Sh DIAGNOSTICS\n"
    "Lines on standard error that begin with\n"
    ".Bl -tag -width Ds\n"
    ".It Ql vittrain: error\\&:\n"
    "An error in options, data or files, printed once for all ranks:\n"
    "what failed, why, and what to do.\n"
    ".It Ql vittrain: failure\\&:\n"
    "A rank or a node failed or does not respond: its number, its host,\n"
    "and what it did last.\n"
    ".It Ql vittrain: launch\\&:\n"
    "From\n"
    ".Cm launch :\n"
    "a restart and its reason, or the reason for not restarting.\n"
    ".It Ql warning\\&:\n"
    "The run continues.\n"
    "With\n"
    ".Ql slow\\&:\n"
    "a rank that slows down the others, with\n"
    ".Ql doctor\\&:\n"
    "something that slows down the run or puts it at risk.\n"
    ".El\n"
    ".Sh SEE ALSO\n"
    ".Xr mpirun 1 ,\n"
    ".Xr srun 1\n"
    ".Pp\n"
    "The documentation starts at\n"
    ".Pa docs/README.md\n"
    "of the sources.\n";

static void manual_commands(FILE *file)
{
    fprintf(file, ".Sh COMMANDS\n"
                  "The default command is\n.Cm train .\n"
                  ".Bl -tag -width Ds\n");
    for (int i = 0; app_commands[i] != NULL; i++) {
        fprintf(file, ".It Cm ");
        options_manual_words(file, app_commands[i]->synopsis);
        fputc('\n', file);
        options_manual_text(file, app_commands[i]->detail);
        fputc('\n', file);
    }
    fprintf(file, ".It Cm help Op Ar command | section | key\n"
                  "The same as\n.Fl -help .\n"
                  ".It Fl v , -verbose\nThe same as\n.Cm output.verbose=on .\n"
                  ".It Fl -version\nThe program's version and commit.\n"
                  ".It Fl -list-models\nThe models with their parameters and input size.\n"
                  ".It Fl -manual\nThis page.\n"
                  ".El\n");
}

static void manual_exit_codes(FILE *file)
{
    fprintf(file, ".Sh EXIT STATUS\n.Bl -tag -width Ds\n");
    for (int i = 0; app_exit_codes[i] != NULL; i++) {
        fprintf(file, ".It %d\n", i);
        options_manual_text(file, app_exit_codes[i]);
        fputc('\n', file);
    }
    fprintf(file, ".El\n");
}

static void manual_print(FILE *file)
{
    fputs(opening, file);
    manual_commands(file);
    fprintf(file, ".Sh OPTIONS\n");
    options_manual(file);
    fputs(environment, file);
    fputs(files, file);
    manual_exit_codes(file);
    fputs(examples, file);
    fputs(diagnostics, file);
}

/* ---- answers */

static bool answer_print(const struct command_line *line, struct error *error)
{
    if (line->version)
        printf("vittrain %s%s%s%s\n", version_number, version_commit[0] != '\0' ? " (commit " : "",
               version_commit, version_commit[0] != '\0' ? ")" : "");
    else if (line->manual)
        manual_print(stdout);
    else if (line->list_models)
        return models_list(error);
    else if (line->command != NULL || line->operand_count > 0)
        return help_about(line->command != NULL ? line->command : line->operand[0], line, error);
    else
        help_all();
    return true;
}

int app_inform(const struct command_line *line)
{
    struct error error = {0};
    if (launcher_rank() > 0)
        return ERROR_NONE;
    if (!answer_print(line, &error) || !app_output_arrived(&error))
        log_error(&error);
    return (int)error.kind;
}
