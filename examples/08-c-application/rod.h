/* What the two processes of this example and the ifunc in C share. `ifuncs/src/lib.rs` has the same struct in Rust. */
#ifndef ROD_H
#define ROD_H

#include <stdint.h>

#define CELLS 512

/* Half of a rod: the target arguments of all ifuncs. */
struct rod {
    /* Steps that this half has made. */
    uint64_t step;
    /* Temperatures, of which `cell[0]` and `cell[CELLS + 1]` are those next to this half. */
    double cell[CELLS + 2];
};

/* The same type as `cargo ifunc inspect` prints it: ifuncs in Rust that were written for another one are refused. */
#define ROD_TYPE "struct Rod{0:step:u64,8:cell:[f64;514]}[4120,8]"

/* The answer of `probe`. */
struct reading {
    uint64_t step;
    double least;
    double most;
    double mean;
};

#endif
