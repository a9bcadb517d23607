/* Nothing can hang on the emulated GPU but what the test itself hangs. */
#include "watch.h"

void watch_turn(void)
{
}
