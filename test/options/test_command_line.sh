#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# fast
# The program's command line as a user meets it: answers, messages and exit codes, alone and as two
# ranks.
. "$TEST_SOURCE/test/support/program.sh"

printf '[train]\n# comment\nbacth = 64\n' >bad.ini
printf '[output]\nupload = a:b\n' >first.ini
printf '[output]\nupload += /c\n[train]\nbatch = 8\n' >second.ini
mkdir input && cp "$TEST_SOURCE/input/vit_cifar.ini" input

# Commands that succeed: a line of their output, and the words. They write nothing to standard error.
while IFS='|' read -r pattern words <&3; do
    "$vittrain" $words >out 2>err </dev/null
    status=$?
    result "$words" "$(ended; has out "$pattern"; cat err)" out
done 3<<'END'
^vittrain [0-9]|--version
^  train.batch = 64$|--help
^  predict |help
a whole number from 1 to|--help train.batch
^  applies: with augment.erase above 0$|--help augment.erase_scale
^  applies: with a model.name other than linear$|--help augment.erase_scale
^  set to:  a:b/c$|--help output.upload first.ini second.ini train.batch=4
^  set to:  $|--help output.upload first.ini output.upload=
^  optim.lr = 0.0003$|help optim
^vittrain eval |eval --help
^vit_cifar  *2690506  3 x 32 x 32$|--list-models
^linear  *21  20 numbers$|--list-models
END
result 'the help of a command has lines of at most 88 characters' "$("$vittrain" --help bench | sed 1,2d | grep -E '.{89}')"
run 2 version --version
result 'two ranks answer once' "$(ended; grep -c '^vittrain [0-9]' version.log | grep -vx 1)" version.log
run 2 bad bad.ini
result 'two ranks complain once' "$(failed_otherwise 2 'rank 0 on '; grep -c '^vittrain: error: ' bad.log | grep -vx 1)" bad.log

# Errors, and what to write instead of the flags of other programs.
errors 3<<'END'
2|none.ini|--help output.upload none.ini
2|trian|help trian
2|tarin.*train|tarin
2|model.weights: neither a command nor a deck|model.weights
2|fetch.*tools/fetch.sh|fetch cifar10
2|trainer.max_epochs.*train.epochs|trainer.max_epochs=3
2|input/vit_cifar.ini|vit_cifr.ini
2|input/vit_cifar.ini|input/vit_cifr.ini
2| --batch|--batch
2| --epochs.*train.epochs=3|--epochs 3
2| --epochs.*train.epochs=3|--epochs=3
2| --max_epochs.*train.epochs=3|--max_epochs 3 train
2| -b: .*train.batch=64|-b 64
2| --batch-size.*train.batch=VALUE|--batch-size
2| --device.*run.backend=cuda:0|--device cuda:0
2| --cuda.*run.backend=cuda |--cuda
2| --resume.*checkpoint.resume=auto|--resume
2| --resume.*checkpoint.resume=runs/a/last.h5|--resume runs/a/last.h5
2| --config.*FILE.ini|--config a.ini
2| --nproc_per_node.*mpirun|--nproc_per_node=2
2| --weigth-decay.*optim.weight_decay=1e-4|--weigth-decay 1e-4
2| --verson.*--version|--verson
2| --class-weights.*train.weights=1,2|--class-weights 1,2
2| --xyzzy.*section.key=value|--xyzzy
END
printf '[output]\nupload = c:d\n' >vittrain.ini
result 'vittrain.ini is read' "$("$vittrain" --help output.upload 2>&1 | grep -c '^  set to:  c:d$' | grep -vx 1)"
