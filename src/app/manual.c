/* The manual page in mdoc: the commands and options from their tables, the rest is here. */
#include "app/app.h"

static const char opening[] =
    ".Dd November 21, 2026\n"
    ".Dt VITTRAIN 1\n"
    ".Os\n"
    ".Sh NAME\n"
    ".Nm vittrain\n"
    ".Nd train Vision Transformers on clusters\n"
    ".Sh SYNOPSIS\n"
    ".Nm\n"
    ".Op Ar command\n"
    ".Op Ar deck.ini ...\n"
    ".Op Ar section.key Ns = Ns Ar value ...\n"
    ".Sh DESCRIPTION\n"
    ".Nm\n"
    "trains image classifiers.\n"
    "It is started alone, or as several ranks by\n"
    ".Xr mpirun 1\n"
    "or srun; ranks share the work and change nothing of the result.\n"
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
    "A text that does not fit one line goes on with\n"
    ".Ql key += more .\n"
    "Later decks and settings win.\n"
    "Without a deck\n"
    ".Pa vittrain.ini\n"
    "of the working directory is read if there is one; the defaults train a small Vision\n"
    "Transformer on the sample of CIFAR-10 that comes with the program.\n";

static const char files[] =
    ".Sh FILES\n"
    ".Bl -tag -width Ds\n"
    ".It Pa vittrain.ini\n"
    "The deck that is read when none is named.\n"
    ".It Pa runs/NAME-DATE/\n"
    "What a run leaves: the resolved deck, train.log, metrics.csv, epochs.csv, events for\n"
    "TensorBoard, checkpoints, final weights and result.json.\n"
    ".El\n";

static const char closing[] = ".Sh EXAMPLES\n"
                              "Train the CIFAR ViT for two epochs on two ranks:\n"
                              ".Dl mpirun -np 2 vittrain train.epochs=2\n"
                              ".Pp\n"
                              "Download the whole of CIFAR-10 and train on it:\n"
                              ".Dl vittrain fetch cifar10\n"
                              ".Dl mpirun -np 2 vittrain data.root=data/cifar-10-batches-bin\n"
                              ".Pp\n"
                              "What is the key for the learning rate, and what may it be?\n"
                              ".Dl vittrain --help optim\n"
                              ".Sh SEE ALSO\n"
                              ".Xr mpirun 1\n";

static void manual_commands(FILE *file)
{
    fprintf(file, ".Sh COMMANDS\n"
                  "Without a command it is\n.Cm train .\n"
                  ".Bl -tag -width Ds\n");
    for (int i = 0; app_commands[i] != NULL; i++) {
        fprintf(file, ".It Cm %s\n", app_commands[i]->synopsis);
        options_manual_text(file, app_commands[i]->detail);
        fputc('\n', file);
    }
    fprintf(file, ".It Cm help Op Ar command | section | key\n"
                  "The same as\n.Fl -help .\n"
                  ".It Fl -version\nThe program's version and commit.\n"
                  ".It Fl -manual\nThis page.\n"
                  ".El\n");
}

static void manual_exit_codes(FILE *file)
{
    fprintf(file, ".Sh EXIT STATUS\n.Bl -tag -width Ds\n");
    for (int i = 0; app_exit_codes[i] != NULL; i++)
        fprintf(file, ".It %d\n%s\n", i, app_exit_codes[i]);
    fprintf(file, ".El\n");
}

void app_manual(FILE *file)
{
    fputs(opening, file);
    manual_commands(file);
    fprintf(file, ".Sh OPTIONS\n");
    options_manual(file);
    fputs(files, file);
    manual_exit_codes(file);
    fputs(closing, file);
}
