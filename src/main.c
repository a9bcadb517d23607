/* The program: reads the command line and runs one command. */
#include "config.h"

#include <stdio.h>

int main(void)
{
    return printf("vittrain %s\n", PACKAGE_VERSION) < 0;
}
