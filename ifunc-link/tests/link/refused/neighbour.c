//#Neighbour: parts/other_ifunc.c
// What another ifunc's file defines is taken from there, with what is wrong with it.
#include "../ifunc.h"
uint64_t shared_helper(uint64_t);
ENTRY(neighbour) { return (uint32_t)shared_helper(n); }
