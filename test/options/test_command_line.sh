#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# fast
# The program's command line as a user meets it: answers, messages and exit codes, alone and as two
# ranks.
. "$TEST_SOURCE/test/support/program.sh"

# outcome STATUS NAME: the result, explained by the files out and err.
outcome() {
    [ "$1" = 0 ] && bad= || bad="status $1"
    cat out err >both
    result "$2" "$bad" both
}

# answers NAME CODE PATTERN COMMAND...: the exit code, and a line of stdout.
answers() {
    name=$1 code=$2 pattern=$3
    shift 3
    "$@" >out 2>err </dev/null
    [ $? = "$code" ] && grep -q -- "$pattern" out && [ ! -s err ]
    outcome $? "$name"
}

# refuses NAME CODE PATTERN COMMAND...: the exit code, and one line of error on stderr (mpirun adds its own) that matches.
refuses() {
    name=$1 code=$2 named=$3
    shift 3
    "$@" >out 2>err </dev/null
    [ $? = "$code" ] && [ "$(grep -c '^vittrain: error: ' err)" = 1 ] && grep -q -- "^vittrain: error: .*$named" err
    outcome $? "$name"
}

two() { $MPIRUN -np 2 "$vittrain" "$@"; }

cat >bad.ini <<'END'
[train]
# comment
bacth = 64
END

answers "version" 0 '^vittrain [0-9]' "$vittrain" --version
answers "help lists the options" 0 '^  train.batch = 64$' "$vittrain" --help
answers "help lists the commands" 0 '^  predict ' "$vittrain" help
answers "help for a key" 0 'a whole number from 1 to' "$vittrain" --help train.batch
answers "the conditions of a key" 0 '^  applies: with augment.erase above 0$' "$vittrain" --help augment.erase_scale
grep -q '^  applies: with a model.name other than linear$' out
outcome $? "and that of its section"
printf '[output]\nupload = a:b\n' >first.ini
printf '[output]\nupload += /c\n[train]\nbatch = 8\n' >second.ini
answers "the value of a key in decks" 0 '^  set to:  a:b/c$' "$vittrain" --help output.upload first.ini second.ini train.batch=4
answers "the value of a key, emptied by the command line" 0 '^  set to:  $' "$vittrain" --help output.upload first.ini output.upload=
printf '[output]\nupload = c:d\n' >vittrain.ini
answers "the value of a key in vittrain.ini" 0 '^  set to:  c:d$' "$vittrain" --help output.upload
rm vittrain.ini
refuses "help for a key with a deck that does not exist" 2 'none.ini' "$vittrain" --help output.upload none.ini
! "$vittrain" --help bench | sed 1,2d | grep -E '.{89}'
outcome $? "the help of a command has lines of at most 88 characters"
answers "help for a section" 0 '^  optim.lr = 0.0003$' "$vittrain" help optim
answers "help for a command" 0 '^vittrain eval ' "$vittrain" eval --help
answers "one answer from two ranks" 0 '^vittrain [0-9]' two --version
[ "$(wc -l <out)" = 1 ]
outcome $? "two ranks answer once"
refuses "help for what is not there" 2 trian "$vittrain" help trian
refuses "unknown command" 2 'tarin.*train' "$vittrain" tarin
refuses "a word that is no command" 2 'model.weights: neither a command nor a deck' "$vittrain" model.weights
refuses "removed command" 2 'fetch.*tools/fetch.sh' "$vittrain" fetch cifar10
refuses "a key of another program" 2 'trainer.max_epochs.*train.epochs' "$vittrain" trainer.max_epochs=3
# Flags of other programs, and what to write instead.
while IFS='|' read -r flags advice; do
    refuses "$flags" 2 "${flags%%[ =]*}.*$advice" "$vittrain" $flags
done <<'END'
--batch|
--epochs 3|train.epochs=3
--epochs=3|train.epochs=3
--max_epochs 3 train|train.epochs=3
-b 64|train.batch=64
--batch-size|train.batch=VALUE
--lr 0.1|optim.lr=0.1
--device cuda:0|run.backend=cuda:0
--cuda|run.backend=cuda 
--resume|checkpoint.resume=auto
--resume runs/a/last.h5|checkpoint.resume=runs/a/last.h5
--config a.ini|FILE.ini
--nproc_per_node=2|mpirun
--weigth-decay 1e-4|optim.weight_decay=1e-4
--train.batch=3|train.batch=3
--verson|--version
--class-weights 1,2|train.weights=1,2
--xyzzy|section.key=value
END
answers "list of models" 0 '^vit_cifar  *2690506  3 x 32 x 32$' "$vittrain" --list-models
grep -q '^linear  *21  20 numbers$' out && grep -q '^resnet50  *25557032  3 x 224 x 224$' out
outcome $? "models are listed with parameters and input sizes"
mkdir input && cp "$TEST_SOURCE/input/vit_cifar.ini" input
for deck in vit_cifr.ini input/vit_cifr.ini; do
    refuses "misspelt deck $deck" 2 "$deck.*input/vit_cifar.ini" "$vittrain" $deck
done
refuses "two ranks complain once" 2 'rank 0 on ' two bad.ini
cp bad.ini vittrain.ini
refuses "vittrain.ini is read" 2 'vittrain.ini:3: .*train.bacth' "$vittrain"
rm vittrain.ini
