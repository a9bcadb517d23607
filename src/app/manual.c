/* The manual page in mdoc: the commands and options from their tables, the rest is here. */
#include "app/app.h"

#include "config/options.h"

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
    "of the working directory is read if there is one; the defaults train a small\n"
    "Vision Transformer on the sample of CIFAR-10 that comes with the program.\n";

static const char environment[] =
    ".Sh ENVIRONMENT\n"
    ".Bl -tag -width Ds\n"
    ".It Ev AWS_ACCESS_KEY_ID , AWS_SECRET_ACCESS_KEY , AWS_SESSION_TOKEN , AWS_PROFILE\n"
    "Credentials for object stores; also their files and roles, as AWS's own tools\n"
    "look for them.\n"
    ".It Ev AWS_REGION , AWS_ENDPOINT_URL_S3 , AWS_ENDPOINT_URL , AWS_CA_BUNDLE\n"
    "Where the store is.\n"
    ".It Ev https_proxy , http_proxy , no_proxy\n"
    "The way to stores and downloads.\n"
    ".It Ev OMPI_MCA_plm_rsh_agent\n"
    "By what\n"
    ".Cm launch\n"
    "tries the hosts of an mpirun line, as mpirun does; without it ssh.\n"
    ".It Ev TMPDIR\n"
    "Where\n"
    ".Cm launch\n"
    "writes the host file of fewer hosts; without it\n"
    ".Pa /tmp .\n"
    ".It Ev SLURM_JOB_ID , SLURM_ARRAY_TASK_ID\n"
    "Slurm's: the job that a run's pages name, and a sweep's place in its array.\n"
    ".It Ev VITTRAIN_CPU\n"
    "The instructions that the CPU's kernels use: baseline, avx2 or avx512.\n"
    "Without it: the best that\n"
    "the processor has.\n"
    ".It Ev VITTRAIN_CUDA_MODULE\n"
    "The module for GPUs.\n"
    "Without it:\n"
    ".Pa vittrain-cuda.so\n"
    "beside the program, or where it was installed.\n"
    ".It Ev XDG_CACHE_HOME\n"
    "Where\n"
    ".Cm cuda.cache\n"
    "remembers the fastest products; without it\n"
    ".Pa ~/.cache .\n"
    ".El\n";

static const char files[] =
    ".Sh FILES\n"
    ".Bl -tag -width Ds\n"
    ".It Pa vittrain.ini\n"
    "The deck that is read when none is named.\n"
    ".It Pa runs/NAME-DATE/\n"
    "What a run leaves:\n"
    ".Pa deck.ini\n"
    "(all options),\n"
    ".Pa train.log ,\n"
    ".Pa run.json\n"
    "(what runs, on what),\n"
    ".Pa metrics.csv ,\n"
    ".Pa epochs.csv ,\n"
    ".Pa units.csv ,\n"
    ".Pa ranks.csv ,\n"
    ".Pa monitor.csv\n"
    "(tables of the learning, of the model's units, of the ranks and of the\n"
    "sensors), events for\n"
    "TensorBoard,\n"
    ".Pa checkpoints/ ,\n"
    ".Pa weights.safetensors ,\n"
    ".Pa result.json .\n"
    ".It Pa runs/logbook/\n"
    "A page for each run, an index of them, and what searches found.\n"
    ".It Pa sweeps/NAME-DATE/\n"
    "The trials of a sweep, and the best deck.\n"
    ".It Pa data/\n"
    "What\n"
    ".Cm fetch\n"
    "has got.\n"
    ".El\n"
    ".Pp\n"
    "Decks for known recipes and scripts for Slurm are installed with the program, in\n"
    ".Pa share/vittrain .\n";

static const char examples[] =
    ".Sh EXAMPLES\n"
    "Train the CIFAR ViT for two epochs on two ranks:\n"
    ".Dl mpirun -np 2 vittrain train.epochs=2\n"
    ".Pp\n"
    "Download the whole of CIFAR-10 and train on it:\n"
    ".Dl vittrain fetch cifar10\n"
    ".Dl mpirun -np 2 vittrain data.root=data/cifar-10-batches-bin\n"
    ".Pp\n"
    "Go on with a run, for more epochs:\n"
    ".Dl mpirun -np 2 vittrain run.dir=runs/mine train.epochs=20\n"
    ".Pp\n"
    "Fine-tune on images in one folder a class:\n"
    ".Dl vittrain fetch weights resnet18\n"
    ".Dl vittrain model.name=resnet18 model.init=data/resnet18.safetensors \\e\n"
    ".Dl \\ \\ \\ \\ data.format=imagefolder data.root=photos optim.lr=1e-4\n"
    ".Pp\n"
    "Is the cluster fit for it, what will a rank take, and how fast is what?\n"
    ".Dl mpirun -np 8 -hostfile hosts vittrain doctor deck.ini\n"
    ".Dl vittrain plan deck.ini plan.ranks=64 plan.node_ranks=8\n"
    ".Dl vittrain debug.profile=on train.steps=20\n"
    ".Pp\n"
    "On a cluster, with restarts after failures:\n"
    ".Dl vittrain launch \\-\\- mpirun -np 8 -hostfile hosts vittrain deck.ini run.dir=runs/a\n"
    ".Pp\n"
    "What is the key for the learning rate, and what may it be?\n"
    ".Dl vittrain --help optim\n";

static const char diagnostics[] =
    ".Sh DIAGNOSTICS\n"
    "Lines on standard error that begin with\n"
    ".Bl -tag -width Ds\n"
    ".It Ql vittrain: error\\&:\n"
    "A mistake in options, data or files, once for all ranks:\n"
    "what, where, what to do.\n"
    ".It Ql vittrain: failure\\&:\n"
    "A rank or a node that failed or does not answer: which, on which host,\n"
    "and what it did last.\n"
    ".It Ql vittrain: launch\\&:\n"
    "From\n"
    ".Cm launch :\n"
    "a restart, and why; or why there is none.\n"
    ".It Ql warning\\&:\n"
    "The run goes on.\n"
    "With\n"
    ".Ql slow\\&:\n"
    "a rank that holds the others up, with\n"
    ".Ql doctor\\&:\n"
    "something that slows it or puts it at risk.\n"
    ".El\n"
    ".Sh SEE ALSO\n"
    ".Xr mpirun 1 ,\n"
    ".Xr srun 1\n"
    ".Pp\n"
    "The book, which begins with what its reader wants to do, is in\n"
    ".Pa docs/README.md\n"
    "of the sources.\n";

static void manual_commands(FILE *file)
{
    fprintf(file, ".Sh COMMANDS\n"
                  "Without a command it is\n.Cm train .\n"
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
                  ".It Fl -version\nThe program's version and commit.\n"
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

void app_manual(FILE *file)
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
